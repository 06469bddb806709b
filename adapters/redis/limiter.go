package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// maxTakes bounds one pipeline of limits.
const maxTakes = 256

// errTake is a limit that its script refuses to count.
var errTake = errors.New("rate, capacity or cost out of range")

// Limiters implements admission.Limiters: one script per algorithm, all limits of a call
// in one pipeline, integer arithmetic by server time. A timeout is not retried; when the
// store is away every take fails.
type Limiters struct {
	client  goredis.UniversalClient
	scripts [4]*Script // by admission.Algorithm
}

// NewLimiters counts in the limiter store.
func NewLimiters(c goredis.UniversalClient) *Limiters {
	l := &Limiters{client: c}
	for a, name := range map[admission.Algorithm]string{
		admission.TokenBucket: "token_bucket", admission.LeakyBucket: "leaky_bucket",
		admission.SlidingCounter: "sliding_counter", admission.SlidingLog: "sliding_log",
	} {
		l.scripts[a] = NewScript(name)
	}
	return l
}

// Take charges every limit in one round trip.
func (l *Limiters) Take(ctx context.Context, takes []admission.Take) ([]admission.Taken, error) {
	const op = "take"
	if len(takes) > maxTakes {
		return nil, notSent(op, fmt.Errorf("%d limits at once, at most %d", len(takes), maxTakes))
	}
	taken := make([]admission.Taken, len(takes))
	calls := make([]Call, 0, len(takes))
	sent := make([]int, 0, len(takes)) // calls[i] belongs to takes[sent[i]]
	for i, t := range takes {
		if t.Key == "" || int(t.Algorithm) >= len(l.scripts) || t.Tokens < 0 || t.Period < time.Millisecond || t.Period%time.Millisecond != 0 || t.Capacity < 0 || t.Cost <= 0 {
			taken[i].Err = &Fault{Op: op, Kind: KindArguments, Sentinel: admission.ErrUnavailable, Err: errTake}
			continue
		}
		tokens, period := t.Tokens, t.Period.Milliseconds()
		if t.Algorithm == admission.TokenBucket || t.Algorithm == admission.LeakyBucket {
			tokens, period = reduce(tokens, period) // windows are as long as they say
		}
		calls = append(calls, Call{
			Script: l.scripts[t.Algorithm], Keys: []string{t.Key}, Args: []any{tokens, period, t.Capacity, t.Cost},
		})
		sent = append(sent, i)
	}
	for i, r := range RunAll(ctx, l.client, calls) {
		taken[sent[i]] = limiterAnswer(calls[i].Script.Name(), r)
	}
	for _, t := range taken {
		if t.Err == nil {
			return taken, nil
		}
	}
	if len(taken) == 0 {
		return taken, nil
	}
	return taken, taken[0].Err
}

// The scripts' codes.
const (
	codeAllow   = 1
	codeLimited = 0
	codeBadArgs = -1
	codeTooMuch = -2 // cost > capacity
)

func limiterAnswer(op string, r Reply) admission.Taken {
	if r.Err != nil {
		return admission.Taken{Err: r.Err}
	}
	f := fields{op: op, left: r.Values}
	code, remaining, retry, now := f.int(), f.int(), f.int(), f.int()
	if f.err == nil && (code < codeTooMuch || code > codeAllow || remaining < 0 || retry < -1 || now < 0) {
		f.fail(code)
	}
	if err := f.end(); err != nil {
		return admission.Taken{Err: err}
	}
	if code == codeBadArgs || code == codeTooMuch {
		return admission.Taken{RetryAfter: admission.Forever, Err: &Fault{Op: op, Kind: KindArguments, Sentinel: admission.ErrUnavailable, Err: errTake}}
	}
	t := admission.Taken{OK: code == codeAllow, Remaining: float64(remaining) / 1000, RetryAfter: admission.Forever}
	if retry >= 0 && retry < math.MaxInt64/int64(time.Millisecond) {
		t.RetryAfter = time.Duration(retry) * time.Millisecond
	}
	return t
}

// reduce spells tokens per period in the smallest whole numbers, so that the scripts'
// products stay below 2^53.
func reduce(tokens, period int64) (int64, int64) {
	a, b := tokens, period
	for b != 0 {
		a, b = b, a%b
	}
	return tokens / a, period / a
}
