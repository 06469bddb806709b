package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// onSale waits until the one activity of this fleet's stock store is there.
func (f *fleet) onSale() admission.SKURef {
	f.t.Helper()
	var ref admission.SKURef
	eventually(f.t, 20*time.Second, "an activity on sale", func() bool {
		ids, err := f.stock.SMembers(f.t.Context(), "sec:activities").Result()
		if err != nil || len(ids) == 0 {
			return false
		}
		ref.ActivityID = ids[0]
		document, err := f.stock.HGet(f.t.Context(), "sec:activity:"+admission.ActivityTag(ids[0]), "document").Result()
		if err != nil {
			return false
		}
		var a struct {
			SKUs []struct {
				ID string `json:"sku_id"`
			} `json:"skus"`
		}
		if err := json.Unmarshal([]byte(document), &a); err != nil || len(a.SKUs) == 0 {
			return false
		}
		ref.SKUID = a.SKUs[0].ID
		return true
	})
	return ref
}

// waves is the waiting room's published state, as the instances read it.
func (f *fleet) waves(ref admission.SKURef) (s admission.RoomState) {
	f.t.Helper()
	document, err := f.limits.HGet(f.t.Context(), "room:"+admission.ActivityTag(ref.ActivityID)+":state", "doc").Bytes()
	if err != nil {
		return s // none yet
	}
	if err := json.Unmarshal(document, &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func watermark(s admission.RoomState) uint64 { return s.Lanes["default"].Watermark }

// leader is the instance that leads.
func leader(t *testing.T, pair []*instance) (leads, follows *instance) {
	t.Helper()
	eventually(t, 10*time.Second, "a leader", func() bool { return pair[0].logged("leader_elected") || pair[1].logged("leader_elected") })
	if pair[0].logged("leader_elected") {
		return pair[0], pair[1]
	}
	return pair[1], pair[0]
}

// TestKill9InTheMiddle: one of two instances, the leader, is killed in the middle of a sale.
// The other one leads and releases people within 5 s, no unit is sold twice or lost, and the
// killed one comes back and serves.
func TestKill9InTheMiddle(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady(45 * time.Second)
	}
	leads, follows := leader(t, pair)
	const stock = 200
	sale := f.simulate(1200, stock, []*instance{follows, leads})
	ref := f.onSale()
	// At the shipped pace there is no middle: small waves make one.
	slow := rules.Default().At(2)
	size := int64(8)
	slow.Admission = rules.Family[rules.Admission]{Given: true, Rules: []rules.Admission{{ActivityID: ref.ActivityID, SKUID: ref.SKUID, PolicyVersion: 1, WaveSize: &size}}}
	f.publish(slow.Confirmed().Indent())

	eventually(t, 60*time.Second, "a quarter of the stock sold", func() bool { return f.sold(ref) >= stock/4 })
	before := f.waves(ref)
	leads.kill()
	killed := time.Now()
	soldThen := f.sold(ref)
	if soldThen > stock*3/4 {
		t.Fatalf("%d of %d units were sold already: that is not the middle", soldThen, stock)
	}
	moved := eventually(t, 5*time.Second, "a new leader releases people", func() bool {
		now := f.waves(ref)
		return now.Term > before.Term && watermark(now) > watermark(before)
	})
	sold := eventually(t, 5*time.Second, "units are sold under the new leader", func() bool { return f.sold(ref) > soldThen })
	t.Logf("killed at %d of %d units; watermark moved after %v, units sold after %v", soldThen, stock, moved.Round(time.Millisecond), (moved + sold).Round(time.Millisecond))

	back := f.start(leads.name, leads.addresses())
	t.Logf("%s is back %v after the kill", back.name, time.Since(killed).Round(time.Millisecond))
	// Its first words are about the sale as it stands, not about one that has not begun.
	var line struct {
		State string
		Lanes []struct{ Watermark uint64 }
	}
	status, body := back.get(back.ready.Public, "/v1/activities/"+ref.ActivityID+"/queue", "")
	if err := json.Unmarshal(body, &line); status != http.StatusOK || err != nil {
		t.Errorf("%s serves the queue with HTTP %d %s", back.name, status, body)
	}
	if line.State != "OPEN" || len(line.Lanes) != 1 || line.Lanes[0].Watermark <= watermark(before) {
		t.Errorf("%s begins with %s", back.name, body)
	}
	f.soldOut(sale.verdict(), stock)
	if back.metric(`seckill_ingress_requests_total`) == 0 {
		t.Errorf("%s served nobody after it came back", back.name)
	}
}

// sold is the units that were taken so far.
func (f *fleet) sold(ref admission.SKURef) int64 {
	f.t.Helper()
	stock, err := f.stock.HMGet(f.t.Context(), fmt.Sprintf("inv:%s:stock", ref.Tag()), "total", "remaining").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	total, _ := stock[0].(string)
	remaining, _ := stock[1].(string)
	return number(total) - number(remaining)
}
