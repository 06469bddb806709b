package rules

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-io/sluice/app/admission"
)

var errSource = errors.New("must be an address, or a prefix of length /32 or /24 (IPv4), /64 or /48 (IPv6)")

// Sentinel's enums, under names.
const (
	flowDirect  = 0
	flowWarmUp  = 1
	flowMemory  = 2
	throttling  = 1
	coldFactor  = 3 // Sentinel's own default
	hotspotQPS  = 1
	systemLoad  = 0
	systemRT    = 1
	systemCPU   = 4
	systemTypes = 5
	noAdaptive  = -1
	bbr         = 1
)

// What the pinned Sentinel-Go 1.0.4 cannot do, in words.
const (
	whyNoThrottling = "throttling is not offered: Sentinel-Go 1.0.4 sleeps in the caller, and does nothing above 1000 a second; use reject (0)"
	whyNoMemory     = "the memory-adaptive strategy is not offered: no memory collector runs; use direct (0) or warm-up (1)"
	whyNoProbes     = "is above 1: Sentinel-Go 1.0.4 admits everything while a breaker with more than one probe is half open"
	whyNoLoad       = "a load rule needs strategy 1 (BBR): the load average is the host's, neighbours included, and must not refuse on its own"
)

func (f *SentinelFamilies) validate(path string, rep *report) {
	family(rep, path+".flow", f.Flow.Rules, (*FlowRule).validate)
	family(rep, path+".hotspot", f.Hotspot.Rules, (*HotspotRule).validate)
	family(rep, path+".system", f.System.Rules, (*SystemRule).validate)
	family(rep, path+".isolation", f.Isolation.Rules, (*IsolationRule).validate)
	family(rep, path+".circuitbreaker", f.CircuitBreaker.Rules, (*BreakerRule).validate)
	f.validateBounded(path+".hotspot", rep)
	ids(rep, path+".flow", f.Flow.Rules, func(r *FlowRule) string { return r.ID })
	ids(rep, path+".hotspot", f.Hotspot.Rules, func(r *HotspotRule) string { return r.ID })
	ids(rep, path+".system", f.System.Rules, func(r *SystemRule) string { return r.ID })
	ids(rep, path+".isolation", f.Isolation.Rules, func(r *IsolationRule) string { return r.ID })
	ids(rep, path+".circuitbreaker", f.CircuitBreaker.Rules, func(r *BreakerRule) string { return r.ID })
}

func family[T any](rep *report, path string, rules []T, validate func(*T, string, *report)) {
	if len(rules) > maxRules {
		rep.fault(path, "has %d rules, more than the %d allowed", len(rules), maxRules)
		return
	}
	for i := range rules {
		validate(&rules[i], at(path, i), rep)
	}
}

// ids: an id names one rule of its family, or explain could not say which one refused.
func ids[T any](rep *report, path string, rules []T, id func(*T) string) {
	first := map[string]int{}
	for i := range rules {
		s := id(&rules[i])
		if s == "" {
			continue
		}
		p := at(path, i) + ".id"
		word(rep, p, s, maxWord)
		if prev, ok := first[s]; ok {
			rep.fault(p, "%q is already the id of rule %d", s, prev)
			continue
		}
		first[s] = i
	}
}

func resource(rep *report, path, r string, allowed ...string) {
	if slices.Contains(allowed, r) {
		return
	}
	if slices.Contains(Resources(), r) {
		rep.fault(path, "%q has no such rules; they apply to %s", r, strings.Join(allowed, ", "))
		return
	}
	rep.fault(path, "%q is not a resource; known are %s (a SKU or a path is a parameter, never a name)", r, strings.Join(Resources(), ", "))
}

func (r *FlowRule) validate(path string, rep *report) {
	resource(rep, path+".resource", r.Resource, Resources()...)
	switch r.TokenCalculateStrategy {
	case flowDirect, flowWarmUp:
	case flowMemory:
		rep.fault(path+".tokenCalculateStrategy", whyNoMemory)
	default:
		rep.fault(path+".tokenCalculateStrategy", "%d is unknown: 0 direct, 1 warm-up", r.TokenCalculateStrategy)
	}
	behaviour(rep, path, r.ControlBehavior)
	switch r.RelationStrategy {
	case 0:
	case 1:
		resource(rep, path+".refResource", r.RefResource, Resources()...)
	default:
		rep.fault(path+".relationStrategy", "%d is unknown: 0 current resource, 1 associated resource", r.RelationStrategy)
	}
	within(rep, path+".threshold", &r.Threshold, 0, ceilingRate)
	if r.Threshold > 0 && r.Threshold < 1 {
		rep.fault(path+".threshold", "%v admits nothing, for a request counts 1; lengthen statIntervalInMs, or write 0 to close", r.Threshold)
	}
	if r.StatIntervalInMs > 10*minute {
		rep.fault(path+".statIntervalInMs", "%d is above ten minutes", r.StatIntervalInMs)
	}
	if r.TokenCalculateStrategy == flowWarmUp {
		r.validateWarmUp(path, rep)
	}
}

// validateWarmUp keeps Sentinel's slope finite: with a threshold or a period too small it is
// 0/0, and a comparison with NaN refuses nothing.
func (r *FlowRule) validateWarmUp(path string, rep *report) {
	cold := r.coldFactor()
	switch {
	case r.WarmUpPeriodSec == 0 || r.WarmUpPeriodSec > 3600:
		rep.fault(path+".warmUpPeriodSec", "%d is out of range: 1..3600", r.WarmUpPeriodSec)
	case cold < 2 || cold > 100:
		rep.fault(path+".warmUpColdFactor", "%d is out of range: 2..100 (0: 3)", cold)
	case 2*float64(r.WarmUpPeriodSec)*r.Threshold/float64(1+cold) < 1:
		rep.fault(path+".threshold", "%v is too small to warm up over %d s: Sentinel's slope would not be a number", r.Threshold, r.WarmUpPeriodSec)
	}
}

func (r *FlowRule) coldFactor() uint32 {
	if r.WarmUpColdFactor == 0 {
		return coldFactor
	}
	return r.WarmUpColdFactor
}

func behaviour(rep *report, path string, b int32) {
	switch b {
	case 0:
	case throttling:
		rep.fault(path+".controlBehavior", whyNoThrottling)
	default:
		rep.fault(path+".controlBehavior", "%d is unknown: 0 reject", b)
	}
}

func (r *HotspotRule) validate(path string, rep *report) {
	resource(rep, path+".resource", r.Resource, Resources()...)
	behaviour(rep, path, r.ControlBehavior)
	p, ok := r.param()
	if !ok {
		if r.ParamKey != "" {
			rep.fault(path+".paramKey", "%q (with paramIndex %d) names no parameter: 0 sku, 1 user, 2 device, 3 source, 4 activity", r.ParamKey, r.ParamIndex)
		} else {
			rep.fault(path+".paramIndex", "%d names no parameter: 0 sku, 1 user, 2 device, 3 source, 4 activity", r.ParamIndex)
		}
	}
	if has := params(r.Resource); ok && has != nil && !slices.Contains(has, p) {
		rep.fault(path+".paramKey", "requests for %s carry no %s: Sentinel would let them all pass", r.Resource, p)
	}
	amount(rep, path+".threshold", r.Threshold)
	amount(rep, path+".burstCount", r.BurstCount)
	if r.ParamsMaxCapacity < 0 || r.ParamsMaxCapacity > 1_000_000 {
		rep.fault(path+".paramsMaxCapacity", "%d is out of range: 0..1000000", r.ParamsMaxCapacity)
	}
	switch {
	case r.MetricType < 0 || r.MetricType > hotspotQPS:
		rep.fault(path+".metricType", "%d is unknown: 0 concurrency, 1 QPS", r.MetricType)
	case r.MetricType == hotspotQPS && (r.DurationInSec < 1 || r.DurationInSec > 86_400):
		rep.fault(path+".durationInSec", "%d is out of range: 1..86400", r.DurationInSec)
	}
	switch r.Engine {
	case "", EngineBounded, EngineSentinel:
	default:
		rep.fault(path+".engine", "is %q; must be bounded or sentinel", r.Engine)
	}
	r.validateItems(path+".specificItems", p, rep)
	if ok && !r.bounded() && (p == ParamUser || p == ParamDevice || p == ParamSource) {
		rep.warn(path+".engine", "Sentinel's hotspot keeps two LRUs that drift apart once there are more %ss than paramsMaxCapacity: victims' counters are reset by churn; the bounded engine does not", p)
	}
}

// params lists what the requests for a resource carry when its rules are checked; nil for
// an unknown one.
func params(res Resource) []Param {
	switch res {
	case ResourceSubmit, ResourceReserve:
		return []Param{ParamSKU, ParamUser, ParamDevice, ParamSource, ParamActivity}
	case ResourceTicket, ResourceJoin: // the SKU of a ticket is in its body
		return []Param{ParamUser, ParamDevice, ParamSource, ParamActivity}
	case ResourceStatus, ResourceOrder:
		return []Param{ParamUser, ParamSource}
	case ResourceSession:
		return []Param{ParamSource}
	}
	return nil
}

func (r *HotspotRule) validateItems(path string, p Param, rep *report) {
	if len(r.SpecificItems) > maxItems {
		rep.fault(path, "has %d items, more than the %d allowed", len(r.SpecificItems), maxItems)
		return
	}
	first := map[string]int{}
	for i, item := range r.SpecificItems {
		q := at(path, i)
		amount(rep, q+".threshold", item.Threshold)
		switch item.ValKind {
		case 0:
			if _, err := strconv.ParseInt(item.ValStr, 10, 64); err != nil {
				rep.fault(q+".valStr", "%q is not a whole number", item.ValStr)
			}
		case 1:
		case 2, 3:
			rep.fault(q+".valKind", "%d never matches: parameters are strings; use 1", item.ValKind)
		default:
			rep.fault(q+".valKind", "%d is unknown: 0 int, 1 string", item.ValKind)
		}
		if (p == ParamSKU || p == ParamUser || p == ParamActivity) && !admission.ValidDecimal(item.ValStr) {
			rep.fault(q+".valStr", "%q is not a %s id: a decimal in 1..2^63-1", item.ValStr, p)
		}
		if prev, ok := first[item.ValStr]; ok {
			rep.fault(q+".valStr", "%q is there twice, first as item %d", item.ValStr, prev)
		} else {
			first[item.ValStr] = i
		}
	}
}

// validateBounded: on the bounded engine a rule is one bucket per key, so there is one rule
// per place, and it must be a rate.
func (f *SentinelFamilies) validateBounded(path string, rep *report) {
	type place struct {
		resource string
		param    Param
		shadow   bool
	}
	first := map[place]int{}
	for i := range f.Hotspot.Rules {
		r := &f.Hotspot.Rules[i]
		p, ok := r.param()
		if !ok || !r.bounded() {
			continue
		}
		q := at(path, i)
		if _, ok := boundedDimension(r.Resource, p); !ok {
			rep.fault(q+".engine", "the bounded engine has no %s buckets on %s; it has user, device and source on %s and user on %s, %s, %s",
				p, r.Resource, ResourceSubmit, ResourceStatus, ResourceJoin, ResourceTicket)
			continue
		}
		if r.MetricType != hotspotQPS {
			rep.fault(q+".metricType", "the bounded engine counts rates (1); for concurrency use engine sentinel")
			continue
		}
		if r.DurationInSec > 0 {
			checkRate(rep, q+".threshold", q+".burstCount", float64(r.Threshold)/float64(r.DurationInSec), r.Threshold+r.BurstCount)
		}
		k := place{r.Resource, p, r.Shadow}
		if prev, ok := first[k]; ok {
			rep.fault(q, "is a second %s rule on %s beside hotspot[%d]: there is one bucket per key", p, r.Resource, prev)
		} else {
			first[k] = i
		}
	}
}

func boundedDimension(res Resource, p Param) (Dimension, bool) {
	switch {
	case res == ResourceSubmit && p == ParamUser:
		return DimensionUser, true
	case res == ResourceSubmit && p == ParamDevice:
		return DimensionDevice, true
	case res == ResourceSubmit && p == ParamSource:
		return DimensionSource, true
	case res == ResourceStatus && p == ParamUser:
		return DimensionStatus, true
	case res == ResourceJoin && p == ParamUser:
		return DimensionJoin, true
	case res == ResourceTicket && p == ParamUser:
		return DimensionTicket, true
	}
	return "", false
}

func amount(rep *report, path string, n int64) {
	if n < 0 || n > ceilingRate {
		rep.fault(path, "%d is out of range: 0 (closed) to 1e9", n)
	}
}

func (r *SystemRule) validate(path string, rep *report) {
	if r.MetricType >= systemTypes {
		rep.fault(path+".metricType", "%d is unknown: 0 load, 1 RT in ms, 2 concurrency, 3 QPS, 4 CPU", r.MetricType)
	}
	within(rep, path+".triggerCount", &r.TriggerCount, 0, ceilingRate)
	if r.MetricType == systemCPU && r.TriggerCount > 1 {
		rep.fault(path+".triggerCount", "%v is above 1: CPU is a fraction of the quota", r.TriggerCount)
	}
	switch s := r.strategy(); {
	case s != noAdaptive && s != bbr:
		rep.fault(path+".strategy", "%d is none of Sentinel-Go's: -1 none, 1 BBR", s)
	case r.MetricType == systemLoad && s != bbr:
		rep.fault(path+".strategy", whyNoLoad)
	}
}

func (r *SystemRule) strategy() int32 {
	if r.Strategy == nil {
		return noAdaptive
	}
	return *r.Strategy
}

func (r *IsolationRule) validate(path string, rep *report) {
	resource(rep, path+".resource", r.Resource, ResourceReserve)
	if r.MetricType != 0 {
		rep.fault(path+".metricType", "%d is unknown: 0 concurrency", r.MetricType)
	}
	if r.Threshold == 0 {
		rep.fault(path+".threshold", "must be at least 1: Sentinel drops an isolation rule of 0; to close use mode CLOSED")
	}
}

func (r *BreakerRule) validate(path string, rep *report) {
	resource(rep, path+".resource", r.Resource, ResourceReserve)
	if r.Strategy > 2 {
		rep.fault(path+".strategy", "%d is unknown: 0 slow request ratio, 1 error ratio, 2 error count", r.Strategy)
	}
	if r.ProbeNum > 1 {
		rep.fault(path+".probeNum", whyNoProbes)
	}
	if r.RetryTimeoutMs == 0 || r.RetryTimeoutMs > hour {
		rep.fault(path+".retryTimeoutMs", "%d is out of range: 1..3600000", r.RetryTimeoutMs)
	}
	if r.StatIntervalMs == 0 || r.StatIntervalMs > 10*minute {
		rep.fault(path+".statIntervalMs", "%d is out of range: 1..600000", r.StatIntervalMs)
	}
	if n := r.StatSlidingWindowBucketCount; n != 0 && (r.StatIntervalMs%n != 0 || n > 1000) {
		rep.fault(path+".statSlidingWindowBucketCount", "%d does not divide statIntervalMs %d", n, r.StatIntervalMs)
	}
	if r.Strategy == 0 && (r.MaxAllowedRtMs == 0 || r.MaxAllowedRtMs > hour) {
		rep.fault(path+".maxAllowedRtMs", "%d is out of range: 1..3600000", r.MaxAllowedRtMs)
	}
	high := 1.0
	if r.Strategy == 2 {
		high = ceilingRate
	}
	if !(r.Threshold > 0 && r.Threshold <= high) {
		rep.fault(path+".threshold", "%v is out of range: above 0 (0 opens without an error), at most %v", r.Threshold, high)
	}
}
