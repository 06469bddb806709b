package limit_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

var threeInTen = must(limit.NewPenaltyRule(3, 10*time.Second, 30*time.Second)) // constant

func TestPenalty(t *testing.T) {
	p := must(limit.NewPenalties(8))
	for i := range limit.Instant(3) {
		if p.Refused(i*sec, 1, threeInTen) {
			t.Fatalf("refusal %d: penalty too soon", i+1)
		}
	}
	if p.Serving(3*sec, 1) != 0 {
		t.Fatal("serving before the fourth refusal")
	}
	if !p.Refused(3*sec, 1, threeInTen) {
		t.Fatal("the fourth refusal in 10 s begins a penalty")
	}
	if p.Refused(4*sec, 1, threeInTen) {
		t.Error("a penalty begins once")
	}
	for _, c := range []struct {
		at   limit.Instant
		want time.Duration
	}{{3 * sec, 30 * time.Second}, {32 * sec, time.Second}, {33 * sec, 0}, {50 * sec, 0}} {
		if got := p.Serving(c.at, 1); got != c.want {
			t.Errorf("at %v: %v more, want %v", time.Duration(c.at), got, c.want)
		}
	}
	if p.Serving(4*sec, 2) != 0 {
		t.Error("a neighbour serves with him")
	}
	if p.Refused(33*sec, 1, threeInTen) {
		t.Error("a clean slate after the penalty")
	}
	if s := p.Stats(); s.Sentenced != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPenaltyWindowPasses(t *testing.T) {
	p := must(limit.NewPenalties(8))
	for i := range limit.Instant(20) { // one in 4 s: three in any window
		if p.Refused(i*4*sec, 1, threeInTen) {
			t.Fatalf("penalty at refusal %d", i+1)
		}
	}
}

func TestPenaltyPardon(t *testing.T) {
	p := must(limit.NewPenalties(8))
	for range 4 {
		p.Refused(0, 1, threeInTen)
	}
	if !p.Pardon(1) || p.Serving(0, 1) != 0 || p.Pardon(1) || p.Pardon(0) {
		t.Error("a pardon ends the penalty, once")
	}
}

// A flood of offenders neither frees one who serves nor grows the table.
func TestPenaltyIsBounded(t *testing.T) {
	p := must(limit.NewPenalties(8))
	for id := range uint64(8) {
		for range 4 {
			p.Refused(0, id+1, threeInTen)
		}
	}
	for id := range uint64(1000) {
		p.Refused(sec, id+100, threeInTen)
	}
	for id := range uint64(8) {
		if p.Serving(sec, id+1) == 0 {
			t.Errorf("%d was freed by the flood", id+1)
		}
	}
	if s := p.Stats(); s.Uncounted != 1000 {
		t.Errorf("%+v", s)
	}
}

func TestPenaltyOff(t *testing.T) {
	p := must(limit.NewPenalties(100))
	for range 100 {
		if p.Refused(0, 1, limit.PenaltyRule{}) || p.Refused(0, 0, threeInTen) {
			t.Fatal("no rule or nobody, and yet a penalty")
		}
	}
	for _, c := range []struct {
		refusals        int64
		window, penalty time.Duration
		field           string
	}{
		{1, 1, 0, ""},
		{0, time.Second, time.Second, "penalty_refusals"},
		{-1, time.Second, time.Second, "penalty_refusals"},
		{1, 0, time.Second, "penalty_window"},
		{1, time.Second, -1, "penalty_ms"},
	} {
		_, err := limit.NewPenaltyRule(c.refusals, c.window, c.penalty)
		wantField(t, err, c.field)
	}
	_, err := limit.NewPenalties(0)
	wantField(t, err, "entries")
}

func TestPenaltyParallel(t *testing.T) {
	p := must(limit.NewPenalties(64))
	begun := race(8, func(int) (n int64) {
		for i := range 1000 {
			p.Serving(sec, uint64(i%16+1))
			if p.Refused(sec, uint64(i%16+1), threeInTen) {
				n++
			}
		}
		return n
	})
	if begun != 16 {
		t.Errorf("%d penalties begun for 16 offenders", begun)
	}
}
