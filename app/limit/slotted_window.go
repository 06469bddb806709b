package limit

import (
	"sync/atomic"
	"time"
)

// slots is the length of the ring. One slot is always partly in the future, so the other
// 63 must span the window.
const slots = 64

// SlottedWindow admits limit units in any window, without a lock: a ring of 64 counters,
// each for one slot of a 63rd of the window, and their running sum.
//
// A unit counts until its whole slot has left the window, so it over-refuses by at most
// one slot (1.6 % of the window) and never admits more than limit in any window. The
// cost does not depend on the limit.
//
// Units are added to the sum before they are added to a slot, and an expired slot is
// emptied before it leaves the sum: a goroutine stopped between the two steps makes the
// others refuse, never admit.
type SlottedWindow struct {
	limit int64
	slot  time.Duration

	sum  atomic.Int64         // units in all slots, or about to be
	head atomic.Int64         // newest slot number seen
	ring [slots]atomic.Uint64 // stamp: slot number, units
}

// NewSlottedWindow admits limit units (0..268,435,455; 0 is closed) in any window (630 ms
// to 366 days).
func NewSlottedWindow(limit int64, window time.Duration) (*SlottedWindow, error) {
	if err := checkWindow(limit, maxCount, window, (slots-1)*minWindow); err != nil {
		return nil, err
	}
	return &SlottedWindow{limit: limit, slot: (window-1)/(slots-1) + 1}, nil
}

// Allow admits n units at now, or refuses them whole until enough slots have expired.
func (w *SlottedWindow) Allow(now Instant, n int64) Decision {
	now = now.clamp()
	w.advance(epochAt(now, w.slot))
	for {
		sum := w.sum.Load()
		if n <= 0 || n > w.limit {
			return refuseForever(w.limit - sum)
		}
		if sum+n > w.limit {
			return Decision{RetryAfter: w.opens(sum + n - w.limit).Sub(now), Remaining: w.limit - sum}
		}
		if w.sum.CompareAndSwap(sum, sum+n) {
			w.record(n)
			return Decision{OK: true, Remaining: w.limit - sum - n}
		}
	}
}

// advance moves the head to epoch. Whoever moves it empties the slots that it passed.
func (w *SlottedWindow) advance(epoch int64) {
	for head := w.head.Load(); head < epoch; head = w.head.Load() {
		if w.head.CompareAndSwap(head, epoch) {
			for e := max(head+1, epoch-slots+1); e <= epoch; e++ {
				w.add(e, 0)
			}
			return
		}
	}
}

// record adds n units, already in the sum, to the newest slot: a reading that has become
// old counts a little longer.
func (w *SlottedWindow) record(n int64) {
	for !w.add(w.head.Load(), n) {
	}
}

// add adds n units to the slot of epoch, emptying what the slot held a turn of the ring
// ago. It reports false when the ring has moved past epoch.
func (w *SlottedWindow) add(epoch, n int64) bool {
	cell := &w.ring[epoch%slots]
	for {
		old := cell.Load()
		held, count := unstamp(old)
		switch {
		case held > epoch:
			return false
		case held == epoch:
			if n == 0 || cell.CompareAndSwap(old, stamp(epoch, count+n)) {
				return true
			}
		case cell.CompareAndSwap(old, stamp(epoch, n)):
			w.sum.Add(-count)
			return true
		}
	}
}

// opens returns the instant at which the slots that hold the oldest need units have
// expired.
func (w *SlottedWindow) opens(need int64) Instant {
	head := w.head.Load()
	for e := max(head-slots+1, 0); e <= head; e++ {
		if held, count := unstamp(w.ring[e%slots].Load()); held == e {
			if need -= count; need <= 0 {
				return Instant(e+slots) * Instant(w.slot)
			}
		}
	}
	return Instant(head+slots) * Instant(w.slot) // units on their way into a slot: the newest
}
