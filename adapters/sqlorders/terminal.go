package sqlorders

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Cancel moves CREATED -> CANCELLED, gives the units back to sold and marks the effect due. A second cancel returns
// the cancelled order; a paid one is ErrConflict, another user's ErrNotFound.
func (s *Store) Cancel(ctx context.Context, orderID, userID string, now time.Time) (o admission.Order, v admission.Verdict, err error) {
	err = s.write(ctx, "cancel order", func(q Querier) error {
		if o, v, err = s.order(ctx, q, orderID); err != nil {
			return err
		}
		if o.UserID != userID {
			return errNoOrder
		}
		if o.Status == admission.OrderCreated {
			if _, err := s.lock(ctx, q, []admission.SKURef{o.Ref}); err != nil { // SKUs before orders, everywhere
				return err
			}
			n, err := q.Exec(ctx, cancelOrder, number(orderID), now.UnixMilli())
			if err != nil {
				return err
			}
			if n == 1 {
				if err := s.addSold(ctx, q, map[admission.SKURef]int64{o.Ref: -o.Quantity}); err != nil {
					return err
				}
			}
			if o, v, err = s.order(ctx, q, orderID); err != nil { // somebody may have paid meanwhile
				return err
			}
		}
		if o.Status != admission.OrderCancelled {
			return fmt.Errorf("order %s is %s: %w", orderID, o.Status, admission.ErrConflict)
		}
		return nil
	})
	if err != nil {
		return admission.Order{}, admission.Verdict{}, err
	}
	return o, v, nil
}

// Pay moves CREATED -> PAID and marks the effect due. One payment pays one order: a payment_id that paid another
// order is ErrConflict, since the callback's signature does not cover the order.
func (s *Store) Pay(ctx context.Context, orderID string, p admission.Payment, now time.Time) (o admission.Order, v admission.Verdict, err error) {
	if p.ID == "" || len(p.ID) > maxPaymentIDLen || printable(p.ID) != p.ID {
		return o, v, fmt.Errorf("pay order: payment_id is not 1..%d bytes of printable ASCII: %w", maxPaymentIDLen, admission.ErrConflict)
	}
	err = s.write(ctx, "pay order", func(q Querier) error {
		if o, v, err = s.order(ctx, q, orderID); err != nil {
			return err
		}
		if !o.Price.Times(o.Quantity).Equal(p.Amount) {
			return admission.ErrAmount
		}
		if o.Status == admission.OrderCreated {
			var elsewhere int64
			if err := q.Query(ctx, paidElse, []any{number(orderID), p.ID}, func(scan Scan) error { return scan(&elsewhere) }); err != nil {
				return err
			}
			if elsewhere > 0 {
				return fmt.Errorf("payment %s paid another order: %w", p.ID, admission.ErrConflict)
			}
			if _, err := q.Exec(ctx, payOrder, number(orderID), p.ID, now.UnixMilli()); err != nil {
				return err // a twin that paid another order a moment ago is ErrConflict by the unique index
			}
			if o, v, err = s.order(ctx, q, orderID); err != nil { // somebody may have cancelled meanwhile
				return err
			}
		}
		if o.Status != admission.OrderPaid {
			return fmt.Errorf("order %s is %s: %w", orderID, o.Status, admission.ErrConflict)
		}
		if o.PaymentID != p.ID {
			return fmt.Errorf("order %s was paid by another payment: %w", orderID, admission.ErrConflict)
		}
		return nil
	})
	if err != nil {
		return admission.Order{}, admission.Verdict{}, err
	}
	return o, v, nil
}

// CancelUnpaid cancels at most limit orders whose pay_before has passed, the oldest first.
func (s *Store) CancelUnpaid(ctx context.Context, now time.Time, limit int) (verdicts []admission.Verdict, err error) {
	err = s.write(ctx, "cancel unpaid orders", func(q Querier) error {
		verdicts = nil
		var ids, at []int64
		var refs []admission.SKURef
		err := q.Query(ctx, unpaid, []any{now.UnixMilli(), page(limit)}, func(scan Scan) error {
			var id, activity, sku int64
			err := scan(&id, &activity, &sku)
			ids, at = append(ids, id), append(at, now.UnixMilli())
			refs = append(refs, admission.SKURef{ActivityID: decimal(activity), SKUID: decimal(sku)})
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err := s.lock(ctx, q, refs); err != nil {
			return err
		}
		args, err := s.dialect.Args(ids, at)
		if err != nil {
			return err
		}
		ids = nil // those that nobody paid or cancelled meanwhile
		units := make(map[admission.SKURef]int64)
		err = q.Query(ctx, s.sql.cancelOrders, args, func(scan Scan) error {
			var id, activity, sku, quantity int64
			err := scan(&id, &activity, &sku, &quantity)
			ids = append(ids, id)
			units[admission.SKURef{ActivityID: decimal(activity), SKUID: decimal(sku)}] -= quantity
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := s.addSold(ctx, q, units); err != nil {
			return err
		}
		if args, err = s.dialect.Args(ids); err != nil {
			return err
		}
		return q.Query(ctx, s.sql.ordersOf, args, func(scan Scan) error {
			_, v, err := scanOrder(scan)
			verdicts = append(verdicts, v)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// EffectsDue lists at most limit verdicts whose effect may not have reached the stock store, the oldest first.
func (s *Store) EffectsDue(ctx context.Context, limit int) ([]admission.Verdict, error) {
	return s.verdicts(ctx, "effects due", effectsDue, page(limit))
}

// ClearEffects forgets that these need an effect, if the order's status is still the verdict's.
func (s *Store) ClearEffects(ctx context.Context, verdicts []admission.Verdict) error {
	var reservations, statuses []string
	for _, v := range verdicts {
		if v.Outcome == admission.VerdictCreated {
			reservations, statuses = append(reservations, v.ReservationID), append(statuses, string(v.OrderStatus))
		}
	}
	if len(reservations) == 0 {
		return nil
	}
	args, err := s.dialect.Args(reservations, statuses)
	if err != nil {
		return err
	}
	return s.write(ctx, "clear effects", func(q Querier) error {
		_, err := q.Exec(ctx, s.sql.clearEffect, args...)
		return err
	})
}

// page clamps a caller's limit to 1..MaxPage.
func page(limit int) int64 { return int64(min(max(limit, 1), MaxPage)) }
