package limit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"pgregory.net/rapid"
)

func TestBucket(t *testing.T) {
	b := limit.NewBucket(must(limit.NewRate(2, 3)))
	play(t, b, []step{
		{0, 1, true, 0, 2},
		{0, 2, true, 0, 0},
		{0, 1, false, 500 * time.Millisecond, 0},
		{0, 3, false, 1500 * time.Millisecond, 0},
		{499 * ms, 1, false, time.Millisecond, 0},
		{500 * ms, 1, true, 0, 0},
		{1500 * ms, 1, true, 0, 1},
		{9 * sec, 1, true, 0, 2},                       // full again, never more
		{8 * sec, 1, false, 500 * time.Millisecond, 0}, // an older reading over-refuses
		{8500 * ms, 1, true, 0, 0},
	})
}

func TestBucketRefund(t *testing.T) {
	b := limit.NewBucket(must(limit.NewRate(1, 3)))
	play(t, b, []step{{0, 3, true, 0, 0}})
	b.Refund(0, 2)
	play(t, b, []step{{0, 2, true, 0, 0}})
	b.Refund(0, 1<<60) // never above full
	play(t, b, []step{{0, 3, true, 0, 0}, {0, 1, false, time.Second, 0}})
	b.Refund(0, 0)
	b.Refund(0, -5)
	play(t, b, []step{{0, 1, false, time.Second, 0}})
	b.Refund(sec*10, 3) // full long ago: nothing to give
	play(t, b, []step{{10 * sec, 3, true, 0, 0}})
}

// A leaky bucket is a token bucket told from the other end.
func TestLeakyBucketAgreesWithBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := must(limit.NewRatePer(rapid.Int64Range(1, 50).Draw(t, "tokens"), span, rapid.Int64Range(1, 20).Draw(t, "burst")))
		token, leaky := limit.NewBucket(r), limit.NewLeakyBucket(r)
		now := limit.Instant(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(span)/4).Draw(t, "step")))
			n := rapid.Int64Range(-1, 21).Draw(t, "n")
			if rapid.Bool().Draw(t, "refund") {
				token.Refund(now, n)
				leaky.Refund(now, n)
			} else if a, b := token.Allow(now, n), leaky.Allow(now, n); a != b {
				t.Fatalf("at %v cost %d: token %+v, leaky %+v", now, n, a, b)
			}
		}
	})
}

// TestL03PolicyChangeIsNoRefill: case L03c, a limit changed mid-sale.
func TestL03PolicyChangeIsNoRefill(t *testing.T) {
	perSecond := must(limit.NewRatePer(10, time.Second, 10))
	perMinute := must(limit.NewRatePer(10, time.Minute, 10))
	half := must(limit.NewRatePer(10, time.Second, 20))
	b := limit.NewBucket(perSecond)
	play(t, b, []step{{0, 10, true, 0, 0}})

	b.SetRate(0, perMinute)
	play(t, b, []step{{0, 1, false, 6 * time.Second, 0}, {6 * sec, 1, true, 0, 0}})

	for range 100 { // back and forth
		b.SetRate(6*sec, perSecond)
		b.SetRate(6*sec, perMinute)
	}
	play(t, b, []step{{6 * sec, 1, false, 6 * time.Second, 0}})

	b.SetRate(36*sec, half) // half full stays half full
	play(t, b, []step{{36 * sec, 10, true, 0, 0}})

	b.SetRate(36*sec, limit.Rate{})
	play(t, b, []step{{50 * sec, 1, false, limit.Never, 0}})
	b.SetRate(50*sec, perSecond) // reopened empty
	play(t, b, []step{{50 * sec, 1, false, 100 * time.Millisecond, 0}})
	if b.Rate() != perSecond {
		t.Errorf("Rate() = %v", b.Rate())
	}
}

// Many goroutines at one instant share exactly one burst, while the policy changes under
// them between two of equal burst.
func TestBucketParallel(t *testing.T) {
	const workers, burst = 8, 1000
	slow, slower := must(limit.NewRate(1, burst)), must(limit.NewRate(0.5, burst))
	b := limit.NewBucket(slow)
	admitted := race(workers, func(worker int) (n int64) {
		for i := range burst {
			if worker == 0 && i%10 == 0 {
				b.SetRate(0, []limit.Rate{slow, slower}[i/10%2])
			}
			if b.Allow(0, 1).OK {
				n++
			}
		}
		return n
	})
	if admitted > burst {
		t.Errorf("admitted %d of %d at one instant", admitted, burst)
	}
	if rest := b.Allow(0, 1); admitted+rest.Remaining > burst {
		t.Errorf("admitted %d and %d remain", admitted, rest.Remaining)
	}
}

// race starts workers at a barrier and sums what they return.
func race(workers int, work func(worker int) int64) int64 {
	var (
		start = make(chan struct{})
		done  sync.WaitGroup
		sum   atomic.Int64
	)
	for w := range workers {
		done.Go(func() {
			<-start
			sum.Add(work(w))
		})
	}
	close(start)
	done.Wait()
	return sum.Load()
}

// Every limiter without a key holds its bound under parallel callers at one instant.
func TestParallelBound(t *testing.T) {
	const workers, units = 8, 500
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			l := k.build(units)
			admitted := race(workers, func(int) (n int64) {
				for range units {
					if l.Allow(3*sec, 1).OK {
						n++
					}
				}
				return n
			})
			if admitted != units {
				t.Errorf("admitted %d, want exactly %d", admitted, units)
			}
		})
	}
}
