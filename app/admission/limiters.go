package admission

import (
	"context"
	"time"
)

// Limiters is the remote limiters: one counter in the limiter store, shared by all
// instances, one script a call. A fault is never retried: a repeated call would charge
// twice.
type Limiters interface {
	// Take charges every limit of takes at once: one round trip. taken[i] belongs to
	// takes[i]; a take that failed alone has its Err set, and err is set when all did.
	// What one limit charged stays charged when another refuses: that over-refuses.
	Take(ctx context.Context, takes []Take) (taken []Taken, err error)
}

// Algorithm is how a remote limiter counts.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket    Algorithm = iota // fills up while nobody asks: bursts of Capacity
	LeakyBucket                     // a meter: answers now or refuses, never waits
	SlidingCounter                  // two windows, weighted: Capacity is Tokens
	SlidingLog                      // every call remembered: exact, Capacity is Tokens, at most 10,000
)

// Take charges one limit.
type Take struct {
	Key       string // with its hash tag; not empty
	Algorithm Algorithm
	Tokens    int64         // per Period; 0 closes
	Period    time.Duration // whole milliseconds
	Capacity  int64         // of a bucket, tokens
	Cost      int64         // tokens, > 0
}

// Taken is one limit's answer.
type Taken struct {
	OK         bool
	Remaining  float64       // tokens, to a thousandth
	RetryAfter time.Duration // never short when nobody competes; Forever when no wait helps
	Err        error
}

// Forever is the RetryAfter of a limit that is closed.
const Forever time.Duration = 1<<63 - 1
