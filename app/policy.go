package main

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/lease"
	"github.com/sluice-io/sluice/app/waitroom"
	"github.com/sluice-io/sluice/rules"
)

// budgetsInForce are the stage budgets of the rules; an embedded service is given more.
func (s *service) budgetsInForce() rules.Budgets {
	b := shippedBudgets
	if snap := s.rules.Snapshot(); snap != nil {
		b = snap.Guards.Budgets
	}
	if s.stores.server != nil {
		b = b.Times(embeddedSlowness)
	}
	return b
}

// shippedBudgets hold until rules are in force.
var shippedBudgets = rules.Compile(rules.Default()).Guards.Budgets

func (s *service) policy(ref admission.SKURef) *rules.Policy {
	if snap := s.rules.Snapshot(); snap != nil {
		return snap.Policy(ref)
	}
	return closedPolicy
}

// closedPolicy holds until rules are in force.
var closedPolicy = &rules.Policy{Mode: admission.ModeClosed}

// mode is the effective mode of everything but the policy's own: the operator's, and
// CLOSED while a store may forget what it must not.
func (s *service) mode() admission.Mode {
	if s.evicting.Load() {
		return admission.ModeClosed
	}
	return admission.Mode(s.operator.Load())
}

// wavePolicy adds the rates of an activity's SKUs up; the rest is its first SKU's.
func (s *service) wavePolicy(a *admission.Activity) waitroom.WavePolicy {
	first := s.policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID})
	rate := 0.0
	for i := range a.SKUs {
		p := s.policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID})
		r := p.RSys().Rate
		if wave, ok := p.Term(rules.TermWave); ok {
			r = min(r, wave)
		}
		rate += r
	}
	if all, ok := s.activityQPS(a.ID); ok {
		rate = min(rate, all)
	}
	w := waitroom.WavePolicy{
		ShowUpPrior: first.Waves.ShowUpPrior, ReservePrior: first.Waves.ReservePrior, PriorWeight: first.Waves.PriorWeight,
		Interval: first.WaveInterval, Claim: first.Waves.Claim, Use: first.Waves.Use, WaveSize: first.WaveSize, Rate: rate, ModeFactor: 1,
	}
	switch max(first.Mode, s.mode()) {
	case admission.ModeNormal:
	case admission.ModeDegraded:
		w.ModeFactor = 0.5
	case admission.ModeQueueOnly:
		w.Rate = min(w.Rate, first.Waves.TricklePerS) // none, unless the policy allows a trickle
	default:
		w.ModeFactor = 0
	}
	return w
}

func (s *service) activityQPS(activityID string) (float64, bool) {
	if snap := s.rules.Snapshot(); snap != nil {
		return snap.ActivityQPS(activityID)
	}
	return 0, true
}

// leasePolicies are how the buckets of refs and of their activities are leased. An
// activity's bucket goes by its first SKU's policy, as its burst and its waves do; refs has
// an activity's SKUs in the order of its document.
func leasePolicies(snap *rules.Snapshot, refs []admission.SKURef, syncBudget time.Duration) lease.Policies {
	p := lease.Policies{SyncBudget: syncBudget, Of: make(map[admission.SKURef]lease.Policy, 2*len(refs))}
	for _, ref := range refs {
		l := snap.Policy(ref).Lease
		own := lease.Policy{Strategy: lease.Strategy(l.Strategy.String()), LeaseFor: l.For, Ramp: l.Ramp}
		if own.Ramp == 0 {
			own.Ramp = -1 // none; package lease would take its default
		}
		p.Of[ref] = own
		whole := admission.SKURef{ActivityID: ref.ActivityID}
		if _, ok := p.Of[whole]; !ok {
			p.Of[whole] = own
		}
	}
	return p
}

// wantedBudgets are the lease buckets of every SKU on sale and of their activities. An
// activity without a bound of its own has what its SKUs have together; its burst is by the
// policy of its first SKU, as its lease is.
func (s *service) wantedBudgets() []admission.Budget {
	var out []admission.Budget
	for _, a := range s.directory.All() {
		if a.Ended || s.rules.Snapshot() == nil {
			continue
		}
		var sum float64
		first := s.policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}).Lease
		for i := range a.SKUs {
			ref := admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID}
			p := s.policy(ref)
			r := p.RSys()
			sum += r.Rate
			out = append(out, admission.Budget{Ref: ref, PolicyVersion: p.PolicyVersion, Mode: max(p.Mode, s.mode()), Rate: r.Rate, Burst: p.Lease.Burst(r.Rate), Binding: r.Binding, EmittedAt: s.now()})
		}
		whole := admission.Budget{Ref: admission.SKURef{ActivityID: a.ID}, Rate: sum, Binding: "skus", EmittedAt: s.now()}
		if all, ok := s.activityQPS(a.ID); ok && all < sum {
			whole.Rate, whole.Binding = all, "activity_max_qps"
		}
		whole.Burst = first.Burst(whole.Rate)
		out = append(out, whole)
	}
	return out
}
