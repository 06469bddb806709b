package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/order"
)

// newReconcile compares the production stores; an embedded stock lives in its service.
func newReconcile() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reconcile", Short: "Compare the stock store with SQL, by reservation", Args: cli.Args(),
		Long:    "Two passes, so far apart that what is still under way is not called a difference. Exit code 1 when any lasts.\nWith --repair SQL's verdicts are applied to the stock store, never the other way. A SKU\nwhose units do not add up, or of which a key is lost or unreadable, is closed, restored and opened.",
		Example: "  eval \"$(make servers-env)\" && sluice reconcile --repair",
	}
	repair := cmd.Flags().Bool("repair", false, "move the stock store towards SQL")
	cmd.Flags().Bool("json", false, "print facts as JSON")
	load := settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if c.IsEmbedded() {
			return exit.Code(exit.Usage, errors.New("reconcile needs the production stores: an embedded stock lives in its service's memory"))
		}
		asJSON, _ := cmd.Flags().GetBool("json")
		return reconcile(cmd, c, *repair, asJSON)
	}
	return cmd
}

func reconcile(cmd *cobra.Command, c *config.Config, repair, asJSON bool) error {
	ctx, log := cmd.Context(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	c.InstanceID = "reconcile"
	registry := prometheus.NewRegistry()
	s, err := openStores(ctx, c, registry, log)
	if err != nil {
		return err
	}
	defer s.close()
	activities, err := s.orders.Activities(ctx)
	if err != nil {
		return away("orders", err)
	}
	metrics := order.NewMetrics(registry)
	r := reconciliation{
		stock: s.stocks, orders: s.orders, queue: s.queue, metrics: metrics, log: log, activities: activities,
		reconciler: order.NewReconciler(s.stocks, s.orders, order.ReconcilerConfig{}, metrics, log),
	}
	found, err := r.compare(ctx, cmd.ErrOrStderr())
	if repair {
		var failed error
		if found.Repaired, failed = r.repair(ctx, found.broken); failed != nil {
			return errors.Join(err, away("stock.redis", failed))
		}
		found.Closed = found.Closed[:0]
	}
	if err != nil && len(found.Differences)+len(found.Closed) == 0 {
		return err
	}
	return errors.Join(err, found.say(cmd, repair, asJSON))
}

// findings are what a reconciliation found and did.
type findings struct {
	SKUs        int      `json:"skus"`
	Differences []string `json:"differences"`
	Closed      []string `json:"closed"` // on sale, and closed until their stock is restored
	Repaired    int      `json:"verdicts_applied"`

	broken []admission.SKURef // their units do not add up: no verdict before they are counted anew
}

func (f findings) say(cmd *cobra.Command, repair, asJSON bool) error {
	wrong := len(f.Differences)+len(f.Closed) > 0 && !repair
	if asJSON {
		if err := cli.PrintJSON(cmd.OutOrStdout(), f); err != nil {
			return err
		}
		if wrong {
			return exit.Said(exit.No)
		}
		return nil
	}
	for _, line := range append(append([]string{}, f.Differences...), f.Closed...) {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d SKUs, %d differences\n", f.SKUs, len(f.Differences))
	if repair {
		fmt.Fprintf(cmd.OutOrStdout(), "all %d verdicts of SQL told to the stock store, which passes over what it has\n", f.Repaired)
	}
	if wrong {
		return exit.Code(exit.No, errors.New("the stock store and SQL differ, or a SKU is closed; --repair moves the store towards SQL"))
	}
	return nil
}

// reconciliation is one run over every SKU that SQL knows.
type reconciliation struct {
	stock      admission.Stock
	orders     admission.Orders
	queue      admission.Queue
	reconciler *order.Reconciler
	metrics    *order.Metrics
	log        *slog.Logger
	activities []admission.Activity
}

// each calls f with every SKU, in the order of the activities.
func (r *reconciliation) each(f func(a *admission.Activity, ref admission.SKURef) error) error {
	for i := range r.activities {
		a := &r.activities[i]
		for j := range a.SKUs {
			if err := f(a, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[j].ID}); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare passes over all SKUs, and once more when the first pass saw what may be under way.
// What could not be read of one SKU is told with the findings on the others.
func (r *reconciliation) compare(ctx context.Context, notes io.Writer) (findings, error) {
	found, fresh, err := r.pass(ctx)
	if !fresh {
		return found, err
	}
	fmt.Fprintf(notes, "differences seen; looking again in %s\n", r.reconciler.Settle())
	select {
	case <-ctx.Done():
		return found, ctx.Err()
	case <-time.After(r.reconciler.Settle()):
	}
	found, _, err = r.pass(ctx)
	return found, err
}

// maxFaults is after how many SKUs that cannot be read the store is taken to be away.
const maxFaults = 10

func (r *reconciliation) pass(ctx context.Context) (found findings, fresh bool, err error) {
	found = findings{Differences: []string{}, Closed: []string{}}
	var faults []error
	fault := func(ref admission.SKURef, err error) error {
		faults = append(faults, fmt.Errorf("activity %s SKU %s: %w", ref.ActivityID, ref.SKUID, err))
		if len(faults) == maxFaults {
			return err
		}
		return nil
	}
	_ = r.each(func(a *admission.Activity, ref admission.SKURef) error {
		found.SKUs++
		snap, err := r.stock.Snapshot(ctx, ref)
		lost := errors.Is(err, admission.ErrNotFound)
		if err != nil && !lost {
			return fault(ref, err)
		}
		if !a.Ended && (lost || !snap.Open) {
			found.Closed = append(found.Closed, fmt.Sprintf("activity %s SKU %s is closed until its stock is restored", ref.ActivityID, ref.SKUID))
		}
		if lost {
			return nil
		}
		lasting, young, err := r.reconciler.Pass(ctx, ref, time.Now())
		if err != nil {
			return fault(ref, err)
		}
		for _, d := range lasting {
			found.Differences = append(found.Differences, d.String())
			if d.Kind == order.KindUnits || d.Kind == order.KindTotal {
				found.broken = append(found.broken, ref)
			}
		}
		fresh = fresh || len(young) > 0
		return nil
	})
	return found, fresh, away("stock.redis", errors.Join(faults...))
}

// restoreWithin bounds the wait of --repair for the order group to consume what was sent.
const restoreWithin = time.Minute

// repair moves the stock towards SQL, and returns how many verdicts it applied by itself.
//
// First every SKU that is there gets SQL's verdicts, whatever befalls another one: a fault
// of one must not leave the rest unrepaired. Those that are broken get none: an order that
// the stock lost would take its units a second time. Then these, and those that are on sale
// and gone or closed, are restored as the leader does it: closed, what was sent before consumed, SQL's verdicts
// applied, opened. A SKU that is gone takes no verdict before it is closed: there is nothing
// yet that it could be applied to.
func (r *reconciliation) repair(ctx context.Context, broken []admission.SKURef) (applied int, err error) {
	var faults []error
	_ = r.each(func(_ *admission.Activity, ref admission.SKURef) error {
		_, err := r.stock.Snapshot(ctx, ref)
		if errors.Is(err, admission.ErrNotFound) || slices.Contains(broken, ref) {
			return nil // gone with its activity, or restored below
		}
		n := 0
		if err == nil {
			n, err = r.reconciler.Repair(ctx, ref)
		}
		if err != nil {
			faults = append(faults, err)
		}
		applied += n
		return nil
	})
	if err := r.restore(ctx, broken); err != nil {
		faults = append(faults, err)
	}
	return applied, errors.Join(faults...)
}

// restore opens every SKU on sale that is closed or broken, as the leader does.
func (r *reconciliation) restore(ctx context.Context, broken []admission.SKURef) error {
	ctx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	term, err := r.orders.NextTerm(ctx)
	if err != nil {
		return err
	}
	restorer := order.NewRestorer(r.stock, r.queue, r.reconciler, r.metrics, r.log)
	for _, ref := range broken {
		restorer.Condemn(ref)
	}
	for {
		waiting, err := restorer.Step(ctx, r.activities, term)
		if waiting == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d SKUs are still closed: their order messages are not all consumed", waiting), err)
		case <-time.After(time.Second):
		}
	}
}
