package slots

import (
	"github.com/alibaba/sentinel-golang/core/isolation"

	"github.com/sluice-io/sluice/app/admission"
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
	c.count(&statistics{inbound: inbound, stays: stays(call), blocks: g.metrics.blocks[call]})
	c.countFlow(u)
	return c, u
}
