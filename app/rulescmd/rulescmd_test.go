package rulescmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/rulescmd"
	"github.com/sluice-io/sluice/rules"
)

type shell struct {
	t   *testing.T
	dir string
	set rulescmd.Settings
}

func newShell(t *testing.T) *shell {
	dir := t.TempDir()
	return &shell{t: t, dir: dir, set: rulescmd.Settings{Source: "file", File: filepath.Join(dir, "rules.json")}}
}

// run returns the exit code, standard output and standard error.
func (s *shell) run(args ...string) (int, string, string) {
	s.t.Helper()
	cmd := rulescmd.New(func() (rulescmd.Settings, error) { return s.set, nil })
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(s.t.Context())
	if err == nil {
		return 0, out.String(), errs.String()
	}
	return exit.Of(err), out.String(), errs.String() + err.Error()
}

// want runs a command that must end with that code.
func (s *shell) want(code int, args ...string) string {
	s.t.Helper()
	got, out, errs := s.run(args...)
	if got != code {
		s.t.Fatalf("rules %s: exit %d, want %d\n%s\n%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out + errs
}

func (s *shell) file(doc string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, fmt.Sprintf("%d.json", len(doc)))
	if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func version(n int, rest string) string { return fmt.Sprintf(`{"schema":1,"version":%d%s}`, n, rest) }

func TestCheckTellsEverything(t *testing.T) {
	s := newShell(t)
	out := s.want(1, "check", s.file(version(1, `,"limitz":{},"limits":{"user":{"rate_per_s":-1,"burst":3}}`)))
	for _, want := range []string{"$.limitz", "$.limits.user.rate_per_s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	var v struct {
		OK       bool
		Hash     string
		Warnings []rules.Fault
	}
	if err := json.Unmarshal([]byte(s.want(0, "check", "--json", s.file(version(1, `,"limits":{"user":{"rate_per_s":1,"burst":5000}}`)))), &v); err != nil {
		t.Fatal(err)
	}
	if !v.OK || len(v.Warnings) != 1 || !strings.HasPrefix(v.Hash, "sha256:") {
		t.Errorf("%+v", v)
	}
	s.want(2, "check", filepath.Join(s.dir, "none.json"))
	s.want(2, "check")
	s.want(2, "check", "--nonsense", "x")
	s.want(2)
}

func TestShowDefaultIsTheShippedBundle(t *testing.T) {
	if out := newShell(t).want(0, "show", "--default"); out != string(rules.DefaultDocument()) {
		t.Error("not the shipped document")
	}
}

// TestShowSchema: what an editor is given names every part of the shipped bundle. It needs no
// instance and no source.
func TestShowSchema(t *testing.T) {
	s := newShell(t)
	out := s.want(0, "show", "--schema")
	var schema struct {
		Schema string `json:"$schema"`
		Defs   map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(out), &schema); err != nil || !strings.Contains(schema.Schema, "2020-12") {
		t.Fatalf("%v\n%s", err, out)
	}
	var shipped map[string]any
	if err := json.Unmarshal(rules.DefaultDocument(), &shipped); err != nil {
		t.Fatal(err)
	}
	for part := range shipped {
		if schema.Defs["Bundle"].Properties[part] == nil {
			t.Errorf("the schema does not know %q", part)
		}
	}
	s.want(2, "show", "--schema", "--default")
}

func TestPushConflictRollback(t *testing.T) {
	s := newShell(t)
	s.want(0, "push", s.file(version(1, `,"comment":"first"`)))
	s.want(0, "push", s.file(version(2, `,"comment":"second editor's rival"`)))
	out := s.want(1, "push", s.file(version(2, `,"comment":"too late, dear"`)))
	if !strings.Contains(out, "$.comment") || !strings.Contains(out, "rival") {
		t.Errorf("the conflict does not show what differs:\n%s", out)
	}
	out = s.want(1, "push", s.file(version(3, `,"limits":{"user":{"rate_per_s":500,"burst":3}}`)))
	if !strings.Contains(out, "confirm") {
		t.Errorf("implausible, and no word of confirm:\n%s", out)
	}
	s.want(0, "push", "--confirm", s.file(version(3, `,"limits":{"user":{"rate_per_s":500,"burst":3}}`)))
	s.want(0, "push", "--bump", s.file(version(1, `,"comment":"bumped","limits":{"user":{"rate_per_s":499,"burst":3}}`)))
	if out := s.want(0, "show"); !strings.Contains(out, `"version": 4`) {
		t.Errorf("after --bump:\n%s", out)
	}
	s.want(0, "rollback", "2")
	b, _, err := rules.Decode([]byte(s.want(0, "show")))
	if err != nil || b.Version != 5 || b.Limits.User != nil || b.Comment != "rollback to version 2" {
		t.Errorf("after the rollback: %+v, %v", b, err)
	}
	if out := s.want(0, "history"); !strings.Contains(out, "bumped") || !strings.Contains(out, "first") {
		t.Errorf("history:\n%s", out)
	}
	s.want(1, "rollback", "77")
}

func TestCanaryAndPromote(t *testing.T) {
	s := newShell(t)
	s.want(0, "push", s.file(version(1, "")))
	s.want(1, "promote")
	s.want(0, "push", "--canary", "10", s.file(version(1, `,"limits":{"join":{"rate_per_s":3,"burst":5}}`)))
	b, _, err := rules.Decode([]byte(s.want(0, "show")))
	if err != nil || b.Version != 2 || b.Canary == nil || b.Canary.Percent != 10 || b.Limits.Join != nil {
		t.Fatalf("%+v, %v", b, err)
	}
	s.want(0, "promote")
	b, _, err = rules.Decode([]byte(s.want(0, "show")))
	if err != nil || b.Version != 3 || b.Canary != nil || b.Limits.Join == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	s.want(2, "push", "--canary", "0", s.file(version(9, "")))
}

func TestNacosAwayIsThree(t *testing.T) {
	s := newShell(t)
	s.set = rulescmd.Settings{Source: "nacos", Nacos: rulescmd.Nacos{Servers: []string{"127.0.0.1:1"}}}
	if out := s.want(3, "push", s.file(version(1, ""))); !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("%s", out)
	}
	s.set.Nacos.Servers = nil
	s.want(2, "push", s.file(version(1, "")))
}

func TestDiffInWords(t *testing.T) {
	s := newShell(t)
	out := s.want(0, "diff", s.file(version(1, `,"sentinel":{"flow":[{"id":"a","resource":"seckill.submit","threshold":100}]}`)),
		s.file(version(2, `,"sentinel":{"flow":[{"id":"b","resource":"seckill.join","threshold":5},{"id":"a","resource":"seckill.submit","threshold":250}]}`)))
	for _, want := range []string{"$.sentinel.flow[a].threshold: 100 becomes 250 (x 2.5)", "$.sentinel.flow[b]: added"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// The commands need nothing but the nacos settings.
func TestPushOverNacosAlone(t *testing.T) {
	servers.Need(t, servers.Nacos())
	s := newShell(t)
	s.set = rulescmd.Settings{Source: "nacos", Nacos: rulescmd.Nacos{Servers: []string{servers.Nacos()}, Namespace: "public",
		DataID: fmt.Sprintf("sluice.test.push.%d.%d", os.Getpid(), rand.Uint64())}}
	s.want(1, "show")
	s.want(0, "push", s.file(version(1, `,"comment":"first"`)))
	s.want(0, "push", s.file(version(2, `,"comment":"the second"`)))
	if out := s.want(1, "push", s.file(version(2, `,"comment":"a late one"`))); !strings.Contains(out, "the second") {
		t.Errorf("%s", out)
	}
	s.want(0, "rollback", "1")
	if out := s.want(0, "show"); !strings.Contains(out, "rollback to version 1") || !strings.Contains(out, `"version": 3`) {
		t.Errorf("%s", out)
	}
	if out := s.want(0, "history"); !strings.Contains(out, "the second") {
		t.Errorf("%s", out)
	}
}

// A broken document that somebody wrote past these commands is in force nowhere: the next push
// and a rollback go on from the bundle before it.
func TestABrokenDocumentIsNoDeadEnd(t *testing.T) {
	s := newShell(t)
	spoil := func() {
		if err := os.WriteFile(s.set.File, []byte(`{"schema":1,"version":9,"limitz":{}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.want(0, "push", s.file(version(1, `,"comment":"first"`)))
	s.want(0, "push", s.file(version(2, `,"comment":"the second"`)))
	spoil()
	s.want(0, "rollback", "1")
	if out := s.want(0, "show"); !strings.Contains(out, "rollback to version 1") || !strings.Contains(out, `"version": 3`) {
		t.Errorf("after the rollback:\n%s", out)
	}
	spoil()
	s.want(0, "push", "--bump", s.file(version(1, `,"comment":"mended"`)))
	if out := s.want(0, "show"); !strings.Contains(out, `"version": 4`) {
		t.Errorf("after the push:\n%s", out)
	}
	spoil()
	if out := s.want(1, "push", s.file(version(5, `,"limits":{"user":{"rate_per_s":500,"burst":3}}`))); !strings.Contains(out, "confirm") {
		t.Errorf("implausible, and no word of confirm:\n%s", out)
	}
}

// The age of each instance's rules is explained where it is read, and one that alarms is marked.
func TestStatusExplainsTheAge(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"version":2,"drift":false,"instances":[{"instance_id":"fine","version":2,"age_ms":2940},{"instance_id":"cut-off","version":2,"age_ms":95000}]}`)
	}))
	defer server.Close()
	s := newShell(t)
	s.set.AdminURL, s.set.AdminToken = server.URL, "secret"
	out := s.want(0, "status")
	for _, line := range strings.Split(out, "\n") {
		switch {
		case strings.HasPrefix(line, "INSTANCE") && !strings.Contains(line, "CONFIRMED"),
			strings.HasPrefix(line, "fine") && (!strings.Contains(line, "2.9s ago") || strings.Contains(line, "!")),
			strings.HasPrefix(line, "cut-off") && !strings.Contains(line, "1m35s ago !"),
			strings.HasPrefix(line, "!") && !strings.Contains(line, "1 not confirmed"):
			t.Errorf("%q in\n%s", line, out)
		}
	}
	if !strings.Contains(out, "\n! 1 not confirmed") {
		t.Errorf("what alarms is not explained:\n%s", out)
	}
	help := s.want(0, "status", "--help")
	for _, want := range []string{"CONFIRMED", "age_ms", "normal", "alarming"} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in\n%s", want, help)
		}
	}
}
