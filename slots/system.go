package slots

import (
	"sync/atomic"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/system"
	"github.com/alibaba/sentinel-golang/util"

	"github.com/sluice-io/sluice/app/admission"
)

// systemSlot is Sentinel's system slot, asked once a millisecond where its rules allow it:
// CPU and load are fed twice a second and the mean RT moves by windows of half a second,
// while every question copies the rules and adds a window up. Rules on concurrency and QPS
// follow each request, and are asked each time.
type systemSlot struct {
	block []base.BlockErrorOption
	each  bool          // ask for every request
	last  atomic.Uint64 // Sentinel's milliseconds << 1, and 1 when it blocked
}

func newSystemSlot(rules []system.Rule) *systemSlot {
	s := &systemSlot{block: blocked(base.BlockTypeSystemFlow, admission.StageSystem)}
	for i := range rules {
		switch rules[i].MetricType {
		case system.Concurrency, system.InboundQPS:
			s.each = true
		default:
			s.each = s.each || rules[i].Strategy == system.BBR // looks at concurrency
		}
	}
	return s
}

// Order is that of Sentinel's slot.
func (*systemSlot) Order() uint32 { return system.RuleCheckSlotOrder }

// Check blocks as Sentinel's slot does; what it says is one and the same for all requests
// of a millisecond.
func (s *systemSlot) Check(ctx *base.EntryContext) *base.TokenResult {
	if s.each {
		return system.DefaultAdaptiveSlot.Check(ctx)
	}
	now := util.CurrentTimeMillis() << 1
	if last := s.last.Load(); last&^1 == now {
		if last == now {
			return nil
		}
		ctx.RuleCheckResult.ResetToBlockedWith(s.block...)
		return ctx.RuleCheckResult
	}
	r := system.DefaultAdaptiveSlot.Check(ctx)
	if r != nil && r.IsBlocked() {
		now |= 1
	}
	s.last.Store(now)
	return r
}
