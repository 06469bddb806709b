package rulescmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// live are instances that follow the shell's file: each time that somebody asks they look.
type live struct {
	s  *shell
	mu sync.Mutex
	of []*rules.Applier // guarded by mu
}

// launch starts instances of these ids, which know the ticket key that is named as one of them.
func (s *shell) launch(ids ...string) *live {
	s.t.Helper()
	l := &live{s: s}
	for _, id := range ids {
		l.of = append(l.of, rules.NewApplier(rules.Config{InstanceID: id, Engine: noEngine{}, KnowsKey: func(key string) bool { return key == id }}))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/admin/v1/rules/status" || r.Header.Get("Authorization") != "Bearer secret" {
			http.NotFound(w, r)
			return
		}
		list := l.look()
		var greatest int64
		drift := false
		for _, i := range list {
			greatest = max(greatest, i.Version)
			drift = drift || i.Hash != list[0].Hash
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"version": greatest, "drift": drift, "instances": list})
	}))
	s.t.Cleanup(server.Close)
	s.set.AdminURL, s.set.AdminToken = server.URL, "secret"
	return l
}

func (l *live) look() (list []rules.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, err := os.ReadFile(l.s.set.File)
	for _, a := range l.of {
		if err == nil {
			_ = a.Apply(l.s.t.Context(), rules.Update{Raw: raw, At: time.Now()}, "file") // a refusal stands in its status
		}
		list = append(list, a.Status())
	}
	return list
}

type noEngine struct{}

func (noEngine) Load(_, _ rules.SentinelRules) error { return nil }
func (noEngine) Settle() error                       { return nil }
func (noEngine) Settled() <-chan struct{}            { return nil }

func (s *shell) write(doc string) {
	s.t.Helper()
	if err := os.WriteFile(s.set.File, []byte(doc), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) has(out string, words ...string) {
	s.t.Helper()
	for _, want := range words {
		if !strings.Contains(out, want) {
			s.t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestPushWaitsForEveryInstance(t *testing.T) {
	s := newShell(t)
	s.want(0, "push", s.file(version(1, "")))
	s.launch("a", "b")
	s.has(s.want(0, "push", s.file(version(2, ""))), "version 2 is in force on 2 instances")
	s.want(0, "status", "--json")
	s.has(s.want(1, "push", s.file(version(3, `,"ticket":{"active_key_id":"a"}`))), "instance b refuses version 3: $.ticket.active_key_id")
	s.want(1, "status")
	s.set.AdminURL = "127.0.0.1:1"
	s.want(3, "status")
	s.has(s.want(0, "push", s.file(version(4, ""))), "no live instance", "no acknowledgement: admin listener")
	s.set.AdminURL = ""
	s.want(3, "status")
}

// A version alone is not what was pushed: the instances run another document of it.
func TestPushIsNotInForceUnderAnotherContent(t *testing.T) {
	s := newShell(t)
	s.write(version(7, `,"comment":"in force"`))
	s.launch("a").look()
	older := version(6, `,"comment":"put back"`)
	s.write(older)
	out := s.want(1, "push", s.file(version(7, `,"comment":"edited"`)))
	s.has(out, "instance a runs version 7 with other content", "nothing is published", "--bump")
	if now, _ := os.ReadFile(s.set.File); string(now) != older {
		t.Errorf("published all the same: %s", now)
	}
	s.has(s.want(0, "push", "--bump", s.file(version(6, `,"comment":"edited"`))), "version 8 is in force on 1 instances")
	s.has(s.want(0, "status"), "version 8, 1 instances, no drift")
}

// An instance that comes to run another document of our version after the publish is no
// acknowledgement either.
func TestAnotherDocumentOfTheVersionIsNoAcknowledgement(t *testing.T) {
	s := newShell(t)
	s.want(0, "push", s.file(version(1, "")))
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"version":1,"drift":false,"instances":[{"instance_id":"a","version":%d,"hash":"sha256:other","last_error":null}]}`, min(2, looks.Add(1)))
	}))
	defer server.Close()
	s.set.AdminURL, s.set.AdminToken = server.URL, "secret"
	s.has(s.want(1, "push", s.file(version(2, ""))), "instance a runs version 2 with other content")
}

// An instance that had refused an earlier document of the same version has not judged ours
// yet: its old refusal is waited out.
func TestAnOldRefusalIsNotBelieved(t *testing.T) {
	s := newShell(t)
	s.want(0, "push", s.file(version(1, "")))
	next := version(2, "")
	b, _, err := rules.Decode([]byte(next))
	if err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if looks.Add(1) <= 4 {
			fmt.Fprint(w, `{"version":1,"drift":false,"instances":[{"instance_id":"a","version":1,"last_error":{"version":2,"path":"$.x","message":"no"}}]}`)
			return
		}
		fmt.Fprintf(w, `{"version":2,"drift":false,"instances":[{"instance_id":"a","version":2,"hash":%q,"last_error":null}]}`, b.Hash())
	}))
	defer server.Close()
	s.set.AdminURL, s.set.AdminToken = server.URL, "secret"
	s.has(s.want(0, "push", s.file(next)), "in force on 1 instances")
}

// table is the instances' table in a limiter store.
type table struct {
	admission.Fleet
	mark int64
	of   *live
}

func (b table) HighWater(context.Context, int64) (int64, error) { return b.mark, nil }

func (b table) Instances(context.Context) (map[string]json.RawMessage, error) {
	lines := map[string]json.RawMessage{"dead": json.RawMessage(`{"instance_id":"dead","version":99,"seen_ms":` + fmt.Sprint(time.Now().Add(-time.Minute).UnixMilli()) + `}`)}
	if b.of == nil {
		return lines, nil
	}
	for _, i := range b.of.look() {
		line, err := json.Marshal(map[string]any{"instance_id": i.InstanceID, "version": i.Version, "hash": i.Hash, "canary": i.Canary, "last_error": i.LastError, "seen_ms": time.Now().UnixMilli()})
		if err != nil {
			return nil, err
		}
		lines[i.InstanceID] = line
	}
	return lines, nil
}

func (s *shell) store(b table, err error) {
	s.set.AdminURL, s.set.NoAdmin = "", errors.New("no .sluice/ready.json here; give --data.dir or --admin")
	s.set.Registry = func(context.Context) (admission.Fleet, func(), error) { return b, func() {}, err }
}

// Instances whose data directories are elsewhere are found in the limiter store; where nobody
// is found or asked, standard error says why.
func TestPushAsksTheInstancesTable(t *testing.T) {
	s := newShell(t)
	unasked := func(words ...string) {
		t.Helper()
		code, out, errs := s.run("push", "--bump", s.file(version(1, "")))
		if code != 0 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		s.has(errs, append(words, "no .sluice/ready.json here; give --data.dir or --admin")...)
		s.has(out, "no live instance was asked")
	}
	s.store(table{}, nil)
	s.set.Registry = nil
	unasked()
	s.store(table{}, errors.New("limiter.redis: away"))
	unasked("limiter.redis: away")
	s.store(table{}, nil)
	unasked("no live instance")
	s.want(3, "status")

	in := s.launch("a", "b")
	s.store(table{of: in}, nil)
	s.has(s.want(0, "push", "--bump", s.file(version(1, ""))), "in force on 2 instances")
	s.has(s.want(0, "status"), "2 instances, no drift")
	s.has(s.want(1, "push", "--bump", s.file(version(1, `,"ticket":{"active_key_id":"k"}`))), "refuses version")
}

// An instance that ended just now still counts for a moment: whoever waits for it gives up when
// nobody is left, and says so.
func TestAPushDoesNotWaitForTheDead(t *testing.T) {
	s := newShell(t)
	s.store(table{}, nil)
	looks := 0
	s.set.Registry = func(context.Context) (admission.Fleet, func(), error) {
		return dying{table{}, func() bool { looks++; return looks > 3 }}, func() {}, nil
	}
	code, out, errs := s.run("push", s.file(version(1, "")))
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	s.has(errs, "no live instance")
}

// dying has one instance, which follows nothing, until it is dead.
type dying struct {
	table
	dead func() bool
}

func (d dying) Instances(context.Context) (map[string]json.RawMessage, error) {
	seen := time.Now()
	if d.dead() {
		seen = seen.Add(-time.Minute)
	}
	return map[string]json.RawMessage{"a": json.RawMessage(fmt.Sprintf(`{"instance_id":"a","last_error":null,"seen_ms":%d}`, seen.UnixMilli()))}, nil
}

// An instance that starts refuses what is below the high-water mark: --bump goes above it, and
// a push below it says so.
func TestBumpGoesAboveTheHighWaterMark(t *testing.T) {
	s := newShell(t)
	s.store(table{mark: 41}, nil)
	s.has(s.want(0, "push", s.file(version(1, ""))), "warning $.version: 1 is below 41", "--bump")
	s.has(s.want(0, "push", "--bump", s.file(version(1, `,"comment":"x"`))), "version 42 is published")
	s.has(s.want(0, "rollback", "1"), "version 43 is published")
}

// A canary that nobody runs is said; what it does otherwise is a difference of its own, and so
// is what its promotion changes.
func TestACanaryThatRunsNowhereIsSaid(t *testing.T) {
	var out, in []string // ids outside and inside a canary of half the instances
	for n := 1; len(out) < 2 || len(in) < 1; n++ {
		if id := fmt.Sprintf("i-%d", n); rules.InCanary(id, 50) {
			in = append(in, id)
		} else {
			out = append(out, id)
		}
	}
	s := newShell(t)
	s.want(0, "push", s.file(version(1, `,"limits":{"join":{"rate_per_s":2,"burst":4}}`)))
	faster := s.file(version(1, `,"limits":{"join":{"rate_per_s":3,"burst":4}}`))
	s.launch(out[:2]...)
	said := s.want(0, "push", "--canary", "50", faster)
	s.has(said, "$.canary.percent: added, 50\nthe canary's bundle:\n  $.comment", "\n  $.limits.join.rate_per_s: 2 becomes 3 (x 1.5)\n",
		"the canary runs on 0 of 2 instances", "warning $.canary.percent", "nowhere")
	if strings.Contains(said, `{"schema"`) || strings.Contains(said, `{"percent"`) {
		t.Errorf("a whole bundle on one line:\n%s", said)
	}
	s.has(s.want(0, "promote"), "$.canary.percent: removed, was 50", "\n$.limits.join.rate_per_s: 2 becomes 3", "no instance of 2 has run the canary")

	s.launch(in[0], out[0])
	said = s.want(0, "push", "--canary", "50", s.file(version(1, `,"limits":{"join":{"rate_per_s":4,"burst":4}}`)))
	s.has(said, "the canary runs on 1 of 2 instances")
	if strings.Contains(said, "warning") {
		t.Errorf("a warning of a canary that runs:\n%s", said)
	}
	for _, line := range strings.Split(s.want(1, "status"), "\n") {
		if strings.HasPrefix(line, "INSTANCE") != strings.Contains(line, " CANARY ") || strings.HasPrefix(line, in[0]+" ") != strings.Contains(line, " yes ") {
			t.Errorf("%q", line)
		}
	}
	var facts struct {
		Canary *int `json:"canary_instances"`
	}
	if err := json.Unmarshal([]byte(s.want(0, "push", "--json", "--canary", "100", faster)), &facts); err != nil || facts.Canary == nil || *facts.Canary != 2 {
		t.Errorf("%v, %+v", err, facts)
	}
	if said := s.want(0, "promote"); strings.Contains(said, "warning") {
		t.Errorf("a warning of a canary that ran:\n%s", said)
	}
}

// The present bundle and the one that the first push replaced are in the history, and a
// rollback finds it.
func TestTheFirstPushCanBeRolledBack(t *testing.T) {
	s := newShell(t)
	s.write(version(1, `,"comment":"shipped"`))
	s.want(0, "push", s.file(version(2, `,"comment":"pushed"`)))
	out := s.want(0, "history")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "2 ") || !strings.HasPrefix(lines[2], "1 ") || !strings.Contains(lines[2], " - ") {
		t.Errorf("%s", out)
	}
	s.want(0, "rollback", "1")
	s.has(s.want(0, "history", "--limit", "1"), "rollback to version 1")
	s.has(s.want(0, "history", "--help"), "AT is when the document was published", "BY who did it")
}

// A bad file is told in the shape of every failure.
func TestCheckFailsInTheOneShape(t *testing.T) {
	s := newShell(t)
	var v struct {
		OK     *bool
		Error  string
		Reason string
		Faults []struct{ Path, Error string }
	}
	if err := json.Unmarshal([]byte(s.want(1, "check", "--json", s.file(version(1, `,"limits":{"user":{"rate_per_s":-1,"burst":3}}`)))), &v); err != nil {
		t.Fatal(err)
	}
	if v.OK == nil || *v.OK || v.Error == "" || v.Reason != "validate" || len(v.Faults) != 1 || v.Faults[0].Path != "$.limits.user.rate_per_s" || v.Faults[0].Error == "" {
		t.Errorf("%+v", v)
	}
}
