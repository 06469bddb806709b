package admission

import "time"

// Stage names a place where a request can be decided. The names are one list,
// used by the rules' "stages", by metrics, logs and audit.
type Stage uint8

// The stages in the order of the funnel.
const (
	StageNone Stage = iota
	StageGuard
	StageMode
	StageSystem
	StageFlow
	StageSource
	StageSession
	StageTicket
	StageActivity
	StageSoldOut
	StageUser
	StageDevice
	StageSKU
	StageParse
	StageIsolation
	StageBreaker
	StageSeat
	StageLease
	StageRemoteUser
	StageNonce
	StageStock
	StageQueue
	StageOrders
	StageRoom

	Stages // how many there are
)

var stageNames = [Stages]string{
	"none", "guard", "mode", "system", "flow", "source", "session", "ticket", "activity", "soldout",
	"user", "device", "sku", "parse", "isolation", "breaker", "seat", "lease", "remote_user", "nonce", "stock", "queue", "orders", "room",
}

// String returns the stage's name as rules, metrics and audit spell it.
func (s Stage) String() string {
	if s >= Stages {
		return "none"
	}
	return stageNames[s]
}

// Decision is a stage's verdict. The zero value means: go on.
type Decision struct {
	Outcome    Outcome
	Stage      Stage
	RetryAfter time.Duration // true wait, before jitter and rounding; 0 when there is none
	Reason     Reason        // the metric label; a closed set
	Cause      error         // the fault behind it, for the log only; nil for a plain refusal
}

// Refused reports whether the decision ends the request.
func (d Decision) Refused() bool { return d.Outcome != Pass }

// Reason says why a stage decided: one word of a closed set, fit for a metric label.
type Reason string

// The reasons. A new one is added here and nowhere else.
const (
	ReasonNone                 Reason = ""
	ReasonModeQueueOnly        Reason = "mode_queue_only"
	ReasonModeClosed           Reason = "mode_closed"
	ReasonRulesStale           Reason = "rules_stale"
	ReasonSystemRule           Reason = "system_rule"
	ReasonFlowRule             Reason = "flow_rule"
	ReasonSourceRate           Reason = "source_rate"
	ReasonSourcePrefixRate     Reason = "source_prefix_rate"
	ReasonSourceUnparsable     Reason = "source_unparsable"
	ReasonSession              Reason = "session"
	ReasonTicketMissing        Reason = "ticket_missing"
	ReasonTicketInvalid        Reason = "ticket_invalid"
	ReasonTicketExpired        Reason = "ticket_expired"
	ReasonNotOpen              Reason = "not_open"
	ReasonEnded                Reason = "ended"
	ReasonSoldOutMark          Reason = "soldout_mark"
	ReasonHolder               Reason = "holder"
	ReasonUserRate             Reason = "user_rate"
	ReasonDeviceRate           Reason = "device_rate"
	ReasonPenalty              Reason = "penalty"
	ReasonSKURate              Reason = "sku_rate"
	ReasonMalformed            Reason = "malformed"
	ReasonIsolationRule        Reason = "isolation_rule"
	ReasonBreakerOpen          Reason = "breaker_open"
	ReasonSeats                Reason = "seats"
	ReasonLeaseEmpty           Reason = "lease_empty"
	ReasonLeaseStore           Reason = "lease_store"
	ReasonNonceReplay          Reason = "nonce_replay"
	ReasonBodyConflict         Reason = "body_conflict"
	ReasonLimiterResultUnknown Reason = "LIMITER_RESULT_UNKNOWN"
	ReasonBudgetExhausted      Reason = "budget_exhausted"
	ReasonStockStore           Reason = "stock_store"
	ReasonStockResultUnknown   Reason = "stock_result_unknown"
	ReasonStockMissing         Reason = "stock_missing"
	ReasonStockClosed          Reason = "stock_closed"
	ReasonStockSoldOut         Reason = "stock_sold_out"
	ReasonStockTooFew          Reason = "stock_too_few" // sold out for this quantity, not for a smaller one
	ReasonAlreadyPurchased     Reason = "already_purchased"
	ReasonReplayed             Reason = "replayed"
	ReasonVersion              Reason = "activity_version"
	ReasonPanic                Reason = "panic"
	ReasonMissingParameter     Reason = "missing_parameter"
	ReasonGuard                Reason = "guard"
	ReasonNotReleased          Reason = "not_released"
	ReasonOrderStore           Reason = "order_store"
	ReasonRoomStore            Reason = "room_store"
	ReasonChallenge            Reason = "challenge"
	ReasonReplicas             Reason = "wait_replicas"
	ReasonNotReady             Reason = "not_ready"
)

// Call is a resource that Sentinel knows by name. The set is closed: an activity or a
// SKU is a parameter, never a resource.
type Call uint8

// The calls.
const (
	CallSubmit Call = iota
	CallReserve
	CallTicket
	CallJoin
	CallStatus
	CallOrder
	CallSession

	Calls // how many there are
)

var callNames = [Calls]string{
	"seckill.submit", "seckill.reserve", "seckill.ticket", "seckill.join", "seckill.status", "seckill.order", "seckill.session",
}

// String returns the resource name as Sentinel rules spell it.
func (c Call) String() string {
	if c >= Calls {
		return "other" // what never was a call of ours
	}
	return callNames[c]
}
