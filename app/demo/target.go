package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/session"
)

// Target is the instances of a sale and the rights to use them.
type Target struct {
	Public   []string // base URLs
	Admin    string   // base URL
	Token    string   // of an operator
	Internal string   // base URL of /metrics; "" when unknown
	// Sign makes a session for a user; nil: the development sign-in is asked.
	Sign func(userID string, now time.Time) (string, error)
}

// Flags are what the command line says about the target; the environment and the data directory say the rest.
type Flags struct {
	Targets     string // comma-separated
	Admin       string
	TokenFile   string
	SessionKeys string
	DataDir     string
}

// Names in the data directory of an embedded service.
const (
	readyFile       = "ready.json"
	tokenFile       = "admin.token"
	sessionKeysFile = "session.keys.json"
)

// readyLine is what a running service wrote about itself.
type readyLine struct {
	Public   string `json:"public"`
	Internal string `json:"internal"`
	Admin    string `json:"admin"`
}

// Find resolves the target: flags, then environment, then the data directory of a running service.
func Find(f Flags, getenv func(string) string) (Target, error) {
	if f.DataDir == "" {
		f.DataDir = orElse(getenv("SLUICE_DATA_DIR"), ".sluice")
	}
	var t Target
	var ready readyLine
	path := filepath.Join(f.DataDir, readyFile)
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &ready); err != nil {
			return t, exit.Code(exit.Usage, fmt.Errorf("%s: %w", path, err))
		}
	case f.Targets == "" || !errors.Is(err, fs.ErrNotExist) && f.Admin == "":
		return t, cli.NotFound(path, err)
	}
	for url := range strings.SplitSeq(orElse(f.Targets, ready.Public), ",") {
		if url = strings.TrimSpace(url); url != "" {
			t.Public = append(t.Public, baseURL(url))
		}
	}
	if admin := orElse(f.Admin, ready.Admin); admin != "" {
		t.Admin = baseURL(admin)
	} else {
		return t, exit.Code(exit.Usage, errors.New("--admin: the address of the admin listener is needed: the demonstration publishes an activity of its own"))
	}
	if f.Targets == "" && ready.Internal != "" {
		t.Internal = baseURL(ready.Internal)
	}
	token := orElse(f.TokenFile, getenv("SLUICE_ADMIN_TOKEN_FILE"))
	if token == "" {
		token = filepath.Join(f.DataDir, tokenFile)
	}
	raw, err = os.ReadFile(token)
	if err != nil {
		return t, exit.Code(exit.Usage, fmt.Errorf("admin token: %w; give --admin-token-file or SLUICE_ADMIN_TOKEN_FILE", err))
	}
	t.Token = strings.TrimSpace(string(raw))
	t.Sign, err = signer(f, getenv)
	return t, err
}

// signer mints sessions with the key set that was given, or with that of the embedded service when it can be
// read. Without either there is none.
func signer(f Flags, getenv func(string) string) (func(string, time.Time) (string, error), error) {
	path, given := orElse(f.SessionKeys, getenv("SLUICE_SESSION_KEYS")), true
	if path == "" {
		path, given = filepath.Join(f.DataDir, sessionKeysFile), false
	}
	set, err := keys.Load(path)
	if err != nil {
		if given {
			return nil, exit.Code(exit.Usage, fmt.Errorf("session keys: %w", err))
		}
		return nil, nil
	}
	key := set.First()
	claims := session.MintClaims{Issuer: getenv("SLUICE_SESSION_ISSUER"), Audience: getenv("SLUICE_SESSION_AUDIENCE")}
	sign := func(userID string, now time.Time) (string, error) {
		c := claims
		c.UserID = userID
		return session.Mint(key, c, 2*time.Hour, now.Add(-5*time.Second)) // nbf: a server's clock may be behind
	}
	if _, err := sign("1", time.Now()); err != nil {
		return nil, exit.Code(exit.Usage, fmt.Errorf("session keys %s: %w", path, err))
	}
	return sign, nil
}

func baseURL(address string) string {
	if strings.Contains(address, "://") {
		return strings.TrimRight(address, "/")
	}
	return "http://" + address
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// admin calls the admin listener.
type admin struct {
	base, token string
	http        *http.Client
}

const maxAdminBody = 1 << 20

func (a admin) call(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := a.http.Do(req)
	if err != nil {
		return exit.Code(exit.Away, fmt.Errorf("admin listener: %w", err))
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAdminBody))
	if err != nil {
		return exit.Code(exit.Away, fmt.Errorf("admin listener: %w", err))
	}
	if res.StatusCode == http.StatusUnauthorized {
		return exit.Code(exit.Usage, fmt.Errorf("the admin token is refused by %s; give the right --admin-token-file", a.base))
	}
	if res.StatusCode != http.StatusOK {
		code := exit.No
		if res.StatusCode >= 500 {
			code = exit.Away
		}
		return exit.Code(code, fmt.Errorf("admin listener: %s %s: HTTP %d %.500s", method, path, res.StatusCode, raw))
	}
	return json.Unmarshal(raw, into)
}

// offer is what a sale of the demonstration is published from.
type offer struct {
	activityID, skuID string
	stock             int64
	opensAt, closesAt time.Time
	drawCloses        time.Duration // before the opening
}

func (a admin) publish(ctx context.Context, o offer) error {
	const form = "2006-01-02T15:04:05.000Z"
	doc, err := json.Marshal(map[string]any{
		"activity_id": o.activityID, "activity_version": 1, "name": "Demonstration " + o.activityID,
		"opens_at": o.opensAt.UTC().Format(form), "closes_at": o.closesAt.UTC().Format(form),
		"skus": []any{map[string]any{
			"sku_id": o.skuID, "name": "Demonstration unit", "stock": o.stock, "limit_per_user": 1,
			"price": map[string]string{"amount": "9.90", "currency": "CNY"},
		}},
		"fairness":     map[string]any{"mode": "random", "draw_closes_before": o.drawCloses.String()},
		"max_attempts": 1, "pay_within": "15m",
	})
	if err != nil {
		return err
	}
	var published struct{}
	return a.call(ctx, http.MethodPost, "/admin/v1/activities", doc, &published)
}

// Tally is the counts of one SKU by reservation, in the stock store and in SQL.
type Tally struct {
	Stock     admission.StockTally `json:"stock"`
	Orders    admission.OrderTally `json:"orders"`
	Conserved bool                 `json:"conserved"`
}

func (a admin) tally(ctx context.Context, o offer) (Tally, error) {
	var t Tally
	err := a.call(ctx, http.MethodGet, "/admin/v1/activities/"+o.activityID+"/skus/"+o.skuID+"/tally", nil, &t)
	return t, err
}

// counters are sums of the instance's counters over all labels, by metric name.
type counters map[string]float64

// scrape reads /metrics. Only the names that are asked for are kept.
func scrape(ctx context.Context, client *http.Client, base string, names ...string) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	return parseCounters(string(raw), names...), nil
}

func parseCounters(text string, names ...string) counters {
	out := counters{}
	for line := range strings.Lines(text) {
		for _, name := range names {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
				continue
			}
			if at := strings.LastIndexByte(rest, '}'); at >= 0 {
				rest = rest[at+1:]
			}
			if v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
				out[name] += v
			}
		}
	}
	return out
}
