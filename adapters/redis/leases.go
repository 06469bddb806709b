package redis

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// maxAsks bounds one pipeline of asks.
	maxAsks = 256
	// budgetTTL outlives every pause of the leader; a budget that nobody renews for so
	// long belongs to an activity that is over. Losing it grants nothing.
	budgetTTL = 7 * 24 * time.Hour

	maxRate  = 1e9 // tokens per second
	maxBurst = 4e9 // tokens; x 10^6 stays below 2^53
)

// maxAskers bounds who is remembered in one budget; one more is granted nothing.
const maxAskers = 1000

// Leases implements admission.Leases. A lost reply is a spent grant. When the store is
// away every ask fails and nothing is granted; a new primary (another run_id) begins at
// level 0, since it may lack what the old one granted last.
type Leases struct {
	client goredis.UniversalClient
	ask    *Script
	budget *Script
}

// NewLeases keeps the budgets in the limiter store.
func NewLeases(c goredis.UniversalClient) *Leases {
	return &Leases{client: c, ask: NewScript("lease_ask"), budget: NewScript("lease_budget")}
}

// Ask sends all asks in one pipeline, on Cluster one to each primary at the same time.
// err is set when no ask was answered.
func (l *Leases) Ask(ctx context.Context, asks []admission.LeaseAsk) ([]admission.LeaseAnswer, error) {
	if len(asks) > maxAsks {
		return nil, notSent(l.ask.Name(), fmt.Errorf("%d asks at once, at most %d", len(asks), maxAsks))
	}
	calls := make([]Call, len(asks))
	for i, a := range asks {
		calls[i] = Call{Script: l.ask, Keys: []string{leaseKey(a.Ref)}, Args: []any{
			a.InstanceID, a.Seq, a.Want, thousandths(a.Weight), a.LeaseFor.Milliseconds(), thousandths(a.Ramp),
			maxAskers,
		}}
	}
	answers := make([]admission.LeaseAnswer, len(asks))
	answered := len(asks) == 0
	for i, r := range RunAll(ctx, l.client, calls) {
		answers[i] = leaseAnswer(l.ask.Name(), asks[i], r)
		answered = answered || answers[i].Err == nil
	}
	if !answered {
		return answers, answers[0].Err
	}
	return answers, nil
}

func leaseAnswer(op string, ask admission.LeaseAsk, r Reply) admission.LeaseAnswer {
	if r.Err != nil {
		return admission.LeaseAnswer{Err: r.Err}
	}
	f := fields{op: op, left: r.Values}
	code, granted, retry, rate, _ := f.int(), f.int(), f.int(), f.int(), f.int()
	if code < 0 || code > 2 || granted < 0 || granted > ask.Want || retry < 0 || rate < 0 {
		f.fail(code) // more than was asked for is nobody's grant
	}
	if err := f.end(); err != nil {
		return admission.LeaseAnswer{Err: err}
	}
	return admission.LeaseAnswer{
		Granted: granted, RetryAfter: time.Duration(retry) * time.Millisecond, Rate: float64(rate) / 1000,
	}
}

// SetBudget settles the bucket at its old rate and publishes the new one.
func (l *Leases) SetBudget(ctx context.Context, b admission.Budget) error {
	if math.IsNaN(b.Rate) || b.Rate < 0 || b.Rate > maxRate || b.Burst < 0 || b.Burst > maxBurst {
		return notSent(l.budget.Name(), fmt.Errorf("rate %v or burst %d out of range", b.Rate, b.Burst))
	}
	values, err := l.budget.Run(ctx, l.client, []string{leaseKey(b.Ref), budgetKey(b.Ref)},
		thousandths(b.Rate), b.Burst, b.Term, b.PolicyVersion, b.Mode.String(),
		strconv.FormatFloat(b.Rate, 'g', -1, 64), b.Binding, max(0, b.EmittedAt.UnixMilli()),
		budgetTTL.Milliseconds())
	if err != nil {
		return err
	}
	f := fields{op: l.budget.Name(), left: values}
	done, term := f.int(), f.int()
	if err := f.end(); err != nil {
		return err
	}
	if done != 1 {
		return fmt.Errorf("budget of %s: term %d is behind %d: %w", bucketTag(b.Ref), b.Term, term, admission.ErrConflict)
	}
	return nil
}

// Budget reads what was published.
func (l *Leases) Budget(ctx context.Context, ref admission.SKURef) (admission.Budget, error) {
	const op = "budget"
	h, err := l.client.HGetAll(ctx, budgetKey(ref)).Result()
	if err != nil {
		return admission.Budget{}, Classify(op, err)
	}
	if len(h) == 0 {
		return admission.Budget{}, fmt.Errorf("budget of %s: %w", bucketTag(ref), admission.ErrNotFound)
	}
	r := hashReader{h: h}
	b := admission.Budget{
		Ref: ref, PolicyVersion: r.int("policy_version"), Rate: r.float("rate"), Burst: r.int("burst"),
		Binding: h["binding"], Term: r.int("term"), EmittedAt: time.UnixMilli(r.int("emitted_ms")),
	}
	var known bool
	if b.Mode, known = admission.ParseMode(h["mode"]); !known || r.err != nil {
		return admission.Budget{}, wrongShape(op, h)
	}
	return b, nil
}

// hashReader reads numbers from a hash and keeps the first fault.
type hashReader struct {
	h   map[string]string
	err error
}

func (r *hashReader) int(field string) int64 {
	n, err := strconv.ParseInt(r.h[field], 10, 64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

func (r *hashReader) float(field string) float64 {
	n, err := strconv.ParseFloat(r.h[field], 64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

// thousandths rounds down, so that a rate is never above the asked one; what floating
// point takes from a whole number of thousandths is given back.
func thousandths(x float64) int64 { return int64(math.Floor(x*1000 + 1e-6)) }

// fail reports a value of the right type that the script cannot have given.
func (f *fields) fail(v any) {
	if f.err == nil {
		f.err = wrongShape(f.op, v)
	}
}
