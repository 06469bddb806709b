package main

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/rules"
)

// refused runs `sluice serve` that must end by itself, with that code and words on standard
// error, and nothing on standard output.
func refused(t *testing.T, env []string, code int, words ...string) {
	t.Helper()
	cmd := exec.Command(program(t), "serve")
	cmd.Dir, cmd.Env = t.TempDir(), env
	began := time.Now()
	got, out, err := finish(cmd, 2*patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("exit %d after %v", got, time.Since(began).Round(time.Millisecond))
	if got != code {
		t.Errorf("exit %d, want %d\n%s", got, code, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("no %q in\n%s", word, out)
		}
	}
	if strings.Contains(out, "secret-word") {
		t.Errorf("a secret is told:\n%s", out)
	}
	if strings.Contains(out, `"event":"ready"`) {
		t.Errorf("it was ready:\n%s", out)
	}
}

// but is the fleet's environment with other settings; "" takes one out.
func (f *fleet) but(changes map[string]string) []string {
	settings := maps.Clone(f.settings)
	settings["data.dir"] = filepath.Join(f.t.TempDir(), "data")
	for name, value := range changes {
		if settings[name] = value; value == "" {
			delete(settings, name)
		}
	}
	return environment(settings)
}

// nobody is an address at which nobody listens, unless he is told to.
func nobody(t *testing.T) string {
	t.Helper()
	return servers.Reserve(t).String()
}

// silent is an address that accepts and never answers: a server that hangs.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the kernel accepts for it
	return l.Addr().String()
}

// TestHalfAProductionConfigurationIsRefused: some production settings without the others
// would be a service that forgets, so the others are named, all at once.
func TestHalfAProductionConfigurationIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary: left out by -short")
	}
	t.Parallel()
	refused(t, environment(map[string]string{"stock.redis": "redis://127.0.0.1:6379", "orders": "postgres://u@127.0.0.1/d"}), 2,
		"limiter.redis: must be given too", "queue: must be given too", "rules.source: must be given too",
		"ticket.keys: is required", "nonce.key: is required", "draw.key: is required", "session.keys: is required",
		"payment.key: is required", "admin.tokens: is required")
}

// TestADependencyAwayAtBootIsNamed: exit 3 within seconds, with the setting and the address.
func TestADependencyAwayAtBootIsNamed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dead := nobody(t)
	for _, c := range []struct{ name, setting, value, word string }{
		{"limiter gone", "limiter.redis", "redis://" + dead, "limiter.redis: "},
		{"stock gone", "stock.redis", "redis://" + dead, "stock.redis: "},
		{"orders gone", "orders", "postgres://sluice:secret-word@" + dead + "/sluice", "orders: "},
		{"rules gone", "nacos.servers", dead, "nacos.servers: "},
		{"limiter silent", "limiter.redis", "redis://" + silent(t), "limiter.redis: "},
		{"orders silent", "orders", "postgres://sluice:secret-word@" + silent(t) + "/sluice", "orders: "},
		{"rules silent", "nacos.servers", silent(t), "nacos.servers: "},
		{"no such database", "orders", strings.Replace(f.settings["orders"], "/sluice_fleet_", "/no_such_", 1), "orders: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const within, rounds = 15 * time.Second, 3 // others may hold the machine up once or twice
			for round := 1; ; round++ {
				began := time.Now()
				refused(t, f.but(map[string]string{c.setting: c.value}), 3, c.word)
				took := time.Since(began)
				if took <= within {
					return
				}
				if round == rounds {
					t.Fatalf("it took %v to say so, and was not faster in %d tries", took, rounds)
				}
			}
		})
	}
}

// TestNacosCheckAtBoot: what the client of Nacos never says by itself ends the start, except
// a server that is away while the rules of the last run are young.
func TestNacosCheckAtBoot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)

	t.Run("a user who is refused", func(t *testing.T) {
		denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
		defer denies.Close()
		refused(t, f.but(map[string]string{"nacos.servers": strings.TrimPrefix(denies.URL, "http://"), "nacos.username": "somebody", "nacos.password": "secret-word"}), 3,
			"nacos.username: ", "somebody", strings.TrimPrefix(denies.URL, "http://"))
	})
	t.Run("the port of the pushes is closed", func(t *testing.T) {
		empty := httptest.NewUnstartedServer(http.NotFoundHandler())       // no document
		l, err := net.Listen("tcp", servers.ReserveWith(t, 1000).String()) // and nobody 1000 above
		if err != nil {
			t.Fatal(err)
		}
		_ = empty.Listener.Close()
		empty.Listener = l
		empty.Start()
		defer empty.Close()
		refused(t, f.but(map[string]string{"nacos.servers": l.Addr().String()}), 3, "nacos.servers: ", "gRPC")
	})
	t.Run("away with good rules of the last run", func(t *testing.T) {
		first := f.start("a", nil)
		eventually(t, 20*time.Second, "the rules in force on disk", func() bool { // saved once they are in force
			_, err := os.Stat(filepath.Join(f.dir, "a", "rules.last-good.json"))
			return err == nil
		})
		first.kill()
		second := f.start("a", map[string]string{"nacos.servers": nobody(t)})
		var status rules.Status
		f.admin(second, "/admin/v1/rules", &status)
		if status.Version != 1 || status.Source != "last-good" {
			t.Errorf("in force: %+v, want version 1 from the last good file", status)
		}
	})
	t.Run("away with rules that were touched", func(t *testing.T) {
		path := filepath.Join(f.dir, "a", "rules.last-good.json")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		touched := strings.Replace(string(text), "shipped defaults", "shipped by nobody", 1)
		if err := os.WriteFile(filepath.Join(data, filepath.Base(path)), []byte(touched), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, f.but(map[string]string{"nacos.servers": nobody(t), "data.dir": data}), 3, "nacos.servers: ")
	})
}

// TestAWrongKeyFileIsRefused: exit 2 with the setting, and no secret in the words.
func TestAWrongKeyFileIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, c := range []struct{ setting, file, content string }{
		{"ticket.keys", "no json", "secret-word"},
		{"session.keys", "no alg", `{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0LXdvcmQtc2VjcmV0LXdvcmQtc2VjcmV0LXdvcmQ"}]}`},
		{"nonce.key", "too short", `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"c2VjcmV0"}]}`},
		{"draw.key", "none", `{"keys":[]}`},
		{"payment.key", "not symmetric", `{"keys":[{"kty":"OKP","kid":"a","alg":"EdDSA","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`},
		{"admin.tokens", "plain", "operator secret-word\n"},
	} {
		t.Run(c.setting+" "+c.file, func(t *testing.T) {
			refused(t, f.but(map[string]string{c.setting: f.file(strings.ReplaceAll(c.file, " ", "_"), c.content)}), 2, c.setting+": ")
		})
	}
	t.Run("missing", func(t *testing.T) {
		refused(t, f.but(map[string]string{"ticket.keys": filepath.Join(f.dir, "nowhere.json")}), 2, "ticket.keys: ", "nowhere.json")
	})
}

// TestTwoProcessesDoNotShare: a data directory and an address belong to one process.
func TestTwoProcessesDoNotShare(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.start("a", nil)
	refused(t, f.but(map[string]string{"data.dir": first.dir}), 2, "data.dir: ", first.dir, "--data.dir")
	for _, c := range []struct{ setting, taken string }{
		{"listen.public", first.ready.Public}, {"listen.internal", first.ready.Internal}, {"listen.admin", first.ready.Admin},
	} {
		refused(t, f.but(map[string]string{c.setting: c.taken}), 2, c.setting+": ", c.taken, "address already in use")
	}
	first.isReady()
}

// TestBrokerAwayAtBoot: order messages are the one dependency that a start does not need;
// readiness names it, and comes when it is there.
func TestBrokerAwayAtBoot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	internal := nobody(t)
	i := f.launch("a", map[string]string{"rocketmq.name_servers": nobody(t), "listen.internal": internal})
	eventually(t, patience, "unready because of the queue alone", func() bool {
		status, body := i.get(internal, "/readyz", "")
		return status == http.StatusServiceUnavailable && strings.Contains(string(body), `"reasons":["queue: `)
	})
	if !i.alive() {
		t.Error("it ended")
	}
}
