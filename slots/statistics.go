package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/stat"
	"github.com/alibaba/sentinel-golang/util"

	"github.com/sluice-io/sluice/app/admission"
)

// statistics feeds a resource's own node, and Sentinel's inbound node only where told
// to: a submit passes two chains, and both feeding it would count every request twice.
// It replaces Sentinel's stat slot, which also looks a labelled counter up per request.
type statistics struct {
	inbound bool
	stays   bool // requests stay inside for a while; else they leave as they pass, and one count says both
	blocks  *blockCounters
}

// Order places it before the slots that read what it wrote.
func (*statistics) Order() uint32 { return stat.StatSlotOrder }

func (s *statistics) OnEntryPassed(ctx *base.EntryContext) {
	if ctx.StatNode != nil {
		s.passed(ctx.StatNode, ctx)
	}
	if s.inbound {
		s.passed(stat.InboundNode(), ctx)
	}
}

func (s *statistics) passed(n base.StatNode, ctx *base.EntryContext) {
	if s.stays {
		n.IncreaseConcurrency()
	}
	n.AddCount(base.MetricEventPass, int64(ctx.Input.BatchCount))
}

// stays says whether requests stay inside a call's last chain: until they are answered in
// reserve's, else not at all.
func stays(call admission.Call) bool { return call == admission.CallReserve }

func (s *statistics) OnEntryBlocked(ctx *base.EntryContext, err *base.BlockError) {
	if ctx.StatNode != nil {
		ctx.StatNode.AddCount(base.MetricEventBlock, int64(ctx.Input.BatchCount))
	}
	if s.inbound {
		stat.InboundNode().AddCount(base.MetricEventBlock, int64(ctx.Input.BatchCount))
	}
	if s.blocks != nil { // nil: the resource of shadow rules
		s.blocks.count(err.BlockType())
	}
}

func (s *statistics) OnCompleted(ctx *base.EntryContext) {
	if !s.stays {
		return
	}
	rt := util.CurrentTimeMillis() - ctx.StartTime()
	ctx.PutRt(rt)
	if ctx.StatNode != nil {
		completed(ctx.StatNode, ctx)
		if rt > 0 { // nobody reads the shortest time of a resource
			ctx.StatNode.AddCount(base.MetricEventRt, int64(rt))
		}
	}
	if s.inbound {
		completed(stat.InboundNode(), ctx)
		stat.InboundNode().AddCount(base.MetricEventRt, int64(rt))
	}
}

func completed(n base.StatNode, ctx *base.EntryContext) {
	if ctx.Err() != nil {
		n.AddCount(base.MetricEventError, int64(ctx.Input.BatchCount))
	}
	n.AddCount(base.MetricEventComplete, int64(ctx.Input.BatchCount))
	n.DecreaseConcurrency()
}

// resources are the closed set of names that Sentinel knows. Submit and reserve are
// inbound, so that system rules look at them; every other is outbound.
func resources() (r [admission.Calls]*base.ResourceWrapper) {
	for c := range r {
		traffic := base.Outbound
		if c := admission.Call(c); c == admission.CallSubmit || c == admission.CallReserve {
			traffic = base.Inbound
		}
		r[c] = base.NewResourceWrapper(admission.Call(c).String(), base.ResTypeWeb, traffic)
	}
	return r
}
