package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/exit"
)

func yamlFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigCheck(t *testing.T) {
	good, bad, broken := yamlFile(t, "demo: {stock: 5}\n"), yamlFile(t, "demo: {stock: 0}\nqueue: kafka\n"), yamlFile(t, "demo: [")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string // in either output
	}{
		{"good", []string{good}, 0, "ok: embedded"},
		{"two faults", []string{bad}, exit.No, "demo.stock: must be"},
		{"the second of them", []string{bad}, exit.No, "queue: must be one of"},
		{"no YAML", []string{broken}, exit.No, broken},
		{"no file", []string{good + ".none"}, exit.Usage, ".none"},
		{"no argument", nil, exit.Usage, "FILE"},
		{"two arguments", []string{good, bad}, exit.Usage, "FILE"},
		{"unknown flag", []string{good, "--fast"}, exit.Usage, "--fast"},
	} {
		out, errOut, code := command(t, append([]string{"config", "check"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errOut, c.says) {
			t.Errorf("%s: exit code %d\n%s%s, want %d and %q", c.name, code, out, errOut, c.code, c.says)
		}
	}
	for file, faults := range map[string]int{good: 0, bad: 2, broken: 1} {
		code := min(faults, exit.No)
		out, _, got := command(t, "config", "check", "--json", file)
		var facts struct {
			OK     bool
			Error  string
			Faults []struct{ Path, From, Error string }
		}
		if err := json.Unmarshal([]byte(out), &facts); err != nil || got != code || facts.OK != (code == 0) || (facts.Error == "") != facts.OK || len(facts.Faults) != faults ||
			faults > 0 && (facts.Faults[0].Error == "" || facts.Faults[0].From == "") {
			t.Errorf("--json of %s: exit code %d, %v, %s", file, got, err, out)
		}
	}
}

func TestConfigPrint(t *testing.T) {
	file := yamlFile(t, "nacos: {password: SECRET}\ndemo: {stock: 5}\n")
	t.Setenv("SLUICE_DEMO_OPENS_IN", "7s")
	t.Setenv("SLUICE_DEMO_OPENS", "7s")
	out, errOut, code := command(t, "config", "print", "--config", file, "--demo.duration", "11m", "--orders", "postgres://u:SECRET@h/db")
	if code != exit.Usage { // half a production service: printed, and refused
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(out+errOut, "SECRET") {
		t.Errorf("a secret is printed:\n%s%s", out, errOut)
	}
	for _, want := range []string{"demo.stock", "file " + file, "env SLUICE_DEMO_OPENS_IN", "flag --demo.duration", "postgres://u:***@h/db", "default"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	if !strings.Contains(errOut, "SLUICE_DEMO_OPENS is set but is no setting; did you mean SLUICE_DEMO_OPENS_IN?") {
		t.Errorf("no warning of a variable that is no setting: %s", errOut)
	}
	out, _, code = command(t, "config", "print", "--json")
	var list []struct{ Setting, Value, From, Meaning string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) < 30 || list[0].Setting != "listen.public" {
		t.Errorf("--json: exit code %d, %v, %d settings", code, err, len(list))
	}
	if _, errOut, code := command(t, "config", "print", "extra"); code != exit.Usage || !strings.Contains(errOut, "extra") {
		t.Errorf("an argument: exit code %d, %s", code, errOut)
	}
}
