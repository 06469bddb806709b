package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/control"
)

// withStrategy is the demonstration's policy with a lease strategy, at 50 a second.
func withStrategy(t *testing.T, strategy string) map[string]string {
	t.Helper()
	return map[string]string{"rules.file": rulesWith(t, `  "sentinel": {`, fmt.Sprintf(
		`  "admission": [{"activity_id": %q, "sku_id": %q, "policy_version": 2, "max_origin_qps": 50, "lease": {"strategy": %q}}],
  "sentinel": {`, demoActivity, demoSKU, strategy))}
}

var demoRef = admission.SKURef{ActivityID: demoActivity, SKUID: demoSKU}

// TestCentralIsWiredToThePolicy: every request asks the store, and the leader's rate is
// what it is asked for.
func TestCentralIsWiredToThePolicy(t *testing.T) {
	s := openSale(t, withStrategy(t, "central"))
	s.until("a budget", func() bool { _, d := s.s.leases.Spend(t.Context(), demoRef); return !d.Refused() })
	asks := s.metric("seckill_global_lease_asks_total")
	refused := 0
	for range 100 {
		ctx, n := redis.CountCommands(t.Context())
		_, d := s.s.leases.Spend(ctx, demoRef)
		if n.Trips() != 1 {
			t.Fatalf("%d trips of one request, want 1", n.Trips())
		}
		if d.Refused() {
			refused++
		}
	}
	if refused == 0 {
		t.Error("100 requests at once pass at 50 a second")
	}
	if n := s.metric("seckill_global_lease_asks_total") - asks; n != 0 {
		t.Errorf("%v leases were asked for", n)
	}
}

// TestShareIsWiredToThePolicyAndTheFleet: no request asks the store, and this instance
// takes its part of the rate among those that live.
func TestShareIsWiredToThePolicyAndTheFleet(t *testing.T) {
	s := openSale(t, withStrategy(t, "share"))
	s.until("the whole share of one who is alone", func() bool { return s.s.share.of() == 1 })
	for i := range 3 { // of these one is no gateway and one is dead
		line := control.Line{InstanceID: fmt.Sprint("other-", i), Roles: []string{"gateway"}, SeenMS: time.Now().Add(time.Minute).UnixMilli()}
		switch i {
		case 1:
			line.Roles = []string{"orders"}
		case 2:
			line.SeenMS = time.Now().Add(-time.Minute).UnixMilli()
		}
		body, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.s.stores.fleet.Report(t.Context(), line.InstanceID, body); err != nil {
			t.Fatal(err)
		}
	}
	s.until("half the share beside another", func() bool { return s.s.share.of() == 0.5 })
	s.until("a budget", func() bool { _, d := s.s.leases.Spend(t.Context(), demoRef); return !d.Refused() })
	began, passed := time.Now(), 0
	for range 2000 {
		ctx, n := redis.CountCommands(t.Context())
		_, d := s.s.leases.Spend(ctx, demoRef)
		if n.Commands() != 0 {
			t.Fatalf("%d commands, want none", n.Commands())
		}
		if !d.Refused() {
			passed++
		}
	}
	// Half of 50 a second, and a burst of one lease.
	if most := 25*time.Since(began).Seconds() + 25*0.2 + 1; float64(passed) > most {
		t.Errorf("%d passed, want at most %.1f", passed, most)
	}
}
