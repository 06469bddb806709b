package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// decider runs SQL's transaction over messages so that one bad message fails alone.
type decider struct {
	orders  admission.Orders
	metrics *Metrics
}

// errPoison: SQL says that the message can never be decided.
var errPoison = errors.New("undecidable")

// decide returns a verdict or an error for every message. A fault of the database
// fails them all; any other failure, a panic included, is narrowed down by halving
// until it stands with the message that causes it: at most 2n transactions.
func (d decider) decide(ctx context.Context, now time.Time, messages []admission.OrderMessage) ([]admission.Verdict, []error) {
	verdicts := make([]admission.Verdict, len(messages))
	errs := make([]error, len(messages))
	d.narrow(ctx, now, messages, verdicts, errs)
	for i, err := range errs {
		if err != nil {
			d.metrics.decideFailed.Inc()
		} else if c := d.metrics.verdict[verdicts[i].Outcome]; c != nil {
			c.Inc()
		}
	}
	return verdicts, errs
}

func (d decider) narrow(ctx context.Context, now time.Time, messages []admission.OrderMessage, verdicts []admission.Verdict, errs []error) {
	if len(messages) == 0 {
		return
	}
	got, err := d.once(ctx, now, messages)
	var poison *admission.PoisonError
	switch {
	case err == nil:
		copy(verdicts, got)
		return
	case errors.As(err, &poison) && len(got) == len(messages): // the others are committed
		copy(verdicts, got)
		for i, reason := range poison.Reasons {
			errs[i] = fmt.Errorf("%w: %s", errPoison, reason)
		}
		return
	}
	if len(messages) == 1 || away(err) || ctx.Err() != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	half := len(messages) / 2
	d.narrow(ctx, now, messages[:half], verdicts[:half], errs[:half])
	d.narrow(ctx, now, messages[half:], verdicts[half:], errs[half:])
}

func (d decider) once(ctx context.Context, now time.Time, messages []admission.OrderMessage) (verdicts []admission.Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.metrics.panics.Inc()
			verdicts, err = nil, fmt.Errorf("panic while deciding: %v", p)
		}
	}()
	start := time.Now()
	verdicts, err = d.orders.Decide(ctx, messages, now)
	d.metrics.decideSeconds.Observe(time.Since(start).Seconds())
	if err == nil && len(verdicts) != len(messages) {
		return nil, fmt.Errorf("%d verdicts on %d messages", len(verdicts), len(messages))
	}
	return verdicts, err
}

// away reports a fault of a dependency rather than of what it was asked.
func away(err error) bool {
	return errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrUnknownResult)
}
