package order

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Service reads, cancels and pays orders. SQL decides; the effect on the stock
// follows the commit, and when it fails recovery does it.
type Service struct {
	orders  admission.Orders
	stock   admission.Stock
	now     func() time.Time
	metrics *Metrics
	log     *slog.Logger
}

// NewService returns a Service; now is the wall clock.
func NewService(o admission.Orders, s admission.Stock, now func() time.Time, m *Metrics, log *slog.Logger) *Service {
	return &Service{orders: o, stock: s, now: now, metrics: m, log: log}
}

// Order returns the user's own order; somebody else's is NotFound.
func (s *Service) Order(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision) {
	o, err := s.orders.Order(ctx, orderID)
	if err == nil && o.UserID != userID {
		err = admission.ErrNotFound
	}
	if err != nil {
		return admission.Order{}, orderRefusal(err)
	}
	return o, admission.Decision{}
}

// Cancel cancels the user's own unpaid order; again, it returns the cancelled one.
func (s *Service) Cancel(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision) {
	o, v, err := s.orders.Cancel(ctx, orderID, userID, s.now())
	if err != nil {
		return admission.Order{}, orderRefusal(err)
	}
	s.effect(ctx, v)
	return o, admission.Decision{}
}

// Pay records a payment; the same payment_id again returns the paid order.
func (s *Service) Pay(ctx context.Context, orderID string, p admission.Payment) (admission.Order, admission.Decision) {
	o, v, err := s.orders.Pay(ctx, orderID, p, s.now())
	if err != nil {
		return admission.Order{}, orderRefusal(err)
	}
	s.effect(ctx, v)
	return o, admission.Decision{}
}

// effectTimeout bounds the effect after a commit: the caller has its answer in SQL,
// so it waits no longer than this for the stock.
const effectTimeout = time.Second

// effect runs after the commit and outlives the client: the order has changed.
func (s *Service) effect(ctx context.Context, v admission.Verdict) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), effectTimeout)
	defer cancel()
	verdicts := []admission.Verdict{v}
	err := s.stock.Apply(ctx, verdicts)
	if err == nil {
		err = s.orders.ClearEffects(ctx, verdicts)
	}
	if err != nil {
		s.metrics.applyFailed[byService].Inc()
		s.log.Warn("effect left to recovery", "event", "effect_failed", "reservation_id", v.ReservationID, "error", err)
	}
}

func orderRefusal(err error) admission.Decision {
	d := admission.Decision{Stage: admission.StageOrders, Cause: err}
	switch {
	case errors.Is(err, admission.ErrNotFound):
		d.Outcome, d.Cause = admission.NotFound, nil
	case errors.Is(err, admission.ErrConflict):
		d.Outcome = admission.OrderStateConflict
	case errors.Is(err, admission.ErrAmount):
		d.Outcome, d.Reason = admission.InvalidArgument, admission.ReasonMalformed
	default:
		d.Outcome, d.Reason = admission.DependencyUnavailable, admission.ReasonOrderStore
	}
	return d
}
