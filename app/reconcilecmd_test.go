package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// ledger notes who was asked what, in order. What a SKU is stands in its id.
type ledger struct {
	asked  []string
	closed map[string]bool // by CloseSKU
	opened map[string]bool // by Reopen
}

func (l *ledger) note(what string, ref admission.SKURef) {
	l.asked = append(l.asked, what+" "+ref.SKUID)
}

// notedStock is the stock of a ledger.
type notedStock struct {
	admission.Stock
	*ledger
}

// gone reports whether a SKU's keys are lost and not made anew.
func (l *ledger) gone(ref admission.SKURef) bool {
	return strings.HasPrefix(ref.SKUID, "lost") && !l.closed[ref.SKUID]
}

func (s notedStock) Snapshot(_ context.Context, ref admission.SKURef) (admission.StockSnapshot, error) {
	switch {
	case s.gone(ref):
		return admission.StockSnapshot{}, admission.ErrNotFound
	case ref.SKUID == "silent":
		return admission.StockSnapshot{}, admission.ErrUnavailable
	}
	return admission.StockSnapshot{Open: ref.SKUID != "shut" || s.opened[ref.SKUID]}, nil
}

// Tally finds three units of a "leaky" SKU missing, for as long as nobody counts anew.
func (s notedStock) Tally(_ context.Context, ref admission.SKURef) (admission.StockTally, error) {
	if strings.HasPrefix(ref.SKUID, "leaky") && !s.opened[ref.SKUID] {
		return admission.StockTally{Total: 10, Remaining: 7}, nil
	}
	return admission.StockTally{Total: 10, Remaining: 10}, nil
}

func (s notedStock) CloseSKU(_ context.Context, spec admission.StockSpec) (time.Time, error) {
	s.note("close", spec.Ref)
	s.closed[spec.Ref.SKUID] = true
	return time.Unix(1, 0), nil
}

func (s notedStock) Apply(_ context.Context, verdicts []admission.Verdict) error {
	ref := verdicts[0].Ref
	s.note("apply", ref)
	switch {
	case s.gone(ref):
		return admission.ErrNotFound
	case ref.SKUID == "broken":
		return admission.ErrUnavailable
	}
	return nil
}

func (s notedStock) Reopen(_ context.Context, ref admission.SKURef, least int64) error {
	if least != term {
		return errors.New("not the term that SQL gave")
	}
	s.note("open", ref)
	s.opened[ref.SKUID] = true
	return nil
}

// oneVerdict is SQL with one verdict on each SKU.
type oneVerdict struct{ admission.Orders }

const term = 7

func (oneVerdict) Verdicts(_ context.Context, ref admission.SKURef, after string, _ int) ([]admission.Verdict, error) {
	if after != "" {
		return nil, nil
	}
	return []admission.Verdict{{ReservationID: "r_1", Ref: ref}}, nil
}

func (oneVerdict) Tally(context.Context, admission.SKURef) (admission.OrderTally, error) {
	return admission.OrderTally{Total: 10}, nil
}

func (oneVerdict) NextTerm(context.Context) (int64, error) { return term, nil }

// slowGroup consumes what was sent before a moment at the third question.
type slowGroup struct {
	admission.Queue
	asked int
}

func (g *slowGroup) Consumed(context.Context, time.Time) (bool, error) {
	g.asked++
	return g.asked > 3, nil
}

func activityOf(id string, ended bool, skus ...string) admission.Activity {
	a := admission.Activity{ID: id, Ended: ended}
	for _, sku := range skus {
		a.SKUs = append(a.SKUs, admission.SKU{ID: sku, Stock: 10})
	}
	return a
}

func (l *ledger) reconciliation(activities ...admission.Activity) *reconciliation {
	log, metrics := slog.New(slog.DiscardHandler), order.NewMetrics(prometheus.NewRegistry())
	stock, orders := notedStock{ledger: l}, oneVerdict{}
	return &reconciliation{
		stock: stock, orders: orders, queue: &slowGroup{}, metrics: metrics, log: log, activities: activities,
		reconciler: order.NewReconciler(stock, orders, order.ReconcilerConfig{}, metrics, log),
	}
}

// TestReconcileSaysWhatRepairDid: verdicts that the store had already are no differences, and are not told as such.
func TestReconcileSaysWhatRepairDid(t *testing.T) {
	cmd := &cobra.Command{}
	out := &strings.Builder{}
	cmd.SetOut(out)
	if err := (findings{SKUs: 2, Repaired: 1000}).say(cmd, true, false); err != nil {
		t.Fatal(err)
	}
	if want := "2 SKUs, 0 differences\nall 1000 verdicts of SQL told to the stock store, which passes over what it has\n"; out.String() != want {
		t.Errorf("said %q, want %q", out, want)
	}
}

// TestRepairTakesTheSKUsInOrder: what is there is repaired first, one SKU's fault stops no
// other; what is gone or shut is closed, waited for, repaired and only then opened. The lost
// SKU stands first, and takes no verdict before it is closed.
func TestRepairTakesTheSKUsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{closed: map[string]bool{}, opened: map[string]bool{}}
		r := l.reconciliation(activityOf("1", false, "lost", "fine"), activityOf("2", true, "lost-and-ended"), activityOf("3", false, "broken", "shut", "other"))
		applied, err := r.repair(t.Context(), nil)
		if !errors.Is(err, admission.ErrUnavailable) || applied != 3 {
			t.Errorf("%d applied, %v; want 3, and the broken one's fault", applied, err)
		}
		want := []string{
			"apply fine", "apply broken", "apply shut", "apply other", // what is there
			"close lost", "close shut", // nothing is opened before the messages are consumed
			"apply shut", "open shut", "apply lost", "open lost",
		}
		// The two that are restored take their steps side by side: each of them in order.
		steps := func(list []string, sku string) (out []string) {
			for _, s := range list {
				if strings.HasSuffix(s, " "+sku) {
					out = append(out, s)
				}
			}
			return out
		}
		if len(l.asked) != len(want) || !slices.Equal(l.asked[:6], want[:6]) {
			t.Errorf("asked %q,\nwant  %q", l.asked, want)
		}
		for _, sku := range []string{"lost", "shut"} {
			if got := steps(l.asked, sku); !slices.Equal(got, steps(want, sku)) {
				t.Errorf("%s: %q, want %q", sku, got, steps(want, sku))
			}
		}
	})
}

// TestRepairDoesNotPassOverASilentStore: a store that does not answer is a fault, not a SKU
// that is gone.
func TestRepairDoesNotPassOverASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{closed: map[string]bool{}, opened: map[string]bool{}}
		r := l.reconciliation(activityOf("1", true, "silent"), activityOf("2", false, "fine"))
		if applied, err := r.repair(t.Context(), nil); !errors.Is(err, admission.ErrUnavailable) || applied != 1 {
			t.Errorf("%d applied, %v", applied, err)
		}
		if _, err := r.compare(t.Context(), io.Discard); !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), "stock.redis: ") {
			t.Errorf("compared: %v", err)
		}
	})
}

// TestOneSKUsFaultHidesNoOther: what cannot be read is named, and the others are compared.
func TestOneSKUsFaultHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{closed: map[string]bool{}, opened: map[string]bool{}}
		r := l.reconciliation(activityOf("1", false, "silent", "lost", "leaky"))
		found, err := r.compare(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "activity 1 SKU silent") {
			t.Errorf("%v does not name the SKU", err)
		}
		if found.SKUs != 3 || len(found.Closed) != 1 || len(found.Differences) != 1 || len(found.broken) != 1 {
			t.Errorf("%+v: want the lost one closed, the leaky one different", found)
		}
	})
}

// TestRepairRestoresWhatDoesNotAddUp: a SKU of which units are missing gets no verdict before
// it is closed, and is opened again.
func TestRepairRestoresWhatDoesNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{closed: map[string]bool{}, opened: map[string]bool{}}
		r := l.reconciliation(activityOf("1", false, "leaky", "fine"))
		found, err := r.compare(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.repair(t.Context(), found.broken); err != nil {
			t.Fatal(err)
		}
		if want := []string{"apply fine", "close leaky", "apply leaky", "open leaky"}; !slices.Equal(l.asked, want) {
			t.Errorf("asked %q, want %q", l.asked, want)
		}
	})
}
