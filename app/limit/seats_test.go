package limit_test

import (
	"runtime"
	"testing"

	"github.com/sluice-io/sluice/app/limit"
)

func TestSeats(t *testing.T) {
	s := must(limit.NewSeats(2))
	if !s.TryAcquire() || !s.TryAcquire() || s.TryAcquire() {
		t.Fatal("two seats should serve two, not three")
	}
	s.Release()
	if !s.TryAcquire() {
		t.Fatal("a seat that came back was not given")
	}
	if s.InFlight() != 2 || s.Peak() != 2 || s.Limit() != 2 {
		t.Errorf("in flight %d, peak %d, limit %d", s.InFlight(), s.Peak(), s.Limit())
	}
}

func TestSeatsLimitChangesLive(t *testing.T) {
	s := must(limit.NewSeats(3))
	for range 3 {
		s.TryAcquire()
	}
	if err := s.SetLimit(1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Release()
		if s.TryAcquire() {
			t.Fatal("a seat above the lowered limit was given")
		}
	}
	s.Release()
	if !s.TryAcquire() {
		t.Fatal("the one seat left was not given")
	}
	wantField(t, s.SetLimit(-1), "limit")
	_, err := limit.NewSeats(-1)
	wantField(t, err, "limit")
	if closed := must(limit.NewSeats(0)); closed.TryAcquire() {
		t.Error("zero seats served one")
	}
}

func TestSeatsReleaseWithoutAcquirePanics(t *testing.T) {
	s := must(limit.NewSeats(1))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
		if s.InFlight() != 0 {
			t.Errorf("in flight %d after it", s.InFlight())
		}
	}()
	s.Release()
}

// The cap holds for any number of goroutines; the peak proves that they met.
func TestSeatsParallel(t *testing.T) {
	const workers, seats = 16, 5
	s := must(limit.NewSeats(seats))
	served := race(workers, func(int) (n int64) {
		for range 2000 {
			if s.TryAcquire() {
				n++
				runtime.Gosched() // give the others time to want the seat
				s.Release()
			}
		}
		return n
	})
	if s.Peak() > seats || s.Peak() < 2 || s.InFlight() != 0 || served == 0 {
		t.Errorf("peak %d of %d, in flight %d, served %d", s.Peak(), seats, s.InFlight(), served)
	}
}
