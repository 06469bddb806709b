package nacos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
)

// TestMain leaves out one kind of goroutine, which the SDK starts to wake a client whose loop
// may have ended: it then sends on a channel that nobody reads, once per closed client.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nacos-group/nacos-sdk-go/v2/clients/config_client.(*ConfigClient).asyncNotifyListenConfig.func1"))
}

func TestNacosSource(t *testing.T) {
	servers.Need(t, servers.Nacos())
	conformance.Sources(t, func(t *testing.T) conformance.SourceBackend { return backend(t, "") })
}

// A push is live within a second after the publish returns, in 99 of 100. Other packages'
// tests share the machine and may spoil a round; a fault of ours spoils them all.
func TestPushToEffect(t *testing.T) {
	servers.Need(t, servers.Nacos())
	const rounds, pushes = 3, 40
	var p99 time.Duration
	for range rounds {
		took := conformance.PushToEffect(t, backend(t, ""), pushes)
		p99 = took[len(took)*99/100]
		t.Logf("%d pushes: min %v median %v P99 %v", len(took), took[0], took[len(took)/2], p99)
		if p99 <= time.Second {
			return
		}
	}
	t.Errorf("P99 is %v, the bar is 1 s", p99)
}

// N03: a document that was there before the start needs no callback, and of two sources on
// one key both see a publish.
func TestN03WarmBootAndTwoListeners(t *testing.T) {
	servers.Need(t, servers.Nacos())
	key := dataID()
	publish(t, key, []byte("warm"))
	seen := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 2 {
		src := open(t, nacos.Config{DataID: key})
		wg.Go(func() {
			if err := src.Run(ctx, func(u rules.Update) { seen <- fmt.Sprint(i, " ", string(u.Raw)) }); err != nil {
				t.Error(err)
			}
		})
	}
	await := func(doc string) {
		t.Helper()
		want := map[string]bool{"0 " + doc: true, "1 " + doc: true}
		for deadline := time.After(time.Minute); len(want) > 0; {
			select {
			case got := <-seen:
				delete(want, got)
			case <-deadline:
				t.Fatalf("not seen: %v", want)
			}
		}
	}
	await("warm")
	publish(t, key, []byte("published"))
	await("published")
	cancel()
	wg.Wait()
}

// N05: namespace "public" is the namespace without a name, a blocked gRPC port and a wrong
// user fail in seconds and are named.
func TestN05NamespacePublic(t *testing.T) {
	servers.Need(t, servers.Nacos())
	key := dataID()
	publish(t, key, []byte(`{"x":1}`))
	for _, ns := range []string{"", "public"} {
		src := open(t, nacos.Config{DataID: key, Namespace: ns})
		got, err := src.Read(t.Context())
		for range 400 { // a read just after a publish may find nothing yet
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
			got, err = src.Read(t.Context())
		}
		if err != nil || string(got) != `{"x":1}` {
			t.Errorf("namespace %q: %s, %v", ns, got, err)
		}
	}
}

func TestN05PortBlockedIsNamed(t *testing.T) {
	address := serveWithoutPush(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	s, err := nacos.New(nacos.Config{Servers: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = within(t, 5*time.Second, s.Check)
	if err == nil || !strings.Contains(err.Error(), plus1000(address)) {
		t.Errorf("got %v, want the gRPC address %s in it", err, plus1000(address))
	}
}

func TestServerAwayIsNamed(t *testing.T) {
	s, err := nacos.New(nacos.Config{Servers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = within(t, 5*time.Second, s.Check)
	if !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

// authServer is the part of a server with authentication that the source meets.
type authServer struct {
	token  string
	logins int
}

func (a *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/nacos/v1/auth/login" && r.FormValue("password") == "right":
		a.logins++
		fmt.Fprintf(w, `{"accessToken":%q,"tokenTtl":18000}`, a.token)
	case r.URL.Path == "/nacos/v1/auth/login":
		http.Error(w, "unknown user!", http.StatusForbidden)
	case r.Header.Get("accessToken") != a.token:
		http.Error(w, "token invalid!", http.StatusForbidden)
	default:
		fmt.Fprint(w, `{"schema":1}`)
	}
}

func TestN05WrongUserIsNamedAndAForgottenTokenLogsInAgain(t *testing.T) {
	auth := &authServer{token: "one"}
	address := serveWithoutPush(t, auth)
	open := func(password string) *nacos.Source {
		s, err := nacos.New(nacos.Config{Servers: []string{address}, Username: "alice", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	err := within(t, 5*time.Second, open("wrong").Check)
	if !errors.Is(err, nacos.ErrDenied) || !strings.Contains(err.Error(), `"alice"`) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("got %v; want the user named, and no password", err)
	}
	s := open("right")
	if _, err := s.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	auth.token = "two" // the secret was rotated
	if _, err := s.Read(t.Context()); err != nil || auth.logins != 2 {
		t.Errorf("after the rotation: %v, %d logins", err, auth.logins)
	}
}

func TestWrongFilesAndAddressesAreErrors(t *testing.T) {
	for _, c := range []nacos.Config{
		{}, {Servers: []string{"nowhere"}}, {Servers: []string{"ftp://a:1"}}, {Servers: []string{"a:0"}}, {Servers: []string{"a:65000"}},
		{Servers: []string{"https://a:443"}, CAFile: filepath.Join(t.TempDir(), "none.pem")},
		{Servers: []string{"https://a:443"}, CAFile: "source_test.go"},
		{Servers: []string{"https://a:443"}, CertFile: "source_test.go", KeyFile: "source_test.go"},
	} {
		if _, err := nacos.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// within is what f returns; of three tries one must be so quick, for others may hold the
// machine up.
func within(t *testing.T, d time.Duration, f func(context.Context) error) error {
	t.Helper()
	fastest := time.Hour
	for range 3 {
		start := time.Now()
		err := f(t.Context())
		if fastest = min(fastest, time.Since(start)); fastest <= d {
			return err
		}
	}
	t.Errorf("took %v, more than %v", fastest, d)
	return nil
}

// serveWithoutPush serves HTTP with nobody at the gRPC port 1000 above, and returns its address.
func serveWithoutPush(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", servers.ReserveWith(t, 1000).String())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return l.Addr().String()
}

func plus1000(address string) string {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return net.JoinHostPort(host, fmt.Sprint(n+1000))
}

func dataID() string { return fmt.Sprintf("sluice.test.%d.%d", os.Getpid(), rand.Uint64()) }

func open(t *testing.T, cfg nacos.Config) *nacos.Source {
	t.Helper()
	cfg.Servers = []string{servers.Nacos()}
	s, err := nacos.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// backend is a source on a key of its own, edited by plain HTTP as an operator's console does.
func backend(t *testing.T, key string) conformance.SourceBackend {
	if key == "" {
		key = dataID()
	}
	t.Cleanup(func() { request(t, http.MethodDelete, url.Values{"dataId": {key}, "group": {"DEFAULT_GROUP"}}) })
	return conformance.SourceBackend{
		Source: open(t, nacos.Config{DataID: key}),
		Write:  func(t *testing.T, doc []byte) { publish(t, key, doc) },
		Remove: func(t *testing.T) {
			request(t, http.MethodDelete, url.Values{"dataId": {key}, "group": {"DEFAULT_GROUP"}})
		},
	}
}

func publish(t *testing.T, key string, doc []byte) {
	request(t, http.MethodPost, url.Values{"dataId": {key}, "group": {"DEFAULT_GROUP"}, "content": {string(doc)}})
}

func request(t *testing.T, method string, params url.Values) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+servers.Nacos()+"/nacos/v1/cs/configs?"+params.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: HTTP %d", method, resp.StatusCode)
	}
}
