package rules

import (
	"math"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Policy is the admission policy of one SKU with every default filled in. It is read only.
type Policy struct {
	Ref             admission.SKURef // zero: the policy of every SKU that the bundle does not name
	PolicyVersion   int64            // 0: the shipped policy
	Mode            admission.Mode
	MaxOriginQPS    float64 // requests a second, cluster-wide
	MaxInFlight     int64   // of this instance
	TicketTTL       time.Duration
	WaveSize        int64 // people
	WaveInterval    time.Duration
	LocalSoldOutTTL time.Duration
	User            Keyed
	Device          Keyed
	DeviceRefuses   bool // else a device over its rate only tightens its user's bucket
	ChallengeBits   int  // leading zero bits that a join before the opening must show; 0: none
	Lease           LeasePolicy
	Terms           []NamedTerm // fixed terms, in the order in which a tie is told
	Waves           WavePolicy
}

// LeasePolicy is how the budget is shared out.
type LeasePolicy struct {
	Strategy Strategy
	For      time.Duration // life of a lease
	Ramp     time.Duration
	burst    int64 // 0: max(1, R x For)
}

// Burst is the capacity of a bucket of rate r per second.
func (l LeasePolicy) Burst(r float64) int64 {
	if l.burst > 0 {
		return l.burst
	}
	return max(1, int64(r*l.For.Seconds()))
}

// Strategy is how an instance gets its tokens.
type Strategy uint8

// The strategies.
const (
	StrategyLease   Strategy = iota // an instance's slice, paid before spent
	StrategyShare                   // no coordination: this instance's weight share of R
	StrategyCentral                 // one store call per request; the reference
)

var strategyNames = [...]string{"lease", "share", "central"}

func (s Strategy) String() string { return strategyNames[s] }

func parseStrategy(s string) (Strategy, bool) {
	for i, n := range strategyNames {
		if n == s {
			return Strategy(i), true
		}
	}
	return StrategyLease, false
}

// WavePolicy is the waves' policy.
type WavePolicy struct {
	ShowUpPrior    float64 // s
	ReservePrior   float64 // c
	PriorWeight    float64 // observations
	CDNAge         time.Duration
	LongestPoll    time.Duration
	Claim          time.Duration // at least LongestPoll + CDNAge + 1 s
	Use            time.Duration
	TricklePerS    float64
	StrictSequence bool
}

// NamedTerm is one bound of the admission rate, in requests a second.
type NamedTerm struct {
	Name string
	Rate float64
}

// Budget is an admission rate and the term that binds it.
type Budget struct {
	Rate    float64 // requests a second
	Binding string  // name of the least term
}

// RSys is the rate at which leases refill: the terms that bound redeeming. The live terms
// (the overload machine's, a measured gateway's) come on top of the policy's.
func (p *Policy) RSys(live ...NamedTerm) Budget { return p.least(false, live) }

// RAdmit is the reported admission rate: every term, those that bound issuing included.
func (p *Policy) RAdmit(live ...NamedTerm) Budget { return p.least(true, live) }

func (p *Policy) least(issuing bool, live []NamedTerm) Budget {
	b := Budget{p.MaxOriginQPS, TermMaxOrigin}
	for _, terms := range [2][]NamedTerm{p.Terms, live} {
		for _, t := range terms {
			if !issuing && (t.Name == TermTicket || t.Name == TermWave) {
				continue // bounding redemption by these would starve the loop that feeds on it
			}
			if t.Rate < b.Rate || math.IsNaN(t.Rate) {
				b = Budget{t.Rate, t.Name}
			}
		}
	}
	if !(b.Rate > 0) {
		b.Rate = 0 // closed, never negative, never NaN
	}
	return b
}

// Term returns a fixed term, and whether the policy sets it.
func (p *Policy) Term(name string) (float64, bool) {
	for _, t := range p.Terms {
		if t.Name == name {
			return t.Rate, true
		}
	}
	return 0, false
}

func (w *WaveSettings) leastClaim() time.Duration {
	return orMS(w.LongestPollMS, defaultLongestPoll) + orMS(w.CDNAgeMS, defaultCDNAge) + claimMargin
}

func (w *WaveSettings) compile() WavePolicy {
	return WavePolicy{
		ShowUpPrior:    orFloat(w.ShowUpPrior, 1),
		ReservePrior:   orFloat(w.ReservePrior, 1),
		PriorWeight:    orFloat(w.PriorWeight, defaultPriorWeight),
		CDNAge:         orMS(w.CDNAgeMS, defaultCDNAge),
		LongestPoll:    orMS(w.LongestPollMS, defaultLongestPoll),
		Claim:          orMS(w.ClaimMS, w.leastClaim()),
		Use:            orMS(w.UseMS, defaultUse),
		TricklePerS:    orFloat(w.TricklePerS, 0),
		StrictSequence: w.StrictSequence != nil && *w.StrictSequence,
	}
}

func (l *Lease) compile() LeasePolicy {
	p := LeasePolicy{For: orMS(l.LeaseMS, defaultLease), Ramp: orMS(l.RampMS, defaultRamp), burst: orInt(l.Burst, 0)}
	if l.Strategy != nil {
		p.Strategy, _ = parseStrategy(*l.Strategy)
	}
	return p
}

// compile fills in every default but the keyed limits.
func (a *Admission) compile() *Policy {
	p := &Policy{
		Ref:             admission.SKURef{ActivityID: a.ActivityID, SKUID: a.SKUID},
		PolicyVersion:   a.PolicyVersion,
		MaxOriginQPS:    orFloat(a.MaxOriginQPS, defaultMaxOriginQPS),
		MaxInFlight:     orInt(a.MaxInFlight, defaultMaxInFlight),
		TicketTTL:       orMS(a.TicketTTLMS, defaultTicketTTL),
		WaveSize:        orInt(a.WaveSize, defaultWaveSize),
		WaveInterval:    orMS(a.WaveIntervalMS, defaultWaveInterval),
		LocalSoldOutTTL: orMS(a.LocalSoldOutTTLMS, defaultLocalSoldOutTTL),
		DeviceRefuses:   a.DeviceRefuses != nil && *a.DeviceRefuses,
		ChallengeBits:   int(orInt(a.ChallengeBits, 0)),
		Lease:           a.Lease.compile(),
		Waves:           a.Fairness.compile(),
	}
	if a.Mode != nil {
		p.Mode, _ = admission.ParseMode(*a.Mode)
	}
	for _, name := range termNames() {
		if t, ok := a.Terms[name]; ok {
			p.Terms = append(p.Terms, NamedTerm{name, t.Capacity * orFloat(t.Safety, 1)})
		}
	}
	return p
}
