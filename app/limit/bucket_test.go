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

// A leaky bucket is a token bucket told from the other end.
func TestLeakyBucketAgreesWithBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := must(limit.NewRate(float64(rapid.Int64Range(1, 50).Draw(t, "tokens")), rapid.Int64Range(1, 20).Draw(t, "burst")))
		token, leaky := limit.NewBucket(r), limit.NewLeakyBucket(r)
		now := limit.Instant(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(span)/4).Draw(t, "step")))
			n := rapid.Int64Range(-1, 21).Draw(t, "n")
			if a, b := token.Allow(now, n), leaky.Allow(now, n); a != b {
				t.Fatalf("at %v cost %d: token %+v, leaky %+v", now, n, a, b)
			}
		}
	})
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
