package main

import (
	"testing"

	"github.com/sluice-io/sluice/rules"
)

// TestTheLimiterComesBackEmpty: the limiter's Redis is killed in the middle of a sale and
// comes back with nothing: no place, no watermark, no draw, no lock. The sale goes on from
// the copy of the room's state: the same draw, no watermark that went back, and all of the
// stock is sold to people who hold their places by their passes alone.
func TestTheLimiterComesBackEmpty(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady()
	}
	const stock = 200
	// Honest people alone: a second device, without the pass, finds no place in an emptied room.
	sale := f.simulate(1200, stock, pair, "--hostile", "0")
	ref := f.onSale()
	pace := func(version, wave int64) {
		b := rules.Default().At(version)
		b.Admission = rules.Family[rules.Admission]{Given: true, Rules: []rules.Admission{{ActivityID: ref.ActivityID, SKUID: ref.SKUID, PolicyVersion: version, WaveSize: &wave}}}
		f.publish(b.Confirmed().Indent())
	}
	pace(2, 3)
	eventually(t, patience, "an eighth of the stock sold", func() bool { return f.sold(ref) >= stock/8 })
	before := f.waves(ref)
	if sold := f.sold(ref); sold > stock*3/4 {
		t.Fatalf("%d of %d units were sold already: that is not the middle", sold, stock)
	}
	f.limiter.Kill()
	f.limiter.Start()
	took := eventually(t, patience, "the room is written back", func() bool { return f.waves(ref).Lost != nil })
	after := f.waves(ref)
	if after.Seal != before.Seal || watermark(after) < watermark(before) || after.Lost.Joined < before.Joined {
		t.Errorf("written back as %+v (%+v), it was %+v", after, after.Lost, before)
	}
	t.Logf("written back after %v: %d joined, term %d after %d", took, after.Lost.Joined, after.Term, before.Term)
	eventually(t, patience, "people are released by their passes", func() bool { return watermark(f.waves(ref)) > watermark(after) })
	pace(3, 50)
	f.soldOut(sale.verdict(), stock)
	if last := f.waves(ref); last.Seal != before.Seal || watermark(last) <= watermark(before) {
		t.Errorf("at the end: %+v", last)
	}
}
