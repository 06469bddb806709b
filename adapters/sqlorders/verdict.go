package sqlorders

import (
	"context"
	"fmt"

	"github.com/sluice-io/sluice/app/admission"
)

// Verdicts reads a page: those without a live order first, live orders last, each by reservation_id.
func (s *Store) Verdicts(ctx context.Context, ref admission.SKURef, after string, limit int) (verdicts []admission.Verdict, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	activity, sku, size := number(ref.ActivityID), number(ref.SKUID), page(limit)
	err = s.db.Read(ctx, func(q Querier) error {
		gather := func(scan Scan) error {
			v, err := scanVerdict(scan)
			verdicts = append(verdicts, v)
			return err
		}
		live := int64(0)
		if after != "" {
			live = -1 // of no reservation: nothing is after it
			err := q.Query(ctx, isLive, []any{after, activity, sku}, func(scan Scan) error { return scan(&live) })
			if err != nil || live < 0 {
				return err
			}
		}
		if live == 0 {
			if err := q.Query(ctx, settledVerdicts, []any{activity, sku, after, size}, gather); err != nil {
				return err
			}
			after = ""
		}
		if rest := size - int64(len(verdicts)); rest > 0 {
			return q.Query(ctx, liveVerdicts, []any{activity, sku, after, rest}, gather)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("verdicts: %w", err)
	}
	return verdicts, nil
}

// VerdictOf reads what (user, request_id) came to; ErrNotFound.
func (s *Store) VerdictOf(ctx context.Context, ref admission.SKURef, userID, requestID string) (admission.Verdict, error) {
	if !admission.ValidID(requestID) {
		return admission.Verdict{}, fmt.Errorf("verdict of a request: %w", admission.ErrNotFound)
	}
	found, err := s.verdicts(ctx, "verdict of a request", verdictOf, number(ref.ActivityID), number(ref.SKUID), number(userID), requestID)
	if err != nil {
		return admission.Verdict{}, err
	}
	if len(found) == 0 {
		return admission.Verdict{}, fmt.Errorf("verdict of a request: %w", admission.ErrNotFound)
	}
	return found[0], nil
}

// Order reads one order; ErrNotFound.
func (s *Store) Order(ctx context.Context, orderID string) (admission.Order, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	o, _, err := s.order(ctx, s.db, orderID)
	if err != nil {
		return admission.Order{}, fmt.Errorf("order: %w", err)
	}
	return o, nil
}

// Tally counts a SKU's orders and units, all on one snapshot. ErrNotFound: no such SKU.
func (s *Store) Tally(ctx context.Context, ref admission.SKURef) (t admission.OrderTally, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	key := []any{number(ref.ActivityID), number(ref.SKUID)}
	t.Status = make(map[string]admission.OrderStatus)
	err = s.db.Read(ctx, func(q Querier) error {
		found := false
		if err := q.Query(ctx, tallySKU, key, func(scan Scan) error { found = true; return scan(&t.Total, &t.Sold) }); err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("SKU %s of activity %s: %w", ref.SKUID, ref.ActivityID, admission.ErrNotFound)
		}
		err := q.Query(ctx, tallyOutcomes, key, func(scan Scan) error {
			var outcome admission.VerdictOutcome
			var n int64
			err := scan(&outcome, &n)
			switch outcome {
			case admission.VerdictDuplicate:
				t.Duplicate = n
			case admission.VerdictNoCapacity:
				t.NoCapacity = n
			case admission.VerdictCreated: // counted by the orders' status
			}
			return err
		})
		if err != nil {
			return err
		}
		users := make(map[int64]bool)
		err = q.Query(ctx, tallyOrders, key, func(scan Scan) error {
			var reservation string
			var status admission.OrderStatus
			var user, due int64
			if err := scan(&reservation, &user, &status, &due); err != nil {
				return err
			}
			t.Status[reservation] = status
			t.EffectsDue += due
			switch status {
			case admission.OrderCreated:
				t.Created++
			case admission.OrderPaid:
				t.Paid++
			case admission.OrderCancelled:
				t.Cancelled++
				return nil
			}
			users[user] = true
			return nil
		})
		t.Users = int64(len(users))
		if err != nil {
			return err
		}
		return q.Query(ctx, tallyDeadLetters, nil, func(scan Scan) error { return scan(&t.DeadLetters) })
	})
	if err != nil {
		return admission.OrderTally{}, fmt.Errorf("tally: %w", err)
	}
	return t, nil
}

// verdicts reads by one statement.
func (s *Store) verdicts(ctx context.Context, what, statement string, args ...any) (verdicts []admission.Verdict, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err = s.db.Query(ctx, statement, args, func(scan Scan) error {
		v, err := scanVerdict(scan)
		verdicts = append(verdicts, v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return verdicts, nil
}

var errNoOrder = fmt.Errorf("no such order: %w", admission.ErrNotFound)

// reader is the reading half that Database and Querier share.
type reader interface {
	Query(ctx context.Context, statement string, args []any, each func(scan Scan) error) error
}

func (s *Store) order(ctx context.Context, q reader, orderID string) (o admission.Order, v admission.Verdict, err error) {
	id, ok := admission.ParseDecimal(orderID)
	if !ok {
		return o, v, errNoOrder
	}
	err = q.Query(ctx, selectOrder, []any{id}, func(scan Scan) error {
		o, v, err = scanOrder(scan)
		return err
	})
	if err == nil && o.ID == "" {
		err = errNoOrder
	}
	return o, v, err
}

func scanVerdict(scan Scan) (admission.Verdict, error) {
	v, _, err := scanVerdictAnd(scan)
	return v, err
}

func scanOrder(scan Scan) (admission.Order, admission.Verdict, error) {
	var o admission.Order
	var createdMs, payBeforeMs int64
	v, status, err := scanVerdictAnd(scan, &o.Price.Amount, &o.Price.Currency, &createdMs, &payBeforeMs, &o.PaymentID)
	o.ID, o.ReservationID, o.Ref, o.UserID, o.RequestID, o.Quantity = v.OrderID, v.ReservationID, v.Ref, v.UserID, v.RequestID, v.Quantity
	o.Status, o.CreatedAt, o.PayBefore = status, instant(createdMs), instant(payBeforeMs)
	return o, v, err
}

// scanVerdictAnd reads verdictColumns and what follows them.
func scanVerdictAnd(scan Scan, more ...any) (v admission.Verdict, status admission.OrderStatus, err error) {
	var activity, sku, user, createdMs, order, closesMs int64
	err = scan(append([]any{&v.ReservationID, &activity, &sku, &user, &v.RequestID, &v.BodyHash, &v.Quantity, &createdMs,
		&v.Outcome, &v.ExistingReservationID, &order, &status, &v.RebuyAfterCancel, &closesMs}, more...)...)
	if err != nil {
		return admission.Verdict{}, "", err
	}
	v.Ref = admission.SKURef{ActivityID: decimal(activity), SKUID: decimal(sku)}
	v.UserID, v.CreatedAt, v.ClosesAt = decimal(user), instant(createdMs), instant(closesMs)
	if order > 0 {
		v.OrderID = decimal(order)
	}
	if v.Outcome == admission.VerdictCreated {
		v.OrderStatus = status // of DUPLICATE the other order's status says nothing about this reservation
	}
	return v, status, nil
}
