package slots

import (
	"testing"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/stat"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// TestWhoLeavesAtOnceIsCountedOnce: a submit that passed its first chain has left it; the
// export says so, without a count of its own. Who stays is counted in and out.
func TestWhoLeavesAtOnceIsCountedOnce(t *testing.T) {
	b := newBed(t, quiet(""))
	submit, reserve := stat.GetResourceNode("seckill.submit"), stat.GetResourceNode("seckill.reserve")
	left := reserve.GetSum(base.MetricEventComplete)
	req := b.request("7")
	b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
	if n := submit.CurrentConcurrency(); n != 0 {
		t.Errorf("%d submits are inside their first chain", n)
	}
	exported := map[string]float64{}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&resourceCollector{resources: b.gate.resources})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) == 1 && m.Label[0].GetValue() == "seckill.submit" {
				exported[f.GetName()] = m.Gauge.GetValue()
			}
		}
	}
	if pass, complete := exported["sentinel_resource_pass_qps"], exported["sentinel_resource_complete_qps"]; pass < 1 || complete != pass {
		t.Errorf("%v passed, %v completed a second; want as many, and not none", pass, complete)
	}
	req.End(b.gate.Reserve(t.Context(), req))
	if n := reserve.GetSum(base.MetricEventComplete) - left; n != 1 {
		t.Errorf("%d completions of reserve, want 1", n)
	}
}
