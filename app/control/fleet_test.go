package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// fleetBed is a registry on an embedded store with a clock of the test's own.
type fleetBed struct {
	t     *testing.T
	now   time.Time
	store *redis.Fleet
	log   bytes.Buffer
	fleet *Fleet
}

func newFleetBed(t *testing.T) *fleetBed {
	t.Helper()
	client, err := redis.Open(t.Context(), store(t), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b := &fleetBed{t: t, now: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC), store: redis.NewFleet(client)}
	b.fleet = &Fleet{Store: b.store, Now: func() time.Time { return b.now }, Log: slog.New(slog.NewTextHandler(&b.log, nil))}
	return b
}

// report writes another instance's line, as of now.
func (b *fleetBed) report(l Line) {
	b.t.Helper()
	other := &Fleet{Store: b.store, Now: b.fleet.Now, Self: func() Line { return l }}
	if err := other.Report(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fleetBed) lines() []Line {
	b.t.Helper()
	lines, err := b.fleet.Lines(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return lines
}

func (b *fleetBed) status() Status {
	b.t.Helper()
	s, err := b.fleet.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func TestStatusNamesDrift(t *testing.T) {
	b := newFleetBed(t)
	if s := b.status(); s.Drift || s.Version != 0 || s.Instances == nil {
		t.Errorf("nobody there: %+v, want an empty list and no drift", s)
	}
	b.report(Line{InstanceID: "b", Version: 7, Hash: "x"})
	b.report(Line{InstanceID: "a", Version: 7, Hash: "x", LastError: json.RawMessage(`{"version":8}`)})
	if s := b.status(); s.Drift || s.Version != 7 || len(s.Instances) != 2 || s.Instances[0].InstanceID != "a" || string(s.Instances[0].LastError) != `{"version":8}` {
		t.Errorf("both hold the same: %+v", s)
	}
	b.report(Line{InstanceID: "b", Version: 8, Hash: "y"})
	if s := b.status(); !s.Drift || s.Version != 8 {
		t.Errorf("another version: %+v", s)
	}
	b.report(Line{InstanceID: "b", Version: 7, Hash: "y"})
	if s := b.status(); !s.Drift {
		t.Errorf("the same version of other content: %+v", s)
	}
	b.now = b.now.Add(deadAfter)
	b.report(Line{InstanceID: "a", Version: 7, Hash: "x"})
	if s := b.status(); s.Drift || len(s.Instances) != 1 {
		t.Errorf("the dead do not drift: %+v", s)
	}
}

// TestTheDeadKeepTheirCounts: what they issued and reserved counts on, who waited for
// them does not, and after a day they are forgotten.
func TestTheDeadKeepTheirCounts(t *testing.T) {
	b := newFleetBed(t)
	counts := map[string]waitroom.ActivityCounts{"10001": {
		ByWave: map[int64]int64{3: 5}, Issued: map[int64]int64{100: 5}, Reserved: map[int64]int64{100: 2}, IssuedAll: 50, ReservedAll: 20, Waiting: 4,
	}}
	b.report(Line{InstanceID: "dead", Counts: counts})
	b.now = b.now.Add(deadAfter - time.Millisecond)
	b.report(Line{InstanceID: "alive", Counts: counts})
	want := func(when string, lines int, sum waitroom.Counts) {
		t.Helper()
		got := b.lines()
		c := Counts(got)["10001"]
		if len(got) != lines || c.IssuedAll != sum.IssuedAll || c.ReservedAll != sum.ReservedAll || c.Waiting != sum.Waiting || c.ByWave[3] != sum.IssuedAll/10 || c.Issued[100] != sum.IssuedAll/10 || c.Reserved[100] != sum.ReservedAll/10 {
			t.Errorf("%s: %d lines, %+v", when, len(got), c)
		}
	}
	want("both alive", 2, waitroom.Counts{IssuedAll: 100, ReservedAll: 40, Waiting: 8})
	b.now = b.now.Add(time.Millisecond)
	if s := b.status(); len(s.Instances) != 1 {
		t.Errorf("dead after %v: %+v", deadAfter, s)
	}
	want("one dead", 2, waitroom.Counts{IssuedAll: 100, ReservedAll: 40, Waiting: 4})
	b.now = b.now.Add(forgetAfter - time.Minute)
	b.report(Line{InstanceID: "alive", Counts: counts})
	want("nearly a day later", 2, waitroom.Counts{IssuedAll: 100, ReservedAll: 40, Waiting: 4})
	b.now = b.now.Add(time.Minute)
	b.report(Line{InstanceID: "alive", Counts: counts})
	want("a day later", 1, waitroom.Counts{IssuedAll: 50, ReservedAll: 20, Waiting: 4})
	if raw, err := b.store.Instances(t.Context()); err != nil || len(raw) != 1 {
		t.Errorf("%d lines are stored, %v", len(raw), err)
	}
}

// TestAnUnreadableLineIsLeftOut: and said once, however often the lines are read.
func TestAnUnreadableLineIsLeftOut(t *testing.T) {
	b := newFleetBed(t)
	b.report(Line{InstanceID: "good"})
	if err := b.store.Report(t.Context(), "bad", json.RawMessage(`{"version":"seven"}`)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := b.lines(); len(got) != 1 || got[0].InstanceID != "good" {
			t.Errorf("%+v", got)
		}
	}
	if n := strings.Count(b.log.String(), "fleet_line"); n != 1 || !strings.Contains(b.log.String(), "instance_id=bad") {
		t.Errorf("said %d times:\n%s", n, b.log.String())
	}
	b.report(Line{InstanceID: "bad"})
	b.lines()
	if err := b.store.Report(t.Context(), "bad", json.RawMessage(`7`)); err != nil {
		t.Fatal(err)
	}
	b.lines()
	if n := strings.Count(b.log.String(), "fleet_line"); n != 2 {
		t.Errorf("a new fault is not said:\n%s", b.log.String())
	}
}

// lostFleet is a registry that is away.
type lostFleet struct{ admission.Fleet }

func (lostFleet) Instances(context.Context) (map[string]json.RawMessage, error) { return nil, errGone }

func TestALostRegistryIsAnError(t *testing.T) {
	f := &Fleet{Store: lostFleet{}, Now: time.Now, Log: silent()}
	if _, err := f.Lines(t.Context()); err == nil {
		t.Error("Lines: no counts would read as nobody came")
	}
	if _, err := f.Status(t.Context()); err == nil {
		t.Error("Status: no instances would read as no drift")
	}
}

// countingFleet counts reports.
type countingFleet struct {
	admission.Fleet
	mu   sync.Mutex
	seen []int64
	fail error
}

func (c *countingFleet) Report(_ context.Context, _ string, body json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var l Line
	if err := json.Unmarshal(body, &l); err != nil {
		return err
	}
	c.seen = append(c.seen, l.SeenMS)
	return c.fail
}

func (c *countingFleet) answers(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

// TestReportsComeEachSecondAndOnChange: also while the store is away; said when it begins
// and when it ends.
func TestReportsComeEachSecondAndOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		changed := make(chan struct{})
		c := &countingFleet{}
		f := &Fleet{Store: c, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)), Changed: changed, Self: func() Line { return Line{InstanceID: "a"} }}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		time.Sleep(2500 * time.Millisecond)
		changed <- struct{}{}
		synctest.Wait()
		if len(c.seen) != 4 || c.seen[3] != time.Now().UnixMilli() {
			t.Errorf("%d reports in 2.5 s and at a change, want 4", len(c.seen))
		}
		c.answers(errGone)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		c.answers(nil)
		time.Sleep(3 * time.Second)
		stop()
		running.Wait()
		if text := log.String(); strings.Count(text, "step failed") != 1 || strings.Count(text, "works again") != 1 {
			t.Errorf("log:\n%s", text)
		}
	})
}

// shelf is a budget store that refuses some.
type shelf struct {
	admission.Leases
	refuses map[string]error
	got     []admission.Budget
}

func (s *shelf) SetBudget(_ context.Context, b admission.Budget) error {
	if err := s.refuses[b.Ref.SKUID]; err != nil {
		return fmt.Errorf("SKU %s: %w", b.Ref.SKUID, err)
	}
	s.got = append(s.got, b)
	return nil
}

// TestBudgetsAreWrittenEachForItself: one that fails keeps no other from being written.
func TestBudgetsAreWrittenEachForItself(t *testing.T) {
	s := &shelf{refuses: map[string]error{"2": errGone, "4": admission.ErrConflict}}
	b := &Budgets{Leases: s, Wanted: func() (all []admission.Budget) {
		for n := range 5 {
			all = append(all, admission.Budget{Ref: admission.SKURef{ActivityID: "10001", SKUID: fmt.Sprint(n + 1)}, Rate: float64(n)})
		}
		return all
	}}
	err := b.Step(t.Context(), 9)
	for _, want := range []string{"SKU 2", "SKU 4"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if len(s.got) != 3 {
		t.Fatalf("%d written, want the three others", len(s.got))
	}
	for _, got := range s.got {
		if got.Term != 9 {
			t.Errorf("%+v carries no term", got)
		}
	}
	s.refuses = nil
	if err := b.Step(t.Context(), 10); err != nil {
		t.Error(err)
	}
}

// TestAnInstanceThatStartsAgainKeepsItsCounts: with a fixed instance.id the new start
// counts beside the old one, and the old one is dead at once: it drifts no more and nobody
// waits for it.
func TestAnInstanceThatStartsAgainKeepsItsCounts(t *testing.T) {
	b := newFleetBed(t)
	counted := func(issued int64) map[string]waitroom.ActivityCounts {
		return map[string]waitroom.ActivityCounts{"10001": {IssuedAll: issued, ReservedAll: issued / 2, Waiting: 3}}
	}
	b.report(Line{InstanceID: "web-1", Boot: "a", Version: 7, Hash: "old", Roles: []string{"gateway"}, Counts: counted(50)})
	b.now = b.now.Add(time.Second)
	b.report(Line{InstanceID: "web-1", Boot: "b", Version: 8, Hash: "new", Roles: []string{"gateway"}, Counts: counted(4)})
	lines := b.lines()
	if c := Counts(lines)["10001"]; c.IssuedAll != 54 || c.ReservedAll != 27 || c.Waiting != 3 {
		t.Errorf("%+v, want 54 issued and 27 reserved by both starts, 3 waiting for the new one", c)
	}
	if n := Live(lines, b.now, "gateway"); n != 1 {
		t.Errorf("%d live, want the one", n)
	}
	if s := b.status(); s.Drift || s.Version != 8 || len(s.Instances) != 1 {
		t.Errorf("%+v, want the new start alone", s)
	}
}
