package rules

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/core/isolation"
	"github.com/alibaba/sentinel-golang/core/system"
)

// Engine holds the rules that Sentinel enforces.
type Engine interface {
	// Load makes exactly these rules, enforced and shadow, the ones in force, or changes
	// nothing and says why.
	Load(enforced, shadow SentinelRules) error
	// Settle applies what Load put off because a breaker was not closed.
	Settle() error
	// Settled is signalled when Settle may have something to do.
	Settled() <-chan struct{}
}

// sentinelEngine is Sentinel itself.
//
// Sentinel's own loading drops a rule that it finds invalid and reports success, so every
// load is compared with what Sentinel holds afterwards. It is done resource by resource:
// rules that did not change keep their controllers, and with them their counters.
type sentinelEngine struct {
	held SentinelRules // asked for and verified
	want SentinelRules // differs from held in breakers that are not closed
	late bool
}

// NewSentinelEngine returns Sentinel as an Engine. There is one Sentinel in a process.
func NewSentinelEngine() Engine { return &sentinelEngine{} }

func (e *sentinelEngine) Settled() <-chan struct{} { return breakers.closed }

func (e *sentinelEngine) Load(enforced, shadow SentinelRules) error {
	want := merge(enforced, shadow)
	next, late := want.keepingOpenBreakers(e.held.CircuitBreaker)
	if err := e.swap(next); err != nil {
		return err
	}
	for _, old := range e.held.CircuitBreaker {
		if !slices.ContainsFunc(next.CircuitBreaker, func(r circuitbreaker.Rule) bool { return breakerKey(r) == breakerKey(old) }) {
			breakers.forget(old)
		}
	}
	e.held, e.want, e.late = next, want, late
	return nil
}

func (e *sentinelEngine) Settle() error {
	if !e.late {
		return nil
	}
	next, late := e.want.keepingOpenBreakers(e.held.CircuitBreaker)
	if err := e.swap(next); err != nil {
		return err
	}
	e.held, e.late = next, late
	return nil
}

// swap loads next and, on any difference, what was held before.
func (e *sentinelEngine) swap(next SentinelRules) error {
	err := apply(e.held, next)
	if err == nil {
		return nil
	}
	if back := apply(next, e.held); back != nil {
		return errors.Join(err, fmt.Errorf("and rolling back: %w", back))
	}
	return err
}

// keepingOpenBreakers replaces a changed rule by the old one while its breaker is not closed:
// Sentinel makes a new, closed breaker for a changed rule. A rule that is gone goes at once.
func (r SentinelRules) keepingOpenBreakers(old []circuitbreaker.Rule) (SentinelRules, bool) {
	late := false
	r.CircuitBreaker = slices.Clone(r.CircuitBreaker)
	for i, n := range r.CircuitBreaker {
		for _, o := range old {
			if breakerKey(o) == breakerKey(n) && o != n && breakers.isOpen(o) {
				r.CircuitBreaker[i], late = o, true
			}
		}
	}
	return r, late
}

func merge(enforced, shadow SentinelRules) SentinelRules {
	return SentinelRules{
		Flow:           slices.Concat(enforced.Flow, shadow.Flow),
		Hotspot:        slices.Concat(enforced.Hotspot, shadow.Hotspot),
		System:         slices.Clone(enforced.System), // shadow system rules have no resource to live on
		Isolation:      slices.Concat(enforced.Isolation, shadow.Isolation),
		CircuitBreaker: slices.Concat(enforced.CircuitBreaker, shadow.CircuitBreaker),
	}
}

// apply loads the families one after the other and stops at the first difference.
func apply(old, next SentinelRules) error {
	for _, res := range loadable() {
		of := func(r flow.Rule) bool { return r.Resource == res }
		if err := reload("flow", res, pick(old.Flow, of), pick(next.Flow, of), sameFlow, sameFlowPlace, flow.LoadRulesOfResource, flow.GetRulesOfResource); err != nil {
			return err
		}
	}
	for _, res := range loadable() {
		of := func(r hotspot.Rule) bool { return r.Resource == res }
		if err := reload("hotspot", res, pick(old.Hotspot, of), pick(next.Hotspot, of), sameHotspot, sameHotspotPlace, hotspot.LoadRulesOfResource, hotspot.GetRulesOfResource); err != nil {
			return err
		}
	}
	if err := applySystem(next.System); err != nil {
		return err
	}
	for _, res := range loadable() {
		of := func(r isolation.Rule) bool { return r.Resource == res }
		if err := reload("isolation", res, pick(old.Isolation, of), pick(next.Isolation, of), equal, equal, isolation.LoadRulesOfResource, isolation.GetRulesOfResource); err != nil {
			return err
		}
	}
	for _, res := range loadable() {
		of := func(r circuitbreaker.Rule) bool { return r.Resource == res }
		if err := reload("circuitbreaker", res, pick(old.CircuitBreaker, of), pick(next.CircuitBreaker, of), equal, sameBreakerPlace, circuitbreaker.LoadRulesOfResource, circuitbreaker.GetRulesOfResource); err != nil {
			return err
		}
	}
	return nil
}

func loadable() []string {
	var all []string
	for _, r := range Resources() {
		all = append(all, r, ShadowResource(r))
	}
	return all
}

// reload brings one resource of one family from old to next.
//
// Sentinel gives an edited rule the counters of the first rule with compatible statistics,
// whoever owned them. So rules that are gone are taken out first, and rules that stay are
// loaded in their old order before new ones: each then meets its own counters first.
func reload[T any](family, res string, old, next []T, same, samePlace func(a, b T) bool,
	load func(string, []*T) (bool, error), get func(string) []T) error {
	if slices.EqualFunc(get(res), next, same) {
		return nil
	}
	var staying []T
	var ordered []T
	taken := make([]bool, len(next))
	for _, o := range old {
		for i, n := range next {
			if !taken[i] && samePlace(o, n) {
				taken[i] = true
				staying, ordered = append(staying, o), append(ordered, n)
				break
			}
		}
	}
	for i, n := range next {
		if !taken[i] {
			ordered = append(ordered, n)
		}
	}
	if len(staying) > 0 && len(staying) < len(old) {
		if _, err := load(res, pointers(staying)); err != nil {
			return fmt.Errorf("sentinel %s of %s: %w", family, res, err)
		}
	}
	if _, err := load(res, pointers(ordered)); err != nil {
		return fmt.Errorf("sentinel %s of %s: %w", family, res, err)
	}
	if held := get(res); !slices.EqualFunc(held, ordered, same) {
		return fmt.Errorf("sentinel %s of %s: it holds %d rules that are not the %d asked for", family, res, len(held), len(ordered))
	}
	return nil
}

func applySystem(next []system.Rule) error {
	if sameSystem(system.GetRules(), next) {
		return nil
	}
	if _, err := system.LoadRules(pointers(next)); err != nil {
		return fmt.Errorf("sentinel system: %w", err)
	}
	if held := system.GetRules(); !sameSystem(held, next) {
		return fmt.Errorf("sentinel system: it holds %d rules that are not the %d asked for", len(held), len(next))
	}
	return nil
}

// sameSystem compares as sets: Sentinel keeps system rules in a map.
func sameSystem(a, b []system.Rule) bool {
	if len(a) != len(b) {
		return false
	}
	for _, r := range b {
		if count(a, r) != count(b, r) {
			return false
		}
	}
	return true
}

func count[T comparable](list []T, v T) int {
	n := 0
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

// sameFlow ignores the id, as Sentinel does: it keeps the old controller, with the old id.
func sameFlow(a, b flow.Rule) bool {
	if math.Abs(a.Threshold-b.Threshold) > 1e-8 {
		return false
	}
	a.ID, a.Threshold = b.ID, b.Threshold
	return a == b
}

func sameFlowPlace(a, b flow.Rule) bool {
	if a.ID != "" || b.ID != "" {
		return a.ID == b.ID
	}
	return a.TokenCalculateStrategy == b.TokenCalculateStrategy && a.StatIntervalInMs == b.StatIntervalInMs && a.RefResource == b.RefResource
}

func sameHotspot(a, b hotspot.Rule) bool {
	a.ID = b.ID
	return reflect.DeepEqual(a, b)
}

func sameHotspotPlace(a, b hotspot.Rule) bool {
	return a.ParamIndex == b.ParamIndex && a.MetricType == b.MetricType && (a.ID == "" || b.ID == "" || a.ID == b.ID)
}

func sameBreakerPlace(a, b circuitbreaker.Rule) bool { return breakerKey(a) == breakerKey(b) }

func equal[T comparable](a, b T) bool { return a == b }

func pick[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// pointers copies the rules: Sentinel keeps, and sometimes writes, what it is given.
func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		v := list[i]
		out[i] = &v
	}
	return out
}
