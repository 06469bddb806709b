package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Restorer brings SKUs back that are on sale and not open: after a failover or a restart
// of the stock store, a lost or unreadable key, or a NO_CAPACITY; and those whose units do
// not add up. It closes the SKU, waits until the order group has consumed what was sent
// before, applies every verdict of SQL, and opens the SKU under a new incarnation with its
// units counted anew. Each step may be repeated by anybody; a restore that
// died is begun again. While SQL or the queue is away the SKU stays closed: nothing is
// sold twice.
type Restorer struct {
	stock     admission.Stock
	queue     admission.Queue
	reconcile *Reconciler
	metrics   *Metrics
	log       *slog.Logger
	closed    map[admission.SKURef]time.Time // under restore, since when by the store's clock; bounded by the SKUs
	steps     int
	missing   map[admission.SKURef]int64    // units that the last count did not find; bounded by the SKUs
	broken    map[admission.SKURef]struct{} // to be restored though it is open; bounded by the SKUs
}

// countEvery is after how many steps an open SKU's units are counted: the leader steps every
// second, and a count reads every reservation, of which a large sale has some 100 parts.
const countEvery = 10

// NewRestorer returns a Restorer. One goroutine uses it.
func NewRestorer(s admission.Stock, q admission.Queue, r *Reconciler, m *Metrics, log *slog.Logger) *Restorer {
	return &Restorer{
		stock: s, queue: q, reconcile: r, metrics: m, log: log, closed: make(map[admission.SKURef]time.Time),
		missing: make(map[admission.SKURef]int64), broken: make(map[admission.SKURef]struct{}),
	}
}

// Condemn has the next Step restore a SKU though it is open: its units do not add up, so
// that no verdict may be applied to it before they are counted anew.
func (r *Restorer) Condemn(ref admission.SKURef) { r.broken[ref] = struct{}{} }

// Step looks at every SKU of the activities once and takes the next step of each restore.
// least is what exceeds every incarnation seen so far (the leader's term). It returns how
// many SKUs are still closed; the error joins what failed, the other SKUs were still served.
func (r *Restorer) Step(ctx context.Context, activities []admission.Activity, least int64) (waiting int, err error) {
	var errs []error
	r.steps++
	for _, a := range activities {
		if a.Ended {
			continue // its keys may be gone for good
		}
		for i := range a.SKUs {
			done, err := r.sku(ctx, a, a.SKUs[i], least)
			if err != nil {
				errs = append(errs, fmt.Errorf("restore SKU %s of activity %s: %w", a.SKUs[i].ID, a.ID, err))
			}
			if !done {
				waiting++
			}
		}
	}
	r.metrics.restoring.Set(float64(waiting))
	return waiting, errors.Join(errs...)
}

func (r *Restorer) sku(ctx context.Context, a admission.Activity, sku admission.SKU, least int64) (done bool, err error) {
	ref := admission.SKURef{ActivityID: a.ID, SKUID: sku.ID}
	closedAt, closing := r.closed[ref]
	if !closing {
		s, err := r.stock.Snapshot(ctx, ref)
		switch {
		case err == nil && s.Open:
			if r.steps%countEvery == 0 {
				if err := r.count(ctx, ref); err != nil {
					return true, err
				}
			}
			if _, broken := r.broken[ref]; !broken {
				return true, nil
			}
		case err != nil && !errors.Is(err, admission.ErrNotFound):
			return false, err
		}
		closedAt, err = r.stock.CloseSKU(ctx, admission.StockSpec{Ref: ref, Version: a.Version, Total: sku.Stock, OpensAt: a.OpensAt, ClosesAt: a.ClosesAt})
		if err != nil {
			return false, err
		}
		r.closed[ref] = closedAt
		delete(r.missing, ref)
		delete(r.broken, ref)
		r.log.Warn("restoring a SKU", "event", "restore_begun", "activity_id", a.ID, "sku_id", sku.ID)
	}
	if consumed, err := r.queue.Consumed(ctx, closedAt); err != nil || !consumed {
		return false, err
	}
	applied, err := r.reconcile.Repair(ctx, ref)
	if err == nil {
		err = r.stock.Reopen(ctx, ref, least)
	}
	if err != nil {
		if _, look := r.stock.Snapshot(ctx, ref); errors.Is(look, admission.ErrNotFound) {
			delete(r.closed, ref) // lost again: begin anew
		}
		return false, err
	}
	delete(r.closed, ref)
	r.log.Warn("a SKU is restored", "event", "restore_done", "activity_id", a.ID, "sku_id", sku.ID, "verdicts", applied)
	return true, nil
}

// count condemns an open SKU whose units do not add up. A busy SKU's count may be torn, but
// not twice by the same number of units.
func (r *Restorer) count(ctx context.Context, ref admission.SKURef) error {
	t, err := r.stock.Tally(ctx, ref)
	if err != nil {
		return err
	}
	before, again := r.missing[ref]
	if t.Conserved() {
		delete(r.missing, ref)
		return nil
	}
	r.missing[ref] = t.Missing()
	if again && before == t.Missing() {
		r.log.Error("the units of a SKU do not add up", "event", "units_missing", "activity_id", ref.ActivityID, "sku_id", ref.SKUID,
			"missing", t.Missing(), "total", t.Total, "remaining", t.Remaining, "live", t.Live, "created", t.Created, "paid", t.Paid)
		r.Condemn(ref)
	}
	return nil
}
