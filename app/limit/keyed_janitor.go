package limit

import (
	"context"
	"sync"
	"time"
)

// sweepHand is where the janitor stands.
type sweepHand struct {
	mu   sync.Mutex
	next int // guarded by mu; shard to look at next
}

// Run drops idle keys, SweepShards shards every SweepEvery, until ctx ends. With the
// defaults a shard is visited every 8 s. Without it the table still works and stays
// bounded; it only keeps keys longer.
func (k *Keyed) Run(ctx context.Context, now func() Instant) {
	ticker := time.NewTicker(k.config.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.Sweep(now())
		}
	}
}

// Sweep is one step of the janitor: it visits the next SweepShards shards. A key is
// dropped when its bucket has been full for IdleTTL, which is never sooner than
// max(IdleTTL, time to a full bucket) after its last admitted call.
func (k *Keyed) Sweep(now Instant) {
	now = now.clamp()
	k.hand.mu.Lock()
	first := k.hand.next
	k.hand.next = (first + k.config.SweepShards) % len(k.shards)
	k.hand.mu.Unlock()
	for i := range k.config.SweepShards {
		k.shards[(first+i)%len(k.shards)].sweep(now, int64(k.config.IdleTTL))
	}
}
