package limit_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"pgregory.net/rapid"
)

// refunder is a bucket that gives charges back.
type refunder struct {
	allow  func(now limit.Instant, n int64) limit.Decision
	refund func(now, charged limit.Instant, n int64)
}

func refunders(r limit.Rate) map[string]refunder {
	k, s := must(limit.NewKeyed(limit.KeyedConfig{Shards: 1, MaxEntries: 4})), must(limit.NewStripes(1, r))
	return map[string]refunder{
		"Keyed": {
			func(now limit.Instant, n int64) limit.Decision { return k.Allow(now, key(1), n, r) },
			func(now, charged limit.Instant, n int64) { k.Refund(now, charged, key(1), n, r) },
		},
		"Stripes": {
			func(now limit.Instant, n int64) limit.Decision { return s.Allow(now, 1, n) },
			func(now, charged limit.Instant, n int64) { s.Refund(now, charged, 1, n, r) },
		},
	}
}

// TestALateRefundGivesWhatIsLeft: what has come back by itself is not given a second time.
func TestALateRefundGivesWhatIsLeft(t *testing.T) {
	for name, b := range refunders(must(limit.NewRate(1, 1))) {
		steps := []struct {
			now, charged limit.Instant
			n            int64 // to refund; 0: none
			ok           bool
		}{
			{0, 0, 0, true},
			{sec, 0, 0, true},
			{sec + ms, 0, 1, false},                     // the first had all come back
			{sec + 500*ms, sec, 1, true},                // of the second a half is left, and a half has come back
			{sec + 500*ms, sec + 500*ms, 1 << 60, true}, // at once: all of it, never more than full
			{sec + 500*ms, 0, 0, false},
			{sec + 500*ms, sec + 500*ms, -1, false},
		}
		for i, s := range steps {
			if s.n != 0 {
				b.refund(s.now, s.charged, s.n)
			}
			if d := b.allow(s.now, 1); d.OK != s.ok {
				t.Errorf("%s, step %d: %+v", name, i, d)
			}
		}
	}
}

// TestBoundWithRefunds: however charges are given back, early or late and in any order, those
// that were not stay within burst + rate x t in every interval.
func TestBoundWithRefunds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 10).Draw(t, "units")
		for name, b := range refunders(must(limit.NewRate(rated(units, time.Second), units))) {
			var calls []call
			now := limit.Instant(0)
			for range rapid.IntRange(1, 60).Draw(t, "calls") {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(span)/4).Draw(t, "step")))
				if len(calls) > 0 && rapid.IntRange(0, 2).Draw(t, "refund") == 0 {
					c := &calls[rapid.IntRange(max(0, len(calls)-12), len(calls)-1).Draw(t, "which")]
					b.refund(now, c.at, c.n)
					c.n = 0
					continue
				}
				n := rapid.Int64Range(1, units).Draw(t, "n")
				if b.allow(now, n).OK {
					calls = append(calls, call{now, n})
				}
			}
			k := kind{name: name, bound: func(u int64, length time.Duration) float64 { return float64(u) + rated(u, length) }}
			for i := range calls {
				checkFrom(t, k, units, calls[i:])
			}
		}
	})
}
