package limit_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

func TestRateRejects(t *testing.T) {
	for _, c := range []struct {
		name      string
		perSecond float64
		burst     int64
		field     string // "" for accepted
	}{
		{"ordinary", 0.5, 3, ""},
		{"closed by rate", 0, 3, ""},
		{"closed by burst", 5, 0, ""},
		{"one a nanosecond", 1e9, 1, ""},
		{"large burst", 1, 1 << 31, ""},
		{"the longest window", 1e9, 1 << 62, ""},
		{"negative rate", -1, 3, "rate"},
		{"not a number", math.NaN(), 3, "rate"},
		{"infinite", math.Inf(1), 3, "rate"},
		{"minus infinite", math.Inf(-1), 3, "rate"},
		{"above the clock", 1e9 + 1, 3, "rate"},
		{"1e18", 1e18, 3, "rate"},
		{"smallest float", math.SmallestNonzeroFloat64, 1, "rate"},
		{"negative burst", 1, -1, "burst"},
		{"negative burst of a closed rate", 0, -1, "burst"},
		{"window over 2^62 ns", 1e9, 1<<62 + 1, "burst"},
		{"product wraps round", 0.5, math.MaxInt64, "burst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := limit.NewRate(c.perSecond, c.burst)
			wantField(t, err, c.field)
		})
	}
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var bad *limit.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("rejected: %v", err)
	case field != "" && !errors.As(err, &bad):
		t.Errorf("accepted, or no FieldError: %v", err)
	case field != "" && bad.Field != field:
		t.Errorf("error names %q, want %q: %v", bad.Field, field, err)
	}
}

// The interval is rounded up: what is enforced is never faster than what was asked.
func TestRateRoundsDown(t *testing.T) {
	for _, perSecond := range []float64{3, 7, 0.3, 1001, 300_000, 999_999_999, 6e8} {
		got := must(limit.NewRate(perSecond, 1)).PerSecond()
		if got > perSecond || got < perSecond/2 || perSecond <= 1e6 && got < perSecond*0.999 {
			t.Errorf("asked %v, enforced %v", perSecond, got)
		}
	}
	if got := (limit.Rate{}).PerSecond(); got != 0 {
		t.Errorf("closed: %v", got)
	}
}

// TestL08ZeroAndHugeValues: overflow or zero must not disable a limit, and refused calls
// must not push the refill away.
func TestL08ZeroAndHugeValues(t *testing.T) {
	t.Run("zero is closed", func(t *testing.T) {
		for _, r := range []limit.Rate{must(limit.NewRate(0, 10)), must(limit.NewRate(10, 0)), {}} {
			play(t, limit.NewBucket(r), []step{
				{0, 1, false, limit.Never, 0},
				{1 << 60, 1, false, limit.Never, 0},
			})
		}
	})
	t.Run("huge values do not wrap", func(t *testing.T) {
		b := limit.NewBucket(must(limit.NewRate(1, 1<<31)))
		play(t, b, []step{
			{0, 1 << 31, true, 0, 0},
			{0, 1, false, time.Second, 0},
			{sec, 1, true, 0, 0},
			{sec, 1 << 31, false, time.Duration(1<<31) * time.Second, 0},
		})
	})
	t.Run("denied calls cost nothing", func(t *testing.T) {
		b := limit.NewBucket(must(limit.NewRate(1, 2)))
		b.Allow(0, 2)
		for i := range limit.Instant(999) {
			if b.Allow(i*ms, 1).OK {
				t.Fatalf("admitted at %d ms", i)
			}
		}
		play(t, b, []step{{sec, 1, true, 0, 0}})
	})
}

// TestL02RetryAfterIsNeverShort: whoever waits as told is admitted, also when the wait is
// rounded up to the whole seconds of a header; and a refusal always has a wait to tell.
func TestL02RetryAfterIsNeverShort(t *testing.T) {
	for _, perSecond := range []float64{0.01, 0.3, 0.5, 1, 3, 7, 1000, 299_999, 1e9} {
		b := limit.NewBucket(must(limit.NewRate(perSecond, 5)))
		b.Allow(0, 5)
		d := b.Allow(0, 1)
		if d.OK || d.RetryAfter <= 0 {
			t.Fatalf("%v/s, drained: %+v", perSecond, d)
		}
		seconds := (d.RetryAfter + time.Second - 1) / time.Second
		if after := b.Allow(limit.Instant(seconds)*sec, 1); seconds < 1 || !after.OK {
			t.Errorf("%v/s: after the header's %d s: %+v", perSecond, seconds, after)
		}
	}
}

// TestNearestRate closes nothing that is above zero, and is NewRate within its bounds.
func TestNearestRate(t *testing.T) {
	for _, c := range []struct {
		perSecond float64
		burst     int64
		closed    bool
		most      int64 // of the burst
	}{
		{1, 5, false, 5}, {0.3, 7, false, 7}, {1e12, 5, false, 5}, {1e-30, 5, false, 1}, {math.SmallestNonzeroFloat64, 1, false, 1},
		{1, math.MaxInt64, false, 1 << 62 / 1_000_000_000}, {math.Inf(1), 3, false, 3},
		{0, 5, true, 0}, {-1, 5, true, 0}, {1, 0, true, 0}, {1, -1, true, 0}, {math.NaN(), 5, true, 0},
	} {
		r := limit.NearestRate(c.perSecond, c.burst)
		if r.Closed() != c.closed || r.Burst() != c.most || r.FillTime() < 0 {
			t.Errorf("%v/s burst %d: %+v", c.perSecond, c.burst, r)
		}
		if exact, err := limit.NewRate(c.perSecond, c.burst); err == nil && exact != r {
			t.Errorf("%v/s burst %d: %+v, NewRate has %+v", c.perSecond, c.burst, r, exact)
		}
	}
}
