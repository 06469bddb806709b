package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// SourceBackend is one source of rules and a way to edit behind its back, as an operator does.
type SourceBackend struct {
	Source rules.Source
	Write  func(t *testing.T, doc []byte)
	Remove func(t *testing.T)
}

// seenWithin bounds every wait of the suite; what a push takes is measured by its own case.
const seenWithin = time.Minute

// Sources is what every source of rules must do. open returns a backend with no document.
func Sources(t *testing.T, open func(*testing.T) SourceBackend) {
	t.Run("DocumentThereBeforeTheStart", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(7))
		followed(t, b).wait(t, "version 7", atVersion(7))
	})
	t.Run("UpdateIsSeen", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(1))
		f := followed(t, b)
		f.wait(t, "version 1", atVersion(1))
		b.Write(t, ruleDocument(2))
		f.wait(t, "version 2", atVersion(2))
	})
	t.Run("DocumentThatComesLater", func(t *testing.T) {
		b := open(t)
		f := followed(t, b)
		f.wait(t, "an absent document to be reported", refusedFor(rules.RefusedDeleted))
		b.Write(t, ruleDocument(1))
		f.wait(t, "version 1", atVersion(1))
	})
	t.Run("BadDocumentLeavesTheOld", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(1))
		f := followed(t, b)
		f.wait(t, "version 1", atVersion(1))
		b.Write(t, []byte(`{"schema":1,"version":2,"limits":{"user":{"rate_per_s":-1,"burst":3}}}`))
		f.wait(t, "the refusal", refusedFor(rules.RefusedValidate))
		if s := f.applier.Status(); s.Version != 1 || s.LastError.Path != "$.limits.user.rate_per_s" {
			t.Fatalf("after a bad document: %+v, %+v", s, s.LastError)
		}
		b.Write(t, ruleDocument(3))
		f.wait(t, "version 3", atVersion(3))
	})
	t.Run("EmptyAndNullKeepTheOld", func(t *testing.T) {
		for _, empty := range []string{"null", "[]", "{}"} {
			b := open(t)
			b.Write(t, ruleDocument(1))
			f := followed(t, b)
			f.wait(t, "version 1", atVersion(1))
			b.Write(t, []byte(empty))
			f.wait(t, fmt.Sprintf("%q to be refused", empty), refusedFor(rules.RefusedEmpty))
			if f.applier.Snapshot().Version != 1 {
				t.Fatalf("%q changed the rules", empty)
			}
		}
	})
	t.Run("DeletedKeepsTheOld", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(1))
		f := followed(t, b)
		f.wait(t, "version 1", atVersion(1))
		b.Remove(t)
		f.wait(t, "the deletion", refusedFor(rules.RefusedDeleted))
		if f.applier.Snapshot().Version != 1 {
			t.Fatal("a deletion changed the rules")
		}
		b.Write(t, ruleDocument(2))
		f.wait(t, "version 2", atVersion(2))
	})
	t.Run("ManyWritesEndAtTheLast", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(1))
		f := followed(t, b)
		f.wait(t, "version 1", atVersion(1))
		for v := 2; v <= 30; v++ {
			b.Write(t, ruleDocument(v))
		}
		f.wait(t, "version 30", atVersion(30))
		if got := f.versions(); !slices.IsSorted(got) {
			t.Fatalf("versions went back: %v", got)
		}
	})
	t.Run("AgeIsConfirmedWithoutAChange", func(t *testing.T) {
		b := open(t)
		b.Write(t, ruleDocument(1))
		f := followed(t, b)
		f.wait(t, "version 1", atVersion(1))
		start := time.Now()
		f.wait(t, "another contact", func(a *rules.Applier) bool { return a.Age(time.Now()) < time.Since(start)-time.Second })
	})
	t.Run("CompareAndSet", func(t *testing.T) {
		b := open(t)
		g, ok := b.Source.(rules.Governed)
		if !ok {
			t.Skip("the source cannot be written")
		}
		compareAndSet(t, g)
	})
}

func compareAndSet(t *testing.T, g rules.Governed) {
	ctx := t.Context()
	if _, err := g.Read(ctx); !errors.Is(err, admission.ErrNotFound) {
		t.Fatalf("an absent document reads as %v", err)
	}
	// Two first publishes: at most one wins, and the loser knows.
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = g.Publish(ctx, nil, ruleDocument(100+i)) })
	}
	wg.Wait()
	now, err := g.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		won := string(now) == string(ruleDocument(100+i))
		if won != (err == nil) || err != nil && !errors.Is(err, admission.ErrConflict) {
			t.Errorf("first publish %d: %v; the key holds %s", i, err, now)
		}
	}
	if err := g.Publish(ctx, ruleDocument(99), ruleDocument(200)); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("a stale publish: %v, want a conflict", err)
	}
	if err := g.Publish(ctx, now, ruleDocument(201)); err != nil {
		t.Errorf("a fresh publish: %v", err)
	}
	past, err := g.History(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(past, func(p rules.Past) bool { return string(p.Raw) == string(now) && !p.At.IsZero() && p.By != "" }) {
		t.Errorf("the history does not hold the document before, with when and who: %+v", past)
	}
	if string(past[0].Raw) != string(ruleDocument(201)) || past[0].At.IsZero() || past[0].By == "" {
		t.Errorf("the history does not begin with the present document, when it came and who brought it: %+v", past)
	}
}

// pushPause lies between measured pushes: the Nacos client asks at most five times a second.
const pushPause = 250 * time.Millisecond

// PushToEffect measures n pushes, one after the other, from the return of Write to the new
// snapshot in force, and returns the sorted times.
func PushToEffect(t *testing.T, b SourceBackend, n int) []time.Duration {
	b.Write(t, ruleDocument(1))
	f := followed(t, b)
	f.wait(t, "version 1", atVersion(1))
	took := make([]time.Duration, 0, n)
	for v := 2; v < n+2; v++ {
		time.Sleep(pushPause)
		b.Write(t, ruleDocument(v))
		start := time.Now()
		f.wait(t, fmt.Sprintf("version %d", v), atVersion(int64(v)))
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took
}

func ruleDocument(version int) []byte {
	return fmt.Appendf(nil, `{"schema":1,"version":%d,"comment":"conformance","ticket":{"active_key_id":"k%d"}}`, version, version)
}

type follower struct {
	applier *rules.Applier
	mu      sync.Mutex
	seen    []int64 // guarded by mu
	changed chan struct{}
}

// followed runs an applier on the source until the test ends.
func followed(t *testing.T, b SourceBackend) *follower {
	f := &follower{applier: rules.NewApplier(rules.Config{InstanceID: "conformance", Engine: noEngine{}}), changed: make(chan struct{}, 1)}
	f.applier.OnApply(func(s *rules.Snapshot) {
		f.mu.Lock()
		f.seen = append(f.seen, s.Version)
		f.mu.Unlock()
		select {
		case f.changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.applier.Run(ctx, b.Source); err != nil {
			t.Errorf("the source gave up: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return f
}

func (f *follower) versions() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

func (f *follower) wait(t *testing.T, what string, done func(*rules.Applier) bool) {
	t.Helper()
	deadline := time.After(seenWithin)
	look := time.NewTicker(5 * time.Millisecond) // refusals change no snapshot
	defer look.Stop()
	for !done(f.applier) {
		select {
		case <-f.changed:
		case <-look.C:
		case <-deadline:
			t.Fatalf("waited %v for %s; status %+v", seenWithin, what, f.applier.Status())
		}
	}
}

func atVersion(v int64) func(*rules.Applier) bool {
	return func(a *rules.Applier) bool { s := a.Snapshot(); return s != nil && s.Version == v }
}

func refusedFor(r rules.Reason) func(*rules.Applier) bool {
	return func(a *rules.Applier) bool { e := a.Status().LastError; return e != nil && e.Reason == r }
}

// noEngine enforces nothing: the suite is about documents.
type noEngine struct{}

func (noEngine) Load(_, _ rules.SentinelRules) error { return nil }
func (noEngine) Settle() error                       { return nil }
func (noEngine) Settled() <-chan struct{}            { return nil }
