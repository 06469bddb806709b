package slots

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// TestWhatADeviceTightenedGoesBack: a device over its rate takes one more from its user's
// bucket, and when the answer is "we are full" both go back: the user was not too fast.
func TestWhatADeviceTightenedGoesBack(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"device":{"rate_per_s":0,"burst":0},"user":{"rate_per_s":0.001,"burst":4}}`))
	for range 10 { // each takes two of the four
		req := b.request("7")
		b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
		req.End(admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease})
	}
	for range 2 {
		req := b.request("7")
		b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
		req.End(admission.Decision{Outcome: admission.Queued})
	}
	b.want(b.gate.Enter(b.request("7")), admission.RateLimited, admission.StageUser)
	if got := testutil.ToFloat64(b.gate.metrics.deviceTightened); got != 12 {
		t.Errorf("%v requests tightened, want 12", got)
	}
}
