package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// scripted is a store that answers as a test says.
type scripted struct {
	mu      sync.Mutex
	answer  func(a admission.LeaseAsk) admission.LeaseAnswer // guarded by mu
	delay   time.Duration                                    // guarded by mu
	fail    error                                            // guarded by mu
	asks    []admission.LeaseAsk                             // guarded by mu
	trips   int                                              // guarded by mu
	budgets map[admission.SKURef]admission.Budget            // guarded by mu
}

func (s *scripted) Ask(ctx context.Context, asks []admission.LeaseAsk) ([]admission.LeaseAnswer, error) {
	s.mu.Lock()
	s.trips++
	s.asks = append(s.asks, asks...)
	delay, fail := s.delay, s.fail
	answers := make([]admission.LeaseAnswer, len(asks))
	for i, a := range asks {
		answers[i] = s.answer(a)
	}
	s.mu.Unlock()
	if !sleep(ctx, delay) {
		return nil, fmt.Errorf("ask: %w", admission.ErrUnknownResult)
	}
	return answers, fail
}

func (s *scripted) SetBudget(context.Context, admission.Budget) error { return nil }

func (s *scripted) Budget(_ context.Context, ref admission.SKURef) (admission.Budget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.budgets[ref]
	if !ok {
		return b, admission.ErrNotFound
	}
	return b, nil
}

func (s *scripted) set(f func(s *scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *scripted) seen() (trips int, asks []admission.LeaseAsk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trips, append([]admission.LeaseAsk(nil), s.asks...)
}

// everything grants what is asked, at least n: tests want tokens to spare.
func everything(n int64) func(admission.LeaseAsk) admission.LeaseAnswer {
	return func(admission.LeaseAsk) admission.LeaseAnswer { return admission.LeaseAnswer{Granted: n, Rate: 1000} }
}

func nothing(retry time.Duration) func(admission.LeaseAsk) admission.LeaseAnswer {
	return func(admission.LeaseAsk) admission.LeaseAnswer { return admission.LeaseAnswer{RetryAfter: retry} }
}

type bench struct {
	*Client
	store *scripted
	wall  *time.Duration // how far the wall clock is off
	reg   *prometheus.Registry
}

// open runs a client in the bubble until the test ends.
func open(t *testing.T, c Config) bench {
	t.Helper()
	b := bench{store: &scripted{answer: everything(10), delay: time.Millisecond}, wall: new(time.Duration), reg: prometheus.NewRegistry()}
	begin := time.Now()
	c.Store, c.InstanceID, c.Registerer = b.store, "one", b.reg
	c.Jitter = func() float64 { return 0 }
	c.Clock = func() Instant {
		d := time.Since(begin)
		return Instant{Mono: int64(d), Wall: int64(d + *b.wall)}
	}
	var err error
	if b.Client, err = NewClient(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

func (b bench) spend(t *testing.T) (Token, admission.Decision) {
	t.Helper()
	return b.Spend(t.Context(), simRef)
}

func (b bench) mustSpend(t *testing.T) Token {
	t.Helper()
	token, d := b.spend(t)
	if d.Refused() {
		t.Fatalf("refused: %+v", d)
	}
	return token
}

func TestTokensDie(t *testing.T) {
	for name, c := range map[string]struct {
		pass, step time.Duration
		alive      bool
	}{
		"alive a moment before lease_ms":                     {pass: 198 * time.Millisecond, alive: true},
		"dead when the monotonic clock says so":              {pass: 200 * time.Millisecond},
		"dead when only the wall clock says so":              {step: 200 * time.Millisecond},
		"dead though the wall clock stepped back":            {pass: 200 * time.Millisecond, step: -time.Hour},
		"alive when the wall clock stepped back":             {pass: 100 * time.Millisecond, step: -time.Hour, alive: true},
		"counted from when the ask was sent, not 1 ms later": {pass: 199 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, Config{})
				token := b.mustSpend(t) // 1 ms after the ask was sent
				b.store.set(func(s *scripted) { s.answer = nothing(time.Minute) })
				time.Sleep(c.pass)
				*b.wall += c.step
				_, d := b.spend(t)
				if alive := !d.Refused(); alive != c.alive {
					t.Errorf("alive: got %v, want %v (%+v)", alive, c.alive, d)
				}
				left := token.sku.(*grant).left.Load()
				b.Return(token)
				if now := token.sku.(*grant).left.Load(); (now == left+1) != c.alive {
					t.Errorf("after returning the token: %d left, before %d", now, left)
				}
			})
		})
	}
}

func TestUnspentTokensAreWastedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.mustSpend(t)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := testutil.ToFloat64(b.metrics.wasted); got != 18 { // nine of each bucket
			t.Errorf("wasted: got %v, want 18", got)
		}
		if got := testutil.ToFloat64(b.metrics.granted); got != 20 {
			t.Errorf("granted: got %v, want 20", got)
		}
	})
}

func TestBothBucketsAreOneTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.mustSpend(t)
		trips, asks := b.store.seen()
		if trips != 1 || len(asks) != 2 || asks[0].Ref != simRef || asks[1].Ref != (admission.SKURef{ActivityID: "10001"}) {
			t.Errorf("got %d trips with %+v", trips, asks)
		}
	})
}

func TestTheOthersTokenGoesBackWhenOneRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.store.set(func(s *scripted) {
			s.answer = func(a admission.LeaseAsk) admission.LeaseAnswer {
				if a.Ref.SKUID == "" {
					return admission.LeaseAnswer{RetryAfter: 70 * time.Millisecond}
				}
				return admission.LeaseAnswer{Granted: 10}
			}
		})
		for range 3 {
			_, d := b.spend(t)
			if d.Outcome != admission.Overloaded || d.Reason != admission.ReasonLeaseEmpty || d.Stage != admission.StageLease || d.RetryAfter > 70*time.Millisecond || d.RetryAfter < 60*time.Millisecond {
				t.Fatalf("got %+v, want Overloaded for the activity's 70 ms", d)
			}
		}
		if left := (*b.pairs.Load())[simRef].sku.left(b.c.Clock()); left != 10 {
			t.Errorf("the SKU has %d tokens left, want all 10", left)
		}
	})
}

// TestOneSharedAskServesThoseInHand: one after the other while the ask is under way. As many
// as it asks for wait for it and are served; everybody else is answered at once.
func TestOneSharedAskServesThoseInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shareOneAsk(t, synctest.Wait)
		if c.trips != 1 || c.small != c.large || c.small < 2 || int64(c.waited) != c.small || c.late != 0 || c.waited+c.atOnce != 100 {
			t.Errorf("%+v: want one trip, which serves as many as it asks for of each budget, and nobody refused late", c)
		}
	})
}

// TestOneSharedAskUnderACrowd: the hundred run at once. One trip asks two budgets, whose
// demands then differ by those who were counted between two readings: who waits is bounded by
// what is asked for, give or take the difference.
func TestOneSharedAskUnderACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := shareOneAsk(t, func() {})
		if c.trips < 1 || c.trips > 2 || c.waited < 1 || int64(c.waited+c.late) > 2*c.large || c.waited+c.late+c.atOnce != 100 {
			t.Errorf("%+v", c)
		}
	})
}

// calls is what became of a hundred calls that share what is in hand.
type calls struct {
	trips                int
	small, large         int64 // what the last trip asked of its two budgets
	waited, late, atOnce int   // served after waiting for it, refused after that, answered at once
}

// shareOneAsk makes them; settle is called after each has begun.
func shareOneAsk(t *testing.T, settle func()) (c calls) {
	t.Helper()
	b := open(t, Config{SyncBudget: 3 * time.Millisecond})
	b.store.set(func(s *scripted) { s.delay, s.answer = 2*time.Millisecond, everything(50) })
	for range 20 { // teach it a demand of 20 in a lease
		go func() { _, _ = b.Spend(t.Context(), simRef) }()
		settle()
	}
	time.Sleep(200 * time.Millisecond)
	before, _ := b.store.seen()

	var mu sync.Mutex
	for range 100 {
		go func() {
			start := time.Now()
			_, d := b.Spend(t.Context(), simRef)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !d.Refused() && time.Since(start) == 2*time.Millisecond:
				c.waited++
			case d.Outcome == admission.Overloaded && time.Since(start) == 0:
				c.atOnce++
			case d.Outcome == admission.Overloaded && time.Since(start) == 2*time.Millisecond:
				c.late++ // the other budget's ask was smaller
			default:
				t.Errorf("after %v: %+v", time.Since(start), d)
			}
		}()
		settle()
	}
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	trips, asks := b.store.seen()
	c.trips = trips - before
	c.small = min(asks[len(asks)-1].Want, asks[len(asks)-2].Want)
	c.large = max(asks[len(asks)-1].Want, asks[len(asks)-2].Want)
	return c
}

func TestNobodyAsksBeforeRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.store.set(func(s *scripted) { s.answer = nothing(500 * time.Millisecond) })
		_, d := b.spend(t)
		if d.Outcome != admission.Overloaded || d.RetryAfter != 500*time.Millisecond {
			t.Fatalf("got %+v, want 500 ms", d)
		}
		for range 49 {
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			if _, d = b.spend(t); d.Outcome != admission.Overloaded || time.Since(start) != 0 {
				t.Fatalf("got %+v after %v, want to be told at once", d, time.Since(start))
			}
		}
		if trips, _ := b.store.seen(); trips != 1 {
			t.Errorf("%d trips within retry_after, want 1", trips)
		}
		if d.RetryAfter != 10*time.Millisecond {
			t.Errorf("10 ms before its end: got %v", d.RetryAfter)
		}
		time.Sleep(10 * time.Millisecond)
		b.store.set(func(s *scripted) { s.answer = everything(5) })
		b.mustSpend(t)
	})
}

func TestALongRetryAfterIsToldButNotObeyedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.store.set(func(s *scripted) { s.answer = nothing(time.Minute) })
		if _, d := b.spend(t); d.RetryAfter != time.Minute {
			t.Errorf("got %v, want the true minute", d.RetryAfter)
		}
		time.Sleep(time.Second) // the leader may have raised the rate
		b.store.set(func(s *scripted) { s.answer = everything(5) })
		b.mustSpend(t)
	})
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.mustSpend(t)
		b.store.set(func(s *scripted) { s.fail = admission.ErrUnavailable })
		for range 9 {
			b.mustSpend(t) // what is alive may be spent
		}
		_, d := b.spend(t) // finds out
		if d.Outcome != admission.DependencyUnavailable || d.Reason != admission.ReasonLeaseStore {
			t.Fatalf("got %+v, want DependencyUnavailable", d)
		}
		before, _ := b.store.seen()
		for range 1000 {
			start := time.Now()
			if _, d := b.spend(t); d.Outcome != admission.DependencyUnavailable || time.Since(start) != 0 {
				t.Fatalf("got %+v after %v, want an answer from memory", d, time.Since(start))
			}
			time.Sleep(10 * time.Millisecond)
		}
		// 10 s: one probe in 170 ms and the saved ones
		if trips, _ := b.store.seen(); trips-before < 50 || trips-before > 10_000/170+askSaved+1 {
			t.Errorf("%d probes in 10 s", trips-before)
		}
		b.store.set(func(s *scripted) { s.fail = nil })
		_, _ = b.spend(t) // the next probe, or one of the next few
		time.Sleep(200 * time.Millisecond)
		_, _ = b.spend(t)
		time.Sleep(2 * time.Millisecond)
		b.mustSpend(t)
	})
}

func TestOneLostReplyCostsMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.store.set(func(s *scripted) { s.fail = admission.ErrUnknownResult })
		_, _ = b.spend(t)
		b.store.set(func(s *scripted) { s.fail = nil })
		_, _ = b.spend(t) // the probe
		time.Sleep(2 * time.Millisecond)
		b.mustSpend(t)
		_, asks := b.store.seen()
		seqs := make(map[uint64]bool)
		for _, a := range asks {
			seqs[a.Seq] = true
		}
		if len(seqs) != len(asks) {
			t.Errorf("a sequence was used again after a lost reply: %+v", asks)
		}
	})
}

func TestR06ASlowStoreStallsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{SyncBudget: 3 * time.Millisecond, AskTimeout: 100 * time.Millisecond})
		b.store.set(func(s *scripted) { s.delay = 40 * time.Millisecond })
		start := time.Now()
		if _, d := b.spend(t); d.Outcome != admission.DependencyUnavailable || time.Since(start) != 3*time.Millisecond {
			t.Errorf("the one who asks: %+v after %v, want 3 ms", d, time.Since(start))
		}
		for range 100 {
			start = time.Now()
			if _, d := b.spend(t); d.Outcome != admission.DependencyUnavailable || time.Since(start) != 0 {
				t.Errorf("the others: %+v after %v, want at once", d, time.Since(start))
			}
		}
		time.Sleep(40 * time.Millisecond)
		b.mustSpend(t) // the late answer counts, until lease_ms after it was asked for
		time.Sleep(160 * time.Millisecond)
		b.store.set(func(s *scripted) { s.answer = nothing(time.Second) })
		if _, d := b.spend(t); !d.Refused() {
			t.Error("a token of a late answer outlived lease_ms since the ask was sent")
		}
	})
}

func TestBackgroundRefillNeedsFourTokens(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		asks  bool
	}{
		"40 a lease": {5 * time.Millisecond, true},
		"2 a lease":  {100 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, Config{})
				b.store.set(func(s *scripted) {
					s.answer = func(a admission.LeaseAsk) admission.LeaseAnswer { return admission.LeaseAnswer{Granted: a.Want} }
				})
				stop := time.Now().Add(2 * time.Second)
				waits := 0
				for time.Now().Before(stop) {
					start := time.Now()
					_, _ = b.spend(t)
					if time.Since(start) > 0 && time.Until(stop) < time.Second {
						waits++
					}
					time.Sleep(c.every)
				}
				if (waits == 0) != c.asks {
					t.Errorf("%d requests of the second second waited for an ask", waits)
				}
			})
		})
	}
}

func TestApplyChangesALiveClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.mustSpend(t)
		b.Apply(Policies{Default: Policy{LeaseFor: 50 * time.Millisecond, Weight: 2.5, Ramp: -1}})
		time.Sleep(300 * time.Millisecond)
		b.mustSpend(t)
		_, asks := b.store.seen()
		last := asks[len(asks)-1]
		if last.LeaseFor != 50*time.Millisecond || last.Weight != 2.5 || last.Ramp != 1 {
			t.Errorf("got %+v", last)
		}
		if first := asks[0]; first.Ramp < 0.1 || first.Ramp > 0.11 {
			t.Errorf("a client that has just started asks with ramp %v, want 0.1", first.Ramp)
		}
	})
}

func TestShareTakesItsPartOfR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{Policies: Policies{Default: Policy{Strategy: Share}}, Share: func() float64 { return 0.25 }})
		if _, d := b.spend(t); d.Outcome != admission.DependencyUnavailable {
			t.Errorf("before a budget was read: got %+v", d)
		}
		b.store.set(func(s *scripted) {
			s.budgets = map[admission.SKURef]admission.Budget{
				simRef: {Rate: 400, Term: 2}, {ActivityID: "10001"}: {Rate: 4000, Term: 2},
			}
		})
		time.Sleep(round)
		synctest.Wait()
		spent := 0
		for range 4000 { // 4 s at 1,000/s for a share of 100/s with a burst of 20
			if _, d := b.spend(t); !d.Refused() {
				spent++
			} else if d.Outcome != admission.Overloaded || d.RetryAfter <= 0 || d.RetryAfter > 10*time.Millisecond {
				t.Fatalf("got %+v", d)
			}
			time.Sleep(time.Millisecond)
		}
		if spent < 400 || spent > 420 {
			t.Errorf("spent %d in 4 s, want 100/s and a burst of 20", spent)
		}
		if trips, _ := b.store.seen(); trips != 0 {
			t.Errorf("%d asks, want none", trips)
		}
		b.store.set(func(s *scripted) { s.budgets[simRef] = admission.Budget{Rate: 9999, Term: 1} })
		time.Sleep(2 * round)
		if got := (*b.pairs.Load())[simRef].sku.budget.Load().Rate; got != 400 {
			t.Errorf("a lower term was taken over: rate %v", got)
		}
	})
}

func TestShareTokensGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{Policies: Policies{Default: Policy{Strategy: Share}}})
		b.store.set(func(s *scripted) {
			s.budgets = map[admission.SKURef]admission.Budget{simRef: {Rate: 5, Term: 1}, {ActivityID: "10001"}: {Rate: 5, Term: 1}}
		})
		_, _ = b.spend(t)
		time.Sleep(time.Millisecond)
		token := b.mustSpend(t)
		if _, d := b.spend(t); !d.Refused() {
			t.Fatal("a burst of one gave two")
		}
		b.Return(token)
		b.mustSpend(t)
	})
}

// remote is a Limiters that admits while open is true.
type remote struct {
	open  bool
	err   error
	takes []admission.Take
}

func (r *remote) Take(_ context.Context, takes []admission.Take) ([]admission.Taken, error) {
	r.takes = append(r.takes, takes...)
	taken := make([]admission.Taken, len(takes))
	for i := range taken {
		taken[i] = admission.Taken{OK: r.open, RetryAfter: 40 * time.Millisecond}
	}
	return taken, r.err
}

func TestCentralAsksForEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &remote{open: true}
		b := open(t, Config{Policies: Policies{Default: Policy{Strategy: Central}}, Limiters: far})
		b.store.set(func(s *scripted) {
			s.budgets = map[admission.SKURef]admission.Budget{simRef: {Rate: 0.5, Burst: 3}, {ActivityID: "10001"}: {Rate: 40000, Burst: 8000}}
		})
		_, _ = b.spend(t)
		time.Sleep(time.Millisecond)
		b.mustSpend(t)
		if len(far.takes) != 2 || far.takes[0].Key != "rl:central:{a:10001:s:90001}" || far.takes[0].Tokens != 500 || far.takes[0].Period != 1000*time.Second || far.takes[1].Tokens != 40000 {
			t.Errorf("got %+v", far.takes)
		}
		far.open = false
		if _, d := b.spend(t); d.Outcome != admission.Overloaded || d.RetryAfter != 40*time.Millisecond {
			t.Errorf("refused there: got %+v", d)
		}
		far.open, far.err = true, admission.ErrUnknownResult
		if _, d := b.spend(t); d.Outcome != admission.DependencyUnavailable {
			t.Errorf("unknown there: got %+v", d)
		}
	})
}

func TestWithoutRunEverybodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(Config{Store: &scripted{answer: everything(10)}, InstanceID: "one"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, d := c.Spend(t.Context(), simRef); d.Outcome != admission.DependencyUnavailable {
				t.Errorf("got %+v", d)
			}
		}
	})
}

func TestPolicyOutOfRange(t *testing.T) {
	for name, p := range map[string]Policy{
		"strategy": {Strategy: "other"}, "short": {LeaseFor: time.Millisecond}, "long": {LeaseFor: time.Minute},
		"ramp": {Ramp: 2 * time.Hour}, "weight": {Weight: -1},
	} {
		if p.Validate() == nil {
			t.Errorf("%s: %+v is accepted", name, p)
		}
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if _, err := NewClient(Config{}); err == nil {
		t.Error("a client without a store: want an error")
	}
}

func TestIdleSKUsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		b.mustSpend(t)
		time.Sleep((forgetAfter + 2) * round)
		synctest.Wait()
		if n := len(*b.pairs.Load()); n != 0 {
			t.Errorf("%d SKUs are remembered", n)
		}
		b.mustSpend(t)
	})
}

func BenchmarkSpend(b *testing.B) {
	store := &scripted{answer: func(a admission.LeaseAsk) admission.LeaseAnswer { return admission.LeaseAnswer{Granted: a.Want + 1e8} }}
	c, err := NewClient(Config{Store: store, InstanceID: "one", Policies: Policies{Default: Policy{LeaseFor: 10 * time.Second}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { _ = c.Run(ctx) }()
	_, _ = c.Spend(ctx, simRef)
	time.Sleep(10 * time.Millisecond)
	b.ReportAllocs()
	refused := 0
	for b.Loop() {
		if _, d := c.Spend(ctx, simRef); d.Refused() {
			refused++
		}
	}
	if refused > 0 {
		b.Logf("%d of %d refused", refused, b.N)
	}
}
