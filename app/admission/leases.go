package admission

import (
	"context"
	"time"
)

// Leases is the budget store. A bucket belongs to an activity (SKUID "") or to one
// of its SKUs.
type Leases interface {
	// Ask asks every bucket of asks at once: one round trip. answers[i] belongs to
	// asks[i]; an ask that failed alone has its Err set, and err is set when all of them
	// did. A repeated (instance, seq) gets the same answer, not a second grant; a bucket
	// without a budget grants nothing.
	Ask(ctx context.Context, asks []LeaseAsk) (answers []LeaseAnswer, err error)
	// SetBudget settles the bucket at its old rate and gives it a new rate and burst.
	// It creates an absent bucket with level 0. A term lower than the stored one is ErrConflict.
	SetBudget(ctx context.Context, b Budget) error
	// Budget reads the published budget; ErrNotFound when there is none.
	Budget(ctx context.Context, ref SKURef) (Budget, error)
}

// LeaseAsk asks one bucket for tokens.
type LeaseAsk struct {
	Ref        SKURef // SKUID "" is the whole activity
	InstanceID string // random per boot
	Seq        uint64 // rises with every new ask of this instance to this bucket
	Want       int64  // tokens
	Weight     float64
	LeaseFor   time.Duration
	Ramp       float64 // 0.001..1: how far this instance has risen since it started; scales its grant
}

// LeaseAnswer is what one bucket granted.
type LeaseAnswer struct {
	Granted    int64
	RetryAfter time.Duration // with Granted 0: nobody asks before
	Rate       float64       // tokens per second of the bucket
	Err        error
}

// Budget is the control plane's rate for one bucket.
type Budget struct {
	Ref           SKURef
	PolicyVersion int64
	Mode          Mode
	Rate          float64 // tokens per second; 0 closes
	Burst         int64   // tokens
	Binding       string  // the term that binds
	Term          int64   // fence: a lower one is refused
	EmittedAt     time.Time
}

// Mode is how open the sale is.
type Mode uint8

// The modes, worse is greater.
const (
	ModeNormal Mode = iota
	ModeDegraded
	ModeQueueOnly
	ModeClosed
)

var modeNames = [...]string{"NORMAL", "DEGRADED", "QUEUE_ONLY", "CLOSED"}

// String returns the mode's name as rules spell it. An unknown mode reads CLOSED.
func (m Mode) String() string {
	if int(m) >= len(modeNames) {
		return "CLOSED"
	}
	return modeNames[m]
}

// ParseMode is the inverse of String.
func ParseMode(s string) (Mode, bool) {
	for i, n := range modeNames {
		if n == s {
			return Mode(i), true
		}
	}
	return ModeClosed, false
}
