package limit_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

func TestFixedWindow(t *testing.T) {
	w := must(limit.NewFixedWindow(3, time.Second))
	play(t, w, []step{
		{900 * ms, 2, true, 0, 1},
		{900 * ms, 2, false, 100 * time.Millisecond, 1},
		{999 * ms, 1, true, 0, 0},
		{sec, 3, true, 0, 0},                             // the boundary: 2 x limit
		{999 * ms, 1, false, 1001 * time.Millisecond, 0}, // an older reading stays in the newer window
		{5 * sec, 1, true, 0, 2},
	})
}

func TestSlidingLog(t *testing.T) {
	l := must(limit.NewSlidingLog(3, time.Second))
	play(t, l, []step{
		{900 * ms, 2, true, 0, 1},
		{950 * ms, 1, true, 0, 0},
		{sec, 1, false, 900 * time.Millisecond, 0},
		{sec, 3, false, 950 * time.Millisecond, 0},
		{1900 * ms, 2, true, 0, 0}, // what came at 0.9 s has left at 1.9 s
		{1900 * ms, 1, false, 50 * time.Millisecond, 0},
		{1950 * ms, 1, true, 0, 0},
	})
}

// An older reading is logged as the newest one: the log stays in order, and its last unit
// does not make room for the one before.
func TestSlidingLogOlderReading(t *testing.T) {
	l := must(limit.NewSlidingLog(2, time.Second))
	play(t, l, []step{
		{5 * sec, 1, true, 0, 1},
		{4 * sec, 1, true, 0, 0},
		{5500 * ms, 2, false, 500 * time.Millisecond, 0},
		{6 * sec, 2, true, 0, 0},
	})
}

func TestSlidingCounter(t *testing.T) {
	c := must(limit.NewSlidingCounter(4, time.Second))
	play(t, c, []step{
		{0, 4, true, 0, 0},
		{500 * ms, 1, false, 750 * time.Millisecond, 0}, // at 1.25 s the four weigh three
		{1250 * ms, 1, true, 0, 0},
		{1500 * ms, 2, false, 250 * time.Millisecond, 1}, // two weigh two, one taken
		{1750 * ms, 2, true, 0, 0},
		{1700 * ms, 1, false, 300 * time.Millisecond, 0}, // 4 x 0.3 rounds up
		{4 * sec, 4, true, 0, 0},
	})
}

func TestSlottedWindow(t *testing.T) {
	w := must(limit.NewSlottedWindow(3, 63*time.Second)) // slots of 1 s
	play(t, w, []step{
		{500 * ms, 2, true, 0, 1},
		{2 * sec, 1, true, 0, 0},
		{63 * sec, 1, false, time.Second, 0},
		{63 * sec, 3, false, 3 * time.Second, 0},
		{64 * sec, 2, true, 0, 0}, // slot 0 has left whole
		{64 * sec, 1, false, 2 * time.Second, 0},
		{500 * sec, 3, true, 0, 0}, // further than the ring is long
		{499 * sec, 1, false, 65 * time.Second, 0},
	})
}

// TestL03WindowBoundary: case L03a, N at the end of one window and N at the start of the
// next. Only the fixed window lets both through, and says so.
func TestL03WindowBoundary(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			const n = 20
			l := k.build(n)
			admitted := 0
			for _, at := range []limit.Instant{sec - 1, sec} {
				for range n {
					if l.Allow(at, 1).OK {
						admitted++
					}
				}
			}
			want := n
			if k.name == "FixedWindow" {
				want = 2 * n
			}
			if admitted != want {
				t.Errorf("admitted %d across the boundary, want %d", admitted, want)
			}
		})
	}
}

// The slotted ring holds its bound while goroutines with readings of their own move it.
func TestSlottedWindowParallel(t *testing.T) {
	const workers, limitUnits, turns = 8, 100, 6
	w := must(limit.NewSlottedWindow(limitUnits, 630*time.Millisecond))
	admitted := race(workers, func(worker int) (n int64) {
		for i := range limit.Instant(turns * 640) {
			if w.Allow(i*ms+limit.Instant(worker), 1).OK {
				n++
			}
		}
		return n
	})
	if most := int64(limitUnits * (turns + 1)); admitted > most {
		t.Errorf("admitted %d in %d turns of the ring, bound %d", admitted, turns, most)
	}
	if d := w.Allow(1000*sec, limitUnits); !d.OK || d.Remaining != 0 {
		t.Errorf("units were lost or left over: %+v", d)
	}
}

func TestWindowsReject(t *testing.T) {
	builds := map[string]func(int64, time.Duration) error{
		"FixedWindow":    func(n int64, w time.Duration) error { _, err := limit.NewFixedWindow(n, w); return err },
		"SlidingLog":     func(n int64, w time.Duration) error { _, err := limit.NewSlidingLog(n, w); return err },
		"SlidingCounter": func(n int64, w time.Duration) error { _, err := limit.NewSlidingCounter(n, w); return err },
		"SlottedWindow":  func(n int64, w time.Duration) error { _, err := limit.NewSlottedWindow(n, w); return err },
	}
	for name, build := range builds {
		t.Run(name, func(t *testing.T) {
			wantField(t, build(5, time.Second), "")
			wantField(t, build(-1, time.Second), "limit")
			wantField(t, build(1<<62, time.Second), "limit")
			wantField(t, build(5, 0), "window")
			wantField(t, build(5, -time.Second), "window")
			wantField(t, build(5, 400*24*time.Hour), "window")
		})
	}
	wantField(t, builds["SlidingCounter"](1<<28-1, 365*24*time.Hour), "limit")
}

func TestClosedWindows(t *testing.T) {
	for name, l := range map[string]limit.Limiter{
		"FixedWindow":    must(limit.NewFixedWindow(0, time.Second)),
		"SlidingLog":     must(limit.NewSlidingLog(0, time.Second)),
		"SlidingCounter": must(limit.NewSlidingCounter(0, time.Second)),
		"SlottedWindow":  must(limit.NewSlottedWindow(0, time.Second)),
		"LeakyBucket":    limit.NewLeakyBucket(limit.Rate{}),
	} {
		t.Run(name, func(t *testing.T) { play(t, l, []step{{0, 1, false, limit.Never, 0}}) })
	}
}
