package rules

import (
	"reflect"
)

// SchemaVersion is the only bundle format there is.
const SchemaVersion = 1

// Bundle is the one rule document, as it was written: a pointer is an optional field, and
// what is absent takes the shipped default when the bundle is compiled. A Bundle is never
// changed after it was decoded.
type Bundle struct {
	Schema    int               `json:"schema" need:""`
	Version   int64             `json:"version" need:""`
	Comment   string            `json:"comment,omitempty"`
	Confirm   string            `json:"confirm,omitempty"` // hash of this bundle: "yes, I mean the implausible change"
	Sentinel  SentinelFamilies  `json:"sentinel,omitzero"`
	Stages    map[string]string `json:"stages,omitempty" enum:"off,shadow,on"` // stage -> off | shadow | on
	Limits    Limits            `json:"limits,omitzero"`
	Admission Family[Admission] `json:"admission,omitzero"`
	Overload  Overload          `json:"overload,omitzero"`
	Guards    Guards            `json:"guards,omitzero"`
	Ticket    Ticket            `json:"ticket,omitzero"`
	Canary    *Canary           `json:"canary,omitempty"`
}

// Family is a list of rules that cannot be emptied by accident: an absent family is the
// shipped default, a list is that list, and the word "none" clears it on purpose.
type Family[T any] struct {
	Given bool // the document has the key
	None  bool // the document says "none"
	Rules []T
}

// None is the word that clears a family.
const None = "none"

// IsZero makes an absent family absent again when it is written (omitzero).
func (f Family[T]) IsZero() bool { return !f.Given }

func (f *Family[T]) bind(b binder, path string, n node) {
	f.Given = true
	switch {
	case n.kind == kindString && n.text == None:
		f.None = true
	case n.kind == kindArray:
		b.list(path, n, reflect.ValueOf(&f.Rules).Elem())
	default:
		b.rep.fault(path, "must be a list of rules, or the word %q to clear it", None)
	}
}

// MarshalJSON writes what was read.
func (f Family[T]) MarshalJSON() ([]byte, error) {
	if f.None {
		return encode(None)
	}
	if f.Rules == nil {
		return []byte("[]"), nil
	}
	return encode(f.Rules)
}

// Limits are the rates of the limiters outside Sentinel.
type Limits struct {
	Source          *Rate            `json:"source,omitempty"` // of one address; its /24 or /48 has ten times as much
	User            *Rate            `json:"user,omitempty"`
	Device          *Rate            `json:"device,omitempty"`
	Status          *Rate            `json:"status,omitempty"` // per user
	Join            *Rate            `json:"join,omitempty"`   // per user
	Ticket          *Rate            `json:"ticket,omitempty"` // per user
	Overrides       Family[Override] `json:"overrides,omitzero"`
	PenaltyRefusals *int64           `json:"penalty_refusals,omitempty"` // more than so many within the window; 0: no penalty
	PenaltyWindowMS *int64           `json:"penalty_window_ms,omitempty"`
	PenaltyMS       *int64           `json:"penalty_ms,omitempty"`
}

// Rate is tokens per second and a capacity. 0 in either closes.
type Rate struct {
	PerSecond float64 `json:"rate_per_s" need:""`
	Burst     int64   `json:"burst" need:""`
	Shadow    bool    `json:"shadow,omitempty"` // evaluated and counted, not enforced
}

// Override gives one user, device or source a rate of its own. It stands above every other rule.
type Override struct {
	Dimension  string  `json:"dimension" need:"" enum:"source,user,device,status,join,ticket"` // source, user, device, status, join, ticket
	Key        string  `json:"key" need:""`                                                    // user_id, device_hash, or an address with or without /24, /32, /48, /64
	ActivityID string  `json:"activity_id,omitempty"`
	SKUID      string  `json:"sku_id,omitempty"`
	PerSecond  float64 `json:"rate_per_s" need:""`
	Burst      int64   `json:"burst" need:""`
	Shadow     bool    `json:"shadow,omitempty"`
	Comment    string  `json:"comment,omitempty"`
}

// Admission is the policy of one SKU of one activity.
type Admission struct {
	ActivityID        string          `json:"activity_id" need:""`
	SKUID             string          `json:"sku_id" need:""`
	PolicyVersion     int64           `json:"policy_version" need:""`
	Mode              *string         `json:"mode,omitempty" enum:"NORMAL,DEGRADED,QUEUE_ONLY,CLOSED"` // NORMAL, DEGRADED, QUEUE_ONLY, CLOSED
	MaxOriginQPS      *float64        `json:"max_origin_qps,omitempty"`
	MaxInFlight       *int64          `json:"max_in_flight,omitempty"` // of one instance
	TicketTTLMS       *int64          `json:"ticket_ttl_ms,omitempty"`
	WaveSize          *int64          `json:"wave_size,omitempty"`
	WaveIntervalMS    *int64          `json:"wave_interval_ms,omitempty"`
	LocalSoldOutTTLMS *int64          `json:"local_sold_out_ttl_ms,omitempty"`
	UserRate          *float64        `json:"user_rate_per_s,omitempty"`
	UserBurst         *int64          `json:"user_burst,omitempty"`
	DeviceRate        *float64        `json:"device_rate_per_s,omitempty"`
	DeviceBurst       *int64          `json:"device_burst,omitempty"`
	DeviceRefuses     *bool           `json:"device_refuses,omitempty"` // else a device over its rate only tightens its user's bucket
	ChallengeBits     *int64          `json:"challenge_bits,omitempty"` // of the proof of work that a join before the opening demands; 0: none
	Lease             Lease           `json:"lease,omitzero"`
	Terms             map[string]Term `json:"terms,omitempty"`
	Fairness          WaveSettings    `json:"fairness,omitzero"`
	Shadow            bool            `json:"shadow,omitempty"` // its user and device rates are counted, not enforced
}

// Lease says how the cluster-wide budget is shared out.
type Lease struct {
	Strategy       *string  `json:"strategy,omitempty" enum:"lease,share,central"` // lease, share, central
	LeaseMS        *int64   `json:"lease_ms,omitempty"`
	Burst          *int64   `json:"burst,omitempty"` // default max(1, R x lease_ms)
	RampMS         *int64   `json:"ramp_ms,omitempty"`
	ActivityMaxQPS *float64 `json:"activity_max_qps,omitempty"` // of all SKUs of the activity; the least one given counts
}

// Term is one bound of the admission rate: capacity x safety, per second.
type Term struct {
	Capacity float64  `json:"capacity" need:""`
	Safety   *float64 `json:"safety,omitempty"` // in (0, 1]; default 1
}

// WaveSettings are the waves' policy; the order of people is the activity's.
type WaveSettings struct {
	ShowUpPrior    *float64 `json:"show_up_prior,omitempty"`   // s: tickets issued per rank released, before anything was seen
	ReservePrior   *float64 `json:"reserve_prior,omitempty"`   // c: reservations per ticket
	PriorWeight    *float64 `json:"prior_weight,omitempty"`    // observations that a prior is worth
	CDNAgeMS       *int64   `json:"cdn_age_ms,omitempty"`      // oldest queue document that a browser may hold
	LongestPollMS  *int64   `json:"longest_poll_ms,omitempty"` // upper end of the poll hint
	ClaimMS        *int64   `json:"claim_ms,omitempty"`        // default longest_poll_ms + cdn_age_ms + 1 s, and never less
	UseMS          *int64   `json:"use_ms,omitempty"`          // P99 from a ticket's issue to its reservation
	TricklePerS    *float64 `json:"trickle_per_s,omitempty"`   // people released in QUEUE_ONLY
	StrictSequence *bool    `json:"strict_sequence,omitempty"` // one sequence number per join instead of blocks
}

// Overload configures the state machine.
type Overload struct {
	MaxStaleMS   *int64            `json:"max_stale_ms,omitempty"` // rules older than this close new submits
	PeriodMS     *int64            `json:"period_ms,omitempty"`
	Alpha        *float64          `json:"alpha,omitempty"`          // of the EWMA
	HoldMS       *int64            `json:"hold_ms,omitempty"`        // least time in DEGRADED
	HoldSevereMS *int64            `json:"hold_severe_ms,omitempty"` // least time in QUEUE_ONLY and CLOSED
	BadQPS       *float64          `json:"bad_qps,omitempty"`        // above this and bad_rt_ms together a sample is bad
	BadRTMS      *float64          `json:"bad_rt_ms,omitempty"`
	Signals      map[string]Signal `json:"signals,omitempty"`
}

// Signal holds one signal's thresholds: exit < enter < severe.
type Signal struct {
	Enter  float64 `json:"enter" need:""`
	Severe float64 `json:"severe" need:""`
	Exit   float64 `json:"exit" need:""`
}

// Guards configures the outbound guards and the stages' time budgets.
type Guards struct {
	BudgetsMS map[string]int64 `json:"budgets_ms,omitempty"`
	Breaker   GuardBreaker     `json:"breaker,omitzero"`
}

// GuardBreaker is the breaker of every outbound dependency.
type GuardBreaker struct {
	FailureRatio *float64 `json:"failure_ratio,omitempty"`
	MinCalls     *int64   `json:"min_calls,omitempty"`
	WindowMS     *int64   `json:"window_ms,omitempty"`
	OpenMS       *int64   `json:"open_ms,omitempty"`
	MaxOpenMS    *int64   `json:"max_open_ms,omitempty"`
	Successes    *int64   `json:"successes,omitempty"`
}

// Ticket says which key signs new tickets.
type Ticket struct {
	ActiveKeyID string `json:"active_key_id,omitempty"` // "": the newest key of the ring
}

// Canary is another whole bundle for some of the instances. The document's version orders both.
type Canary struct {
	Percent float64 `json:"percent" need:""`
	Bundle  *Bundle `json:"bundle" need:""`
}
