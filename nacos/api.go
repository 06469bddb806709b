package nacos

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// ErrDenied is a login or a token that the server refused.
var ErrDenied = errors.New("denied by nacos")

// maxAnswer bounds what is read from the server.
const maxAnswer = 2 * rules.MaxDocument

// api speaks the server's HTTP interface: few calls, each with a deadline, the servers tried
// in turn beginning with the one that answered last. It is safe for concurrent use.
type api struct {
	cfg     Config
	servers []server
	client  *http.Client

	mu    sync.Mutex
	first int    // guarded by mu; index of the server that answered last
	token string // guarded by mu
}

func newAPI(cfg Config, servers []server, t *tls.Config) *api {
	return &api{cfg: cfg, servers: servers, client: &http.Client{
		Timeout:   cfg.Timeout,
		Transport: &http.Transport{TLSClientConfig: t, DialContext: (&net.Dialer{Timeout: cfg.Timeout}).DialContext, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

func (a *api) close() { a.client.CloseIdleConnections() }

// key are the parameters that name our document. tenant is left out for public: the server
// keeps "" and "public" apart in places.
func (a *api) key() url.Values {
	v := url.Values{"dataId": {a.cfg.DataID}, "group": {a.cfg.Group}}
	if a.cfg.Namespace != "" {
		v.Set("tenant", a.cfg.Namespace)
	}
	return v
}

// read returns the document; admission.ErrNotFound when there is none.
func (a *api) read(ctx context.Context) ([]byte, error) {
	body, status, err := a.call(ctx, http.MethodGet, "/nacos/v1/cs/configs", a.key(), "")
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("nacos has no %s: %w", a.where(), admission.ErrNotFound)
	case status != http.StatusOK:
		return nil, unexpected(status, body)
	}
	return body, nil
}

// publish writes next if the document is the one with that md5. The server answers false, or
// an error that names the md5, when it is another.
func (a *api) publish(ctx context.Context, next []byte, casMD5 string) error {
	form := a.key()
	form.Set("content", string(next))
	form.Set("type", "json")
	if by := a.author(); by != "" {
		form.Set("src_user", by) // for the server's history, which else knows nobody without a login
	}
	body, status, err := a.call(ctx, http.MethodPost, "/nacos/v1/cs/configs", form, casMD5)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK && strings.TrimSpace(string(body)) == "true":
		return nil
	case status == http.StatusOK || bytes.Contains(bytes.ToLower(body), []byte("cas")):
		return fmt.Errorf("nacos: %s: %w", strings.TrimSpace(string(body)), admission.ErrConflict)
	}
	return unexpected(status, body)
}

// author is who publishes: the login, else the user of this machine.
func (a *api) author() string {
	if a.cfg.Username != "" {
		return a.cfg.Username
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// call tries the servers in turn. A 403 logs in and asks once more.
func (a *api) call(ctx context.Context, method, path string, params url.Values, casMD5 string) ([]byte, int, error) {
	a.mu.Lock()
	first := a.first
	a.mu.Unlock()
	var errs []error
	for i := range a.servers {
		n := (first + i) % len(a.servers)
		body, status, err := a.callOne(ctx, a.servers[n], method, path, params, casMD5)
		if err == nil {
			a.mu.Lock()
			a.first = n
			a.mu.Unlock()
			return body, status, nil
		}
		errs = append(errs, err)
		if errors.Is(err, ErrDenied) || ctx.Err() != nil {
			break
		}
	}
	return nil, 0, errors.Join(errs...)
}

func (a *api) callOne(ctx context.Context, s server, method, path string, params url.Values, casMD5 string) ([]byte, int, error) {
	token := a.currentToken()
	if token == "" && a.cfg.Username != "" {
		var err error
		if token, err = a.login(ctx, s); err != nil {
			return nil, 0, err
		}
	}
	body, status, err := a.send(ctx, s, method, path, params, token, casMD5)
	if err != nil || status != http.StatusForbidden && status != http.StatusUnauthorized {
		return body, status, err
	}
	if a.cfg.Username == "" {
		return nil, 0, fmt.Errorf("nacos %s wants a login and nacos.username is empty: %w", s.http(), ErrDenied)
	}
	// The token expired, or the server's secret was rotated.
	if token, err = a.login(ctx, s); err != nil {
		return nil, 0, err
	}
	body, status, err = a.send(ctx, s, method, path, params, token, casMD5)
	if err == nil && (status == http.StatusForbidden || status == http.StatusUnauthorized) {
		return nil, 0, fmt.Errorf("nacos %s lets user %q in but not to %s: %w", s.http(), a.cfg.Username, a.where(), ErrDenied)
	}
	return body, status, err
}

func (a *api) currentToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

func (a *api) login(ctx context.Context, s server) (string, error) {
	form := url.Values{"username": {a.cfg.Username}, "password": {a.cfg.Password}}
	body, status, err := a.send(ctx, s, http.MethodPost, "/nacos/v1/auth/login", form, "", "")
	if err != nil {
		return "", err
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.AccessToken == "" {
		if status >= 500 {
			return "", unexpected(status, body)
		}
		return "", fmt.Errorf("nacos %s does not log in user %q (HTTP %d): %w", s.http(), a.cfg.Username, status, ErrDenied)
	}
	a.mu.Lock()
	a.token = answer.AccessToken
	a.mu.Unlock()
	return answer.AccessToken, nil
}

func (a *api) send(ctx context.Context, s server, method, path string, params url.Values, token, casMD5 string) ([]byte, int, error) {
	target := s.scheme + "://" + s.http() + path
	query, form := url.Values{}, params
	if method == http.MethodGet {
		query, form = params, nil
	}
	var content io.Reader
	if form != nil {
		content = strings.NewReader(form.Encode())
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, 0, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=utf-8")
	}
	if token != "" {
		req.Header.Set("accessToken", token)
	}
	if casMD5 != "" {
		req.Header.Set("casMd5", casMD5)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("nacos %s: %w: %w", s.http(), admission.ErrUnavailable, bare(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errors.New("the answer is too long")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("nacos %s: %w: %w", s.http(), admission.ErrUnavailable, err)
	}
	return body, resp.StatusCode, nil
}

// bare drops the URL from a client's error: the query is long and says nothing new.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func unexpected(status int, body []byte) error {
	if len(body) > 200 {
		body = body[:200]
	}
	return fmt.Errorf("nacos answered HTTP %d %q: %w", status, body, admission.ErrUnavailable)
}

func (a *api) where() string {
	ns := a.cfg.Namespace
	if ns == "" {
		ns = "public"
	}
	return ns + "/" + a.cfg.Group + "/" + a.cfg.DataID
}

func md5Of(doc []byte) string {
	sum := md5.Sum(doc) // the server's own compare-and-set is by md5
	return hex.EncodeToString(sum[:])
}
