package slots

import (
	"cmp"
	"slices"

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
func (g *Gate) newEnterChain(v *view) *chain {
	c, u := g.newChain(v, admission.CallSubmit, false)
	c.stage(500, admission.StageMode, (*Gate).mode) //             NORMAL..CLOSED   503
	if len(v.snapshot.Sentinel.System) > 0 {
		c.sentinel(newSystemSlot(v.snapshot.Sentinel.System)) // 1000  cpu, load, rt    503
	}
	if u.flow {
		c.sentinel(newFlowSlot(v.snapshot.Sentinel.Flow, admission.CallSubmit)) // 2000 instance, route 503
	}
	c.stage(2100, admission.StageSource, (*Gate).source)     //    address, prefix  429
	c.stage(2200, admission.StageSession, (*Gate).session)   //    JWT, remembered  401
	c.stage(2300, admission.StageTicket, (*Gate).ticket)     //    HMAC, binding    403
	c.stage(2400, admission.StageActivity, (*Gate).activity) //    opening hours    403
	c.stage(2500, admission.StageSoldOut, (*Gate).soldOut)   //    epoch mark       200
	c.stage(3000, admission.StageUser, (*Gate).user)         //    refunded later   429
	c.stage(3100, admission.StageDevice, (*Gate).device)     //    refunded later   429
	c.hotParams(u)                                           // 4000 SKU hot-param  503
	return c
}

// newReserveChain is what a submit meets once its body has been read: the hard cap, then
// what is paid for, then the one round trip (two with the cluster-wide user bucket).
func (g *Gate) newReserveChain(v *view) *chain {
	c, u := g.newChain(v, admission.CallReserve, true)
	if u.isolation {
		c.sentinel(isolation.DefaultSlot) // 3000                      advisory         503
	}
	c.hotParams(u) // 4000
	if u.breaker {
		c.breaker() // 5000                                            they are ill     503
	}
	c.stage(5500, admission.StageSeat, (*Gate).seat)             // given back       503
	c.stage(6000, admission.StageLease, (*Gate).lease)           // paid             503
	c.stage(6500, admission.StageRemoteUser, (*Gate).remoteUser) // if switched on   429
	c.stage(7000, admission.StageNonce, (*Gate).nonce)           // round trip 1     403
	return c
}

// newCallChain is what every call that is no submit meets: its own flow rule, its
// source, its session, its user. Polls of results and orders share no limit with submit.
func (g *Gate) newCallChain(v *view, call admission.Call) *chain {
	c, u := g.newChain(v, call, false)
	if u.flow {
		c.sentinel(newFlowSlot(v.snapshot.Sentinel.Flow, call))
	}
	source := (*Gate).source
	if call == admission.CallStatus || call == admission.CallOrder {
		source = (*Gate).pollSource
	}
	c.stage(2100, admission.StageSource, source)
	if call != admission.CallSession { // nobody has a name yet
		c.stage(2200, admission.StageSession, (*Gate).session)
		c.stage(3000, admission.StageUser, func(g *Gate, v *visit) admission.Decision { return g.caller(v, call) })
	}
	c.hotParams(u)
	return c
}

// newChain begins a chain with what every resource counts.
func (g *Gate) newChain(v *view, call admission.Call, inbound bool) (*chain, uses) {
	c, u := beginChain(g, v, g.resources[call]), usesOf(&v.snapshot.Sentinel, g.resources[call].Name())
	c.count(&statistics{inbound: inbound, blocks: g.metrics.blocks[call]})
	if u.flow {
		c.count(flow.DefaultStandaloneStatSlot)
	}
	return c, u
}

// chain is a Sentinel chain while it is built, in ascending order: stages of ours that
// follow one another share a slot, and a slot of Sentinel's parts them.
type chain struct {
	*base.SlotChain
	resource *base.ResourceWrapper
	stats    []base.StatSlot // all of them, in their order
	breaks   bool            // has a breaker, which registers with entries
	gate     *Gate
	view     *view
	last     *stages // nil: the next stage begins a slot
}

func beginChain(g *Gate, v *view, resource *base.ResourceWrapper) *chain {
	c := &chain{SlotChain: base.NewSlotChain(), resource: resource, gate: g, view: v}
	c.AddStatPrepareSlot(prepare(resource))
	return c
}

// stage appends a stage unless the rules switched it off. Only optional stages can be;
// the rules refuse to name another.
func (c *chain) stage(order uint32, name admission.Stage, check func(*Gate, *visit) admission.Decision) {
	state := c.view.stages[name]
	if state == rules.Off {
		return
	}
	block := base.BlockTypeUnknown
	if name == admission.StageSource || name == admission.StageUser || name == admission.StageDevice {
		block = base.BlockTypeHotSpotParamFlow // hot-param rules on the bounded engine
	}
	if c.last == nil {
		c.last = &stages{order: order, gate: c.gate}
		c.AddRuleCheckSlot(c.last)
	}
	c.last.list = append(c.last.list, stage{name: name, shadow: state == rules.Shadow, block: blocked(block, name), check: check})
}

// sentinel appends a slot of Sentinel's own.
func (c *chain) sentinel(s base.RuleCheckSlot) {
	c.last = nil
	c.AddRuleCheckSlot(s)
}

// breaker appends Sentinel's circuit breaker and what it counts.
func (c *chain) breaker() {
	c.sentinel(circuitbreaker.DefaultSlot)
	c.count(circuitbreaker.DefaultMetricStatSlot)
	c.breaks = true
}

// count appends what counts the requests that passed, were blocked and are over.
func (c *chain) count(s base.StatSlot) {
	c.AddStatSlot(s)
	c.stats = append(c.stats, s)
	slices.SortStableFunc(c.stats, func(a, b base.StatSlot) int { return cmp.Compare(a.Order(), b.Order()) })
}

// hotParams appends Sentinel's hot-param slot, if it has a rule, under the switch of the
// SKU stage.
func (c *chain) hotParams(u uses) {
	if !u.hotspot {
		return
	}
	s := &hotParams{needs: u.params}
	switch c.view.stages[admission.StageSKU] {
	case rules.Off:
	case rules.Shadow:
		c.sentinel(&shadowed{RuleCheckSlot: s, stage: admission.StageSKU, gate: c.gate})
	default:
		c.sentinel(s)
		c.count(hotspot.DefaultConcurrencyStatSlot)
	}
}
