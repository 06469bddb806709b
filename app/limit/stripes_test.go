package limit_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

func TestStripesAreApart(t *testing.T) {
	s := must(limit.NewStripes(4, must(limit.NewRate(1, 2))))
	for hash := range uint64(4) {
		if d := s.Allow(0, hash, 2); !d.OK {
			t.Fatalf("stripe %d: %+v", hash, d)
		}
	}
	if d := s.Allow(0, 5, 1); d.OK || d.RetryAfter != time.Second {
		t.Errorf("5 shares the stripe of 1: %+v", d)
	}
	s.Refund(0, 0, 5, 1, must(limit.NewRate(1, 2)))
	if d := s.Allow(0, 1, 1); !d.OK {
		t.Errorf("after the refund: %+v", d)
	}
}

func TestL03StripesPolicyChange(t *testing.T) {
	slow, fast := must(limit.NewRate(1, 10)), must(limit.NewRate(100, 1000))
	s := must(limit.NewStripes(2, slow))
	s.Allow(0, 0, 10)
	for range 100 {
		s.SetRate(0, fast)
		s.SetRate(0, slow)
	}
	if d := s.Allow(0, 0, 1); d.OK {
		t.Errorf("pushes refilled the stripe: %+v", d)
	}
	if d := s.Allow(0, 1, 10); !d.OK {
		t.Errorf("pushes emptied the other: %+v", d)
	}
	s.SetRate(0, fast)
	s.Refund(0, 0, 0, 5, slow) // half a bucket then, half a hundredth now
	s.SetRate(0, slow)
	s.SetRate(0, fast)
	if d := s.Allow(0, 0, 1); d.OK {
		t.Errorf("a charge of another policy was given back: %+v", d)
	}
	s.SetRate(0, limit.Rate{})
	if d := s.Allow(50*sec, 0, 1); d.OK || d.RetryAfter != limit.Never {
		t.Errorf("closed: %+v", d)
	}
	s.SetRate(50*sec, slow)
	if d := s.Allow(50*sec, 0, 1); d.OK || d.RetryAfter != time.Second {
		t.Errorf("reopened other than empty: %+v", d)
	}
}

func TestStripesParallelPolicyChange(t *testing.T) {
	const burst = 1000
	slow, slower := must(limit.NewRate(1, burst)), must(limit.NewRate(0.5, burst))
	s := must(limit.NewStripes(8, slow))
	admitted := race(8, func(worker int) (n int64) {
		for i := range 8 * burst {
			if worker == 0 && i%100 == 0 {
				s.SetRate(0, []limit.Rate{slower, slow}[i/100%2])
			}
			if s.Allow(0, uint64(i), 1).OK {
				n++
			}
		}
		return n
	})
	if admitted > 8*burst {
		t.Errorf("admitted %d of %d at one instant", admitted, 8*burst)
	}
}

func TestStripesReject(t *testing.T) {
	for _, count := range []int{0, -1, 3, 1 << 17} {
		_, err := limit.NewStripes(count, limit.Rate{})
		wantField(t, err, "stripes")
	}
}
