package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"pgregory.net/rapid"
)

// The tests of this package live in virtual time: an Instant is an argument, so nothing
// here sleeps.

const (
	ms  = limit.Instant(time.Millisecond)
	sec = limit.Instant(time.Second)
)

// must unwraps a constructor whose arguments the test knows to be good.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// step is one row of a table: what a limiter answers to n units at t.
type step struct {
	t     limit.Instant
	n     int64
	ok    bool
	retry time.Duration
	left  int64
}

func play(t *testing.T, l limit.Limiter, steps []step) {
	t.Helper()
	for i, s := range steps {
		want := limit.Decision{OK: s.ok, RetryAfter: s.retry, Remaining: s.left}
		if got := l.Allow(s.t, s.n); got != want {
			t.Fatalf("step %d: Allow(%v, %d) = %+v, want %+v", i, time.Duration(s.t), s.n, got, want)
		}
	}
}

// kind is a limiter under test beside its promise.
type kind struct {
	name  string
	build func(units int64) limit.Limiter
	// bound is the most it may admit within any closed interval of this length.
	bound func(units int64, length time.Duration) float64
}

// span is the window of every kind below: units come back at units/span.
const span = time.Second

func rated(units int64, length time.Duration) float64 {
	return float64(units) * length.Seconds() / span.Seconds()
}

// windows is how many half-open windows an interval of this length can need to cover it.
func windows(units int64, length time.Duration) float64 {
	return float64(units * (int64(length/span) + 1))
}

func kinds() []kind {
	perSpan := func(units int64) limit.Rate { return must(limit.NewRate(rated(units, time.Second), units)) }
	oneBurst := func(units int64, length time.Duration) float64 { return float64(units) + rated(units, length) }
	return []kind{
		{"Bucket", func(u int64) limit.Limiter { return limit.NewBucket(perSpan(u)) }, oneBurst},
		{"LeakyBucket", func(u int64) limit.Limiter { return limit.NewLeakyBucket(perSpan(u)) }, oneBurst},
		{"SlidingCounter", func(u int64) limit.Limiter { return must(limit.NewSlidingCounter(u, span)) }, oneBurst},
		{"SlidingLog", func(u int64) limit.Limiter { return must(limit.NewSlidingLog(u, span)) }, windows},
		{"SlottedWindow", func(u int64) limit.Limiter { return must(limit.NewSlottedWindow(u, span)) }, windows},
		{"FixedWindow", func(u int64) limit.Limiter { return must(limit.NewFixedWindow(u, span)) },
			func(u int64, length time.Duration) float64 { return float64(u) + windows(u, length) }},
		{"Keyed", func(u int64) limit.Limiter { return oneKey(perSpan(u)) }, oneBurst},
		{"Stripes", func(u int64) limit.Limiter { return oneStripe(perSpan(u)) }, oneBurst},
	}
}

type limiterFunc func(now limit.Instant, n int64) limit.Decision

func (f limiterFunc) Allow(now limit.Instant, n int64) limit.Decision { return f(now, n) }

// oneKey is a keyed table seen through one of its keys.
func oneKey(r limit.Rate) limit.Limiter {
	k := must(limit.NewKeyed(limit.KeyedConfig{Shards: 1, MaxEntries: 4}))
	return limiterFunc(func(now limit.Instant, n int64) limit.Decision {
		return k.Allow(now, limit.Key{ID: 1}, n, r)
	})
}

func oneStripe(r limit.Rate) limit.Limiter {
	s := must(limit.NewStripes(1, r))
	return limiterFunc(func(now limit.Instant, n int64) limit.Decision { return s.Allow(now, 1, n) })
}

// call is one call of a random run: n units admitted, 0 if it was refused.
type call struct {
	at limit.Instant
	n  int64
}

// TestBoundInEveryInterval drives each limiter with a clock that jumps both ways and then
// looks at every interval of the run: from any call to any later one, what was admitted
// stays within the promise for as long as the clock showed between them.
func TestBoundInEveryInterval(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, rapid.MakeCheck(func(t *rapid.T) {
			units := rapid.Int64Range(1, 20).Draw(t, "units")
			l := k.build(units)
			var calls []call
			now := limit.Instant(rapid.Int64Range(0, int64(3*span)).Draw(t, "start"))
			for range rapid.IntRange(1, 80).Draw(t, "calls") {
				now = max(now.Add(drawJump(t)), 0)
				n := rapid.Int64Range(1, units).Draw(t, "n")
				if !l.Allow(now, n).OK {
					n = 0 // it let time pass all the same
				}
				calls = append(calls, call{now, n})
			}
			for i := range calls {
				checkFrom(t, k, units, calls[i:])
			}
		}))
	}
}

// drawJump is mostly a small step ahead, sometimes a long one, sometimes one back.
func drawJump(t *rapid.T) time.Duration {
	switch rapid.IntRange(0, 9).Draw(t, "jump") {
	case 0:
		return -time.Duration(rapid.Int64Range(0, int64(3*span)).Draw(t, "back"))
	case 1:
		return time.Duration(rapid.Int64Range(0, int64(5*span)).Draw(t, "ahead"))
	case 2:
		return span
	}
	return time.Duration(rapid.Int64Range(0, int64(span)/8).Draw(t, "step"))
}

// checkFrom checks all intervals that begin with the first of these calls.
func checkFrom(t *rapid.T, k kind, units int64, calls []call) {
	first, last, total := calls[0].at, calls[0].at, int64(0)
	for _, c := range calls {
		first, last, total = min(first, c.at), max(last, c.at), total+c.n
		if most := k.bound(units, last.Sub(first)); float64(total) > most+1e-6 {
			t.Fatalf("admitted %d within %v, bound %.3f", total, last.Sub(first), most)
		}
	}
}

// TestRetryAfterIsExact waits as told: one nanosecond less is refused, exactly that long
// is admitted.
func TestRetryAfterIsExact(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, rapid.MakeCheck(func(t *rapid.T) {
			units := rapid.Int64Range(1, 20).Draw(t, "units")
			l := k.build(units)
			now := limit.Instant(rapid.Int64Range(0, int64(3*span)).Draw(t, "start"))
			for range rapid.IntRange(1, 40).Draw(t, "calls") {
				now = max(now.Add(drawJump(t)), 0)
				n := rapid.Int64Range(1, units).Draw(t, "n")
				d := l.Allow(now, n)
				if d.OK {
					continue
				}
				if d.RetryAfter <= 0 || d.RetryAfter == limit.Never {
					t.Fatalf("refused %d of %d with RetryAfter %v", n, units, d.RetryAfter)
				}
				if early := l.Allow(now.Add(d.RetryAfter-1), n); early.OK || early.RetryAfter != 1 {
					t.Fatalf("1 ns before RetryAfter %v: %+v", d.RetryAfter, early)
				}
				now = now.Add(d.RetryAfter)
				if again := l.Allow(now, n); !again.OK {
					t.Fatalf("after RetryAfter %v still refused: %+v", d.RetryAfter, again)
				}
			}
		}))
	}
}

// TestRemainingIsTrue takes what Remaining offers, and then one more.
func TestRemainingIsTrue(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, rapid.MakeCheck(func(t *rapid.T) {
			units := rapid.Int64Range(2, 20).Draw(t, "units")
			l := k.build(units)
			now := limit.Instant(0)
			for range rapid.IntRange(1, 20).Draw(t, "calls") {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(span)/2).Draw(t, "step")))
				d := l.Allow(now, rapid.Int64Range(1, units).Draw(t, "n"))
				if d.Remaining > 0 {
					if d = l.Allow(now, d.Remaining); !d.OK || d.Remaining != 0 {
						t.Fatalf("Remaining was not there: %+v", d)
					}
				}
				if d = l.Allow(now, 1); d.OK {
					t.Fatalf("more than Remaining was there")
				}
			}
		}))
	}
}

// TestNoFreePass: a cost that is missing, negative or impossible is refused for good and
// takes nothing.
func TestNoFreePass(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			l := k.build(3)
			for _, n := range []int64{0, -1, -1 << 63, 4, 1<<63 - 1} {
				if d := l.Allow(5*sec, n); d.OK || d.RetryAfter != limit.Never {
					t.Errorf("cost %d: %+v", n, d)
				}
			}
			if d := l.Allow(5*sec, 3); !d.OK {
				t.Errorf("impossible calls were charged: %+v", d)
			}
		})
	}
}

// TestExtremeInstants: no reading makes a limiter wrap round and open.
func TestExtremeInstants(t *testing.T) {
	for _, k := range kinds() {
		for _, now := range []limit.Instant{-1 << 63, -1, 0, 1<<61 - 1, 1 << 62, 1<<63 - 1} {
			t.Run(fmt.Sprintf("%s/%d", k.name, now), func(t *testing.T) {
				l := k.build(3)
				admitted := 0
				for range 50 {
					if l.Allow(now, 1).OK {
						admitted++
					}
				}
				if admitted > 3 {
					t.Errorf("admitted %d of burst 3 at one instant", admitted)
				}
			})
		}
	}
}
