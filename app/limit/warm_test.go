package limit_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

// TestWarm changes nothing, and may be called while the table grows, moves and empties. Run it
// under the race detector.
func TestWarm(t *testing.T) {
	k, err := limit.NewKeyed(limit.KeyedConfig{Shards: 1, MaxEntries: 200})
	if err != nil {
		t.Fatal(err)
	}
	r, err := limit.NewRate(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int) limit.Key { return limit.Key{ID: uint64(i+1) * 0x9e3779b97f4a7c15} }
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				k.Warm(key(i % 300))
			}
		}
	})
	now := limit.Instant(0)
	for round := range 3 {
		for i := range 300 {
			k.Allow(now, key(i), 1, r)
		}
		now = now.Add(time.Hour)
		k.Sweep(now)
		if n := k.Stats().Entries; n != 0 {
			t.Errorf("round %d: %d entries after an hour", round, n)
		}
	}
	close(done)
	wg.Wait()
	k.Warm(key(1))
	if s := k.Stats(); s.Entries != 0 || k.Inspect(now, key(1), r).Tracked {
		t.Errorf("warming entered a key: %+v", s)
	}
}
