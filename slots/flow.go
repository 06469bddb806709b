package slots

import (
	"math"
	"sync/atomic"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/flow"

	"github.com/sluice-io/sluice/app/admission"
)

// flowSlot is Sentinel's flow slot, asked only where its answer is open. A rule admits while
// fewer than its threshold passed in the last second, and to know how many Sentinel sums
// its window up for every request. The sum grows by passes alone: when 300 are left, the
// next 150 requests pass whatever the clock does, and Sentinel is asked by the one after
// them. Its verdicts, its statistics and its rules are what they were: the halves leave room
// for those who have been let through and are not yet counted, who make Sentinel overshoot
// as well.
//
// A rule of another shape (warm-up, another resource's statistics, a window of its own) is
// asked each time.
type flowSlot struct {
	threshold float64       // the lowest; -Inf: ask each time
	sure      atomic.Uint64 // how often Sentinel was asked << 32, and how many need not ask
}

func newFlowSlot(rules []flow.Rule, call admission.Call) *flowSlot {
	s := &flowSlot{threshold: math.Inf(1)}
	for i := range rules {
		r := &rules[i]
		if r.Resource != call.String() {
			continue
		}
		if r.TokenCalculateStrategy != flow.Direct || r.ControlBehavior != flow.Reject ||
			r.RelationStrategy != flow.CurrentResource || r.StatIntervalInMs != 0 && r.StatIntervalInMs != defaultStatMS {
			s.threshold = math.Inf(-1)
			break
		}
		s.threshold = min(s.threshold, r.Threshold)
	}
	return s
}

// defaultStatMS is the window of a resource's own statistics, which a rule without one has.
const defaultStatMS = 1000

// Order is that of Sentinel's slot.
func (*flowSlot) Order() uint32 { return flow.RuleCheckSlotOrder }

// Check blocks as Sentinel's slot does.
func (s *flowSlot) Check(ctx *base.EntryContext) *base.TokenResult {
	for {
		w := s.sure.Load()
		if uint32(w) == 0 {
			break
		}
		if s.sure.CompareAndSwap(w, w-1) {
			return nil
		}
	}
	asked := s.sure.Add(1 << 32)
	r := flow.DefaultSlot.Check(ctx)
	if r != nil && r.IsBlocked() || ctx.StatNode == nil || math.IsInf(s.threshold, 0) {
		return r
	}
	if left := s.threshold - float64(ctx.StatNode.GetSum(base.MetricEventPass)); left >= 2 {
		// Void if anybody was let through since: the sum is then older than they.
		s.sure.CompareAndSwap(asked, asked>>32<<32|uint64(min(left, mostSure)/2))
	}
	return r
}

// mostSure bounds how long a threshold of millions goes unasked.
const mostSure = 1 << 16
