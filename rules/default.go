package rules

import (
	_ "embed"
	"math"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

//go:embed default.json
var defaultDocument []byte

// DefaultDocument is the shipped bundle as its file is written.
func DefaultDocument() []byte { return append([]byte(nil), defaultDocument...) }

// Default is the shipped bundle, version 1. What a bundle leaves out is taken from here.
func Default() *Bundle {
	b, _, err := Decode(defaultDocument)
	if err != nil {
		panic("rules: the shipped bundle is broken: " + err.Error()) // a test decodes it
	}
	return b
}

// Defaults of an admission policy. They are a small sale's: one instance, one hot SKU.
const (
	defaultMaxOriginQPS    = 10_000
	defaultMaxInFlight     = 2_000
	defaultTicketTTL       = 30 * time.Second
	defaultWaveSize        = 2_000
	defaultWaveInterval    = 300 * time.Millisecond
	defaultLocalSoldOutTTL = time.Second
	defaultLease           = 200 * time.Millisecond
	defaultRamp            = 10 * time.Second
	defaultPriorWeight     = 20
	defaultCDNAge          = 4 * time.Second
	defaultLongestPoll     = 2 * time.Second
	defaultUse             = 4 * time.Second
	claimMargin            = time.Second // claim_ms is at least longest poll + CDN age + this
)

// oddBits is the greatest proof of work that an old phone can be expected to finish before
// its challenge is out of date: 2^18 digests at some 10,000 a second, in half a minute.
const oddBits = 18

// Compiled-in ceilings: no bundle goes above them.
const (
	ceilingQPS      = 10_000_000
	ceilingInFlight = 1_000_000
	ceilingWaveSize = 10_000_000
	ceilingBits     = 24      // 17 million digests: minutes of a phone
	ceilingRate     = 1e9     // tokens a second: the limiters' clock has nanoseconds
	ceilingFill     = 1 << 62 // ns to fill a bucket

	// ceilingBurst is a tenth, for prefixes, of what the limiter store's scripts can count: thousandths
	// of a token, exactly up to 2^53.
	ceilingBurst = 1 << 53 / 1000 / prefixFactor
)

// Defaults of the overload machine.
const (
	defaultMaxStale   = 30 * time.Minute
	defaultPeriod     = 500 * time.Millisecond
	defaultAlpha      = 0.3
	defaultHold       = 10 * time.Second
	defaultHoldSevere = 3 * time.Second
	defaultBadQPS     = 1_000
	defaultBadRT      = 200 * time.Millisecond
)

// Signals of the overload machine and their default thresholds. Those of cpu and
// submit_p99_ms stay below the triggers of Sentinel's own system rules.
const (
	SignalCPU              = "cpu" // fraction of the cgroup's quota
	SignalSubmitP99        = "submit_p99_ms"
	SignalSeats            = "seats" // fraction in use
	SignalLimiterErrors    = "limiter_error_rate"
	SignalLimiterP99       = "limiter_p99_ms"
	SignalStockErrors      = "stock_error_rate"
	SignalStockP99         = "stock_p99_ms"
	SignalQueueErrors      = "queue_error_rate"
	SignalQueueP99         = "queue_p99_ms"
	SignalSQLErrors        = "sql_error_rate"
	SignalSQLP99           = "sql_p99_ms"
	SignalPendingAge       = "pending_age_ms"
	SignalConsumerLagSlope = "consumer_lag_per_s" // growth of the lag, messages a second
	SignalRuleAge          = "rule_age"           // fraction of max_stale_ms
)

func defaultSignals() map[string]Signal {
	errors := Signal{Enter: 0.2, Severe: 0.5, Exit: 0.05}
	return map[string]Signal{
		SignalCPU:              {Enter: 0.6, Severe: 0.7, Exit: 0.5},
		SignalSubmitP99:        {Enter: 100, Severe: 180, Exit: 70},
		SignalSeats:            {Enter: 0.85, Severe: 0.97, Exit: 0.6},
		SignalLimiterErrors:    errors,
		SignalLimiterP99:       {Enter: 8, Severe: 40, Exit: 5},
		SignalStockErrors:      errors,
		SignalStockP99:         {Enter: 15, Severe: 60, Exit: 10},
		SignalQueueErrors:      errors,
		SignalQueueP99:         {Enter: 25, Severe: 100, Exit: 15},
		SignalSQLErrors:        errors,
		SignalSQLP99:           {Enter: 500, Severe: 2_000, Exit: 200},
		SignalPendingAge:       {Enter: 15_000, Severe: 60_000, Exit: 5_000},
		SignalConsumerLagSlope: {Enter: 500, Severe: 5_000, Exit: 50},
		SignalRuleAge:          {Enter: 0.5, Severe: 0.9, Exit: 0.1},
	}
}

// The stages' names in guards.budgets_ms. lease_ask and claim are parts of limiter.
const (
	BudgetGateway  = "gateway"
	BudgetLocal    = "local" // identity, ticket, local limits
	BudgetLimiter  = "limiter"
	BudgetLeaseAsk = "lease_ask"
	BudgetClaim    = "claim"
	BudgetWait     = "wait"
	BudgetStock    = "stock"
	BudgetQueue    = "queue"
	BudgetNetwork  = "network"
	BudgetSpare    = "spare"
)

// submitBudget is the P99 that the product promises for a submit, edge to answer.
const submitBudget = 100 * time.Millisecond

func defaultBudgets() map[string]int64 {
	return map[string]int64{BudgetGateway: 8, BudgetLocal: 5, BudgetLimiter: 8, BudgetLeaseAsk: 3, BudgetClaim: 5,
		BudgetWait: 4, BudgetStock: 15, BudgetQueue: 25, BudgetNetwork: 10, BudgetSpare: 25}
}

// The terms of the admission rate, in the order in which a tie is told.
const (
	TermMaxOrigin = "max_origin_qps"
	TermTicket    = "ticket" // bounds issuing, not redeeming
	TermGateway   = "gateway"
	TermStock     = "stock"
	TermMQ        = "mq"
	TermOverload  = "overload"
	TermWave      = "wave" // bounds issuing, not redeeming
)

func termNames() []string {
	return []string{TermTicket, TermGateway, TermStock, TermMQ, TermOverload, TermWave}
}

// optionalStages may be off or in shadow; every other stage is always on.
func optionalStages() []admission.Stage {
	return []admission.Stage{admission.StageDevice, admission.StageSKU, admission.StageRemoteUser}
}

// fillTime is how long an empty bucket takes to fill, in ns; +Inf when it never does.
func fillTime(perSecond float64, burst int64) float64 {
	if perSecond <= 0 {
		return math.Inf(1)
	}
	return float64(burst) / perSecond * 1e9
}
