package order_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := openEmbedded(t, 1)
	s.metrics = order.NewMetrics(registry)
	before := testutil.CollectAndCount(registry)
	p := s.placer(t, nil)
	for i := range 3 {
		p.Place(t.Context(), s.request(i, 1, 1))
	}
	s.recover(t, settled())
	if after := testutil.CollectAndCount(registry); after != before {
		t.Errorf("series grew from %d to %d: every label is resolved at the start", before, after)
	}
	for name, want := range map[string]map[string]float64{
		"seckill_order_reserve_total":  {"reserved": 1, "sold_out": 2},
		"seckill_order_send_total":     {"acked": 1},
		"seckill_order_verdicts_total": {string(admission.VerdictCreated): 1},
		"seckill_recovery_total":       {"decide": 1},
	} {
		for label, n := range want {
			if got := value(t, registry, name, label); got != n {
				t.Errorf("%s of %s: %v, want %v", name, label, got, n)
			}
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// value is the counter of name whose one label has the value.
func value(t *testing.T, g prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Errorf("no %s with %s", name, label)
	return -1
}
