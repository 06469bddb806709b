package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-io/sluice/app/admission"
)

// Results answers what a request came to. The stock store knows first; SQL keeps
// everything, so a miss or a fault there asks SQL.
type Results struct {
	stock  admission.Stock
	orders admission.Orders
	look   func(admission.SKURef) Look
}

// Look is what an instance knows of a SKU without asking anybody. It may be a little
// old: a miss in both stores is checked against the stock store itself.
type Look struct {
	Selling bool // the SKU of a published activity that has not ended
	Open    bool // its stock was OPEN when last read
}

// NewResults returns Results. look must not block.
func NewResults(s admission.Stock, o admission.Orders, look func(admission.SKURef) Look) *Results {
	return &Results{stock: s, orders: o, look: look}
}

// Request returns the record of (user, request_id); its Outcome is a Poll… outcome. The
// zero Decision means found. While the SKU is not OPEN the stock store may have lost
// what it knew, so SQL is asked first and a miss in both is DependencyUnavailable,
// never NotFound.
func (r *Results) Request(ctx context.Context, userID, requestID string, ref admission.SKURef) (admission.RequestRecord, admission.Decision) {
	look := r.look(ref)
	sources := [2]source{
		{admission.StageStock, admission.ReasonStockStore, r.fromStock},
		{admission.StageOrders, admission.ReasonOrderStore, r.fromSQL},
	}
	if !look.Open {
		sources[0], sources[1] = sources[1], sources[0]
	}
	var away admission.Decision // what the first source that failed makes of it
	for _, s := range sources {
		record, err := s.read(ctx, ref, userID, requestID)
		switch {
		case err == nil:
			return record, admission.Decision{}
		case errors.Is(err, admission.ErrNotFound):
		case away.Refused():
			away.Cause = errors.Join(away.Cause, err)
		default:
			away = admission.Decision{Outcome: admission.DependencyUnavailable, Stage: s.stage, Reason: s.reason, Cause: err}
		}
	}
	if away.Refused() {
		return admission.RequestRecord{}, away
	}
	if look.Selling {
		if err := r.believable(ctx, ref); err != nil {
			return admission.RequestRecord{}, refusal(admission.DependencyUnavailable, admission.ReasonStockStore, err)
		}
	}
	return admission.RequestRecord{}, refusal(admission.NotFound, admission.ReasonNone, nil)
}

// source is one place that may know a request, and what its failure is called.
type source struct {
	stage  admission.Stage
	reason admission.Reason
	read   func(ctx context.Context, ref admission.SKURef, userID, requestID string) (admission.RequestRecord, error)
}

func (r *Results) fromStock(ctx context.Context, ref admission.SKURef, userID, requestID string) (admission.RequestRecord, error) {
	return r.stock.Record(ctx, ref, userID, requestID)
}

func (r *Results) fromSQL(ctx context.Context, ref admission.SKURef, userID, requestID string) (admission.RequestRecord, error) {
	v, err := r.orders.VerdictOf(ctx, ref, userID, requestID)
	if err != nil {
		return admission.RequestRecord{}, err
	}
	return admission.RequestRecord{
		RequestID: v.RequestID, BodyHash: v.BodyHash, ReservationID: v.ReservationID,
		OrderID: v.OrderID, Outcome: v.PollOutcome(),
	}, nil
}

// believable says why a miss in both stores proves nothing. (Of an ended activity the
// keys are removed and nothing is under way: there a miss is a miss.)
func (r *Results) believable(ctx context.Context, ref admission.SKURef) error {
	snapshot, err := r.stock.Snapshot(ctx, ref)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if !snapshot.Open {
		return errors.New("the SKU is not open")
	}
	return nil
}
