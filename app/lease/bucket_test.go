package lease

import (
	"sync"
	"testing"
	"time"
)

// TestAnAskOnItsWayIsSeen: at no moment does a bucket say that nobody may ask without
// showing the ask that is the reason: those who come in that moment would be refused at
// once, although it could serve them.
func TestAnAskOnItsWayIsSeen(t *testing.T) {
	policy := (&Policies{}).For(simRef)
	for range 5_000 {
		var b bucket
		b.init(simRef, Instant{})
		var both sync.WaitGroup
		both.Go(func() { b.begin(Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}, policy, time.Hour, 0, inHand) })
		for b.askAt.Load() != never {
		}
		hidden := b.pending.Load() == nil
		both.Wait()
		if hidden {
			t.Fatal("nobody may ask, and no ask is on its way")
		}
	}
}
