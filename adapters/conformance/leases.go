package conformance

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// LeaseStore is one backend under test together with its clock.
type LeaseStore struct {
	Leases admission.Leases
	// Pass lets the store's clock advance. Stores on a real clock sleep.
	Pass func(d time.Duration)
}

// Leases is the suite of admission.Leases. Cases use activities of their own, and
// bounds that hold on a real clock, where time passes by itself.
func Leases(t *testing.T, open func(t *testing.T) LeaseStore) {
	t.Run("a new budget starts empty and fills at its rate", func(t *testing.T) { leaseFill(t, open(t)) })
	t.Run("burst bounds what gathers", func(t *testing.T) { leaseBurst(t, open(t)) })
	t.Run("a repeated ask gets the same answer", func(t *testing.T) { leaseRepeat(t, open(t)) })
	t.Run("an older sequence gets nothing", func(t *testing.T) { leaseOld(t, open(t)) })
	t.Run("no budget, no grant", func(t *testing.T) { leaseAbsent(t, open(t)) })
	t.Run("rate 0 closes", func(t *testing.T) { leaseClosed(t, open(t)) })
	t.Run("retry_after is never short", func(t *testing.T) { leaseRetry(t, open(t)) })
	t.Run("rates below one a second are exact", func(t *testing.T) { leaseSlow(t, open(t)) })
	t.Run("L03 a change of rate hands out nothing", func(t *testing.T) { leaseChange(t, open(t)) })
	t.Run("a lower term is fenced off", func(t *testing.T) { leaseFence(t, open(t)) })
	t.Run("a share is bounded by its weight", func(t *testing.T) { leaseShare(t, open(t)) })
	t.Run("the ramp scales a grant, never below one", func(t *testing.T) { leaseRamp(t, open(t)) })
	t.Run("buckets answer for themselves", func(t *testing.T) { leaseMany(t, open(t)) })
	t.Run("a budget reads as it was written", func(t *testing.T) { leaseRead(t, open(t)) })
	t.Run("arguments out of range", func(t *testing.T) { leaseArguments(t, open(t)) })
}

const leaseFor = 200 * time.Millisecond

func leaseRef(t *testing.T) admission.SKURef {
	return admission.SKURef{ActivityID: fresh(t), SKUID: "90001"}
}

func ask(ref admission.SKURef, instance string, seq uint64, want int64) admission.LeaseAsk {
	return admission.LeaseAsk{Ref: ref, InstanceID: instance, Seq: seq, Want: want, Weight: 1, LeaseFor: leaseFor, Ramp: 1}
}

// remembered is an ask of a lease so long that no machine is slow enough for the store to
// forget the instance before its next one: that takes two leases.
func remembered(ref admission.SKURef, instance string, seq uint64, want int64) admission.LeaseAsk {
	a := ask(ref, instance, seq, want)
	a.LeaseFor = 5 * time.Second
	return a
}

func budget(ref admission.SKURef, rate float64, burst int64) admission.Budget {
	return admission.Budget{Ref: ref, Rate: rate, Burst: burst, Term: 1, PolicyVersion: 17, Binding: "mq", EmittedAt: time.UnixMilli(1782388800123)}
}

func mustBudget(t *testing.T, s LeaseStore, b admission.Budget) {
	t.Helper()
	if err := s.Leases.SetBudget(t.Context(), b); err != nil {
		t.Fatalf("budget %+v: %v", b, err)
	}
}

func mustAsk(t *testing.T, s LeaseStore, a admission.LeaseAsk) admission.LeaseAnswer {
	t.Helper()
	answers, err := s.Leases.Ask(t.Context(), []admission.LeaseAsk{a})
	if err != nil || len(answers) != 1 || answers[0].Err != nil {
		t.Fatalf("ask %+v: %+v, %v", a, answers, err)
	}
	return answers[0]
}

func leaseFill(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	begin := time.Now()
	mustBudget(t, s, budget(ref, 1000, 1000))
	got := mustAsk(t, s, ask(ref, "one", 1, 1000)).Granted
	s.Pass(300 * time.Millisecond)
	got += mustAsk(t, s, ask(ref, "one", 2, 1000)).Granted
	most := int64(time.Since(begin)/time.Millisecond) + 301 // a store on a virtual clock has passed 300 ms at once
	if got < 300 || got > most {
		t.Errorf("granted %d at 1,000/s, want 300..%d", got, most)
	}
}

func leaseBurst(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 1000, 20))
	s.Pass(300 * time.Millisecond)
	if got := mustAsk(t, s, ask(ref, "one", 1, 1000)); got.Granted != 20 || got.Rate != 1000 {
		t.Errorf("got %+v, want the burst of 20 at a rate of 1,000", got)
	}
}

func leaseRepeat(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 1000, 100))
	s.Pass(150 * time.Millisecond)
	first := mustAsk(t, s, remembered(ref, "one", 1, 40))
	s.Pass(100 * time.Millisecond)
	if again := mustAsk(t, s, remembered(ref, "one", 1, 40)); again != first || first.Granted != 40 {
		t.Errorf("the same ask: got %+v, then %+v", first, again)
	}
	if other := mustAsk(t, s, ask(ref, "two", 1, 40)); other.Granted == 0 {
		t.Errorf("another instance's sequence 1: got %+v, want a grant of its own", other)
	}
}

func leaseOld(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 1000, 100))
	s.Pass(150 * time.Millisecond)
	mustAsk(t, s, remembered(ref, "one", 7, 10))
	if late := mustAsk(t, s, remembered(ref, "one", 6, 10)); late.Granted != 0 {
		t.Errorf("a sequence that was overtaken: got %+v, want nothing", late)
	}
}

func leaseAbsent(t *testing.T, s LeaseStore) {
	if got := mustAsk(t, s, ask(leaseRef(t), "one", 1, 10)); got.Granted != 0 || got.RetryAfter <= 0 {
		t.Errorf("got %+v, want nothing and a wait", got)
	}
}

func leaseClosed(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 0, 10))
	s.Pass(50 * time.Millisecond)
	if got := mustAsk(t, s, ask(ref, "one", 1, 10)); got.Granted != 0 || got.RetryAfter <= 0 {
		t.Errorf("got %+v, want nothing and a wait", got)
	}
}

func leaseRetry(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 8, 5)) // a token each 125 ms
	for seq := uint64(1); seq <= 6; seq += 2 {
		empty := mustAsk(t, s, ask(ref, "one", seq, 5))
		if empty.Granted > 0 { // slow machine: the wait was longer than a token's time
			continue
		}
		if empty.RetryAfter <= 0 || empty.RetryAfter > 125*time.Millisecond {
			t.Errorf("got %+v, want a wait of at most 125 ms", empty)
		}
		s.Pass(empty.RetryAfter)
		if got := mustAsk(t, s, ask(ref, "one", seq+1, 5)); got.Granted < 1 {
			t.Errorf("after waiting %v: got %+v, want a token", empty.RetryAfter, got)
		}
	}
}

func leaseSlow(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	const token = 2500 * time.Millisecond
	b := budget(ref, 0.4, 1) // a token each 2.5 s
	begin := time.Now()
	mustBudget(t, s, b)
	first := mustAsk(t, s, ask(ref, "one", 1, 1))
	least := token - time.Since(begin) - 2*time.Millisecond // the store counts whole ms
	if first.Granted == 0 && (first.RetryAfter > token || first.RetryAfter < least) || first.Granted > 0 && least > 0 {
		t.Errorf("got %+v, want a wait of 2.5 s, of which %v have passed", first, token-least)
	}
	got := first.Granted
	for seq := uint64(2); seq < 20; seq++ { // many small steps must not round the credit away
		s.Pass(7 * time.Millisecond)
		got += mustAsk(t, s, ask(ref, "one", seq, 1)).Granted
	}
	s.Pass(first.RetryAfter - 18*7*time.Millisecond)
	got += mustAsk(t, s, ask(ref, "one", 20, 1)).Granted
	if most := 1 + int64(time.Since(begin)/token); got < 1 || got > most {
		t.Errorf("after 2.5 s in small steps: got %d, want the token, and at most %d", got, most)
	}
}

func leaseChange(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 1000, 200))
	s.Pass(250 * time.Millisecond)
	mustAsk(t, s, ask(ref, "one", 1, 200)) // drained
	for _, b := range []admission.Budget{budget(ref, 0.1, 1000), budget(ref, 0.1, 2_000_000_000), budget(ref, 0, 0), budget(ref, 0.1, 1000)} {
		mustBudget(t, s, b)
	}
	// at 1,000/s only the moments before the first change can have left anything
	if got := mustAsk(t, s, ask(ref, "two", 1, 1000)); got.Granted > 0 {
		t.Errorf("after the changes: got %+v, want nothing: the level went through a burst of 0", got)
	}
}

func leaseFence(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	b := budget(ref, 1000, 100)
	b.Term = 5
	mustBudget(t, s, b)
	b.Rate, b.Term = 9999, 4
	if err := s.Leases.SetBudget(t.Context(), b); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("term 4 after 5: got %v, want ErrConflict", err)
	}
	if got, err := s.Leases.Budget(t.Context(), ref); err != nil || got.Rate != 1000 || got.Term != 5 {
		t.Errorf("got %+v, %v, want the budget of term 5", got, err)
	}
	if got := mustAsk(t, s, ask(ref, "one", 1, 1)); got.Rate != 1000 {
		t.Errorf("the bucket's rate is %v, want that of term 5", got.Rate)
	}
	b.Rate, b.Term = 2000, 5
	mustBudget(t, s, b) // the same leader goes on
	b.Rate, b.Term = 3000, 6
	mustBudget(t, s, b)
}

func leaseShare(t *testing.T, s LeaseStore) {
	for range 50 {
		if leaseShareInTime(t, s) {
			return
		}
	}
	t.Error("the store forgets who asked before two of its leases are over, or never answers in time")
}

// leaseShareInTime is the case itself; false says nothing: the store has had the time to
// forget an instance, which takes two leases.
func leaseShareInTime(t *testing.T, s LeaseStore) bool {
	ref := leaseRef(t)
	begin := time.Now()
	mustBudget(t, s, budget(ref, 1000, 200))
	// both are known and ask for all of it
	mustAsk(t, s, ask(ref, "light", 1, 1))
	heavy := ask(ref, "heavy", 1, 1)
	heavy.Weight = 3
	mustAsk(t, s, heavy)
	s.Pass(200 * time.Millisecond)
	light := mustAsk(t, s, ask(ref, "light", 2, 1000))
	heavy.Seq, heavy.Want = 2, 1000
	rest := mustAsk(t, s, heavy)
	if time.Since(begin) > 2*leaseFor-20*time.Millisecond {
		return false
	}
	// of 200 tokens: 50 and 150. Real clocks run between the calls.
	if light.Granted < 40 || light.Granted > 90 || rest.Granted < 110 || light.Granted+rest.Granted < 180 {
		t.Errorf("weights 1 and 3 of 200 tokens: got %d and %d, want about 50 and 150", light.Granted, rest.Granted)
	}
	return true
}

func leaseRamp(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	mustBudget(t, s, budget(ref, 1000, 100))
	s.Pass(150 * time.Millisecond)
	fresh := ask(ref, "fresh", 1, 1000)
	fresh.Ramp = 0.1
	if got := mustAsk(t, s, fresh); got.Granted != 20 { // its share of one lease is 200
		t.Errorf("at a tenth of the ramp: got %+v, want a tenth of its share", got)
	}
	fresh.Seq, fresh.Ramp = 2, 0.001
	if got := mustAsk(t, s, fresh); got.Granted != 1 {
		t.Errorf("at the start of the ramp: got %+v, want 1", got)
	}
}

func leaseMany(t *testing.T, s LeaseStore) {
	sku := leaseRef(t)
	activity := admission.SKURef{ActivityID: sku.ActivityID}
	absent := leaseRef(t)
	mustBudget(t, s, budget(sku, 1000, 10))
	mustBudget(t, s, budget(activity, 2000, 20))
	s.Pass(100 * time.Millisecond)
	bad := ask(sku, "", 1, 5)
	answers, err := s.Leases.Ask(t.Context(), []admission.LeaseAsk{
		ask(sku, "one", 1, 100), bad, ask(activity, "one", 1, 100), ask(absent, "one", 1, 100),
	})
	if err != nil || len(answers) != 4 {
		t.Fatalf("got %+v, %v", answers, err)
	}
	if answers[0].Granted != 10 || answers[2].Granted != 20 || answers[3].Granted != 0 || answers[3].Err != nil {
		t.Errorf("got %+v", answers)
	}
	if answers[1].Err == nil {
		t.Error("an ask without an instance: want an error of its own")
	}
	if answers, err := s.Leases.Ask(t.Context(), []admission.LeaseAsk{bad}); err == nil || len(answers) != 1 || answers[0].Err == nil {
		t.Errorf("when every ask fails: got %+v, %v, want the error twice", answers, err)
	}
}

func leaseRead(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	if b, err := s.Leases.Budget(t.Context(), ref); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("before the first: got %+v, %v, want ErrNotFound", b, err)
	}
	want := admission.Budget{
		Ref: ref, PolicyVersion: 18, Mode: admission.ModeDegraded, Rate: 1234.567, Burst: 99,
		Binding: "gateway", Term: 7, EmittedAt: time.UnixMilli(1782388800123),
	}
	mustBudget(t, s, want)
	got, err := s.Leases.Budget(t.Context(), ref)
	if err != nil || !got.EmittedAt.Equal(want.EmittedAt) {
		t.Fatalf("got %+v, %v", got, err)
	}
	got.EmittedAt = want.EmittedAt // the zone may differ
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func leaseArguments(t *testing.T, s LeaseStore) {
	ref := leaseRef(t)
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1), 2e9} {
		if err := s.Leases.SetBudget(t.Context(), budget(ref, rate, 10)); err == nil {
			t.Errorf("rate %v: want an error", rate)
		}
	}
	if err := s.Leases.SetBudget(t.Context(), budget(ref, 10, -1)); err == nil {
		t.Error("burst -1: want an error")
	}
	if _, err := s.Leases.Budget(t.Context(), ref); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("a refused budget was written: %v", err)
	}
	mustBudget(t, s, budget(ref, 1000, 10))
	for what, spoil := range map[string]func(*admission.LeaseAsk){
		"want 0":        func(a *admission.LeaseAsk) { a.Want = 0 },
		"want -1":       func(a *admission.LeaseAsk) { a.Want = -1 },
		"seq 0":         func(a *admission.LeaseAsk) { a.Seq = 0 },
		"weight 0":      func(a *admission.LeaseAsk) { a.Weight = 0 },
		"weight NaN":    func(a *admission.LeaseAsk) { a.Weight = math.NaN() },
		"lease 0":       func(a *admission.LeaseAsk) { a.LeaseFor = 0 },
		"ramp 0":        func(a *admission.LeaseAsk) { a.Ramp = 0 },
		"ramp above 1":  func(a *admission.LeaseAsk) { a.Ramp = 1.5 },
		"ramp negative": func(a *admission.LeaseAsk) { a.Ramp = -0.1 },
	} {
		a := ask(ref, "one", 1, 5)
		spoil(&a)
		if answers, err := s.Leases.Ask(t.Context(), []admission.LeaseAsk{a}); err == nil {
			t.Errorf("%s: got %+v, want an error", what, answers)
		}
	}
}
