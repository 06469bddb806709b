package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
)

// command runs one command line and returns what it printed and its exit code.
func command(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), newRoot(), args, &o, &e, faultsOf)
	return o.String(), e.String(), code
}

// everyCommand calls f with each command of the tree.
func everyCommand(f func(c *cobra.Command)) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		f(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

// TestEveryCommandExplainsItself: a short text and an example, groups included.
func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	everyCommand(func(c *cobra.Command) {
		n++
		if c.Short == "" {
			t.Errorf("%s says nothing of itself", c.CommandPath())
		}
		name := strings.Fields(c.Example)
		if len(name) == 0 || !strings.Contains(c.Example, "sluice") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if out, _, code := command(t, append(strings.Fields(c.CommandPath())[1:], "--help")...); code != 0 || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help: exit code %d, no example in\n%s", c.CommandPath(), code, out)
		}
	})
	if n < 30 {
		t.Errorf("only %d commands were looked at", n)
	}
}

// TestWrongUse: exit code 2, words on standard error alone, and where help is.
func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{
		{}, {"nothing"}, {"config"}, {"config", "nothing"}, {"rules"}, {"rules", "nothing"}, {"key", "nothing"}, {"activity"}, {"ticket"},
		{"serve", "--no-such-flag"}, {"serve", "extra"}, {"activity", "publish"}, {"rules", "check"}, {"demo", "--nothing"},
		{"serve", "--config", "/nonexistent/sluice.yaml"}, {"config", "print", "--config", "/nonexistent/sluice.yaml"},
	} {
		out, errOut, code := command(t, args...)
		if code != exit.Usage || out != "" || errOut == "" {
			t.Errorf("sluice %v: exit code %d\n%s%s", args, code, out, errOut)
		}
	}
}

// TestDidYouMean: whatever is mistyped, what was probably meant is named.
func TestDidYouMean(t *testing.T) {
	file := yamlFile(t, "listen: {pubic: '127.0.0.1:1'}\nstok.redis: redis://h\nsomething.else: 1\n")
	for _, c := range []struct {
		args []string
		want string // "": nothing is near
	}{
		{[]string{"serv"}, "serve"},
		{[]string{"rule", "status"}, "rules"},
		{[]string{"rules", "stauts"}, "status"},
		{[]string{"rules", "stauts", "--json"}, "status"},
		{[]string{"activity", "publsh", "sale.json"}, "publish"},
		{[]string{"config", "chekc"}, "check"},
		{[]string{"key", "nwe"}, "new"},
		{[]string{"rules", "hist"}, "history"},
		{[]string{"ticket", "mnit", "--activity", "1"}, "mint"},
		{[]string{"serve", "--listen.publik", "127.0.0.1:0"}, "--listen.public"},
		{[]string{"serve", "--data-dir=x"}, "--data.dir"},
		{[]string{"serve", "-data.dir=x"}, "--data.dir"},
		{[]string{"rules", "push", "--bunp", "x"}, "--bump"},
		{[]string{"rules", "push", "--nacos.server", "x"}, "--nacos.servers"},
		{[]string{"activity", "list", "--admn", "x"}, "--admin"},
		{[]string{"ticket", "mint", "--usr", "x"}, "--user"},
		{[]string{"demo", "--user", "5"}, "--users"},
		{[]string{"config", "check", file}, "listen.public"},
		{[]string{"config", "check", file}, "stock.redis"},
		{[]string{"serve", "--config", file}, "listen.public"},
		{[]string{"something"}, ""},
		{[]string{"serve", "--something-else-altogether"}, ""},
	} {
		out, errOut, code := command(t, c.args...)
		said := out + errOut
		if code == 0 || c.want == "" && strings.Contains(said, "did you mean") {
			t.Errorf("sluice %s: exit code %d\n%s", strings.Join(c.args, " "), code, said)
		}
		if c.want != "" && !strings.Contains(said, "did you mean "+c.want+"?") {
			t.Errorf("sluice %s: not %q\n%s", strings.Join(c.args, " "), c.want, said)
		}
	}
	t.Setenv("SLUICE_LIMITER_REDS", "redis://h")
	if _, errOut, _ := command(t, "config", "print"); !strings.Contains(errOut, "did you mean SLUICE_LIMITER_REDIS?") {
		t.Errorf("a variable: %s", errOut)
	}
}

// oneJSON is the one value that text holds.
func oneJSON(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(into); err != nil {
		return err
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// TestJSONAlsoWhenItFails walks every command that has --json: the document is broken, the
// service away, a flag wrong, an argument too many. Standard output is one JSON value,
// standard error is silent, and the exit code says the same as without --json.
func TestJSONAlsoWhenItFails(t *testing.T) {
	dead := nobody(t)
	for name, value := range map[string]string{
		"SLUICE_DATA_DIR": t.TempDir(), "SLUICE_ADMIN": "", "SLUICE_ADMIN_TOKEN_FILE": "",
		"SLUICE_LIMITER_REDIS": "redis://" + dead, "SLUICE_STOCK_REDIS": "redis://" + dead, "SLUICE_ORDERS": "postgres://u:SECRET@" + dead + "/d",
		"SLUICE_QUEUE": "rocketmq", "SLUICE_ROCKETMQ_NAME_SERVERS": dead, "SLUICE_RULES_SOURCE": "nacos", "SLUICE_NACOS_SERVERS": dead,
		"SLUICE_TICKET_KEYS": "t", "SLUICE_NONCE_KEY": "t", "SLUICE_DRAW_KEY": "t", "SLUICE_SESSION_KEYS": "t", "SLUICE_ADMIN_TOKENS": "t", "SLUICE_PAYMENT_KEY": "t",
	} {
		t.Setenv(name, value)
	}
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"limitz": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	stand := map[string]string{"FILE": broken, "ID": "10001", "A": "default", "B": broken, "VERSION": "1", "TICKET": "x.y.z"}
	seen := 0
	everyCommand(func(c *cobra.Command) {
		if f := c.Flags().Lookup("json"); c.HasSubCommands() || f == nil && c.InheritedFlags().Lookup("json") == nil || f != nil && f.Value.Type() != "bool" {
			return
		}
		seen++
		words := strings.Fields(c.CommandPath())[1:]
		args := append([]string{}, words...)
		for _, placeholder := range strings.Fields(c.Use)[1:] {
			value, ok := stand[placeholder]
			if !ok {
				t.Fatalf("%s: what stands for %s?", c.CommandPath(), placeholder)
			}
			args = append(args, value)
		}
		for _, args := range [][]string{args, append(append([]string{}, words...), "--no-such-flag"), append(append([]string{}, args...), "one", "more")} {
			_, plain, code := command(t, args...)
			out, errOut, got := command(t, append(append([]string{}, args...), "--json")...)
			var value any
			if err := oneJSON(out, &value); err != nil || errOut != "" || got != code {
				t.Errorf("sluice %s --json: exit code %d, without %d; %v\nout: %serr: %s\nin words: %s", strings.Join(args, " "), got, code, err, out, errOut, plain)
			}
			object, ok := value.(map[string]any)
			if got != 0 && (!ok || object["error"] == nil && object["ok"] != false) {
				t.Errorf("sluice %s --json: exit code %d without an error: %s", strings.Join(args, " "), got, out)
			}
			if strings.Contains(out+errOut+plain, "SECRET") {
				t.Errorf("sluice %s tells a secret: %s%s%s", strings.Join(args, " "), out, errOut, plain)
			}
		}
	})
	if seen < 15 {
		t.Errorf("only %d commands with --json", seen)
	}
	out, errOut, code := command(t, "demo", "--json", "-", "--target", dead)
	var failure cli.Failure
	if err := oneJSON(out, &failure); err != nil || failure.Error == "" || code == 0 || errOut != "" {
		t.Errorf("demo: exit code %d, %v\nout: %s\nerr: %s", code, err, out, errOut)
	}
}

// TestJSONNamesThePlaces: a refused document's faults are listed apart, with their paths.
func TestJSONNamesThePlaces(t *testing.T) {
	t.Setenv("SLUICE_DATA_DIR", t.TempDir())
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"schema":1,"version":1,"limitz":{},"limits":{"user":{"rate_per_s":-1,"burst":3}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rules", "push", "--json", bad}, {"rules", "diff", "--json", "default", bad}, {"config", "print", "--json", "--demo.stock", "0", "--queue", "kafka"}} {
		out, _, code := command(t, args...)
		var failure cli.Failure
		if err := oneJSON(out, &failure); err != nil || code == 0 || len(failure.Faults) != 2 || failure.Faults[0].Path == "" || failure.Faults[0].Error == "" {
			t.Errorf("sluice %s: exit code %d, %v\n%s", strings.Join(args, " "), code, err, out)
		}
	}
}

// TestANamedInstanceIsNotPassedOver: a push that was told whom to ask for acknowledgements,
// and may not ask, publishes nothing; without a running instance status says what is missing.
func TestANamedInstanceIsNotPassedOver(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SLUICE_DATA_DIR", dir)
	t.Setenv("SLUICE_ADMIN", "")
	t.Setenv("SLUICE_ADMIN_TOKEN_FILE", "")
	bundle, _, code := command(t, "rules", "show", "--default")
	file := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	_, errOut, code := command(t, "rules", "push", "--admin", nobody(t), file)
	if _, err := os.Stat(filepath.Join(dir, "rules.json")); code != exit.Usage || !os.IsNotExist(err) || !strings.Contains(errOut, "--admin-token-file") {
		t.Errorf("exit code %d, published: %v\n%s", code, err, errOut)
	}
	if _, errOut, code := command(t, "rules", "status"); code != exit.Away || !strings.Contains(errOut, readyFile) {
		t.Errorf("exit code %d, no word of %s:\n%s", code, readyFile, errOut)
	}
	if out, errOut, code := command(t, "rules", "push", "--json", file); code != 0 || !strings.Contains(out, `"changes": []`) {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	if out, _, code := command(t, "rules", "diff", "--json", "default", "current"); code != 0 || out != "[]\n" {
		t.Errorf("exit code %d, no difference is %q", code, out)
	}
}
