package rules

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Snapshot is a bundle compiled: every default resolved, every look-up one step. It is
// immutable; the hot path reads it through [Applier.Snapshot].
type Snapshot struct {
	Version  int64  // of the document, also on an instance in the canary
	Hash     string // of the bundle that this instance runs
	Document string // hash of the whole document
	Canary   bool   // this instance runs the canary's bundle
	Source   string // where the document came from: "file …", "nacos …", "last-good"
	Applied  time.Time
	Warnings Faults
	Bundle   *Bundle // in force, as written; read only

	Sentinel SentinelRules // in Sentinel now
	Shadows  SentinelRules // evaluated on ShadowResource entries, never enforced

	SourceLimit Keyed // of an address; use SourceOverrides for its keys
	PrefixLimit Limit // of its /24 or /48: ten times as much
	StatusLimit Keyed // by user_id
	JoinLimit   Keyed // by user_id
	TicketLimit Keyed // by user_id
	Penalty     Penalty
	Overload    OverloadPolicy
	Guards      GuardPolicy
	TicketKeyID string // "": the newest key of the ring

	stages     [admission.Stages]Switch
	policies   map[admission.SKURef]*Policy
	fallback   *Policy
	activities map[string]float64
	sources    []SourceOverride
}

// prefixFactor is how many times the rate of one address its /24 or /48 has.
const prefixFactor = 10

// Policy returns the policy of a SKU; never nil.
func (s *Snapshot) Policy(ref admission.SKURef) *Policy {
	if p, ok := s.policies[ref]; ok {
		return p
	}
	return s.fallback
}

// Policies lists the policies that the bundle names.
func (s *Snapshot) Policies() map[admission.SKURef]*Policy { return s.policies }

// ActivityQPS is the cluster-wide bound of a whole activity, and whether there is one.
func (s *Snapshot) ActivityQPS(activityID string) (float64, bool) {
	r, ok := s.activities[activityID]
	return r, ok
}

// Stage returns the setting of a stage; required stages are on.
func (s *Snapshot) Stage(stage admission.Stage) Switch {
	if stage >= admission.Stages {
		return On
	}
	return s.stages[stage]
}

// SourceOverrides lists the addresses and prefixes with limits of their own. Whoever hashes
// addresses builds its table from this when the snapshot is applied.
func (s *Snapshot) SourceOverrides() []SourceOverride { return s.sources }

// Penalty is the local refusal of users and devices that hammer. Refusals 0 is off.
type Penalty struct {
	Refusals int64 // more than so many
	Window   time.Duration
	For      time.Duration
}

// OverloadPolicy configures the overload machine.
type OverloadPolicy struct {
	MaxStale   time.Duration
	Period     time.Duration
	Alpha      float64
	Hold       time.Duration // in DEGRADED
	HoldSevere time.Duration // in QUEUE_ONLY and CLOSED
	BadQPS     float64       // with BadRT: both above is a bad sample
	BadRT      time.Duration
	Signals    map[string]Signal // every known signal is there
}

// GuardPolicy configures the outbound guards.
type GuardPolicy struct {
	Budgets Budgets
	Breaker BreakerPolicy
}

// Budgets are the stages' timeouts in memory. LeaseAsk and Claim are parts of Limiter.
type Budgets struct {
	Gateway, Local, Limiter, LeaseAsk, Claim, Wait, Stock, Queue, Network, Spare time.Duration
}

// Times returns the budgets n times as long: embedded stores run slow Lua on a shared machine.
func (b Budgets) Times(n int) Budgets {
	d := time.Duration(n)
	return Budgets{b.Gateway * d, b.Local * d, b.Limiter * d, b.LeaseAsk * d, b.Claim * d, b.Wait * d, b.Stock * d, b.Queue * d, b.Network * d, b.Spare * d}
}

// Total is what a submit may take in all.
func (b Budgets) Total() time.Duration {
	return b.Gateway + b.Local + b.Limiter + b.Wait + b.Stock + b.Queue + b.Network + b.Spare
}

// BreakerPolicy is the breaker of an outbound dependency.
type BreakerPolicy struct {
	FailureRatio float64
	MinCalls     int64
	Window       time.Duration
	Open         time.Duration // doubling to MaxOpen
	MaxOpen      time.Duration
	Successes    int64 // to close
}
