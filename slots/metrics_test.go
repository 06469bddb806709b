package slots

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// TestShedReasons: every answer that says that we are full is counted once, by its reason,
// and no other answer is.
func TestShedReasons(t *testing.T) {
	const closedSKU = `"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"max_in_flight":0}]`
	spends := func(reason admission.Reason) func(*bed) {
		return func(b *bed) {
			b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
				return nil, admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease, Reason: reason}
			}
		}
	}
	in := func(m admission.Mode) func(*bed) { return func(b *bed) { b.mode = m } }
	for _, c := range []struct {
		document string
		change   func(*bed)
		reason   admission.Reason // "": none
	}{
		{quiet(""), in(admission.ModeQueueOnly), admission.ReasonModeQueueOnly},
		{quiet(""), in(admission.ModeClosed), admission.ReasonModeClosed},
		{with(`"flow":[{"resource":"seckill.submit","threshold":0}],"hotspot":"none","system":"none"`), nil, admission.ReasonFlowRule},
		{with(`"flow":"none","hotspot":"none","system":[{"metricType":3,"triggerCount":0}]`), nil, admission.ReasonSystemRule},
		{with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":0,"durationInSec":1}]`), nil, admission.ReasonSKURate},
		{quiet(closedSKU), nil, admission.ReasonSeats},
		{quiet(""), spends(admission.ReasonLeaseEmpty), admission.ReasonLeaseEmpty},
		{quiet(""), spends("of a later version"), shedOther},
		{quiet(""), nil, ""},
		{quiet(`"limits":{"user":{"rate_per_s":0,"burst":0}}`), nil, ""},
		{quiet(`"stages":{"remote_user":"on"}`), nil, ""}, // there is no store: DEPENDENCY_UNAVAILABLE
	} {
		b := newBed(t, c.document)
		if c.change != nil {
			c.change(b)
		}
		req := b.request("7")
		d := b.gate.Enter(req)
		if !d.Refused() {
			d = b.gate.Reserve(t.Context(), req)
		}
		if c.reason != "" && d.Outcome.String() != "SYSTEM_OVERLOADED" {
			t.Errorf("%s: %v", c.reason, d.Outcome)
		}
		for _, reason := range shedReasons {
			want := 0.0
			if reason == c.reason {
				want = 1
			}
			if got := testutil.ToFloat64(b.gate.metrics.sheds[reason]); got != want {
				t.Errorf("%q: %v counted as %q, want %v", c.reason, got, reason, want)
			}
		}
		req.End(d)
	}
	b := newBed(t, with(`"flow":[{"resource":"seckill.status","threshold":0}],"hotspot":"none","system":"none"`))
	b.gate.Call(admission.CallStatus, b.request("7"))
	if got := testutil.ToFloat64(b.gate.metrics.sheds[admission.ReasonFlowRule]); got != 1 {
		t.Errorf("%v polls counted, want 1", got)
	}
}
