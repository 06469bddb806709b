package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The codes that a client acts on. 10-http-api has all of them.
const (
	CodeQueued           = "SECKILL_QUEUED"
	CodeSoldOut          = "SECKILL_SOLD_OUT"
	CodeReplayed         = "REQUEST_REPLAYED"
	CodeQueueWaiting     = "QUEUE_WAITING"
	CodeTokenExpired     = "TOKEN_EXPIRED"
	CodeReplayRejected   = "REPLAY_REJECTED"
	CodeAlreadyPurchased = "ALREADY_PURCHASED"
	CodeActivityEnded    = "ACTIVITY_ENDED"
	CodeNotFound         = "NOT_FOUND"
	CodeRateLimited      = "RATE_LIMITED"
)

// The statuses of a request.
const (
	StatusQueued       = "QUEUED"
	StatusOrderCreated = "ORDER_CREATED"
	StatusPaid         = "PAID"
	StatusCancelled    = "CANCELLED"
	StatusFailed       = "FAILED"
)

// The next actions that a client follows.
const (
	actionWait            = "WAIT"
	actionRetry           = "RETRY_SAME_ID"
	actionQueryThenRetry  = "QUERY_THEN_RETRY_SAME_ID"
	actionQueryThenQueue  = "QUERY_THEN_REQUEUE"
	actionRequeue         = "REQUEUE"
	actionReauthenticate  = "REAUTHENTICATE"
	actionSolveChallenge  = "SOLVE_CHALLENGE"
	defaultRetryAfter     = time.Second // of a retryable answer that names no time
	longestRetryAfter     = time.Minute // beyond it the person is told instead
	shortestPoll, maxPoll = 100 * time.Millisecond, 5 * time.Second
)

// Answer is what Sluice said: the one shape of 10-http-api.
type Answer struct {
	HTTP int `json:"-"`

	RequestID         string     `json:"request_id"`
	ExistingRequestID string     `json:"existing_request_id"`
	ReservationID     string     `json:"reservation_id"`
	OrderID           string     `json:"order_id"`
	Status            string     `json:"status"`
	Code              string     `json:"code"`
	Message           string     `json:"message"`
	Field             string     `json:"field"`
	Detail            string     `json:"detail"`
	Retryable         bool       `json:"retryable"`
	NextAction        string     `json:"next_action"`
	NextPollAfterMS   int64      `json:"next_poll_after_ms"`
	RetryAfterMS      int64      `json:"retry_after_ms"`
	Rank              *uint64    `json:"rank"` // nil: not drawn
	WaitMS            *Range     `json:"wait_ms"`
	Unlikely          bool       `json:"unlikely"`
	Challenge         *Challenge `json:"challenge"`

	header time.Duration // Retry-After
}

// Range is an interval in milliseconds.
type Range struct {
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// Challenge is a proof of work that a join demands.
type Challenge struct {
	Kind       string    `json:"kind"`
	Seed       string    `json:"seed"`
	Difficulty int       `json:"difficulty"` // leading zero bits of SHA-256(seed|user|counter)
	ExpiresAt  time.Time `json:"expires_at"`
}

// Holds reports whether the answer says that the caller has a reservation, whatever became of it.
func (a Answer) Holds() bool {
	return a.HTTP/100 == 2 && a.ReservationID != "" && (a.Code != CodeQueueWaiting && a.Code != CodeSoldOut)
}

// Final reports whether a result will not change by itself.
func (a Answer) Final() bool {
	switch a.Status {
	case StatusOrderCreated, StatusPaid, StatusCancelled, StatusFailed:
		return true
	default:
		return false
	}
}

// RetryAfter is how long the answer asks to wait before the same request: the body's milliseconds, else the
// header's seconds; 0 when it does not ask.
func (a Answer) RetryAfter() time.Duration {
	if a.RetryAfterMS > 0 {
		return time.Duration(a.RetryAfterMS) * time.Millisecond
	}
	return a.header
}

// decodeAnswer reads an answer. A body that is none is a fault of whoever sent it: a proxy's error page.
func decodeAnswer(x Exchange) (Answer, error) {
	a := Answer{HTTP: x.HTTP}
	if err := json.Unmarshal(x.Body, &a); err != nil || a.Code == "" {
		return a, fmt.Errorf("HTTP %d is no answer of Sluice: %.80q", x.HTTP, x.Body)
	}
	a.header = retryAfterHeader(x.Header)
	return a, nil
}

func retryAfterHeader(h http.Header) time.Duration {
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// Refused is the answer that ended a call which wanted something else.
type Refused struct {
	Call   Call
	Answer Answer
}

// Error names the call and the code.
func (r *Refused) Error() string {
	s := fmt.Sprintf("%s: %d %s", r.Call, r.Answer.HTTP, r.Answer.Code)
	if r.Answer.Detail != "" {
		s += ": " + r.Answer.Detail
	}
	return s
}
