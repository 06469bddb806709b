package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	// maxPerSecond is the fastest rate: one token a nanosecond, the clock's resolution.
	maxPerSecond = 1e9
	// maxWindow bounds burst/rate, so that instant + window fits an int64.
	maxWindow = 1 << 62
)

// Rate is a validated rate and burst, ready for use: the policy of a bucket without its
// state. It is a small comparable value without pointers, so one table of buckets can
// serve rules that change while it runs. The zero value is closed: it admits nothing.
//
// The arithmetic is the generic cell rate algorithm (GCRA: ITU-T I.371, ATM Forum
// TM 4.1) in its virtual-scheduling form. A bucket is one number, its theoretical
// arrival time (TAT): the instant at which it will be full again. TAT - now is the debt,
// from 0 (full) to the window (empty).
type Rate struct {
	interval int64  // nanoseconds a token takes to come back, rounded up; 0: closed
	burst    int64  // capacity in tokens
	scale    uint16 // the window, to one part in a thousand; see coarse
}

// NewRate returns a rate of perSecond tokens a second with a capacity of burst tokens.
//
// perSecond or burst 0 is closed. An error names the field: perSecond negative, NaN,
// infinite or above 1e9; burst negative, or so large that filling the bucket would take
// more than 2^62 ns (146 years). The interval between tokens is rounded up to whole
// nanoseconds, so the true rate is never above the asked one: exact to 0.1 % up to
// 1e6/s, and no better than a factor of two near 1e9/s.
func NewRate(perSecond float64, burst int64) (Rate, error) {
	switch {
	case math.IsNaN(perSecond) || math.IsInf(perSecond, 0):
		return Rate{}, &FieldError{"rate", "must be a number"}
	case perSecond < 0:
		return Rate{}, &FieldError{"rate", fmt.Sprintf("%v is negative (0 closes)", perSecond)}
	case perSecond > maxPerSecond:
		return Rate{}, &FieldError{"rate", fmt.Sprintf("%v is above 1e9 a second", perSecond)}
	case perSecond == 0:
		return newRate(0, burst)
	}
	interval := math.Ceil(1e9 / perSecond)
	if interval > maxWindow {
		return Rate{}, &FieldError{"rate", fmt.Sprintf("%v is below one in 146 years (0 closes)", perSecond)}
	}
	return newRate(int64(interval), burst)
}

// NearestRate is [NewRate] for a rate that was derived from a valid one, such as a twentieth
// of it: what lies beyond a bound is brought to the bound. Only a rate or a burst that is
// not above zero is closed.
func NearestRate(perSecond float64, burst int64) Rate {
	if !(perSecond > 0) || burst <= 0 {
		return Rate{}
	}
	interval := int64(min(max(math.Ceil(1e9/perSecond), 1), maxWindow))
	r, _ := newRate(interval, min(burst, maxWindow/interval)) // within both bounds
	return r
}

func newRate(interval, burst int64) (Rate, error) {
	switch {
	case burst < 0:
		return Rate{}, &FieldError{"burst", fmt.Sprintf("%d is negative (0 closes)", burst)}
	case interval == 0 || burst == 0:
		return Rate{}, nil
	case burst > maxWindow/interval:
		return Rate{}, &FieldError{"burst", fmt.Sprintf("%d takes more than 146 years to fill at this rate", burst)}
	}
	return Rate{interval: interval, burst: burst, scale: coarse(interval * burst)}, nil
}

// Closed says that the rate admits nothing.
func (r Rate) Closed() bool { return r.interval == 0 }

// Burst returns the capacity in tokens.
func (r Rate) Burst() int64 { return r.burst }

// PerSecond returns the rate as it is enforced, after rounding.
func (r Rate) PerSecond() float64 {
	if r.Closed() {
		return 0
	}
	return 1e9 / float64(r.interval)
}

// FillTime returns how long an empty bucket takes to be full. It is the window of the
// arithmetic below.
func (r Rate) FillTime() time.Duration { return time.Duration(r.window()) }

func (r Rate) window() int64 { return r.interval * r.burst }

// serves says that n is a cost the rate can ever admit. spend requires it.
func (r Rate) serves(n int64) bool { return n > 0 && n <= r.burst }

// spend charges n tokens at now to a bucket whose arrival time is tat, and returns the
// bucket's next arrival time. A refusal returns tat as it was.
//
// No sum here overflows: tat - now <= 2^63 - 1, and cost - window is in [-2^62, 0].
func (r Rate) spend(tat int64, now Instant, n int64) (int64, Decision) {
	cost := n * r.interval
	debt := max(tat-int64(now), 0)
	over := debt + (cost - r.window())
	if over > 0 {
		return tat, Decision{RetryAfter: time.Duration(over), Remaining: r.left(debt)}
	}
	return int64(now) + debt + cost, Decision{OK: true, Remaining: -over / r.interval}
}

// refund gives n tokens back that were charged at charged, and returns the next arrival time.
// What has passed since has come back by itself, perhaps as somebody else's token: only the
// rest is given, so that the bucket is never fuller than if nobody had charged it, whatever
// else was refunded meanwhile. now is not before the calls since then. It over-refuses: a
// token that comes back in a millisecond is hardly worth a refund.
func (r Rate) refund(tat int64, now, charged Instant, n int64) int64 {
	if n <= 0 {
		return tat
	}
	back := min(n, r.burst)*r.interval - max(int64(now-charged), 0)
	if back <= 0 || tat <= int64(now) {
		return tat
	}
	return max(int64(now), tat-back)
}

// left returns how many tokens a bucket with this debt still has.
func (r Rate) left(debt int64) int64 {
	return max(r.window()-debt, 0) / max(r.interval, 1) // a closed rate has no window
}

// carry translates an arrival time from a window of from nanoseconds to this rate's: a
// bucket keeps the fraction to which it is full. What was empty stays empty, so changing
// a policy, or changing it back and forth, never hands out a token. Rounds towards empty.
func (r Rate) carry(tat int64, now Instant, from int64) int64 {
	debt := tat - int64(now)
	if debt <= 0 || r.Closed() {
		return tat
	}
	if debt >= from {
		return int64(now) + r.window()
	}
	hi, lo := bits.Mul64(uint64(debt), uint64(r.window()))
	q, rem := bits.Div64(hi, lo, uint64(from)) // hi < from because debt < from and window < 2^64
	if rem > 0 {
		q++
	}
	return int64(now) + int64(q)
}

// coarse packs a window of 1..2^62 ns into 16 bits, rounded down by less than one part
// in a thousand: a float with an 11-bit mantissa. A key in a table remembers its rate by
// this alone, which is what keeps it at two words.
func coarse(window int64) uint16 {
	shift := max(bits.Len64(uint64(window))-11, 0)
	return uint16(shift<<10 + int(window>>shift))
}

// fromCoarse unpacks what coarse packed.
func fromCoarse(c uint16) int64 {
	if c < 1<<11 {
		return int64(c)
	}
	shift := c>>10 - 1
	return int64(c-shift<<10) << shift
}
