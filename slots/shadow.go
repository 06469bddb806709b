package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/isolation"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/rules"
)

// Rules in shadow are evaluated and counted, never enforced. They see the requests that
// the rules in force let pass, and keep counters of their own: Sentinel's on a resource
// beside the real one, those of keyed limits in a table of their own.

// newShadowChain is the chain of a resource's shadow rules; nil when it has none.
func (g *Gate) newShadowChain(v *view, call admission.Call) *chain {
	res := g.shadowResources[call].Name()
	r := &v.snapshot.Shadows
	if !r.Has(res) {
		return nil
	}
	c, u := beginChain(g, v, g.shadowResources[call]), usesOf(r, res)
	c.count(&statistics{stays: stays(call)})
	if u.flow {
		c.sentinel(flow.DefaultSlot)
		c.countFlow(u)
	}
	if u.isolation {
		c.sentinel(isolation.DefaultSlot)
	}
	if u.hotspot {
		c.sentinel(&hotParams{needs: u.params})
		c.countParams(u)
	}
	if u.breaker {
		c.breaker()
	}
	return c
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

// shadowEntry sends a request that passed through the shadow rules of its resource. The
// caller leaves with what it returns; nil: there is nothing to leave.
func (g *Gate) shadowEntry(v *visit, call admission.Call) *visit {
	chain := v.view.shadows[call]
	if chain == nil {
		return nil
	}
	w := *v // a refusal and an entry are the copy's
	if !enter(chain, &w) {
		g.metrics.shadow(w.decision.Stage)
		return nil
	}
	return &w
}

// shadowLimit counts a request against a shadow limit of its key, if there is one. What
// it was charged goes back with the rest.
func (g *Gate) shadowLimit(v *visit, stage admission.Stage, r *rates, name string, key limit.Key) {
	if !r.shadows {
		return
	}
	if l, ok := r.keyed.ShadowFor(name); ok {
		g.shadowCharge(v, stage, key, rate(l))
	}
}

func (g *Gate) shadowCharge(v *visit, stage admission.Stage, key limit.Key, r limit.Rate) {
	key.ID ^= uint64(stage) // source, user and device share the table
	if !g.shadows.Allow(limit.Instant(v.req.Mono), key, 1, r).OK {
		g.metrics.shadow(stage)
		return
	}
	v.refundableShadow(charge{table: g.shadows, id: key.ID, rate: r})
}

// shadowResources are where Sentinel keeps shadow rules; never inbound.
func shadowResources() (r [admission.Calls]*base.ResourceWrapper) {
	for c := range r {
		r[c] = base.NewResourceWrapper(rules.ShadowResource(admission.Call(c).String()), base.ResTypeWeb, base.Outbound)
	}
	return r
}
