package conformance

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// LimiterStore is one backend of remote limiters on a real clock.
type LimiterStore struct {
	Limiters admission.Limiters
	Pass     func(d time.Duration) // sleeps
}

var algorithms = map[string]admission.Algorithm{
	"token bucket": admission.TokenBucket, "leaky bucket": admission.LeakyBucket,
	"sliding counter": admission.SlidingCounter, "sliding log": admission.SlidingLog,
}

// Limiters is the suite of admission.Limiters. Cases use keys of their own, and bounds
// that hold on a real clock, where time passes by itself.
func Limiters(t *testing.T, open func(t *testing.T) LimiterStore) {
	for name, a := range algorithms {
		t.Run(name, func(t *testing.T) {
			t.Run("capacity, then limited", func(t *testing.T) { limitCapacity(t, open(t), a) })
			t.Run("L02 waiting exactly retry_after succeeds", func(t *testing.T) { limitRetry(t, open(t), a) })
			t.Run("L03 any interval: burst + rate x length", func(t *testing.T) { limitBound(t, open(t), a) })
			t.Run("L03 a change of policy is no refill", func(t *testing.T) { limitChange(t, open(t), a) })
			t.Run("L08 out of range", func(t *testing.T) { limitArguments(t, open(t), a) })
			t.Run("race", func(t *testing.T) { limitRace(t, open(t), a) })
		})
	}
	t.Run("a slow rate is exact", func(t *testing.T) { limitSlow(t, open(t)) })
	t.Run("a refusal does not push the refill away", func(t *testing.T) { limitRefusalsAreFree(t, open(t)) })
	t.Run("limits answer for themselves", func(t *testing.T) { limitMany(t, open(t)) })
}

func limit(t *testing.T, a admission.Algorithm, tokens int64, per time.Duration, capacity int64) admission.Take {
	id := fresh(t)
	return admission.Take{Key: "rl:user:{u:" + id + "}:a:10001:s:90001", Algorithm: a, Tokens: tokens, Period: per, Capacity: capacity, Cost: 1}
}

func mustTake(t *testing.T, s LimiterStore, take admission.Take) admission.Taken {
	t.Helper()
	taken, err := s.Limiters.Take(t.Context(), []admission.Take{take})
	if err != nil || len(taken) != 1 || taken[0].Err != nil {
		t.Fatalf("take %+v: %+v, %v", take, taken, err)
	}
	return taken[0]
}

func limitCapacity(t *testing.T, s LimiterStore, a admission.Algorithm) {
	take := limit(t, a, 5, time.Hour, 5)
	for i := range 5 {
		if got := mustTake(t, s, take); !got.OK || got.RetryAfter != 0 && got.RetryAfter != admission.Forever || math.Abs(got.Remaining-float64(4-i)) > 0.05 {
			t.Errorf("call %d: got %+v", i+1, got)
		}
	}
	got := mustTake(t, s, take)
	if got.OK || got.RetryAfter <= 0 || got.RetryAfter > 2*time.Hour || got.Remaining > 0.05 {
		t.Errorf("call 6: got %+v, want it limited with a wait", got)
	}
	other := take
	other.Key += ":other"
	other.Cost = 5
	if got := mustTake(t, s, other); !got.OK {
		t.Errorf("another key, all at once: got %+v", got)
	}
}

func limitRetry(t *testing.T, s LimiterStore, a admission.Algorithm) {
	waits := 0
	for window := 300 * time.Millisecond; waits == 0; window *= 4 { // on a slow machine it takes a longer one to be limited
		take := limit(t, a, 7, window, 7)
		take.Cost = 3
		for range 8 {
			got := mustTake(t, s, take)
			if got.OK {
				continue
			}
			waits++
			if got.RetryAfter <= 0 || got.RetryAfter > 2*window {
				t.Fatalf("got %+v, want a wait of at most two windows of %v", got, window)
			}
			s.Pass(got.RetryAfter)
			if again := mustTake(t, s, take); !again.OK {
				t.Errorf("after waiting exactly %v: got %+v", got.RetryAfter, again)
			}
		}
		if window > time.Minute {
			t.Fatal("never limited")
		}
	}
}

func limitBound(t *testing.T, s LimiterStore, a admission.Algorithm) {
	const tokens, per = 10, 100 * time.Millisecond
	take := limit(t, a, tokens, per, tokens)
	var sent, answered []time.Duration // of admissions: the store's moment is between them
	begin := time.Now()
	calls := 0
	for ; time.Since(begin) < 450*time.Millisecond; calls++ {
		at := time.Since(begin)
		if mustTake(t, s, take).OK {
			sent, answered = append(sent, at), append(answered, time.Since(begin))
		}
		s.Pass(time.Millisecond)
	}
	for i := range sent {
		for j := i; j < len(sent); j++ {
			length := answered[j] - sent[i] + time.Millisecond // the store counts whole ms
			if got, most := j-i+1, float64(tokens)+float64(tokens)*float64(length)/float64(per); float64(got) > most {
				t.Fatalf("%d admitted within %v, want at most %.1f", got, length, most)
			}
		}
	}
	if calls > 100 && len(sent) < 2*tokens { // fewer calls: the machine itself is the limit
		t.Errorf("%d admitted in %v, want more than the first burst", len(sent), time.Since(begin))
	}
}

func limitChange(t *testing.T, s LimiterStore, a admission.Algorithm) {
	fast := limit(t, a, 10, 20*time.Minute, 10) // a token in two minutes: no machine is so slow
	slow := fast
	slow.Period = 20 * time.Hour
	all := fast
	all.Cost = 10
	mustTake(t, s, all) // drained
	for _, take := range []admission.Take{slow, fast, slow, fast} {
		if got := mustTake(t, s, take); got.OK {
			t.Fatalf("right after a change to 10 in %v: got %+v", take.Period, got)
		}
	}
	more := fast
	more.Capacity = 1000
	if a == admission.TokenBucket {
		if got := mustTake(t, s, more); got.OK {
			t.Errorf("a wider bucket hands out tokens at once: %+v", got)
		}
	}
}

func limitArguments(t *testing.T, s LimiterStore, a admission.Algorithm) {
	for what, spoil := range map[string]func(*admission.Take){
		"no key":              func(k *admission.Take) { k.Key = "" },
		"cost 0":              func(k *admission.Take) { k.Cost = 0 },
		"cost -1":             func(k *admission.Take) { k.Cost = -1 },
		"cost above capacity": func(k *admission.Take) { k.Cost = 6 },
		"tokens -1":           func(k *admission.Take) { k.Tokens = -1 },
		"period 0":            func(k *admission.Take) { k.Period = 0 },
		"period of half a ms": func(k *admission.Take) { k.Period = time.Millisecond / 2 },
		"everything too large": func(k *admission.Take) {
			k.Capacity, k.Tokens, k.Period = math.MaxInt64, math.MaxInt64, math.MaxInt64/2*2
		},
		"unknown algorithm": func(k *admission.Take) { k.Algorithm = 9 },
	} {
		take := limit(t, a, 5, time.Minute, 5)
		spoil(&take)
		if taken, err := s.Limiters.Take(t.Context(), []admission.Take{take}); err == nil || taken[0].OK {
			t.Errorf("%s: got %+v, %v, want an error", what, taken, err)
		}
	}
	closed := limit(t, a, 0, time.Minute, 5)
	if got := mustTake(t, s, closed); got.OK || got.RetryAfter != admission.Forever {
		t.Errorf("rate 0: got %+v, want it closed", got)
	}
}

func limitRace(t *testing.T, s LimiterStore, a admission.Algorithm) {
	take := limit(t, a, 20, time.Hour, 20)
	var admitted atomic.Int32
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if taken, err := s.Limiters.Take(t.Context(), []admission.Take{take}); err == nil && taken[0].OK {
				admitted.Add(1)
			}
		})
	}
	group.Wait()
	if n := admitted.Load(); n != 20 {
		t.Errorf("%d of 50 admitted at once, want 20", n)
	}
}

func limitSlow(t *testing.T, s LimiterStore) {
	glacial := limit(t, admission.TokenBucket, 1, 100*time.Second, 10) // 0.01/s
	glacial.Cost = 10
	mustTake(t, s, glacial)
	glacial.Cost = 1
	s.Pass(60 * time.Millisecond)
	if got := mustTake(t, s, glacial); got.OK || got.RetryAfter > 100*time.Second || got.RetryAfter < 90*time.Second {
		t.Errorf("0.01/s after 60 ms: got %+v, want a wait of just under 100 s", got)
	}
}

func limitRefusalsAreFree(t *testing.T, s LimiterStore) {
	take := limit(t, admission.TokenBucket, 1, 150*time.Millisecond, 1)
	mustTake(t, s, take)
	begin := time.Now()
	for range 1000 {
		if mustTake(t, s, take).OK {
			return
		}
		s.Pass(5 * time.Millisecond)
	}
	t.Errorf("refused for %v at one in 150 ms: refusals cost something", time.Since(begin))
}

func limitMany(t *testing.T, s LimiterStore) {
	one, two := limit(t, admission.TokenBucket, 1, time.Hour, 1), limit(t, admission.SlidingLog, 1, time.Hour, 1)
	bad := one
	bad.Cost = 0
	for i, want := range []bool{true, false} {
		taken, err := s.Limiters.Take(t.Context(), []admission.Take{one, bad, two})
		if err != nil || taken[0].OK != want || taken[2].OK != want || taken[1].Err == nil {
			t.Errorf("call %d: got %+v, %v", i+1, taken, err)
		}
	}
	if taken, err := s.Limiters.Take(t.Context(), nil); len(taken) != 0 || err != nil {
		t.Errorf("nothing: got %+v, %v", taken, err)
	}
}
