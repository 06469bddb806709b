package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// RecoveryConfig are the bounds of Recovery.
type RecoveryConfig struct {
	SendGrace      time.Duration // between two sends of one reservation; default 1 s
	ReservationTTL time.Duration // after which SQL decides on the reservation record; default 15 s
	Batch          int           // reservations or verdicts of one round; default 200
	SendBatch      int           // messages of one send; default 32
	Rounds         int           // rounds of one step for each kind of work and SKU; default 50
	Backoff        time.Duration // until a reservation that failed is tried again; default 2 s
	Timeout        time.Duration // of one round; default 10 s
}

func (c RecoveryConfig) withDefaults() RecoveryConfig {
	if c.SendGrace == 0 {
		c.SendGrace = time.Second
	}
	if c.ReservationTTL == 0 {
		c.ReservationTTL = 15 * time.Second
	}
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.SendBatch == 0 {
		c.SendBatch = 32
	}
	if c.Rounds == 0 {
		c.Rounds = 50
	}
	if c.Backoff == 0 {
		c.Backoff = 2 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	return c
}

// Recovery finishes what others began and nobody finished. It needs no lock to be
// safe, since SQL decides and effects only move forward; the leader runs it so that
// the work is done once.
type Recovery struct {
	stock   admission.Stock
	orders  admission.Orders
	queue   admission.Queue
	decider decider
	config  RecoveryConfig
	metrics *Metrics
	log     *slog.Logger
}

// NewRecovery returns a Recovery.
func NewRecovery(s admission.Stock, o admission.Orders, q admission.Queue, c RecoveryConfig, m *Metrics, log *slog.Logger) *Recovery {
	return &Recovery{stock: s, orders: o, queue: q, decider: decider{o, m}, config: c.withDefaults(), metrics: m, log: log}
}

// RecoveryReport is what one step did.
type RecoveryReport struct {
	Resent    int           // messages acknowledged
	Decided   int           // reservations that SQL decided and the stock took
	Effects   int           // verdicts of pay and cancel carried over
	Unpaid    int           // orders cancelled for want of payment
	Failed    int           // tried in vain; each comes again
	OldestDue time.Duration // age of the oldest due reservation met
}

// Step does one scan at now over the SKUs of the activities: due reservations, then
// effects, then unpaid orders, each in bounded rounds until nothing is due. The error
// joins what failed; the rest of the work was still done.
func (r *Recovery) Step(ctx context.Context, now time.Time, activities []admission.Activity) (RecoveryReport, error) {
	var report RecoveryReport
	var errs []error
	ended := make(map[string]bool)
	for _, a := range activities {
		ended[a.ID] = a.Ended
		for _, sku := range a.SKUs {
			if err := r.scan(ctx, now, admission.SKURef{ActivityID: a.ID, SKUID: sku.ID}, a.Version, &report); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := r.effects(ctx, ended, &report); err != nil {
		errs = append(errs, err)
	}
	if err := r.unpaid(ctx, now, ended, &report); err != nil {
		errs = append(errs, err)
	}
	r.metrics.oldestDue.Set(report.OldestDue.Seconds())
	return report, errors.Join(errs...)
}

// scan handles one SKU's due reservations.
func (r *Recovery) scan(ctx context.Context, now time.Time, ref admission.SKURef, version int64, report *RecoveryReport) error {
	for range r.config.Rounds {
		n, err := r.round(ctx, now, ref, version, report)
		if err != nil {
			r.metrics.recoveryFailed[recoverScan].Inc()
			return fmt.Errorf("recovery of %s: %w", ref.Tag(), err)
		}
		if n < r.config.Batch {
			break
		}
	}
	r.metrics.recovered[recoverScan].Inc()
	return ctx.Err()
}

func (r *Recovery) round(ctx context.Context, now time.Time, ref admission.SKURef, version int64, report *RecoveryReport) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	due, err := r.stock.Due(ctx, ref, now, r.config.Batch)
	if err != nil {
		return 0, err
	}
	var young, old []admission.Reservation
	var errs []error
	for _, d := range due {
		if d.Unreadable {
			// Its units stay held until somebody looks: reconcile names it too.
			errs = append(errs, r.postpone(ctx, now, ref, d.ID, report, errUnreadable))
			continue
		}
		age := now.Sub(d.CreatedAt)
		report.OldestDue = max(report.OldestDue, age)
		if age < r.config.ReservationTTL {
			young = append(young, d)
		} else {
			old = append(old, d)
		}
	}
	errs = append(errs,
		r.resend(ctx, now, ref, version, young, report),
		r.decide(ctx, now, ref, version, old, report))
	return len(due), errors.Join(errs...)
}

var errUnreadable = errors.New("its record in the stock store cannot be read")

// resend sends reservations again under the same key. Acknowledged ones wait out
// their ttl, as after a first send; the others are due again after the grace.
func (r *Recovery) resend(ctx context.Context, now time.Time, ref admission.SKURef, version int64, young []admission.Reservation, report *RecoveryReport) error {
	var errs []error
	for len(young) > 0 {
		part := young[:min(len(young), r.config.SendBatch)]
		young = young[len(part):]
		err := r.sendAll(ctx, version, part)
		if err == nil {
			report.Resent += len(part)
			r.metrics.recovered[recoverResend].Add(float64(len(part)))
		} else {
			report.Failed += len(part)
			r.metrics.recoveryFailed[recoverResend].Add(float64(len(part)))
			r.log.Warn("reservations not sent again; they stay due", "event", "resend_failed",
				"activity_id", ref.ActivityID, "sku_id", ref.SKUID, "count", len(part), "error", err)
		}
		errs = append(errs, r.reschedule(ctx, now, ref, part, err == nil))
	}
	return errors.Join(errs...)
}

func (r *Recovery) sendAll(ctx context.Context, version int64, part []admission.Reservation) error {
	keys, bodies := make([]string, 0, len(part)), make([][]byte, 0, len(part))
	for _, d := range part {
		body, err := Encode(messageOf(d, version, ""))
		if err != nil {
			return err
		}
		keys, bodies = append(keys, d.ID), append(bodies, body)
	}
	return r.queue.Send(ctx, keys, bodies)
}

// reschedule groups reservations by their next due time, rounded up to 100 ms: one
// write a group.
func (r *Recovery) reschedule(ctx context.Context, now time.Time, ref admission.SKURef, part []admission.Reservation, acked bool) error {
	groups := make(map[time.Time][]string, 2)
	for _, d := range part {
		due := d.CreatedAt.Add(r.config.ReservationTTL)
		if !acked {
			due = dueAfterSend(d, now, r.config.SendGrace, r.config.ReservationTTL)
		}
		due = due.Truncate(100 * time.Millisecond).Add(100 * time.Millisecond)
		groups[due] = append(groups[due], d.ID)
	}
	var errs []error
	for due, ids := range groups {
		errs = append(errs, r.stock.MarkSent(ctx, ref, ids, due))
	}
	return errors.Join(errs...)
}

// decide runs the consumer's own transaction on reservation records that are older
// than the ttl, then their effects.
func (r *Recovery) decide(ctx context.Context, now time.Time, ref admission.SKURef, version int64, old []admission.Reservation, report *RecoveryReport) error {
	if len(old) == 0 {
		return nil
	}
	messages := make([]admission.OrderMessage, len(old))
	for i, d := range old {
		messages[i] = messageOf(d, version, "")
	}
	verdicts, failed := r.decider.decide(ctx, now, messages)
	decided := make([]admission.Verdict, 0, len(verdicts))
	var errs []error
	for i, err := range failed {
		if err == nil {
			decided = append(decided, verdicts[i])
			continue
		}
		errs = append(errs, r.postpone(ctx, now, ref, old[i].ID, report, err))
	}
	if len(decided) > 0 {
		if err := r.stock.Apply(ctx, decided); err != nil {
			r.metrics.applyFailed[byRecovery].Inc()
			r.metrics.recoveryFailed[recoverDecide].Add(float64(len(decided)))
			report.Failed += len(decided)
			for _, v := range decided { // those that were applied are no longer pending: no harm
				if e := r.stock.Postpone(ctx, ref, v.ReservationID, now.Add(r.config.Backoff)); e != nil && !errors.Is(e, admission.ErrNotFound) {
					err = errors.Join(err, e)
					break
				}
			}
			return errors.Join(append(errs, err)...)
		}
		report.Decided += len(decided)
		r.metrics.recovered[recoverDecide].Add(float64(len(decided)))
	}
	return errors.Join(errs...)
}

func (r *Recovery) postpone(ctx context.Context, now time.Time, ref admission.SKURef, id string, report *RecoveryReport, cause error) error {
	report.Failed++
	r.metrics.recoveryFailed[recoverDecide].Inc()
	r.log.Warn("reservation not decided; it waits", "event", "recovery_failed",
		"activity_id", ref.ActivityID, "sku_id", ref.SKUID, "reservation_id", id, "error", cause)
	return r.stock.Postpone(ctx, ref, id, now.Add(r.config.Backoff))
}

// maxEffects bounds how many effects are looked at when those at the head stay due.
const maxEffects = 1000

// effects carries over what pay and cancel left behind. Effects that cannot be carried
// stay at the head, so a round without success looks further.
func (r *Recovery) effects(ctx context.Context, ended map[string]bool, report *RecoveryReport) error {
	limit := r.config.Batch
	for range r.config.Rounds {
		var due, done int
		err := r.bounded(ctx, func(ctx context.Context) error {
			verdicts, err := r.orders.EffectsDue(ctx, limit)
			if err != nil {
				return err
			}
			due = len(verdicts)
			done, err = r.carry(ctx, verdicts, ended)
			return err
		})
		report.Effects += done
		report.Failed += due - done
		r.metrics.recovered[recoverEffect].Add(float64(done))
		r.metrics.recoveryFailed[recoverEffect].Add(float64(due - done))
		switch {
		case due < limit:
			return wrap("recovery of effects", err)
		case done == 0 && limit < maxEffects:
			limit = min(4*limit, maxEffects)
		case done == 0:
			return wrap("recovery of effects", err)
		}
	}
	return nil
}

// carry applies verdicts SKU by SKU and forgets that they were due, so that one SKU
// without a stock does not hold up the others. It returns how many are done.
func (r *Recovery) carry(ctx context.Context, due []admission.Verdict, ended map[string]bool) (done int, err error) {
	groups := make(map[admission.SKURef][]admission.Verdict)
	for _, v := range due {
		groups[v.Ref] = append(groups[v.Ref], v)
	}
	var errs []error
	for ref, group := range groups {
		n, err := r.carrySKU(ctx, ref, group, ended)
		done += n
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

func (r *Recovery) carrySKU(ctx context.Context, ref admission.SKURef, group []admission.Verdict, ended map[string]bool) (int, error) {
	err := r.stock.Apply(ctx, group)
	if err == nil {
		return r.clear(ctx, group)
	}
	r.metrics.applyFailed[byRecovery].Inc()
	_, look := r.stock.Snapshot(ctx, ref)
	switch {
	case errors.Is(look, admission.ErrNotFound) && ended[ref.ActivityID]:
		return r.clear(ctx, group) // its keys were removed with the activity: nothing to carry them to
	case look != nil: // away, or lost: a restore reads all verdicts
		return 0, errors.Join(err, look)
	case len(group) == 1:
		return 0, err
	}
	var done int // one bad verdict must not hold up its SKU
	var errs []error
	for i := range group {
		n, err := r.carrySKU(ctx, ref, group[i:i+1], ended)
		done += n
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

func (r *Recovery) clear(ctx context.Context, group []admission.Verdict) (int, error) {
	if err := r.orders.ClearEffects(ctx, group); err != nil {
		return 0, err
	}
	return len(group), nil
}

// unpaid cancels orders whose time to pay has passed, then carries that over at once.
func (r *Recovery) unpaid(ctx context.Context, now time.Time, ended map[string]bool, report *RecoveryReport) error {
	for range r.config.Rounds {
		n := 0
		err := r.bounded(ctx, func(ctx context.Context) error {
			cancelled, err := r.orders.CancelUnpaid(ctx, now, r.config.Batch)
			if err != nil {
				r.metrics.recoveryFailed[recoverUnpaid].Inc()
				return err
			}
			n = len(cancelled)
			report.Unpaid += n
			r.metrics.recovered[recoverUnpaid].Add(float64(n))
			_, err = r.carry(ctx, cancelled, ended) // what fails has its effect due
			return err
		})
		if err != nil {
			return wrap("recovery of unpaid orders", err)
		}
		if n < r.config.Batch {
			break
		}
	}
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (r *Recovery) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	return f(ctx)
}
