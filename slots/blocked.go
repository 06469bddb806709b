package slots

import (
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/hotspot"

	"github.com/sluice-io/sluice/app/admission"
)

// sentinelDecision says what a block of one of Sentinel's own slots means. A rule about
// a person is "you are too fast"; every other one is "we are full".
func sentinelDecision(err *base.BlockError) admission.Decision {
	d := admission.Decision{Outcome: admission.Overloaded, RetryAfter: time.Second}
	switch err.BlockType() {
	case base.BlockTypeSystemFlow:
		d.Stage, d.Reason = admission.StageSystem, admission.ReasonSystemRule
	case base.BlockTypeIsolation:
		d.Stage, d.Reason = admission.StageIsolation, admission.ReasonIsolationRule
	case base.BlockTypeCircuitBreaking:
		d.Outcome, d.Stage, d.Reason = admission.DependencyUnavailable, admission.StageBreaker, admission.ReasonBreakerOpen
	case base.BlockTypeHotSpotParamFlow:
		d.Stage, d.Reason = admission.StageSKU, admission.ReasonSKURate
		if rule, ok := err.TriggeredRule().(*hotspot.Rule); ok {
			switch rule.ParamIndex {
			case argUser:
				d.Outcome, d.Stage, d.Reason = admission.RateLimited, admission.StageUser, admission.ReasonUserRate
			case argDevice:
				d.Outcome, d.Stage, d.Reason = admission.RateLimited, admission.StageDevice, admission.ReasonDeviceRate
			case argSource:
				d.Outcome, d.Stage, d.Reason = admission.RateLimited, admission.StageSource, admission.ReasonSourceRate
			}
		}
	default:
		d.Stage, d.Reason = admission.StageFlow, admission.ReasonFlowRule
	}
	return d
}
