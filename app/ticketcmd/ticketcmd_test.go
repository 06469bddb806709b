package ticketcmd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/console"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticketcmd"
)

var now = time.Date(2026, 6, 25, 12, 0, 0, 0, time.UTC)

// cli is a shell with a clock and variables of its own.
type cli struct {
	t   *testing.T
	env map[string]string
}

type result struct {
	out, err string
	code     int
}

func (c cli) run(stdin string, args ...string) result {
	c.t.Helper()
	env := ticketcmd.Env{
		Now:    func() time.Time { return now },
		Random: strings.NewReader("sixteen  bytes.."),
		Getenv: func(name string) string { return c.env[name] },
	}
	root := &cobra.Command{Use: "sluice", SilenceErrors: true}
	root.AddCommand(ticketcmd.NewTicket(env), ticketcmd.NewKey(env))
	var out, errs bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err := root.Execute()
	r := result{out: out.String(), err: errs.String()}
	if err != nil {
		r.err += err.Error()
		coded, ok := errors.AsType[interface {
			error
			ExitCode() int
		}](err)
		if !ok {
			c.t.Fatalf("%v: an error without an exit code: %v", args, err)
		}
		r.code = coded.ExitCode()
	}
	return r
}

func (c cli) ok(args ...string) string {
	c.t.Helper()
	r := c.run("", args...)
	if r.code != 0 || r.err != "" {
		c.t.Fatalf("%v: exit %d, %s", args, r.code, r.err)
	}
	return r.out
}

// compact is a JSON value on one line.
func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.String()
}

func newCLI(t *testing.T) cli {
	c := cli{t: t, env: map[string]string{"SLUICE_TICKET_KEYS": filepath.Join(t.TempDir(), "ticket-keys.json")}}
	c.ok("key", "new", "--kid", "ticket-key-202606", "--out", c.env["SLUICE_TICKET_KEYS"])
	return c
}

func mintArgs(more ...string) []string {
	return append([]string{
		"ticket", "mint", "--activity", "10001", "--sku", "90001", "--user", "70000001",
		"--device", "device-0123456789", "--activity-version", "8", "--path-id", "p_7vKh2P8wQz1x",
	}, more...)
}

func TestMintInspectVerify(t *testing.T) {
	c := newCLI(t)
	raw := strings.TrimSpace(c.ok(mintArgs()...))
	signature := raw[strings.LastIndexByte(raw, '.')+1:]

	for _, args := range [][]string{{"ticket", "inspect", raw}, {"ticket", "inspect", "--json", raw}} {
		out := c.ok(args...)
		for _, want := range []string{"70000001", "seckill-ticket", "ticket-key-202606", "2026-06-25T12:00:30.000Z", "false"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not say %s: %s", args, want, out)
			}
		}
		if strings.Contains(out, signature) {
			t.Errorf("%v prints the signature", args)
		}
	}
	if r := c.run(raw+"\n", "ticket", "inspect", "-"); r.code != 0 || !strings.Contains(r.out, "90001") {
		t.Errorf("from standard input: %+v", r)
	}

	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"as it is":       {nil, 0, `{"ok":true,"key_id":"ticket-key-202606"}`},
		"bound to all":   {mintArgs()[2:], 0, `{"ok":true,"key_id":"ticket-key-202606"}`},
		"other user":     {[]string{"--user", "70000002"}, 1, `{"ok":false,"code":"TOKEN_INVALID","reason":"user","key_id":"ticket-key-202606"}`},
		"one version on": {[]string{"--activity-version", "9"}, 1, `{"ok":false,"code":"TOKEN_EXPIRED","reason":"version_behind","key_id":"ticket-key-202606"}`},
		"too late":       {[]string{"--at", "2026-06-25T12:00:32Z"}, 1, `{"ok":false,"code":"TOKEN_EXPIRED","reason":"expired","key_id":"ticket-key-202606"}`},
	} {
		r := c.run("", append(append([]string{"ticket", "verify", "--json"}, tc.args...), raw)...)
		if r.code != tc.code || compact(t, r.out) != tc.want {
			t.Errorf("%s: exit %d, %s", name, r.code, r.out)
		}
	}
	if r := c.run("", "ticket", "verify", raw[:len(raw)-1]); r.code != 1 || !strings.Contains(r.out, "TOKEN_INVALID (format)") {
		t.Errorf("cut short: %+v", r)
	}
	if out := c.ok("ticket", "verify", raw); out != "ok, signed with ticket-key-202606\n" {
		t.Errorf("in words: %q", out)
	}
}

func TestMintJSONHasTheShapeOfTheTicketCall(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_NONCE_KEY"] = filepath.Join(t.TempDir(), "nonce.json")
	c.ok("key", "new", "--out", c.env["SLUICE_NONCE_KEY"])
	var first, again map[string]string
	for _, into := range []*map[string]string{&first, &again} {
		if err := json.Unmarshal([]byte(c.ok(mintArgs("--json")...)), into); err != nil {
			t.Fatal(err)
		}
	}
	if first["nonce"] != again["nonce"] || !admission.ValidID(first["nonce"]) || !admission.ValidID(first["request_id"]) {
		t.Errorf("a derived nonce is not stable or not valid: %v, %v", first, again)
	}
	if first["path_id"] != "p_7vKh2P8wQz1x" || first["expires_at"] != "2026-06-25T12:00:30.000Z" || first["ticket"] == "" {
		t.Errorf("got %v", first)
	}
	if err := json.Unmarshal([]byte(c.ok(mintArgs("--json", "--attempt", "1")...)), &again); err != nil || again["nonce"] == first["nonce"] {
		t.Errorf("the next attempt has the same nonce: %v", again)
	}
}

func TestWrongUseIsTwoAndNamesTheThing(t *testing.T) {
	c := newCLI(t)
	bare := cli{t: t}
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"keys":[{"kty":"oct","kid":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		r    result
		code int
		want string
	}{
		"no subcommand":      {c.run("", "ticket"), 2, "needs a subcommand"},
		"unknown subcommand": {c.run("", "ticket", "frob"), 2, "frob"},
		"unknown flag":       {c.run("", "ticket", "mint", "--frob"), 2, "--frob"},
		"no ticket":          {c.run("", "ticket", "verify"), 2, "takes one argument, TICKET"},
		"two devices":        {c.run("", mintArgs("--device-hash", "x")...), 2, "device-hash"},
		"no key file":        {bare.run("", mintArgs()...), 2, "give --keys or SLUICE_TICKET_KEYS"},
		"absent key file":    {c.run("", mintArgs("--keys", "/absent.json")...), 2, "/absent.json"},
		"broken key file":    {c.run("", mintArgs("--keys", broken)...), 2, "keys[0].alg: missing"},
		"unknown key id":     {c.run("", mintArgs("--key-id", "other")...), 2, `"other" is not in the key set`},
		"missing claim":      {c.run("", "ticket", "mint", "--activity", "1"), 2, "sku_id"},
		"bad time":           {c.run("", mintArgs("--not-before", "now")...), 2, "--not-before"},
		"bad ttl":            {c.run("", mintArgs("--ttl", "-1s")...), 2, "expires_at_ms"},
		"unreadable ticket":  {c.run("", "ticket", "inspect", "x"), 1, "inspect"},
		"bad kty":            {c.run("", "key", "new", "--kty", "EC2"), 2, "--kty"},
		"bad kid":            {c.run("", "key", "new", "--kid", "a b"), 2, "kid"},
		"existing file":      {c.run("", "key", "new", "--out", broken), 2, "exists; add to it with --add"},
		"kid taken":          {c.run("", "key", "new", "--add", "--kid", "ticket-key-202606", "--out", c.env["SLUICE_TICKET_KEYS"]), 2, "already the name"},
	} {
		if tc.r.code != tc.code || !strings.Contains(tc.r.err, tc.want) {
			t.Errorf("%s: exit %d, %q, want %d and %q", name, tc.r.code, tc.r.err, tc.code, tc.want)
		}
	}
}

func TestKeyNew(t *testing.T) {
	c := newCLI(t)
	path := c.env["SLUICE_TICKET_KEYS"]
	out := c.ok("key", "new", "--kid", "ticket-key-202607", "--out", path, "--add", "--json")
	if want := `{"kid":"ticket-key-202607","alg":"HS256","file":"` + path + `","keys":2}`; compact(t, out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
	set, err := keys.Load(path)
	if err != nil || set.First().ID() != "ticket-key-202606" {
		t.Errorf("the new key would sign at once: %v, %v", set.First(), err)
	}
	for kty, alg := range map[string]keys.Alg{"oct": keys.HS256, "EC": keys.ES256, "OKP": keys.EdDSA, "RSA": keys.RS256} {
		set, err := keys.Parse("stdout", []byte(c.ok("key", "new", "--kty", kty)))
		if err != nil || set.First().Alg() != alg || set.First().ID() != "key-20260625" {
			t.Errorf("%s: %v, %v", kty, set.First(), err)
		}
	}
}

// Every command says how it is used, with an example.
// TestKeyToken: the token is told once, its line is what the service reads, and no file is replaced.
func TestKeyToken(t *testing.T) {
	c := newCLI(t)
	r := c.run("", "key", "token", "--role", "viewer")
	token := strings.TrimSpace(r.out)
	hash := sha256.Sum256([]byte(token))
	if line := "viewer sha256:" + hex.EncodeToString(hash[:]) + "\n"; r.code != 0 || r.err != line || !strings.HasPrefix(token, "sluice_") {
		t.Errorf("exit %d\n%s%s, want the line %s", r.code, r.out, r.err, line)
	}
	if _, err := console.ParseTokens(r.err); err != nil {
		t.Errorf("the service does not read %q: %v", r.err, err)
	}

	dir := t.TempDir()
	out, lines := filepath.Join(dir, "admin.token"), filepath.Join(dir, "tokens")
	if err := os.WriteFile(lines, []byte("viewer sha256:"+strings.Repeat("ab", 32)), 0o600); err != nil { // without an end of line
		t.Fatal(err)
	}
	var made struct{ Token, Role, Line, File, Tokens string }
	text := c.ok("key", "token", "--out", out, "--tokens", lines, "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Token != "" || made.File != out || made.Tokens != lines || made.Role != "operator" {
		t.Errorf("%v: %s", err, text)
	}
	kept, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	if tokens, err := console.ParseTokens(string(kept)); err != nil || len(tokens) != 2 || !strings.HasSuffix(string(kept), "\n"+made.Line+"\n") {
		t.Errorf("%v: %s", err, kept)
	}
	secret, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if hash := sha256.Sum256([]byte(strings.TrimSpace(string(secret)))); !strings.HasSuffix(made.Line, hex.EncodeToString(hash[:])) {
		t.Error("the line is not that of the token in the file")
	}
	if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the token's file: %v %v", st.Mode(), err)
	}
	for _, args := range [][]string{{"key", "token", "--out", out}, {"key", "token", "--role", "root"}, {"key", "token", "--tokens", dir}} {
		if r := c.run("", args...); r.code != 2 || r.out != "" || !strings.Contains(r.err, args[2]) {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
}

func TestHelpHasExamples(t *testing.T) {
	env := ticketcmd.Env{Now: time.Now, Random: strings.NewReader(""), Getenv: os.Getenv}
	for _, parent := range []*cobra.Command{ticketcmd.NewTicket(env), ticketcmd.NewKey(env)} {
		for _, cmd := range parent.Commands() {
			if cmd.Example == "" || cmd.Long == "" || cmd.Short == "" {
				t.Errorf("%s lacks help", cmd.Name())
			}
			if cmd.Flags().Lookup("json") == nil {
				t.Errorf("%s lacks --json", cmd.Name())
			}
		}
	}
}
