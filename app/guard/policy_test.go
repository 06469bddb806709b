package guard

import (
	"math"
	"testing"
	"time"
)

// TestDelayDoubles up to its bound, whatever the numbers: a delay never falls as failures rise.
func TestDelayDoubles(t *testing.T) {
	for _, p := range []Policy{
		{Open: time.Second, MaxOpen: 30 * time.Second},
		{Open: 10 * time.Minute, MaxOpen: time.Hour},
		{Open: 10 * time.Minute, MaxOpen: math.MaxInt64},
		{Open: time.Minute, MaxOpen: time.Second},
		{Open: 1, MaxOpen: math.MaxInt64},
	} {
		last := time.Duration(0)
		for opened := range 200 {
			d := p.delay(opened)
			if d < last || d > p.MaxOpen || d < min(p.Open, p.MaxOpen) {
				t.Fatalf("%+v: %v after %v, at %d", p, d, last, opened)
			}
			if opened > 0 && d != p.MaxOpen && d != 2*last {
				t.Errorf("%+v: %v after %v, want twice as long", p, d, last)
			}
			last = d
		}
		if last != p.MaxOpen {
			t.Errorf("%+v ends at %v", p, last)
		}
	}
}
