package rules_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/rules"
)

// steady is a source that shows one document every three seconds until it falls silent.
type steady struct {
	raw   []byte
	until time.Duration
}

func (steady) Name() string { return "steady" }

func (s steady) Run(ctx context.Context, emit func(rules.Update)) error {
	start := time.Now()
	for {
		if time.Since(start) <= s.until {
			emit(rules.Update{Raw: s.raw, At: time.Now()})
		} else {
			emit(rules.Update{Err: context.DeadlineExceeded, At: time.Now()})
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// Age counts from the last contact that showed our version; behind the cluster's high-water
// mark for longer than the grace is stale, and no longer once the mark is met.
func TestAgeAndHighWaterMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mark atomic.Int64
		mark.Store(7)
		b := newBench(t, func(c *rules.Config) {
			c.Now = time.Now
			c.HighWater = func(_ context.Context, v int64) (int64, error) {
				if v == 0 {
					return 0, nil // the cluster went on after this instance started
				}
				return max(mark.Load(), v), nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx, steady{doc(1), 9 * time.Second}) }()
		time.Sleep(9500 * time.Millisecond)
		if b.Stale() {
			t.Error("stale within the grace")
		}
		if age := b.Age(time.Now()); age != 500*time.Millisecond {
			t.Errorf("age %v, the source spoke half a second ago", age)
		}
		time.Sleep(3 * time.Second)
		if !b.Stale() || !b.Status().Stale {
			t.Error("12 s behind the high-water mark and not stale")
		}
		time.Sleep(time.Minute)
		if age := b.Age(time.Now()); age != time.Minute+3500*time.Millisecond {
			t.Errorf("age %v since the source fell silent", age)
		}
		if b.Ready() != nil || b.Snapshot().Version != 1 {
			t.Error("a silent source took the rules away")
		}
		mark.Store(1)
		time.Sleep(2 * time.Second)
		if b.Stale() {
			t.Error("still stale at the mark")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
