package lease

import (
	"testing"
	"time"
)

func TestDemand(t *testing.T) {
	const lease = 200 * time.Millisecond
	for name, c := range map[string]struct {
		before float64 // a lease
		tries  int64
		since  time.Duration
		want   int64
	}{
		"steady":                             {100, 85, 170 * time.Millisecond, 100},
		"a sale opens":                       {0, 1000, 50 * time.Millisecond, 4000},
		"two asks a moment apart":            {0, 5, time.Millisecond, 80},
		"ten times as many":                  {100, 850, 170 * time.Millisecond, 1000},
		"a little more, which may be chance": {100, 94, 170 * time.Millisecond, 106},
		"half as many":                       {100, 43, 170 * time.Millisecond, 76},
		"nobody":                             {100, 0, time.Second, 50},
		"one in a second":                    {0.2, 1, time.Second, 1},
	} {
		d := demand{perLease: c.before}
		if got := d.next(c.tries, c.since, lease); got != c.want {
			t.Errorf("%s: asks for %d, want %d", name, got, c.want)
		}
	}
}

func TestPace(t *testing.T) {
	const lease = time.Second // an ask each 850 ms
	const ms = int64(time.Millisecond)
	var p pace
	if p.background() > 0 || p.inHand() > 0 {
		t.Error("the first ask must be free")
	}
	p.asked(10_000*ms, lease, 0)
	if got := p.background(); got != 10_850*ms {
		t.Errorf("background after %d ms, want 850", got/ms-10_000)
	}
	for i := range int64(askSaved) {
		if at := p.inHand(); at > 10_000*ms+i {
			t.Errorf("saved ask %d is not there", i)
		}
		p.asked(10_000*ms+i, lease, 0)
	}
	if at := p.inHand(); at < 10_845*ms {
		t.Errorf("a fifth one is there after %d ms", at/ms-10_000)
	}
	p.asked(p.background()+int64(0.85*float64(lease)), lease, 0) // one left out
	if at := p.inHand(); at > p.last+ms {
		t.Errorf("an ask that was not made is not saved: %d ms", (at-p.last)/ms)
	}
	p.asked(100_000*ms, lease, 1)
	if got := p.background() - 100_000*ms; got != 952*ms {
		t.Errorf("with full jitter: %d ms, want 952", got/ms)
	}
	p.block(200_000 * ms)
	if p.inHand() != 200_000*ms || p.background() != 200_000*ms || p.early() != 200_000*ms {
		t.Error("blocked, and yet an ask may be made")
	}
}
