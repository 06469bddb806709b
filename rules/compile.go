package rules

import (
	"math/big"
	"sync"
	"time"

	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/core/isolation"
	"github.com/alibaba/sentinel-golang/core/system"

	"github.com/sluice-io/sluice/app/admission"
)

// Compile turns a valid bundle into a snapshot. It is pure: nothing outside changes.
func Compile(b *Bundle) *Snapshot {
	e := b.effective()
	s := &Snapshot{
		Version:     b.Version,
		Hash:        b.Hash(),
		Bundle:      b,
		TicketKeyID: b.Ticket.ActiveKeyID,
		Overload:    b.Overload.compile(e.Sentinel.System),
		Guards:      b.Guards.compile(),
		policies:    make(map[admission.SKURef]*Policy, len(e.Admission.Rules)),
		activities:  map[string]float64{},
	}
	s.Document = s.Hash
	s.Sentinel, s.Shadows = compileSentinel(&e.Sentinel)
	s.compileStages(e.Stages)
	s.Penalty = Penalty{
		Refusals: orInt(b.Limits.PenaltyRefusals, 0),
		Window:   orMS(b.Limits.PenaltyWindowMS, 10*time.Second),
		For:      orMS(b.Limits.PenaltyMS, 5*time.Second),
	}
	l := newLadder(e)
	s.StatusLimit = l.keyed(DimensionStatus, nil)
	s.JoinLimit = l.keyed(DimensionJoin, nil)
	s.TicketLimit = l.keyed(DimensionTicket, nil)
	s.SourceLimit = l.keyed(DimensionSource, nil)
	s.sources = l.sources()
	s.PrefixLimit = tenfold(s.SourceLimit.Limit)
	s.fallback = l.policy(&Admission{}, "")
	for i := range e.Admission.Rules {
		a := &e.Admission.Rules[i]
		p := l.policy(a, at("admission", i))
		s.policies[p.Ref] = p
		if m := a.Lease.ActivityMaxQPS; m != nil {
			if had, ok := s.activities[a.ActivityID]; !ok || *m < had {
				s.activities[a.ActivityID] = *m
			}
		}
	}
	return s
}

// effective returns the bundle with absent families and limits taken from the shipped one.
func (b *Bundle) effective() *Bundle {
	e, d := *b, shipped()
	take(&e.Sentinel.Flow, d.Sentinel.Flow)
	take(&e.Sentinel.Hotspot, d.Sentinel.Hotspot)
	take(&e.Sentinel.System, d.Sentinel.System)
	take(&e.Sentinel.Isolation, d.Sentinel.Isolation)
	take(&e.Sentinel.CircuitBreaker, d.Sentinel.CircuitBreaker)
	e.Stages = map[string]string{}
	for name, setting := range d.Stages {
		e.Stages[name] = setting
	}
	for name, setting := range b.Stages {
		e.Stages[name] = setting
	}
	return &e
}

func take[T any](f *Family[T], def Family[T]) {
	if !f.Given {
		*f = def
	}
}

// shipped is the default bundle, decoded once; it is read only.
var shipped = sync.OnceValue(Default)

func (s *Snapshot) compileStages(stages map[string]string) {
	for name, setting := range stages {
		if stage, ok := parseStage(name); ok {
			s.stages[stage], _ = parseSwitch(setting)
		}
	}
}

// ladder resolves limits by their precedence:
// override > admission policy > hot-param rule > limits > the shipped default.
type ladder struct {
	bundle    *Bundle
	shipped   *Bundle
	overrides map[Dimension]*overrides
}

func newLadder(b *Bundle) *ladder {
	l := &ladder{bundle: b, shipped: shipped(), overrides: map[Dimension]*overrides{}}
	for i, o := range b.Limits.Overrides.Rules {
		if o.Dimension == DimensionSource {
			continue
		}
		d := l.overrides[o.Dimension]
		if d == nil {
			d = &overrides{byKey: map[string][]override{}}
			l.overrides[o.Dimension] = d
		}
		d.shadows = d.shadows || o.Shadow
		d.byKey[o.Key] = append(d.byKey[o.Key], override{o.ActivityID, o.SKUID, o.Shadow,
			NewLimit(o.PerSecond, o.Burst, at("limits.overrides", i))})
	}
	return l
}

// keyed resolves one dimension; policy, if any, is the rate that an admission policy gives.
func (l *ladder) keyed(d Dimension, policy *policyRate) Keyed {
	k := Keyed{overrides: l.overrides[d]}
	def := l.shipped.Limits.rate(d)
	k.Limit = NewLimit(def.PerSecond, def.Burst, "default limits."+d)
	if r := l.bundle.Limits.rate(d); r != nil {
		limit := NewLimit(r.PerSecond, r.Burst, "limits."+d)
		if r.Shadow {
			k.Shadow = &limit
		} else {
			k.Limit = limit
		}
	}
	for i := range l.bundle.Sentinel.Hotspot.Rules {
		r := &l.bundle.Sentinel.Hotspot.Rules[i]
		p, _ := r.param()
		if on, ok := boundedDimension(r.Resource, p); !ok || on != d || !r.bounded() {
			continue
		}
		where := at("sentinel.hotspot", i)
		limit, items := r.limit(r.Threshold, where), r.items(where)
		if r.Shadow {
			k.Shadow, k.shadowItems = &limit, items
		} else {
			k.Limit, k.items = limit, items
		}
	}
	if policy != nil {
		limit := k.Limit // what the policy leaves out
		if policy.rate != nil {
			limit = NewLimit(*policy.rate, limit.Burst, "")
		}
		limit.Burst, limit.Rule = orInt(policy.burst, limit.Burst), policy.where
		if policy.shadow {
			k.Shadow, k.shadowItems = &limit, nil
		} else {
			k.Limit, k.items = limit, nil
		}
	}
	return k
}

type policyRate struct {
	rate   *float64
	burst  *int64
	where  string
	shadow bool
}

func ratePolicy(rate *float64, burst *int64, where string, shadow bool) *policyRate {
	if rate == nil && burst == nil {
		return nil
	}
	return &policyRate{rate, burst, where, shadow}
}

func (l *ladder) policy(a *Admission, where string) *Policy {
	p := a.compile()
	p.User = l.keyed(DimensionUser, ratePolicy(a.UserRate, a.UserBurst, where+".user_rate_per_s", a.Shadow))
	p.Device = l.keyed(DimensionDevice, ratePolicy(a.DeviceRate, a.DeviceBurst, where+".device_rate_per_s", a.Shadow))
	p.User.ref, p.Device.ref = p.Ref, p.Ref
	return p
}

// sources lists overrides first, then the specific items of a bounded source rule.
func (l *ladder) sources() []SourceOverride {
	var list []SourceOverride
	for i, o := range l.bundle.Limits.Overrides.Rules {
		if o.Dimension == DimensionSource {
			prefix, _ := parseSource(o.Key)
			list = append(list, SourceOverride{prefix, NewLimit(o.PerSecond, o.Burst, at("limits.overrides", i)), o.Shadow})
		}
	}
	for i := range l.bundle.Sentinel.Hotspot.Rules {
		r := &l.bundle.Sentinel.Hotspot.Rules[i]
		if p, _ := r.param(); p != ParamSource || !r.bounded() {
			continue
		}
		for _, item := range r.SpecificItems {
			if prefix, err := parseSource(item.ValStr); err == nil {
				list = append(list, SourceOverride{prefix, r.limit(item.Threshold, at("sentinel.hotspot", i)), r.Shadow})
			}
		}
	}
	return list
}

// limit is a bounded hot-param rule as a rate: threshold / durationInSec, burst threshold + burstCount.
func (r *HotspotRule) limit(threshold int64, where string) Limit {
	l := Limit{PerSecond: float64(threshold) / float64(r.DurationInSec), Burst: threshold + r.BurstCount, Rule: where}
	if threshold == 0 {
		l.Burst = 0 // closed, whatever the burst
		return l
	}
	l.whole = fitting(big.NewRat(threshold, int64(r.DurationInSec)*1000))
	return l
}

func (r *HotspotRule) items(where string) map[string]Limit {
	if len(r.SpecificItems) == 0 {
		return nil
	}
	items := make(map[string]Limit, len(r.SpecificItems))
	for _, item := range r.SpecificItems {
		items[item.ValStr] = r.limit(item.Threshold, where)
	}
	return items
}

// tenfold is the limit of a /24 or /48. No product overflows: see ceilingBurst. A shadow
// limit of addresses has none: what it would refuse is counted by address alone.
func tenfold(l Limit) Limit {
	return NewLimit(min(l.PerSecond*prefixFactor, ceilingRate), l.Burst*prefixFactor, l.Rule+" x 10")
}

func (l *Limits) rate(d Dimension) *Rate {
	switch d {
	case DimensionSource:
		return l.Source
	case DimensionUser:
		return l.User
	case DimensionDevice:
		return l.Device
	case DimensionStatus:
		return l.Status
	case DimensionJoin:
		return l.Join
	}
	return l.Ticket
}

func (o *Overload) compile(system Family[SystemRule]) OverloadPolicy {
	p := OverloadPolicy{
		MaxStale:   orMS(o.MaxStaleMS, defaultMaxStale),
		Period:     orMS(o.PeriodMS, defaultPeriod),
		Alpha:      orFloat(o.Alpha, defaultAlpha),
		Hold:       orMS(o.HoldMS, defaultHold),
		HoldSevere: orMS(o.HoldSevereMS, defaultHoldSevere),
		BadQPS:     orFloat(o.BadQPS, defaultBadQPS),
		BadRT:      time.Duration(orFloat(o.BadRTMS, float64(defaultBadRT.Milliseconds())) * float64(time.Millisecond)),
		Signals:    defaultSignals(),
	}
	for name, def := range p.Signals {
		if given, ok := o.Signals[name]; ok {
			p.Signals[name] = given
			continue
		}
		// A default that would not stay below Sentinel's own trigger is scaled under it.
		if _, trigger, ok := systemTrigger(name, system.Rules); ok && def.Severe >= trigger {
			f := 0.9 * trigger / def.Severe
			p.Signals[name] = Signal{Enter: def.Enter * f, Severe: def.Severe * f, Exit: def.Exit * f}
		}
	}
	return p
}

func (g *Guards) compile() GuardPolicy {
	ms := defaultBudgets()
	for name, v := range g.BudgetsMS {
		ms[name] = v
	}
	d := func(name string) time.Duration { return time.Duration(ms[name]) * time.Millisecond }
	return GuardPolicy{
		Budgets: Budgets{Gateway: d(BudgetGateway), Local: d(BudgetLocal), Limiter: d(BudgetLimiter), LeaseAsk: d(BudgetLeaseAsk), Claim: d(BudgetClaim),
			Wait: d(BudgetWait), Stock: d(BudgetStock), Queue: d(BudgetQueue), Network: d(BudgetNetwork), Spare: d(BudgetSpare)},
		Breaker: BreakerPolicy{
			FailureRatio: orFloat(g.Breaker.FailureRatio, 0.5),
			MinCalls:     orInt(g.Breaker.MinCalls, 20),
			Window:       orMS(g.Breaker.WindowMS, time.Second),
			Open:         orMS(g.Breaker.OpenMS, time.Second),
			MaxOpen:      orMS(g.Breaker.MaxOpenMS, 30*time.Second),
			Successes:    orInt(g.Breaker.Successes, 2),
		},
	}
}

// SentinelRules are rules in Sentinel's own types.
type SentinelRules struct {
	Flow           []flow.Rule
	Hotspot        []hotspot.Rule
	System         []system.Rule
	Isolation      []isolation.Rule
	CircuitBreaker []circuitbreaker.Rule
}

// Empty reports whether there is no rule at all.
func (r *SentinelRules) Empty() bool {
	return len(r.Flow)+len(r.Hotspot)+len(r.System)+len(r.Isolation)+len(r.CircuitBreaker) == 0
}

// Has reports whether a resource has a rule; the resource of a shadow rule is its ShadowResource.
func (r *SentinelRules) Has(res string) bool {
	for i := range r.Flow {
		if r.Flow[i].Resource == res {
			return true
		}
	}
	for i := range r.Hotspot {
		if r.Hotspot[i].Resource == res {
			return true
		}
	}
	for i := range r.Isolation {
		if r.Isolation[i].Resource == res {
			return true
		}
	}
	for i := range r.CircuitBreaker {
		if r.CircuitBreaker[i].Resource == res {
			return true
		}
	}
	return false
}

// compileSentinel sorts the rules into enforced and shadow, in Sentinel's types. Bounded
// hot-param rules are not among them.
func compileSentinel(f *SentinelFamilies) (enforced, shadow SentinelRules) {
	to := func(s bool, res string) (*SentinelRules, string) {
		if s {
			return &shadow, ShadowResource(res)
		}
		return &enforced, res
	}
	for _, r := range f.Flow.Rules {
		set, res := to(r.Shadow, r.Resource)
		set.Flow = append(set.Flow, r.sentinel(res))
	}
	for i := range f.Hotspot.Rules {
		if r := &f.Hotspot.Rules[i]; !r.bounded() {
			set, res := to(r.Shadow, r.Resource)
			set.Hotspot = append(set.Hotspot, r.sentinel(res))
		}
	}
	for _, r := range f.System.Rules {
		set, _ := to(r.Shadow, "")
		set.System = append(set.System, system.Rule{ID: r.ID, MetricType: system.MetricType(r.MetricType),
			TriggerCount: r.TriggerCount, Strategy: system.AdaptiveStrategy(r.strategy())})
	}
	for _, r := range f.Isolation.Rules {
		set, res := to(r.Shadow, r.Resource)
		set.Isolation = append(set.Isolation, isolation.Rule{ID: r.ID, Resource: res, MetricType: isolation.MetricType(r.MetricType), Threshold: r.Threshold})
	}
	for _, r := range f.CircuitBreaker.Rules {
		set, res := to(r.Shadow, r.Resource)
		set.CircuitBreaker = append(set.CircuitBreaker, circuitbreaker.Rule{Id: r.ID, Resource: res, Strategy: circuitbreaker.Strategy(r.Strategy),
			RetryTimeoutMs: r.RetryTimeoutMs, MinRequestAmount: r.MinRequestAmount, StatIntervalMs: r.StatIntervalMs,
			StatSlidingWindowBucketCount: max(1, r.StatSlidingWindowBucketCount), MaxAllowedRtMs: r.MaxAllowedRtMs, Threshold: r.Threshold, ProbeNum: r.ProbeNum})
	}
	return enforced, shadow
}

// sentinel fills in what Sentinel would fill in by writing into the rule that it was given.
func (r *FlowRule) sentinel(res string) flow.Rule {
	out := flow.Rule{ID: r.ID, Resource: res, TokenCalculateStrategy: flow.TokenCalculateStrategy(r.TokenCalculateStrategy),
		ControlBehavior: flow.ControlBehavior(r.ControlBehavior), Threshold: r.Threshold,
		RelationStrategy: flow.RelationStrategy(r.RelationStrategy), RefResource: r.RefResource, MaxQueueingTimeMs: r.MaxQueueingTimeMs,
		WarmUpPeriodSec: r.WarmUpPeriodSec, WarmUpColdFactor: r.WarmUpColdFactor, StatIntervalInMs: r.StatIntervalInMs,
		LowMemUsageThreshold: r.LowMemUsageThreshold, HighMemUsageThreshold: r.HighMemUsageThreshold,
		MemLowWaterMarkBytes: r.MemLowWaterMarkBytes, MemHighWaterMarkBytes: r.MemHighWaterMarkBytes}
	if r.TokenCalculateStrategy == flowWarmUp {
		out.WarmUpColdFactor = r.coldFactor()
	}
	return out
}

// sentinel resolves the parameter to its index: the entry then needs no attachments.
func (r *HotspotRule) sentinel(res string) hotspot.Rule {
	p, _ := r.param()
	items := make(map[interface{}]int64, len(r.SpecificItems))
	for _, item := range r.SpecificItems {
		items[item.ValStr] = item.Threshold // a string, as every argument is
	}
	return hotspot.Rule{ID: r.ID, Resource: res, MetricType: hotspot.MetricType(r.MetricType), ControlBehavior: hotspot.ControlBehavior(r.ControlBehavior),
		ParamIndex: int(p), Threshold: r.Threshold, MaxQueueingTimeMs: r.MaxQueueingTimeMs, BurstCount: r.BurstCount,
		DurationInSec: r.DurationInSec, ParamsMaxCapacity: r.ParamsMaxCapacity, SpecificItems: items}
}
