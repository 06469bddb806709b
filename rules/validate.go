package rules

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Bounds of a bundle's lists.
const (
	maxPolicies  = 1_024
	maxRules     = 256 // of one Sentinel family
	maxItems     = 1_000
	maxOverrides = 10_000
	maxWord      = 256 // bytes of an id, a key or a comment's line
	maxComment   = 4_096
)

// Bounds of times in ms.
const (
	second = 1_000
	minute = 60 * second
	hour   = 60 * minute
)

// validate reports everything that is wrong with the bundle and everything that is odd.
func (b *Bundle) validate(path string, rep *report) {
	if b.Schema != SchemaVersion {
		rep.fault(path+".schema", "is %d; this version reads schema %d", b.Schema, SchemaVersion)
	}
	if b.Version < 1 || b.Version >= 1<<53 {
		rep.fault(path+".version", "must be in 1..2^53-1")
	}
	word(rep, path+".comment", b.Comment, maxComment)
	word(rep, path+".confirm", b.Confirm, maxWord)
	b.Sentinel.validate(path+".sentinel", rep)
	validateStages(path+".stages", b.Stages, rep)
	b.Limits.validate(path+".limits", rep)
	b.validateAdmission(path+".admission", rep)
	b.Overload.validate(path+".overload", b.Sentinel.System, rep)
	b.Guards.validate(path+".guards", rep)
	if id := b.Ticket.ActiveKeyID; len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		rep.fault(path+".ticket.active_key_id", "must be at most 64 printable ASCII characters")
	}
	b.Canary.validate(path+".canary", rep)
}

func (c *Canary) validate(path string, rep *report) {
	if c == nil {
		return
	}
	if c.Percent < 0 || c.Percent > 100 {
		rep.fault(path+".percent", "must be in 0..100")
	}
	if c.Bundle == nil {
		return // reported as missing
	}
	if c.Bundle.Canary != nil {
		rep.fault(path+".bundle.canary", "a canary has no canary of its own")
		return
	}
	c.Bundle.validate(path+".bundle", rep)
}

func validateStages(path string, stages map[string]string, rep *report) {
	for _, name := range sortedKeys(stages) {
		p, setting := join(path, name), stages[name]
		stage, ok := parseStage(name)
		if !ok {
			rep.fault(p, "is not a stage")
			continue
		}
		if _, ok := parseSwitch(setting); !ok {
			rep.fault(p, "is %q; must be one of off, shadow, on", setting)
			continue
		}
		if setting != switchNames[On] && !slices.Contains(optionalStages(), stage) {
			rep.fault(p, "is a required stage: it is always on and cannot be removed")
		}
	}
}

func parseStage(name string) (admission.Stage, bool) {
	for s := admission.StageNone + 1; s < admission.Stages; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return admission.StageNone, false
}

func (l *Limits) validate(path string, rep *report) {
	for _, r := range []struct {
		name string
		rate *Rate
	}{{"source", l.Source}, {"user", l.User}, {"device", l.Device}, {"status", l.Status}, {"join", l.Join}, {"ticket", l.Ticket}} {
		if r.rate != nil {
			validateRate(rep, path+"."+r.name, r.rate.PerSecond, r.rate.Burst)
		}
	}
	between(rep, path+".penalty_refusals", l.PenaltyRefusals, 0, 1_000_000)
	between(rep, path+".penalty_window_ms", l.PenaltyWindowMS, 100, hour)
	between(rep, path+".penalty_ms", l.PenaltyMS, 0, hour)
	if len(l.Overrides.Rules) > maxOverrides {
		rep.fault(path+".overrides", "has %d entries, more than the %d allowed", len(l.Overrides.Rules), maxOverrides)
	}
	type place struct{ dimension, key, activity, sku string }
	first := map[place]int{}
	for i := range l.Overrides.Rules {
		o := &l.Overrides.Rules[i]
		p := at(path+".overrides", i)
		o.validate(p, rep)
		k := place{o.Dimension, o.Key, o.ActivityID, o.SKUID}
		if prev, ok := first[k]; ok {
			rep.fault(p, "says the same as overrides[%d]", prev)
		} else {
			first[k] = i
		}
	}
}

func (o *Override) validate(path string, rep *report) {
	switch o.Dimension {
	case DimensionSource:
		if _, err := parseSource(o.Key); err != nil {
			rep.fault(path+".key", "%v", err)
		}
	case DimensionUser, DimensionStatus, DimensionJoin, DimensionTicket:
		if !admission.ValidDecimal(o.Key) {
			rep.fault(path+".key", "must be a user_id: a decimal in 1..2^63-1")
		}
	case DimensionDevice:
		if !strings.HasPrefix(o.Key, "sha256:") || len(o.Key) != len("sha256:")+64 {
			rep.fault(path+".key", "must be a device_hash: sha256: and 64 hex digits")
		}
	default:
		rep.fault(path+".dimension", "is %q; must be one of source, user, device, status, join, ticket", o.Dimension)
	}
	if o.ActivityID != "" && !admission.ValidDecimal(o.ActivityID) {
		rep.fault(path+".activity_id", "must be a decimal in 1..2^63-1")
	}
	if o.SKUID != "" && !admission.ValidDecimal(o.SKUID) {
		rep.fault(path+".sku_id", "must be a decimal in 1..2^63-1")
	}
	if o.SKUID != "" && o.ActivityID == "" {
		rep.fault(path+".activity_id", "must be given with sku_id")
	}
	if o.ActivityID != "" && o.Dimension == DimensionSource {
		rep.fault(path+".activity_id", "a source is limited before the activity counts")
	}
	word(rep, path+".comment", o.Comment, maxWord)
	validateRate(rep, path, o.PerSecond, o.Burst)
}

// parseSource reads an address or one of the four prefixes that buckets exist for.
func parseSource(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err != nil {
			return netip.Prefix{}, errSource
		}
		a = a.Unmap()
		bits := 32
		if a.Is6() {
			bits = 64
		}
		p = netip.PrefixFrom(a, bits)
	}
	ok := p.Addr().Is4() && (p.Bits() == 32 || p.Bits() == 24) || p.Addr().Is6() && (p.Bits() == 64 || p.Bits() == 48)
	if !ok || p.Addr().Zone() != "" {
		return netip.Prefix{}, errSource
	}
	return p.Masked(), nil
}

func (b *Bundle) validateAdmission(path string, rep *report) {
	if n := len(b.Admission.Rules); n > maxPolicies {
		rep.fault(path, "has %d policies, more than the %d allowed", n, maxPolicies)
	}
	first := map[admission.SKURef]int{}
	for i := range b.Admission.Rules {
		a := &b.Admission.Rules[i]
		p := at(path, i)
		a.validate(p, &b.Limits, rep)
		ref := admission.SKURef{ActivityID: a.ActivityID, SKUID: a.SKUID}
		if prev, ok := first[ref]; ok {
			rep.fault(p, "is a second policy of activity %s, SKU %s, beside admission[%d]", a.ActivityID, a.SKUID, prev)
		} else {
			first[ref] = i
		}
	}
}

func (a *Admission) validate(path string, limits *Limits, rep *report) {
	if !admission.ValidDecimal(a.ActivityID) {
		rep.fault(path+".activity_id", "must be a decimal in 1..2^63-1, as a string")
	}
	if !admission.ValidDecimal(a.SKUID) {
		rep.fault(path+".sku_id", "must be a decimal in 1..2^63-1, as a string")
	}
	if a.PolicyVersion < 1 || a.PolicyVersion >= 1<<53 {
		rep.fault(path+".policy_version", "must be in 1..2^53-1")
	}
	if a.Mode != nil {
		if _, ok := admission.ParseMode(*a.Mode); !ok {
			rep.fault(path+".mode", "is %q; must be one of NORMAL, DEGRADED, QUEUE_ONLY, CLOSED", *a.Mode)
		}
	}
	within(rep, path+".max_origin_qps", a.MaxOriginQPS, 0, ceilingQPS)
	between(rep, path+".max_in_flight", a.MaxInFlight, 0, ceilingInFlight)
	between(rep, path+".ticket_ttl_ms", a.TicketTTLMS, second, hour)
	between(rep, path+".wave_size", a.WaveSize, 0, ceilingWaveSize)
	between(rep, path+".wave_interval_ms", a.WaveIntervalMS, 100, 10*second)
	between(rep, path+".local_sold_out_ttl_ms", a.LocalSoldOutTTLMS, 100, minute)
	between(rep, path+".challenge_bits", a.ChallengeBits, 0, ceilingBits)
	if bits := orInt(a.ChallengeBits, 0); bits > oddBits && bits <= ceilingBits {
		rep.warn(path+".challenge_bits", "%d bits are %d digests in the mean: an old phone does not finish them within the minute that a challenge lives", bits, int64(1)<<bits)
	}
	validatePair(rep, path, "user", a.UserRate, a.UserBurst, orRate(limits.User, Rate{PerSecond: 0.5, Burst: 3}))
	validatePair(rep, path, "device", a.DeviceRate, a.DeviceBurst, orRate(limits.Device, Rate{PerSecond: 1, Burst: 5}))
	a.Lease.validate(path+".lease", rep)
	for _, name := range sortedKeys(a.Terms) {
		p := join(path+".terms", name)
		if !slices.Contains(termNames(), name) {
			rep.fault(p, "is not a term; known are %s", strings.Join(termNames(), ", "))
			continue
		}
		t := a.Terms[name]
		within(rep, p+".capacity", &t.Capacity, 0, ceilingQPS)
		if t.Safety != nil && !(*t.Safety > 0 && *t.Safety <= 1) {
			rep.fault(p+".safety", "must be above 0 and at most 1")
		}
	}
	a.Fairness.validate(path+".fairness", rep)
}

func (l *Lease) validate(path string, rep *report) {
	if l.Strategy != nil {
		if _, ok := parseStrategy(*l.Strategy); !ok {
			rep.fault(path+".strategy", "is %q; must be one of lease, share, central", *l.Strategy)
		}
	}
	between(rep, path+".lease_ms", l.LeaseMS, 50, 5*second)
	between(rep, path+".burst", l.Burst, 1, ceilingQPS)
	between(rep, path+".ramp_ms", l.RampMS, 0, 10*minute)
	within(rep, path+".activity_max_qps", l.ActivityMaxQPS, 0, ceilingQPS)
}

func (w *WaveSettings) validate(path string, rep *report) {
	within(rep, path+".show_up_prior", w.ShowUpPrior, 0.05, 1)
	within(rep, path+".reserve_prior", w.ReservePrior, 0.05, 1)
	within(rep, path+".prior_weight", w.PriorWeight, 1, 1_000_000)
	between(rep, path+".cdn_age_ms", w.CDNAgeMS, 0, minute)
	between(rep, path+".longest_poll_ms", w.LongestPollMS, 100, minute)
	between(rep, path+".claim_ms", w.ClaimMS, 1, 5*minute)
	between(rep, path+".use_ms", w.UseMS, 100, 5*minute)
	within(rep, path+".trickle_per_s", w.TricklePerS, 0, ceilingQPS)
	if least := w.leastClaim(); w.ClaimMS != nil && time.Duration(*w.ClaimMS)*time.Millisecond < least {
		rep.fault(path+".claim_ms", "%d is below longest_poll_ms + cdn_age_ms + 1000 = %d: people would lose a turn that they could not know of",
			*w.ClaimMS, least.Milliseconds())
	}
}

func (o *Overload) validate(path string, system Family[SystemRule], rep *report) {
	between(rep, path+".max_stale_ms", o.MaxStaleMS, second, 24*hour)
	between(rep, path+".period_ms", o.PeriodMS, 100, 10*second)
	within(rep, path+".alpha", o.Alpha, 0.01, 1)
	between(rep, path+".hold_ms", o.HoldMS, 0, 10*minute)
	between(rep, path+".hold_severe_ms", o.HoldSevereMS, 0, 10*minute)
	within(rep, path+".bad_qps", o.BadQPS, 0, ceilingQPS)
	within(rep, path+".bad_rt_ms", o.BadRTMS, 0, minute)
	known := defaultSignals()
	for _, name := range sortedKeys(o.Signals) {
		p, s := join(path+".signals", name), o.Signals[name]
		if _, ok := known[name]; !ok {
			rep.fault(p, "is not a signal; known are %s", strings.Join(sortedKeys(known), ", "))
			continue
		}
		if !(s.Exit >= 0 && s.Exit < s.Enter && s.Enter < s.Severe) {
			rep.fault(p, "needs 0 <= exit < enter < severe, has %v, %v, %v", s.Exit, s.Enter, s.Severe)
		}
		if i, trigger, ok := systemTrigger(name, system.Rules); ok && s.Severe >= trigger {
			rep.fault(p+".severe", "%v is not below the trigger %v of sentinel.system[%d]: Sentinel would act before the machine", s.Severe, trigger, i)
		}
	}
}

// systemTrigger finds the lowest trigger of Sentinel's own rule on what a signal measures.
func systemTrigger(signal string, rules []SystemRule) (index int, trigger float64, ok bool) {
	metric := map[string]uint32{SignalCPU: systemCPU, SignalSubmitP99: systemRT}
	want, watched := metric[signal]
	for i, r := range rules {
		if watched && r.MetricType == want && !r.Shadow && (!ok || r.TriggerCount < trigger) {
			index, trigger, ok = i, r.TriggerCount, true
		}
	}
	return index, trigger, ok
}

func (g *Guards) validate(path string, rep *report) {
	budgets := defaultBudgets()
	for _, name := range sortedKeys(g.BudgetsMS) {
		p, ms := join(path+".budgets_ms", name), g.BudgetsMS[name]
		if _, ok := budgets[name]; !ok {
			rep.fault(p, "is not a budget; known are %s", strings.Join(sortedKeys(budgets), ", "))
			continue
		}
		between(rep, p, &ms, 0, 10*second)
		budgets[name] = ms
	}
	for _, part := range []string{BudgetLeaseAsk, BudgetClaim} {
		if budgets[part] > budgets[BudgetLimiter] {
			rep.fault(join(path+".budgets_ms", part), "%d ms is above the limiter store's %d ms", budgets[part], budgets[BudgetLimiter])
		}
	}
	var sum int64
	for name, ms := range budgets {
		if name != BudgetLeaseAsk && name != BudgetClaim {
			sum += ms
		}
	}
	if sum > submitBudget.Milliseconds() {
		rep.warn(path+".budgets_ms", "the stages may take %d ms together; the promise is %v", sum, submitBudget)
	}
	p, k := path+".breaker", &g.Breaker
	within(rep, p+".failure_ratio", k.FailureRatio, 0.01, 1)
	between(rep, p+".min_calls", k.MinCalls, 1, 1_000_000)
	between(rep, p+".window_ms", k.WindowMS, 100, minute)
	between(rep, p+".open_ms", k.OpenMS, 10, 10*minute)
	between(rep, p+".max_open_ms", k.MaxOpenMS, 10, hour)
	between(rep, p+".successes", k.Successes, 1, 1_000)
	if open, most := orInt(k.OpenMS, 1*second), orInt(k.MaxOpenMS, 30*second); open > most {
		rep.fault(p+".open_ms", "%d is above max_open_ms %d", open, most)
	}
}

// validatePair checks a rate and a burst of which one or both are given; the other is the default's.
func validatePair(rep *report, path, name string, rate *float64, burst *int64, def Rate) {
	if rate == nil && burst == nil {
		return
	}
	ratePath, burstPath := path+"."+name+"_rate_per_s", path+"."+name+"_burst"
	checkRate(rep, ratePath, burstPath, orFloat(rate, def.PerSecond), orInt(burst, def.Burst))
}

func validateRate(rep *report, path string, perSecond float64, burst int64) {
	checkRate(rep, path+".rate_per_s", path+".burst", perSecond, burst)
}

// odd is when a burst is out of proportion: it is worth more than so many seconds of its rate.
const odd = 30

func checkRate(rep *report, ratePath, burstPath string, perSecond float64, burst int64) {
	ok := true
	if perSecond < 0 || perSecond > ceilingRate {
		rep.fault(ratePath, "%v is out of range: 0 (closed) to 1e9 tokens a second", perSecond)
		ok = false
	}
	if perSecond > 0 && 1e9/perSecond > ceilingFill {
		rep.fault(ratePath, "%v is below one token in 146 years; write 0 to close", perSecond)
		ok = false
	}
	if burst < 0 {
		rep.fault(burstPath, "%d is negative; write 0 to close", burst)
		ok = false
	}
	if burst > ceilingBurst {
		rep.fault(burstPath, "%d is above %d tokens: a limiter counts thousandths in numbers exact to 2^53, and a prefix has %d times the burst", burst, int64(ceilingBurst), prefixFactor)
		ok = false
	}
	if !ok || perSecond == 0 || burst == 0 {
		return
	}
	fill := fillTime(perSecond, burst)
	if fill > ceilingFill {
		rep.fault(burstPath, "%d takes more than 146 years to fill at %v a second", burst, perSecond)
		return
	}
	if fill > odd*1e9 && burst > 1 {
		excess := float64(burst) - math.Floor(perSecond*odd)
		rep.warn(burstPath, "%d is out of proportion to %v a second: it lets %v more through in %d s than the rate does, and an empty bucket fills in %v",
			burst, perSecond, excess, odd, time.Duration(fill).Round(time.Second))
	}
}

func between(rep *report, path string, v *int64, low, high int64) {
	if v != nil && (*v < low || *v > high) {
		rep.fault(path, "%d is out of range: %d..%d", *v, low, high)
	}
}

func within(rep *report, path string, v *float64, low, high float64) {
	if v != nil && !(*v >= low && *v <= high) {
		rep.fault(path, "%v is out of range: %v..%v", *v, low, high)
	}
}

func word(rep *report, path, s string, most int) {
	if len(s) > most {
		rep.fault(path, "has %d bytes, more than the %d allowed", len(s), most)
	}
}

func orInt(v *int64, def int64) int64 {
	if v == nil {
		return def
	}
	return *v
}

func orFloat(v *float64, def float64) float64 {
	if v == nil {
		return def
	}
	return *v
}

func orRate(v *Rate, def Rate) Rate {
	if v == nil {
		return def
	}
	return *v
}

func orMS(v *int64, def time.Duration) time.Duration {
	if v == nil {
		return def
	}
	return time.Duration(*v) * time.Millisecond
}
