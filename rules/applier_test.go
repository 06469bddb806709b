package rules_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/system"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/rules"
)

func TestMain(m *testing.M) {
	if err := rules.InitSentinel(slog.New(slog.DiscardHandler)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// doc is a bundle of that version with more fields.
func doc(version int, fields ...string) []byte {
	return []byte(fmt.Sprintf(`{"schema":1,"version":%d%s}`, version, strings.Join(append([]string{""}, fields...), ",")))
}

const flow10 = `"sentinel":{"flow":[{"resource":"seckill.submit","threshold":10}]}`

// memoryEngine is an Engine that can be told to fail.
type memoryEngine struct {
	err     error
	loads   int
	held    rules.SentinelRules
	settled chan struct{}
}

func (e *memoryEngine) Load(enforced, _ rules.SentinelRules) error {
	if e.err != nil {
		return e.err
	}
	e.loads++
	e.held = enforced
	return nil
}
func (e *memoryEngine) Settle() error            { return nil }
func (e *memoryEngine) Settled() <-chan struct{} { return e.settled }

type bench struct {
	*rules.Applier
	t      *testing.T
	engine *memoryEngine
	now    time.Time
	reg    *prometheus.Registry
	last   *rules.Rejection // of refused
}

func newBench(t *testing.T, change func(*rules.Config)) *bench {
	b := &bench{t: t, engine: &memoryEngine{}, now: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC), reg: prometheus.NewRegistry()}
	cfg := rules.Config{InstanceID: "i-1", Engine: b.engine, Now: func() time.Time { return b.now }, Metrics: rules.NewMetrics(b.reg)}
	if change != nil {
		change(&cfg)
	}
	b.Applier = rules.NewApplier(cfg)
	return b
}

func (b *bench) push(raw []byte) error {
	return b.Apply(b.t.Context(), rules.Update{Raw: raw, At: b.now}, "file test")
}

func (b *bench) must(raw []byte) {
	b.t.Helper()
	if err := b.push(raw); err != nil {
		b.t.Fatal(err)
	}
}

// refused pushes a document that must change nothing, and wants that reason.
func (b *bench) refused(want rules.Reason, raw []byte) {
	b.t.Helper()
	before := b.Snapshot()
	err := b.push(raw)
	var r *rules.Rejection
	if !errors.As(err, &r) || r.Reason != want {
		b.t.Fatalf("%s\ngot %v, want a refusal because of %s", raw, err, want)
	}
	if b.Snapshot() != before {
		b.t.Fatal("a refused document changed the snapshot")
	}
	if e := b.Status().LastError; e == nil || e.Path == "" || e.Message == "" {
		b.t.Fatal("the status does not say what is wrong")
	}
	b.last = r
}

func TestVersionsOnlyRise(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(42, flow10))
	b.refused(rules.RefusedVersion, doc(41, flow10))
	b.refused(rules.RefusedVersion, doc(42, `"comment":"other"`, flow10))
	b.must(doc(42, flow10)) // the same again
	if b.engine.loads != 1 {
		t.Errorf("the same document was loaded %d times", b.engine.loads)
	}
	if b.Status().LastError != nil {
		t.Error("the source shows what is in force again, and the error stays")
	}
	b.must(doc(43, flow10))
	b.refused(rules.RefusedVersion, doc(2000, flow10))
	b.must(doc(2000, flow10, `"confirm":"`+b.last.Hash+`"`))
}

func TestPolicyVersionNeverGetsOlder(t *testing.T) {
	policy := func(v int) string {
		return fmt.Sprintf(`"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":%d}]`, v)
	}
	b := newBench(t, nil)
	b.must(doc(1, policy(17)))
	b.refused(rules.RefusedPolicyVersion, doc(2, policy(16)))
	if b.last.Faults[0].Path != "$.admission[0].policy_version" {
		t.Errorf("path %s", b.last.Faults[0].Path)
	}
	b.must(doc(2, policy(17)))
	b.must(doc(3, policy(18)))
}

func TestImplausibleNeedsItsHash(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(1, flow10))
	for name, d := range map[string]string{
		"family emptied": `"sentinel":{"flow":[]}`,
		"tenfold":        `"sentinel":{"flow":[{"resource":"seckill.submit","threshold":101}]}`,
		"to closed":      `"sentinel":{"flow":[{"resource":"seckill.submit","threshold":0}]}`,
		"orphan":         `"sentinel":{"flow":[{"resource":"seckill.ticket","threshold":10}]}`,
		"limit":          `"limits":{"user":{"rate_per_s":50,"burst":3}},` + flow10,
		"system emptied": `"sentinel":{"system":[],"flow":[{"resource":"seckill.submit","threshold":10}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.refused(rules.RefusedConfirm, doc(2, d))
			b.refused(rules.RefusedConfirm, doc(2, d, `"confirm":"sha256:00"`))
		})
	}
	b.t = t
	b.must(doc(2, `"sentinel":{"flow":"none"}`)) // the word is its own confirmation
	if n := len(b.Snapshot().Sentinel.Flow); n != 0 {
		t.Errorf("%d flow rules after none", n)
	}
	b.refused(rules.RefusedConfirm, doc(3, `"sentinel":{"flow":"none","system":[]}`))
	b.must(doc(3, `"sentinel":{"flow":"none","system":[]}`, `"confirm":"`+b.last.Hash+`"`))
}

// T02: empty, null or deleted configuration clears nothing.
func TestT02EmptyNullOrDeletedClearsNothing(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(1, flow10))
	for _, raw := range []string{"", " \n\t", "null", "[]", "{}", " null "} {
		b.refused(rules.RefusedEmpty, []byte(raw))
	}
	before := b.Snapshot()
	if err := b.Apply(t.Context(), rules.Update{Absent: true, At: b.now}, "file test"); err == nil {
		t.Fatal("a deleted document is not reported")
	}
	if b.Snapshot() != before || b.Ready() != nil {
		t.Fatal("a deleted document changed something")
	}
	if got := testutil.ToFloat64(rejected(t, b.reg, "deleted")); got != 1 {
		t.Errorf("seckill_rules_rejected_total{reason=deleted} = %v", got)
	}
	b.must(doc(2, flow10))
}

func rejected(t *testing.T, reg *prometheus.Registry, reason string) prometheus.Counter {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "copy"})
	for _, f := range families {
		if f.GetName() != "seckill_rules_rejected_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == reason {
				c.Add(m.GetCounter().GetValue())
			}
		}
	}
	return c
}

// L08: overflow or zero never disables a limit.
func TestL08StrangeRatesAreRefusedOrExact(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(1))
	for _, bad := range []string{
		`{"rate_per_s":-1,"burst":3}`, `{"rate_per_s":1e18,"burst":3}`, `{"rate_per_s":1e400,"burst":3}`, `{"rate_per_s":"NaN","burst":3}`,
		`{"rate_per_s":1,"burst":-1}`, `{"rate_per_s":1,"burst":9223372036854775808}`, `{"rate_per_s":1,"burst":4611686018427387904}`,
		`{"rate_per_s":1e-12,"burst":1}`, `{"rate_per_s":1,"burst":1.5}`, `{"rate_per_s":1}`, `{"burst":3}`, `{"rate_per_s":null,"burst":3}`,
	} {
		err := b.push(doc(2, `"limits":{"user":`+bad+`}`))
		var r *rules.Rejection
		if !errors.As(err, &r) || r.Reason != rules.RefusedDecode && r.Reason != rules.RefusedValidate {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := b.push([]byte(`{"schema":1,"version":2,"limits":{"user":{"rate_per_s":NaN,"burst":3}}}`)); err == nil {
		t.Error("NaN is not JSON")
	}
	for _, closed := range []string{`{"rate_per_s":0,"burst":3}`, `{"rate_per_s":1,"burst":0}`} {
		got, _, err := rules.Decode(doc(2, `"limits":{"user":`+closed+`}`))
		if err != nil {
			t.Errorf("%s: %v; 0 means closed", closed, err)
			continue
		}
		if l := rules.Compile(got).Policy(ref).User.Limit; l.PerSecond != 0 && l.Burst != 0 {
			t.Errorf("%s: %+v is open", closed, l)
		}
	}
	huge, warnings, err := rules.Decode(doc(2, `"limits":{"user":{"rate_per_s":1,"burst":2147483648}}`))
	if err != nil || rules.Compile(huge).Policy(ref).User.Limit.Burst != 1<<31 {
		t.Errorf("burst 2^31: %v", err)
	}
	if len(warnings) == 0 || !strings.Contains(warnings[0].Message, "out of proportion") {
		t.Errorf("burst 2^31 at 1/s draws no warning: %v", warnings)
	}
}

func TestLoadFailureKeepsTheOldSnapshot(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(1, flow10))
	b.engine.err = errors.New("Sentinel holds something else")
	b.refused(rules.RefusedLoad, doc(2, flow10))
	b.engine.err = nil
	b.must(doc(2, flow10)) // not remembered as bad: it works now
}

// N04: an old snapshot is never used silently, and time never runs backwards.
func TestN04BootFromLastGood(t *testing.T) {
	file := filepath.Join(t.TempDir(), "last-good.json")
	mark := int64(0)
	open := func() *bench {
		return newBench(t, func(c *rules.Config) {
			c.LastGood = file
			c.HighWater = func(_ context.Context, v int64) (int64, error) { mark = max(mark, v); return mark, nil }
			c.BootWait = time.Millisecond
		})
	}
	first := open()
	first.must(doc(9, flow10))

	second := open()
	second.now = second.now.Add(29 * time.Minute)
	runUntil(t, second, silent{}, func() bool { return second.Snapshot() != nil })
	s := second.Status()
	if s.Version != 9 || s.Source != "last-good" || s.AgeMS != (29*time.Minute).Milliseconds() {
		t.Errorf("booted with %+v", s)
	}
	second.refused(rules.RefusedVersion, doc(3, flow10))
	second.must(doc(9, flow10)) // the source is back with the same
	if s := second.Status(); s.Source != "file test" || s.AgeMS != 0 {
		t.Errorf("after the source came back: %+v", s)
	}

	old := open()
	old.now = old.now.Add(3 * time.Hour)
	runUntil(t, old, silent{}, nil)
	if old.Ready() == nil {
		t.Error("rules older than max_stale were used")
	}

	ahead := open()
	mark = 12
	ahead.refused(rules.RefusedHighWater, doc(11, flow10))
	ahead.must(doc(12, flow10))

	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(kept), `\"threshold\":10`, `\"threshold\":11`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	torn := open()
	runUntil(t, torn, silent{}, nil)
	if torn.Ready() == nil {
		t.Error("a torn last good file was used")
	}
	if rules.LastGoodUsable(file, "file test", torn.now) {
		t.Error("a torn last good file is called usable")
	}
}

// The last good file of another source is as good as none: it neither raises the least version
// of this one nor comes into force while this one is away.
func TestLastGoodIsBoundToItsSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "last-good.json")
	open := func(origin string) *bench {
		return newBench(t, func(c *rules.Config) { c.LastGood, c.Origin, c.BootWait = file, origin, time.Millisecond })
	}
	const nacos, local = "nacos 10.0.0.1:8848 public/DEFAULT_GROUP/sluice.rules", "file /srv/rules.json"
	cluster := open(nacos)
	cluster.must(doc(6, flow10))
	if !rules.LastGoodUsable(file, nacos, cluster.now) || rules.LastGoodUsable(file, local, cluster.now) {
		t.Error("the file is usable for its own source alone")
	}
	away := open(local)
	runUntil(t, away, silent{}, nil)
	if away.Ready() == nil {
		t.Error("began with the last good of another source")
	}
	open(local).must(doc(5, flow10))
	open(local).refused(rules.RefusedHighWater, doc(4, flow10))
	open(nacos).must(doc(4, flow10))
}

// silent is a source that never answers.
type silent struct{}

func (silent) Name() string                                        { return "file test" }
func (silent) Run(ctx context.Context, _ func(rules.Update)) error { <-ctx.Done(); return nil }

// runUntil runs the applier until done, or for a moment when done is nil.
func runUntil(t *testing.T, b *bench, src rules.Source, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Run(ctx, src); err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(50 * time.Millisecond)
	for done == nil && time.Now().Before(deadline) || done != nil && !done() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
}

func TestCanaryTakesItsShare(t *testing.T) {
	d := []byte(`{"schema":1,"version":5,"canary":{"percent":30,"bundle":{"schema":1,"version":6,"limits":{"user":{"rate_per_s":1,"burst":9}}}}}`)
	in := 0
	for i := range 1000 {
		id := fmt.Sprintf("instance-%d", i)
		chosen := rules.InCanary(id, 30)
		if chosen {
			in++
		}
		if rules.InCanary(id, 20) && !chosen {
			t.Fatal("a greater share left an instance out")
		}
		if i >= 10 {
			continue
		}
		b := newBench(t, func(c *rules.Config) { c.InstanceID = id })
		b.must(d)
		s := b.Snapshot()
		if s.Version != 5 {
			t.Fatalf("version %d: the document's orders", s.Version)
		}
		if s.Canary != chosen || (s.Policy(ref).User.Limit.Burst == 9) != chosen {
			t.Fatalf("%s: canary %v, chosen %v", id, s.Canary, chosen)
		}
	}
	if in < 250 || in > 350 {
		t.Errorf("%d of 1000 instances are in a canary of 30 %%", in)
	}
}

// What is loaded into Sentinel is what Sentinel holds, and an edit leaves the rest alone.
func TestSentinelHoldsWhatWasAsked(t *testing.T) {
	b := newBench(t, func(c *rules.Config) { c.Engine = rules.NewSentinelEngine() })
	b.must(rules.DefaultDocument())
	if n := len(flow.GetRulesOfResource("seckill.submit")); n != 1 {
		t.Fatalf("%d flow rules on submit", n)
	}
	if n := len(system.GetRules()); n != 2 {
		t.Fatalf("%d system rules", n)
	}
	b.must(doc(2, `"sentinel":{"flow":[{"resource":"seckill.submit","threshold":29000},{"id":"w","resource":"seckill.submit","threshold":20000,
	  "tokenCalculateStrategy":1,"warmUpPeriodSec":10},{"resource":"seckill.ticket","threshold":30000},{"resource":"seckill.join","threshold":30000},
	  {"resource":"seckill.status","threshold":30000},{"resource":"seckill.submit","threshold":5,"shadow":true}]}`))
	if got := flow.GetRulesOfResource("seckill.submit"); len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if got := flow.GetRulesOfResource(rules.ShadowResource("seckill.submit")); len(got) != 1 || got[0].Threshold != 5 {
		t.Fatalf("shadow: %+v", got)
	}
	b.must(doc(3, `"sentinel":{"flow":"none","hotspot":"none","system":"none"}`))
	if len(flow.GetRules())+len(system.GetRules()) != 0 {
		t.Fatalf("left: %v %v", flow.GetRules(), system.GetRules())
	}
}

// TestUnknownTicketKeyIsRefused: a bundle that names a key which this instance's ring lacks
// changes nothing, says so with its path, and is taken once the key is there.
func TestUnknownTicketKeyIsRefused(t *testing.T) {
	known := map[string]bool{"k1": true}
	b := newBench(t, func(c *rules.Config) { c.KnowsKey = func(id string) bool { return known[id] } })
	ctx := t.Context()
	if err := b.Apply(ctx, rules.Update{Raw: doc(1, `"ticket":{"active_key_id":"k1"}`), At: time.Now()}, "test"); err != nil {
		t.Fatal(err)
	}
	next := rules.Update{Raw: doc(2, `"ticket":{"active_key_id":"k2"}`), At: time.Now()}
	if err := b.Apply(ctx, next, "test"); err == nil || b.Snapshot().Version != 1 {
		t.Fatalf("an unknown key: %v, version %d in force", err, b.Snapshot().Version)
	}
	if last := b.Status().LastError; last == nil || last.Path != "$.ticket.active_key_id" {
		t.Errorf("last error %+v, want the path of the key", last)
	}
	known["k2"] = true
	if err := b.Apply(ctx, next, "test"); err != nil || b.Snapshot().Version != 2 {
		t.Errorf("the key has come: %v, version %d in force", err, b.Snapshot().Version)
	}
}

// Nothing in force and no document is a beginning, and is told how to go on; a document that
// goes is another thing.
func TestNoDocumentYetSaysHowToPublishTheFirst(t *testing.T) {
	b := newBench(t, nil)
	gone := func() error { return b.Apply(t.Context(), rules.Update{Absent: true, At: b.now}, "nacos here") }
	if err := gone(); err == nil {
		t.Error("an absent document was accepted")
	}
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "no rules in force: no document at nacos here yet; `sluice rules show --default") ||
		strings.Contains(err.Error(), "stay") {
		t.Errorf("got %v", err)
	}
	b.must(doc(1, flow10))
	if err := gone(); err == nil || !strings.Contains(err.Error(), "the rules in force stay") {
		t.Errorf("got %v", err)
	}
}
