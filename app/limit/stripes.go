package limit

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// maxStripes bounds the memory of a set of stripes: 512 KiB.
const maxStripes = 1 << 16

// Stripes is a fixed number of buckets, each shared by all the keys that hash to it. It
// cannot be exhausted by inventing keys, only made unfair: whoever shares a stripe with
// a loud key is refused with it. All stripes have the same rate.
type Stripes struct {
	set      atomic.Pointer[stripeSet]
	changing sync.Mutex // serialises SetRate; no decision takes it
}

type stripeSet struct {
	rate Rate
	tats []atomic.Int64 // a power of two; see Bucket.tat
}

// NewStripes returns count full buckets (a power of two up to 65,536).
func NewStripes(count int, r Rate) (*Stripes, error) {
	if count < 1 || count > maxStripes || bits.OnesCount(uint(count)) != 1 {
		return nil, &FieldError{"stripes", fmt.Sprintf("%d is not a power of two in 1..%d", count, maxStripes)}
	}
	s := &Stripes{}
	s.set.Store(&stripeSet{rate: r, tats: make([]atomic.Int64, count)})
	return s, nil
}

// Allow charges n units to the stripe of hash, a [Hasher]'s value.
func (s *Stripes) Allow(now Instant, hash uint64, n int64) Decision {
	now = now.clamp()
	for {
		set := s.set.Load()
		d, ok := allow(set.stripe(hash), set.rate, now, n)
		if ok || s.set.Load() == set {
			return d
		}
	}
}

// Refund gives the stripe of hash back what has not come back by itself of n units that were
// charged at charged, at rate r. What was charged at a rate that is no longer in force stays:
// one unit of a small burst is more than one of a great one.
func (s *Stripes) Refund(now, charged Instant, hash uint64, n int64, r Rate) {
	set := s.set.Load()
	if set.rate != r {
		return
	}
	refund(set.stripe(hash), set.rate, now.clamp(), charged.clamp(), n)
}

// SetRate changes the rate of all stripes and keeps each as full as it was, in proportion:
// an empty one stays empty. Closed stripes reopen empty, so closing and reopening hands out
// nothing.
func (s *Stripes) SetRate(now Instant, r Rate) {
	now = now.clamp()
	s.changing.Lock()
	defer s.changing.Unlock()
	old := s.set.Load()
	if old.rate == r {
		return
	}
	next := &stripeSet{rate: r, tats: make([]atomic.Int64, len(old.tats))}
	for i := range next.tats {
		next.tats[i].Store(r.carry(seal(&old.tats[i], old.rate, now), now, old.rate.window()))
	}
	s.set.Store(next)
}

func (s *stripeSet) stripe(hash uint64) *atomic.Int64 {
	return &s.tats[hash&uint64(len(s.tats)-1)]
}
