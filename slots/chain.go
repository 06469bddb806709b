package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/core/isolation"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// newEnterChain is what a submit meets before its body is read, from path and headers
// alone: cheapest first, signatures before trust, nothing that waits. Of Sentinel's slots
// those are there that have a rule.
func (g *Gate) newEnterChain(v *view) *base.SlotChain {
	c, u := g.newChain(v, admission.CallSubmit, false)
	add := func(order uint32, stage admission.Stage, check func(*visit) admission.Decision) {
		g.add(c, v, order, stage, check)
	}
	add(500, admission.StageMode, g.mode) //             NORMAL..CLOSED   503
	if len(v.snapshot.Sentinel.System) > 0 {
		c.AddRuleCheckSlot(newSystemSlot(v.snapshot.Sentinel.System)) // 1000 cpu, load, rt  503
	}
	if u.flow {
		c.AddRuleCheckSlot(flow.DefaultSlot) // 2000     instance, route  503
	}
	add(2100, admission.StageSource, g.source)     //    address, prefix  429
	add(2200, admission.StageSession, g.session)   //    JWT, remembered  401
	add(2300, admission.StageTicket, g.ticket)     //    HMAC, binding    403
	add(2400, admission.StageActivity, g.activity) //    opening hours    403
	add(2500, admission.StageSoldOut, g.soldOut)   //    epoch mark       200
	add(3000, admission.StageUser, g.user)         //    refunded later   429
	add(3100, admission.StageDevice, g.device)     //    refunded later   429
	g.addHotParams(c, v, u)                        // 4000 SKU hot-param  503
	return c
}

// newReserveChain is what a submit meets once its body has been read: the hard cap, then
// what is paid for, then the one round trip (two with the cluster-wide user bucket).
func (g *Gate) newReserveChain(v *view) *base.SlotChain {
	c, u := g.newChain(v, admission.CallReserve, true)
	add := func(order uint32, stage admission.Stage, check func(*visit) admission.Decision) {
		g.add(c, v, order, stage, check)
	}
	if u.isolation {
		c.AddRuleCheckSlot(isolation.DefaultSlot) // 3000  advisory         503
	}
	g.addHotParams(c, v, u) // 4000
	if u.breaker {
		c.AddRuleCheckSlot(circuitbreaker.DefaultSlot) // 5000 they are ill 503
		c.AddStatSlot(circuitbreaker.DefaultMetricStatSlot)
	}
	add(5500, admission.StageSeat, g.seat)             //          given back       503
	add(6000, admission.StageLease, g.lease)           // paid           503
	add(6500, admission.StageRemoteUser, g.remoteUser) // if switched on 429
	add(7000, admission.StageNonce, g.nonce)           // round trip 1   403
	return c
}

// newCallChain is what every call that is no submit meets: its own flow rule, its
// source, its session, its user. Polls of results and orders share no limit with submit.
func (g *Gate) newCallChain(v *view, call admission.Call) *base.SlotChain {
	c, u := g.newChain(v, call, false)
	if u.flow {
		c.AddRuleCheckSlot(flow.DefaultSlot)
	}
	source := g.source
	if call == admission.CallStatus || call == admission.CallOrder {
		source = g.pollSource
	}
	g.add(c, v, 2100, admission.StageSource, source)
	if call != admission.CallSession { // nobody has a name yet
		g.add(c, v, 2200, admission.StageSession, g.session)
		g.add(c, v, 3000, admission.StageUser, func(v *visit) admission.Decision { return g.caller(v, call) })
	}
	g.addHotParams(c, v, u)
	return c
}

// newChain begins a chain with what every resource counts.
func (g *Gate) newChain(v *view, call admission.Call, inbound bool) (*base.SlotChain, uses) {
	c, u := base.NewSlotChain(), usesOf(&v.snapshot.Sentinel, g.resources[call].Name())
	c.AddStatPrepareSlot(prepare(g.resources[call]))
	c.AddStatSlot(&statistics{inbound: inbound, blocks: g.metrics.blocks[call]})
	if u.flow {
		c.AddStatSlot(flow.DefaultStandaloneStatSlot)
	}
	return c, u
}

// add appends a stage unless the rules switched it off. Only optional stages can be;
// the rules refuse to name another.
func (g *Gate) add(c *base.SlotChain, v *view, order uint32, stage admission.Stage, check func(*visit) admission.Decision) {
	state := v.stages[stage]
	if state == rules.Off {
		return
	}
	block := base.BlockTypeUnknown
	if stage == admission.StageSource || stage == admission.StageUser || stage == admission.StageDevice {
		block = base.BlockTypeHotSpotParamFlow // hot-param rules on the bounded engine
	}
	c.AddRuleCheckSlot(&slot{stage: stage, order: order, shadow: state == rules.Shadow, block: blocked(block, stage), check: check, gate: g})
}

// addHotParams appends Sentinel's hot-param slot, if it has a rule, under the switch of
// the SKU stage.
func (g *Gate) addHotParams(c *base.SlotChain, v *view, u uses) {
	if !u.hotspot {
		return
	}
	s := &hotParams{needs: u.params}
	switch v.stages[admission.StageSKU] {
	case rules.Off:
	case rules.Shadow:
		c.AddRuleCheckSlot(&shadowed{RuleCheckSlot: s, stage: admission.StageSKU, gate: g})
	default:
		c.AddRuleCheckSlot(s)
		c.AddStatSlot(hotspot.DefaultConcurrencyStatSlot)
	}
}

// shadowed evaluates and counts a slot of Sentinel's own without enforcing it.
type shadowed struct {
	base.RuleCheckSlot
	stage admission.Stage
	gate  *Gate
}

// Check lets everything pass.
func (s *shadowed) Check(ctx *base.EntryContext) *base.TokenResult {
	if r := s.RuleCheckSlot.Check(ctx); r != nil && r.IsBlocked() {
		s.gate.metrics.shadow(s.stage)
		visitOf(ctx).decision = admission.Decision{}
		ctx.RuleCheckResult.ResetToPass()
	}
	return nil
}
