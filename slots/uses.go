package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/core/stat"

	"github.com/sluice-io/sluice/rules"
)

// uses says which of Sentinel's slots have a rule on a resource: a chain is built from
// those alone, for each costs even when it has nothing to check.
type uses struct {
	flow, hotspot, isolation, breaker bool
	ownWindow                         bool           // a flow rule counts in a window of its own
	paramsInFlight                    bool           // a hot-param rule counts who is inside
	params                            [argVisit]bool // that the hot-param rules name
}

func usesOf(r *rules.SentinelRules, resource string) (u uses) {
	for i := range r.Flow {
		if f := &r.Flow[i]; f.Resource == resource {
			u.flow = true
			u.ownWindow = u.ownWindow || f.StatIntervalInMs != 0 && f.StatIntervalInMs != defaultStatMS
		}
	}
	for i := range r.Hotspot {
		if h := &r.Hotspot[i]; h.Resource == resource {
			u.hotspot = true
			u.paramsInFlight = u.paramsInFlight || h.MetricType == hotspot.Concurrency
			if h.ParamIndex >= 0 && h.ParamIndex < len(u.params) { // the rules refuse any other
				u.params[h.ParamIndex] = true
			}
		}
	}
	for i := range r.Isolation {
		u.isolation = u.isolation || r.Isolation[i].Resource == resource
	}
	for i := range r.CircuitBreaker {
		u.breaker = u.breaker || r.CircuitBreaker[i].Resource == resource
	}
	return u
}

// node puts a resource's statistics into the entry. Sentinel's own slot looks the node up
// by name under a lock for every request; a node lives as long as the process.
type node struct{ *stat.ResourceNode }

func prepare(r *base.ResourceWrapper) node {
	return node{stat.GetOrCreateResourceNode(r.Name(), r.Classification())}
}

// Order is that of Sentinel's slot.
func (node) Order() uint32 { return stat.PrepareSlotOrder }

// Prepare runs before any check.
func (n node) Prepare(ctx *base.EntryContext) { ctx.StatNode = n.ResourceNode }
