package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
		Long:    "Two passes, so far apart that what is still under way is not called a difference. Exit code 1 when any lasts.\nWith --repair SQL's verdicts are applied to the stock store, never the other way.",
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
		return reconcile(cmd, c, *repair)
	}
	return cmd
}

func reconcile(cmd *cobra.Command, c *config.Config, repair bool) error {
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
	r := order.NewReconciler(s.stocks, s.orders, order.ReconcilerConfig{}, metrics, log)
	var refs []admission.SKURef
	ended := map[string]bool{}
	for _, a := range activities {
		ended[a.ID] = a.Ended
		for i := range a.SKUs {
			refs = append(refs, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID})
		}
	}
	lasting := []order.Difference{}
	fresh := false
	var shut []string // SKUs on sale that are not open
	pass := func() error {
		lasting, fresh, shut = lasting[:0], false, shut[:0]
		for _, ref := range refs {
			snap, err := s.stocks.Snapshot(ctx, ref)
			lost := errors.Is(err, admission.ErrNotFound)
			if err != nil && !lost {
				return away("stock.redis", err)
			}
			if !ended[ref.ActivityID] && (lost || !snap.Open) {
				shut = append(shut, fmt.Sprintf("activity %s SKU %s is closed until its stock is restored", ref.ActivityID, ref.SKUID))
			}
			if lost {
				continue
			}
			l, f, err := r.Pass(ctx, ref, time.Now())
			if err != nil {
				return away("stock.redis", err)
			}
			lasting, fresh = append(lasting, l...), fresh || len(f) > 0
		}
		return nil
	}
	if err := pass(); err != nil {
		return err
	}
	if fresh {
		fmt.Fprintf(cmd.ErrOrStderr(), "differences seen; looking again in %s\n", r.Settle())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.Settle()):
		}
		if err := pass(); err != nil {
			return err
		}
	}
	repaired := 0
	if repair {
		var faults []error
		for _, ref := range refs {
			if _, err := s.stocks.Snapshot(ctx, ref); err != nil {
				continue // gone with its activity, or restored below
			}
			n, err := r.Repair(ctx, ref)
			if err != nil {
				faults = append(faults, err)
			}
			repaired += n
		}
		if err := restoreAll(ctx, s, r, metrics, log, activities); err != nil {
			faults = append(faults, err)
		} else {
			shut = shut[:0]
		}
		if err := errors.Join(faults...); err != nil {
			return away("stock.redis", err)
		}
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		lines := []string{}
		for _, d := range lasting {
			lines = append(lines, d.String())
		}
		if err := cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"skus": len(refs), "differences": lines, "closed": append([]string{}, shut...), "verdicts_applied": repaired}); err != nil {
			return err
		}
	} else {
		for _, d := range lasting {
			fmt.Fprintln(cmd.OutOrStdout(), d)
		}
		for _, line := range shut {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d SKUs, %d differences, %d verdicts applied\n", len(refs), len(lasting), repaired)
	}
	if len(lasting)+len(shut) > 0 && !repair {
		return exit.Code(exit.No, errors.New("the stock store and SQL differ, or a SKU is closed; --repair moves the store towards SQL"))
	}
	return nil
}

// restoreWithin bounds the wait of --repair for the order group to consume what was sent.
const restoreWithin = time.Minute

// restoreAll opens every SKU on sale that is closed, as the leader does.
func restoreAll(ctx context.Context, s *stores, r *order.Reconciler, m *order.Metrics, log *slog.Logger, activities []admission.Activity) error {
	ctx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	term, err := s.orders.NextTerm(ctx)
	if err != nil {
		return err
	}
	restorer := order.NewRestorer(s.stocks, s.queue, r, m, log)
	for {
		waiting, err := restorer.Step(ctx, activities, term)
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
