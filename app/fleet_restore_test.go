package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/client"
)

// TestLostStockKeyIsRestored: in the middle of a sale one key of a SKU is lost, or one field of
// its stock is overwritten. The leader sees it within its next steps, closes the SKU and
// restores it; the sale goes on with every unit accounted for.
func TestLostStockKeyIsRestored(t *testing.T) {
	f := newFleet(t)
	one := f.start("one", nil)
	f.sell(500, one)
	c, people := f.crowd(28, one)
	sold := 0
	buy := func(n int) {
		t.Helper()
		who := people[sold : sold+n]
		sold += n
		wants := turns(t, c, who)
		for i, want := range wants {
			if a, err := c.Submit(t.Context(), who[i], want); err != nil || a.Status != client.StatusQueued {
				t.Errorf("submit: %+v, %v", a, err)
			}
		}
	}
	key := "inv:" + crowdRef.Tag() + ":"
	for _, c := range []struct {
		what string
		harm func() error
	}{
		{"rsv lost", func() error { return f.stock.Del(t.Context(), key+"rsv").Err() }},
		{"buyers lost", func() error { return f.stock.Del(t.Context(), key+"buyers").Err() }},
		{"remaining is no number", func() error { return f.stock.HSet(t.Context(), key+"stock", "remaining", "abc").Err() }},
	} {
		buy(5)
		f.conserved(crowdRef, 500, patience)
		incarnation := f.stock.HGet(t.Context(), key+"stock", "incarnation").Val()
		if err := c.harm(); err != nil {
			t.Fatal(err)
		}
		buy(4) // the client tries again while the SKU is closed
		took := eventually(t, patience, c.what+": the SKU restored", func() bool {
			stock, err := f.stock.HMGet(t.Context(), key+"stock", "incarnation", "state").Result()
			return err == nil && stock[0] != incarnation && stock[1] == "OPEN" && one.metric("seckill_restore_closed_skus") == 0
		})
		got := f.conserved(crowdRef, 500, patience)
		if got.orders != int64(sold) || got.remaining != 500-int64(sold) {
			t.Errorf("%s: %v, want %d orders", c.what, got, sold)
		}
		t.Logf("%s: restored %v after the submits: %v", c.what, took.Round(time.Millisecond), got)
	}
}

// TestReconcileRepairsLostStockKeys: the same without a leader. `reconcile` names the SKU, and
// `reconcile --repair` brings every unit back; a second one changes nothing.
func TestReconcileRepairsLostStockKeys(t *testing.T) {
	f := newFleet(t)
	one := f.start("one", nil)
	f.sell(500, one)
	c, people := f.crowd(13, one)
	for i, want := range turns(t, c, people) {
		if a, err := c.Submit(t.Context(), people[i], want); err != nil || a.Status != client.StatusQueued {
			t.Fatalf("submit: %+v, %v", a, err)
		}
	}
	f.conserved(crowdRef, 500, patience)
	one.kill()
	f.start("two", map[string]string{"roles": "orders"}) // consumes, and never leads
	key := "inv:" + crowdRef.Tag() + ":"
	for _, c := range []struct {
		what  string
		named bool // at once, by `reconcile` alone
		harm  func() error
	}{
		{"rsv lost", false, func() error { return f.stock.Del(t.Context(), key+"rsv").Err() }},
		{"remaining is no number", true, func() error { return f.stock.HSet(t.Context(), key+"stock", "remaining", "abc").Err() }},
		{"seven units taken by nobody", false, func() error { return f.stock.HIncrBy(t.Context(), key+"stock", "remaining", -7).Err() }},
	} {
		if err := c.harm(); err != nil {
			t.Fatal(err)
		}
		if c.named {
			if out := f.want(1, "reconcile"); !strings.Contains(out, "SKU "+crowdRef.SKUID) {
				t.Errorf("%s: %q does not name the SKU", c.what, out)
			}
		}
		for range 2 {
			t.Logf("%s: %s", c.what, f.want(0, "reconcile", "--repair"))
		}
		if got := f.conserved(crowdRef, 500, patience); got.orders != 13 || got.remaining != 487 {
			t.Errorf("%s: %v, want 13 orders and 487 left", c.what, got)
		}
	}
}

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
