package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/keys"
)

// TestAllWrongKeyFilesAreNamedAtOnce: one bad file does not hide another.
func TestAllWrongKeyFilesAreNamedAtOnce(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	args := []string{"serve", "--data.dir=" + t.TempDir(), "--listen.public=127.0.0.1:0", "--listen.internal=127.0.0.1:0", "--listen.admin=127.0.0.1:0"}
	settings := []string{"ticket.keys", "session.keys", "nonce.key", "draw.key", "payment.key", "admin.tokens"}
	for _, name := range settings {
		args = append(args, "--"+name+"="+none)
	}
	out, errOut, code := command(t, args...)
	if code != exit.Usage || out != "" {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, name := range settings {
		if strings.Count(errOut, name+": ") != 1 {
			t.Errorf("%s is not named once in\n%s", name, errOut)
		}
	}
}

// TestAStartNamesWhatIsWrong: whatever keeps a service from starting is told with its
// setting, the address or file, what is wrong with it and what becomes of the process, and
// without a secret; standard output stays empty.
func TestAStartNamesWhatIsWrong(t *testing.T) {
	store, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	dir, dead := t.TempDir(), nobody(t)
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := filepath.Join(dir, "key.json")
	if _, err := keys.LoadOrCreate(key, func() (keys.Key, error) { return keys.NewOct("k") }); err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{
		"limiter.redis": store.URL(), "stock.redis": store.URL(), "queue": "rocketmq", "rocketmq.name_servers": dead,
		"orders": "postgres://sluice:SECRET@" + dead + "/sluice", "rules.source": "nacos", "nacos.servers": dead, "nacos.password": "SECRET",
		"ticket.keys": key, "nonce.key": key, "draw.key": key, "session.keys": key, "payment.key": key,
		"admin.tokens":  file("tokens", "operator sha256:"+strings.Repeat("0", 64)+"\n"),
		"listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0",
	}
	for _, c := range []struct {
		setting, value string
		code           int
		says           []string
	}{
		{"limiter.redis", "redis://user:SECRET@" + dead, exit.Away, []string{"limiter.redis: ", dead, "refused", "exit code 3"}},
		{"stock.redis", "redis+cluster://:SECRET@" + dead, exit.Away, []string{"stock.redis: ", dead, "refused", "exit code 3"}},
		{"stock.redis", "redis://:SECRET@no-such-host.invalid:6379", exit.Away, []string{"stock.redis: ", "no-such-host.invalid", "exit code 3"}},
		{"orders", whole["orders"], exit.Away, []string{"orders: ", dead, "refused", "exit code 3"}},
		{"ticket.keys", filepath.Join(dir, "none.json"), exit.Usage, []string{"ticket.keys: ", "none.json", "no such file"}},
		{"session.keys", file("broken.json", `{"keys":[{"kty":"oct","kid":"a","k":"SECRET"}]}`), exit.Usage, []string{"session.keys: ", "broken.json", "alg"}},
		{"admin.tokens", file("plain", "operator SECRET\n"), exit.Usage, []string{"admin.tokens: ", "plain", "line 1"}},
		{"data.dir", filepath.Join(key, "below-a-file"), exit.Usage, []string{"data.dir: ", "below-a-file", "--data.dir"}},
		{"data.dir", "/proc/sluice", exit.Usage, []string{"data.dir: ", "/proc/sluice", "--data.dir"}},
		{"listen.admin", dead[:strings.LastIndexByte(dead, ':')] + ":99999", exit.Usage, []string{"listen.admin: ", "99999"}},
		{"queue", "embedded", exit.Usage, []string{"queue: must be given too"}},
		{"orders", "postgres://u:SECRET@h:port/db", exit.Usage, []string{"orders: "}},
	} {
		args := []string{"serve"}
		given := maps.Clone(whole)
		given["data.dir"] = filepath.Join(t.TempDir(), "data")
		given[c.setting] = c.value
		for name, value := range given {
			args = append(args, "--"+name+"="+value)
		}
		out, errOut, code := command(t, args...)
		if code != c.code || out != "" || strings.Contains(errOut, "SECRET") {
			t.Errorf("%s %s: exit code %d, want %d\n%s%s", c.setting, c.value, code, c.code, out, errOut)
		}
		for _, want := range c.says {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s %s: no %q in\n%s", c.setting, c.value, want, errOut)
			}
		}
	}
}
