package control

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// TestEachActivityHasItsOwnRhythm: the interval is that of the activity's policy, and a
// pushed one is in force with the next beat, under the same leader.
func TestEachActivityHasItsOwnRhythm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBedOn(t, &longRoom{base: time.Now()})
		b.waves.Now = time.Now
		slow, fast := b.sale("10001", admission.FairnessFIFO), b.sale("10002", admission.FairnessFIFO)
		var mu sync.Mutex
		intervals := map[string]time.Duration{slow.ID: 2 * time.Second, fast.ID: 100 * time.Millisecond} // guarded by mu
		base := b.waves.Policy(slow)
		b.waves.Policy = func(a *admission.Activity) waitroom.WavePolicy {
			mu.Lock()
			defer mu.Unlock()
			p := base
			p.Interval = intervals[a.ID]
			return p
		}
		rooms := &steps{Room: b.room, n: map[string]int{}}
		b.waves.Room = rooms
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.waves.Lead(ctx, 1, func() []*admission.Activity { return []*admission.Activity{slow, fast} })
		}()
		time.Sleep(3990 * time.Millisecond)
		if s, f := rooms.take(); s != 2 || f != 40 {
			t.Errorf("%d and %d steps in 4 s, want 2 and 40", s, f)
		}
		mu.Lock()
		intervals[slow.ID], intervals[fast.ID] = 200*time.Millisecond, time.Second // a push
		mu.Unlock()
		time.Sleep(4 * time.Second)
		if s, f := rooms.take(); s < 19 || s > 21 || f != 4 {
			t.Errorf("%d and %d steps in 4 s after the push, want 20 and 4", s, f)
		}
		stop()
		<-done
	})
}

// steps counts the writes of a room, one a step.
type steps struct {
	admission.Room
	mu sync.Mutex
	n  map[string]int // guarded by mu; by activity
}

func (s *steps) SetState(ctx context.Context, activityID string, state admission.RoomState) error {
	s.mu.Lock()
	s.n[activityID]++
	s.mu.Unlock()
	return nil
}

func (s *steps) take() (first, second int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, second = s.n["10001"], s.n["10002"]
	clear(s.n)
	return first, second
}
