package limit

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// A window survives its 16 bits with less than one part in a thousand lost, downwards.
func TestCoarse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		window := max(random.Int64N(maxWindow)>>random.IntN(62), 1)
		got := fromCoarse(coarse(window))
		if got > window || float64(window-got) > float64(window)/1000 || coarse(window) == 0 {
			t.Fatalf("%d came back as %d", window, got)
		}
	}
	for _, window := range []int64{1, 2, 2047, 2048, maxWindow - 1, maxWindow} {
		if got := fromCoarse(coarse(window)); got > window || window-got > window/1000 {
			t.Errorf("%d came back as %d", window, got)
		}
	}
}

// The padding of shard follows its fields.
func TestShardFillsCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(shard{}); size != 128 {
		t.Errorf("shard is %d bytes, want 128", size)
	}
}

// A call that still holds stripes whose rate has been replaced is refused and told to look
// again: nothing is charged to, or given back by, what nobody reads any more.
func TestSealedStripeAdmitsNobody(t *testing.T) {
	r, _ := NewRate(1, 5)
	s, _ := NewStripes(1, r)
	s.Allow(0, 0, 2)
	old := s.set.Load()
	last := seal(old.stripe(0), old.rate, 0)
	if d, ok := allow(old.stripe(0), old.rate, 0, 1); ok || d.OK || d.RetryAfter != sealedRetry {
		t.Errorf("a sealed stripe answered %+v, %v", d, ok)
	}
	refund(old.stripe(0), old.rate, 0, 0, 5)
	if got := old.stripe(0).Load(); got != sealed || last != int64(2*time.Second) {
		t.Errorf("sealed at %d, then %d", last, got)
	}
	if d := s.Allow(0, 0, 1); d.OK || d.RetryAfter != sealedRetry {
		t.Errorf("while the change is under way: %+v", d)
	}
}

// A goroutine that was stopped while the ring went round adds to the newest slot, never to
// one that has been taken over, nor back to its own.
func TestLateUnitsCountInTheNewestSlot(t *testing.T) {
	w, _ := NewSlottedWindow(10, 63*time.Second) // slots of 1 s
	w.Allow(Instant(5*time.Second), 1)
	w.advance(5 + slots)
	if w.add(5, 1) {
		t.Error("added to a slot that has left the ring")
	}
	w.sum.Add(1)
	w.record(1)
	if d := w.Allow(Instant((5+2*slots-1)*time.Second), 10); d.OK || d.Remaining != 9 {
		t.Errorf("the late unit is not counted for a whole window: %+v", d)
	}
	if d := w.Allow(Instant((5+2*slots)*time.Second), 10); !d.OK {
		t.Errorf("the late unit never leaves: %+v", d)
	}
}
