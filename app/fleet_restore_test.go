package main

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/client"
)

// TestStockStoreRestartIsRestored: the stock store dies in the middle of a sale and comes
// back, once with its data under another run_id and once empty. The SKU is closed
// meanwhile, the leader restores it from SQL, and the sale goes on: every unit once.
func TestStockStoreRestartIsRestored(t *testing.T) {
	for name, args := range map[string][]string{
		"with its data": {"--appendonly", "yes", "--appendfsync", "always"},
		"empty":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			needServers(t)
			store := servers.StartOwnRedis(t, args...)
			f := newFleetOn(t, store.URL())
			one := f.start("one", nil)
			f.sell(30, one)
			c, people := f.crowd(20, one)
			buy := func(who []client.Person) {
				t.Helper()
				wants := turns(t, c, who)
				var submitting sync.WaitGroup
				for n, want := range wants {
					submitting.Go(func() {
						if a, err := c.Submit(t.Context(), who[n], want); err != nil || a.Status != client.StatusQueued {
							t.Errorf("submit: %+v, %v", a, err)
						}
					})
				}
				submitting.Wait()
			}
			buy(people[:10])
			f.conserved(crowdRef, 30, patience)

			store.Kill()
			store.Start()
			took := eventually(t, patience, "the SKU restored", func() bool {
				snap := f.count(crowdRef)
				return snap.total == 30 && one.metric("seckill_restore_closed_skus") == 0 && one.logged("restore_done")
			})
			t.Logf("restored after %v", took.Round(time.Millisecond))
			if got := f.count(crowdRef); got.remaining != 20 {
				t.Errorf("%d units remain after the restore, want 20: %v", got.remaining, got)
			}
			buy(people[10:])
			if got := f.conserved(crowdRef, 30, patience); got.orders != 20 {
				t.Errorf("%d orders, want 20", got.orders)
			}
		})
	}
}
