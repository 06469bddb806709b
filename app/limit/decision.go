package limit

import (
	"math"
	"time"
)

// Never is the RetryAfter of a call that no wait can help: the limiter is closed, the
// cost exceeds its capacity, or the cost is not positive. Whoever renders it to a
// caller must bound it first.
const Never time.Duration = math.MaxInt64

// Decision is a limiter's answer. The zero value is a refusal.
type Decision struct {
	// OK says that the call may go on and has been charged.
	OK bool
	// RetryAfter is how long a refused caller must wait: exact when nobody competes,
	// never short. Zero when OK.
	RetryAfter time.Duration
	// Remaining is how many units could be taken at this very moment, after this call.
	Remaining int64
}

// Limiter is a local limiter: it admits n units at now, or refuses them whole.
// n <= 0 is refused: a cost that is missing must not pass for free.
type Limiter interface {
	Allow(now Instant, n int64) Decision
}

// Refunder is a limiter that can take back a charge whose request was refused later
// by something else. Refund never makes it more than full.
type Refunder interface {
	Limiter
	Refund(now Instant, n int64)
}

// refuseForever answers a call that no wait can help.
func refuseForever(remaining int64) Decision {
	return Decision{RetryAfter: Never, Remaining: remaining}
}

// FieldError is a value that a constructor rejects.
type FieldError struct {
	Field   string // the parameter, in the words of the rule bundle: rate, burst, limit, window
	Problem string // what is wrong with it, with the bound
}

func (e *FieldError) Error() string { return "limit: " + e.Field + ": " + e.Problem }
