package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/lease"
)

// TestTheActivitysBucketGoesByItsFirstSKU: lease_ms and ramp_ms of the rules reach both
// buckets of a submit, and where SKUs differ the document's first one says it for the whole.
func TestTheActivitysBucketGoesByItsFirstSKU(t *testing.T) {
	const activity = "10077"
	s := openSale(t, map[string]string{"rules.file": rulesWith(t, `  "sentinel": {`, fmt.Sprintf(`  "admission": [
    {"activity_id": %[1]q, "sku_id": "7", "policy_version": 2, "max_origin_qps": 1000, "lease": {"lease_ms": 1000, "ramp_ms": 0}},
    {"activity_id": %[1]q, "sku_id": "5", "policy_version": 2, "max_origin_qps": 1000, "lease": {"lease_ms": 3000, "ramp_ms": 20000, "burst": 9}}],
  "sentinel": {`, activity))})
	opens := time.Now().UTC().Add(time.Hour).Truncate(time.Millisecond)
	sku := `{"sku_id":%q,"name":"A thing","stock":5,"price":{"amount":"9.90","currency":"CNY"}}`
	doc := fmt.Sprintf(`{"activity_id":%q,"activity_version":1,"name":"Two things","opens_at":%q,"closes_at":%q,"skus":[`+sku+`,`+sku+`],"fairness":{"mode":"fifo"}}`,
		activity, opens.Format(time.RFC3339Nano), opens.Add(time.Hour).Format(time.RFC3339Nano), "7", "5")
	if _, faults, err := s.s.publisher.Publish(context.WithoutCancel(t.Context()), []byte(doc)); err != nil || len(faults) > 0 {
		t.Fatal(faults, err)
	}
	if err := s.s.directory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref := func(sku string) admission.SKURef { return admission.SKURef{ActivityID: activity, SKUID: sku} }

	policies := leasePolicies(s.s.rules.Snapshot(), s.s.directory.SKUs(time.Now()), time.Millisecond)
	first := lease.Policy{Strategy: lease.Leased, LeaseFor: time.Second, Ramp: -1, Weight: 1}
	for r, want := range map[admission.SKURef]lease.Policy{
		ref(""): first, ref("7"): first,
		ref("5"): {Strategy: lease.Leased, LeaseFor: 3 * time.Second, Ramp: 20 * time.Second, Weight: 1},
	} {
		if got := policies.For(r); got != want {
			t.Errorf("%s is leased by %+v, want %+v", r.Tag(), got, want)
		}
	}

	bursts := map[admission.SKURef]int64{ref("7"): 1000, ref("5"): 9, ref(""): 2000} // R x 1 s, given, both R x 1 s
	for _, b := range s.s.wantedBudgets() {
		if want, ok := bursts[b.Ref]; ok && b.Burst != want {
			t.Errorf("%s has a burst of %d, want %d", b.Ref.Tag(), b.Burst, want)
		}
		delete(bursts, b.Ref)
	}
	if len(bursts) > 0 {
		t.Errorf("no budgets of %v", bursts)
	}
}
