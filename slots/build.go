package slots

import (
	"cmp"
	"slices"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// chain is a Sentinel chain, built in ascending order: stages of ours that follow one
// another share a slot, and a slot of Sentinel's parts them.
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

// countFlow appends what counts for flow rules with a window of their own; all others read
// the resource's.
func (c *chain) countFlow(u uses) {
	if u.ownWindow {
		c.count(flow.DefaultStandaloneStatSlot)
	}
}

// countParams appends what counts for hot-param rules on who is inside; those on a rate
// count as they check.
func (c *chain) countParams(u uses) {
	if u.paramsInFlight {
		c.count(hotspot.DefaultConcurrencyStatSlot)
	}
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
		c.countParams(u)
	}
}
