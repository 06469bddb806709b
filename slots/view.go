package slots

import (
	"net/netip"
	"slices"

	"github.com/alibaba/sentinel-golang/core/hotspot"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/rules"
)

// view is the rules in force, compiled for the chains: what Apply builds and a request
// reads through one atomic load. It is immutable.
type view struct {
	snapshot *rules.Snapshot
	stages   [admission.Stages]rules.Switch

	enter   *chain
	reserve *chain
	calls   [admission.Calls]*chain // of the calls that are no submit
	shadows [admission.Calls]*chain // of shadow rules; nil: the resource has none

	source          limit.Rate
	prefix          limit.Rate            // of every /24 and /48
	unparsable      limit.Rate            // one bucket for all whose address cannot be read
	sourceOverrides map[uint64]limit.Rate // by source key
	sourceShadow    *limit.Rate           // of every source; nil: none
	sourceShadows   map[uint64]limit.Rate // by source key; nil: none
	sourceNames     map[uint64]string     // addresses that hot-param rules name, by source key
	penalty         limit.PenaltyRule
	callRates       [admission.Calls]rates
	policies        map[admission.SKURef]*policy
	fallback        *policy
	first           admission.SKURef // served; where a sale has one hot SKU, it is this one
	ofFirst         *policy          // nil: none is served
}

// policy is one SKU's policy, ready for the hot path.
type policy struct {
	mode          admission.Mode
	user, device  rates
	deviceRefuses bool
	seats         *limit.Seats
	scope         uint64 // the hash of activity and SKU; see visit
	skuArg        any    // boxed once: a parameter of Sentinel's hot-param rules
	activityArg   any
}

// rates resolves the rate of one key: most keys have the common one, computed once.
type rates struct {
	keyed   rules.Keyed
	common  limit.Rate
	shadows bool // some key has a shadow limit
}

func newRates(k rules.Keyed) rates {
	return rates{keyed: k, common: rate(k.Limit), shadows: k.HasShadow()}
}

func (r *rates) of(key string) limit.Rate {
	if l := r.keyed.For(key); l != r.keyed.Limit {
		return rate(l)
	}
	return r.common
}

// rate converts a limit that the rules have validated, or a part of one. None closes but
// one that says so: at the bounds a limiter takes the nearest that it can hold.
func rate(l rules.Limit) limit.Rate { return limit.NearestRate(l.PerSecond, l.Burst) }

func (p *policy) userRate(userID string) limit.Rate       { return p.user.of(userID) }
func (p *policy) deviceRate(deviceHash string) limit.Rate { return p.device.of(deviceHash) }

func (w *view) policy(ref admission.SKURef) *policy {
	if ref == w.first && w.ofFirst != nil { // the same texts in memory: no byte is compared
		return w.ofFirst
	}
	if p, ok := w.policies[ref]; ok {
		return p
	}
	return w.fallback
}

func (w *view) callRate(call admission.Call, userID string) limit.Rate {
	return w.callRates[call].of(userID)
}

func (w *view) sourceShadowOf(key uint64) (limit.Rate, bool) {
	if w.sourceShadows != nil {
		if r, ok := w.sourceShadows[key]; ok {
			return r, true
		}
	}
	if w.sourceShadow != nil {
		return *w.sourceShadow, true
	}
	return limit.Rate{}, false
}

// unparsableFactor: those whose address cannot be read share a twentieth of what one
// address has. An honest edge never sends such a header.
const unparsableFactor = 20

// Apply puts a snapshot in force for the SKUs that this instance serves. Requests under
// way end under the rules they began with; limiters, seats and claims are kept, and a
// bucket whose rate changes stays as full as it was.
func (g *Gate) Apply(s *rules.Snapshot, serve []admission.SKURef, now limit.Instant) {
	g.applying.Lock()
	defer g.applying.Unlock()
	w := &view{
		snapshot: s,
		source:   rate(s.SourceLimit.Limit),
		prefix:   rate(s.PrefixLimit),
		policies: make(map[admission.SKURef]*policy, len(serve)),
	}
	for stage := range admission.Stages {
		w.stages[stage] = s.Stage(stage)
	}
	strict := s.SourceLimit.Limit
	strict.PerSecond /= unparsableFactor
	strict.Burst = (strict.Burst + unparsableFactor - 1) / unparsableFactor
	w.unparsable = rate(strict)
	w.sourceOverrides = make(map[uint64]limit.Rate)
	for _, o := range s.SourceOverrides() {
		if o.Shadow {
			if w.sourceShadows == nil {
				w.sourceShadows = make(map[uint64]limit.Rate)
			}
			w.sourceShadows[g.config.SourceKey(o.Prefix)] = rate(o.Limit)
		} else {
			w.sourceOverrides[g.config.SourceKey(o.Prefix)] = rate(o.Limit)
		}
	}
	if l := s.SourceLimit.Shadow; l != nil {
		r := rate(*l)
		w.sourceShadow = &r
	}
	w.sourceNames = g.sourceNames(s.Sentinel.Hotspot, s.Shadows.Hotspot)
	if rule, err := limit.NewPenaltyRule(s.Penalty.Refusals, s.Penalty.Window, s.Penalty.For); err == nil {
		w.penalty = rule // the rules have validated it; none if they ever did not
	}
	if g.prefixes == nil {
		g.prefixes, _ = limit.NewStripes(prefixStripes, w.prefix) // a constant power of two
	} else {
		g.prefixes.SetRate(now, w.prefix)
	}
	w.callRates[admission.CallTicket] = newRates(s.TicketLimit)
	w.callRates[admission.CallJoin] = newRates(s.JoinLimit)
	w.callRates[admission.CallStatus] = newRates(s.StatusLimit)
	w.callRates[admission.CallOrder] = newRates(s.StatusLimit)

	for ref := range s.Policies() {
		w.policies[ref] = g.newPolicy(s.Policy(ref), ref)
	}
	for _, ref := range serve {
		if w.policies[ref] == nil {
			w.policies[ref] = g.newPolicy(s.Policy(ref), ref)
		}
	}
	if len(serve) > 0 {
		w.first, w.ofFirst = serve[0], w.policies[serve[0]]
	}
	w.fallback = g.newPolicy(s.Policy(admission.SKURef{}), admission.SKURef{})
	for ref := range g.seats {
		if w.policies[ref] == nil && ref != (admission.SKURef{}) {
			delete(g.seats, ref) // those who hold one still release it to the object they took it from
		}
	}

	w.enter, w.reserve = g.newEnterChain(w), g.newReserveChain(w)
	for call := admission.CallTicket; call < admission.Calls; call++ {
		w.calls[call] = g.newCallChain(w, call)
	}
	for call := range admission.Calls {
		w.shadows[call] = g.newShadowChain(w, call)
	}
	g.view.Store(w)
}

func (g *Gate) newPolicy(p *rules.Policy, ref admission.SKURef) *policy {
	seats := g.seats[ref]
	if seats == nil {
		seats, _ = limit.NewSeats(0) // 0 is no error
		g.seats[ref] = seats
	}
	if err := seats.SetLimit(p.MaxInFlight); err != nil {
		_ = seats.SetLimit(0) // the rules refuse a negative one; closed if they ever did not
	}
	return &policy{
		mode: p.Mode, user: newRates(p.User), device: newRates(p.Device), deviceRefuses: p.DeviceRefuses,
		seats: seats, scope: g.config.Hasher.Join(ref.ActivityID, ref.SKUID), skuArg: ref.SKUID, activityArg: ref.ActivityID,
	}
}

// sourceNames finds the addresses that hot-param rules on Sentinel's engine name.
func (g *Gate) sourceNames(families ...[]hotspot.Rule) map[uint64]string {
	names := map[uint64]string{}
	for _, r := range slices.Concat(families...) {
		if r.ParamIndex != argSource {
			continue
		}
		for item := range r.SpecificItems {
			s, _ := item.(string) // the rules make strings of all
			if a, err := netip.ParseAddr(s); err == nil {
				own, _ := source.Prefixes(a)
				names[g.config.SourceKey(own)] = s
			}
		}
	}
	return names
}
