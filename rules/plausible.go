package rules

import (
	"fmt"
	"math"
)

// tenfoldChange is the factor above which a changed limit must be confirmed.
const tenfoldChange = 10

// implausible lists what changes between two bundles in a way that a slip of the hand
// would: a family emptied, a limit changed more than tenfold, a resource without its last
// rule. The word "none" for a family is its own confirmation.
func implausible(old, next *Bundle) Faults {
	o, n := old.effective(), next.effective()
	var rep report
	emptied(&rep, "$.sentinel.flow", o.Sentinel.Flow, n.Sentinel.Flow)
	emptied(&rep, "$.sentinel.hotspot", o.Sentinel.Hotspot, n.Sentinel.Hotspot)
	emptied(&rep, "$.sentinel.system", o.Sentinel.System, n.Sentinel.System)
	emptied(&rep, "$.sentinel.isolation", o.Sentinel.Isolation, n.Sentinel.Isolation)
	emptied(&rep, "$.sentinel.circuitbreaker", o.Sentinel.CircuitBreaker, n.Sentinel.CircuitBreaker)
	emptied(&rep, "$.limits.overrides", o.Limits.Overrides, n.Limits.Overrides)
	emptied(&rep, "$.admission", o.Admission, n.Admission)
	orphaned(&rep, "$.sentinel.flow", o.Sentinel.Flow, n.Sentinel.Flow, func(r FlowRule) string { return r.Resource })
	orphaned(&rep, "$.sentinel.hotspot", o.Sentinel.Hotspot, n.Sentinel.Hotspot, func(r HotspotRule) string { return r.Resource })
	orphaned(&rep, "$.sentinel.isolation", o.Sentinel.Isolation, n.Sentinel.Isolation, func(r IsolationRule) string { return r.Resource })
	orphaned(&rep, "$.sentinel.circuitbreaker", o.Sentinel.CircuitBreaker, n.Sentinel.CircuitBreaker, func(r BreakerRule) string { return r.Resource })
	changedLimits(&rep, o, n)
	return rep.faults
}

func emptied[T any](rep *report, path string, old, next Family[T]) {
	if len(old.Rules) > 0 && len(next.Rules) == 0 && !next.None {
		rep.fault(path, "is emptied: %d rules would go; write \"none\" to clear it on purpose", len(old.Rules))
	}
}

func orphaned[T any](rep *report, path string, old, next Family[T], resource func(T) string) {
	if len(next.Rules) == 0 {
		return // emptied
	}
	left := map[string]bool{}
	for _, r := range next.Rules {
		left[resource(r)] = true
	}
	for _, r := range old.Rules {
		if !left[resource(r)] {
			rep.fault(path, "%s loses its last rule", resource(r))
			return
		}
	}
}

// changedLimits compares what has a name in both bundles.
func changedLimits(rep *report, o, n *Bundle) {
	was := limitsOf(o)
	for _, l := range limitsOf(n) {
		for _, w := range was {
			if w.name == l.name {
				if w.value != l.value && ratio(w.value, l.value) > tenfoldChange {
					rep.fault("$."+l.path, "changes from %v to %v, more than %dx", w.value, l.value, tenfoldChange)
				}
				break
			}
		}
	}
}

func ratio(a, b float64) float64 {
	low, high := math.Min(a, b), math.Max(a, b)
	if low <= 0 {
		return math.Inf(1)
	}
	return high / low
}

// namedLimit is one number of a bundle under a name that survives reordering.
type namedLimit struct {
	name, path string
	value      float64
}

func limitsOf(b *Bundle) []namedLimit {
	var list []namedLimit
	add := func(name, path string, v float64) { list = append(list, namedLimit{name, path, v}) }
	def := shipped()
	for _, d := range []Dimension{DimensionSource, DimensionUser, DimensionDevice, DimensionStatus, DimensionJoin, DimensionTicket} {
		r := b.Limits.rate(d)
		if r == nil {
			r = def.Limits.rate(d)
		}
		add("limits."+d, "limits."+d+".rate_per_s", r.PerSecond)
		add("limits."+d+" burst", "limits."+d+".burst", float64(r.Burst))
	}
	for i, r := range b.Sentinel.Flow.Rules {
		add(named("flow", r.ID, r.Resource, fmt.Sprint(r.TokenCalculateStrategy, r.StatIntervalInMs)), at("sentinel.flow", i)+".threshold", r.Threshold)
	}
	for i, r := range b.Sentinel.Hotspot.Rules {
		p, _ := r.param()
		add(named("hotspot", r.ID, r.Resource, fmt.Sprint(p, r.MetricType)), at("sentinel.hotspot", i)+".threshold", float64(r.Threshold)/float64(max(1, r.DurationInSec)))
	}
	for i, r := range b.Sentinel.System.Rules {
		add(named("system", r.ID, fmt.Sprint(r.MetricType), ""), at("sentinel.system", i)+".triggerCount", r.TriggerCount)
	}
	for i, r := range b.Sentinel.Isolation.Rules {
		add(named("isolation", r.ID, r.Resource, ""), at("sentinel.isolation", i)+".threshold", float64(r.Threshold))
	}
	for i, r := range b.Sentinel.CircuitBreaker.Rules {
		add(named("circuitbreaker", r.ID, r.Resource, fmt.Sprint(r.Strategy)), at("sentinel.circuitbreaker", i)+".threshold", r.Threshold)
	}
	for i := range b.Admission.Rules {
		a := &b.Admission.Rules[i]
		p, name, path := a.compile(), "admission "+a.ActivityID+"/"+a.SKUID, at("admission", i)
		add(name+" qps", path+".max_origin_qps", p.MaxOriginQPS)
		add(name+" seats", path+".max_in_flight", float64(p.MaxInFlight))
		add(name+" wave", path+".wave_size", float64(p.WaveSize))
		if a.UserRate != nil {
			add(name+" user", path+".user_rate_per_s", *a.UserRate)
		}
		if a.DeviceRate != nil {
			add(name+" device", path+".device_rate_per_s", *a.DeviceRate)
		}
	}
	return list
}

// named prefers the id; rules without one are told apart by what they do.
func named(family, id, resource, kind string) string {
	if id != "" {
		return family + " " + id
	}
	return family + " " + resource + " " + kind
}
