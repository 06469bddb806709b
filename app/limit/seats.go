package limit

import (
	"fmt"
	"sync/atomic"
)

// Seats limits how many requests are in flight at once. A seat is taken and given back,
// so this is not a [Limiter]: take it late, after everything that may be slow for the
// caller's reasons, and register its release in the same function.
type Seats struct {
	limit atomic.Int64
	taken atomic.Int64
	peak  atomic.Int64
}

// NewSeats returns limit free seats (0 is closed). A negative limit is an error.
func NewSeats(limit int64) (*Seats, error) {
	s := &Seats{}
	if err := s.SetLimit(limit); err != nil {
		return nil, err
	}
	return s, nil
}

// TryAcquire takes a seat, or reports false at once. It never overshoots the limit,
// however many call at the same time.
func (s *Seats) TryAcquire() bool {
	for {
		taken := s.taken.Load()
		if taken >= s.limit.Load() {
			return false
		}
		if s.taken.CompareAndSwap(taken, taken+1) {
			s.raisePeak(taken + 1)
			return true
		}
	}
}

// Release gives a seat back. It panics when no seat is taken: a second release of one
// request would let two others share a seat, and the cap would be a lie.
func (s *Seats) Release() {
	if s.taken.Add(-1) < 0 {
		s.taken.Add(1)
		panic("limit: Seats.Release without TryAcquire")
	}
}

// SetLimit changes the limit while requests are in flight (0 closes). Lowered below
// InFlight, it takes nobody's seat: no new one is given until enough come back.
func (s *Seats) SetLimit(limit int64) error {
	if limit < 0 {
		return &FieldError{"limit", fmt.Sprintf("%d is negative (0 closes)", limit)}
	}
	s.limit.Store(limit)
	return nil
}

// InFlight returns how many seats are taken.
func (s *Seats) InFlight() int64 { return s.taken.Load() }

// Limit returns the limit in force.
func (s *Seats) Limit() int64 { return s.limit.Load() }

// Peak returns the most seats that were ever taken at once.
func (s *Seats) Peak() int64 { return s.peak.Load() }

func (s *Seats) raisePeak(taken int64) {
	for peak := s.peak.Load(); taken > peak; peak = s.peak.Load() {
		if s.peak.CompareAndSwap(peak, taken) {
			return
		}
	}
}
