package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/order"
)

// newReconcile compares the production stores; an embedded stock lives in its service.
func newReconcile() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reconcile", Short: "Compare the stock store with SQL, by reservation", Args: noArgs,
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
	r := order.NewReconciler(s.stocks, s.orders, order.ReconcilerConfig{}, order.NewMetrics(registry), log)
	var refs []admission.SKURef
	for _, a := range activities {
		for i := range a.SKUs {
			refs = append(refs, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID})
		}
	}
	lasting := []order.Difference{}
	fresh := false
	pass := func() error {
		lasting, fresh = lasting[:0], false
		for _, ref := range refs {
			l, f, err := r.Pass(ctx, ref, time.Now())
			if errors.Is(err, admission.ErrNotFound) {
				continue // an ended activity whose keys are gone
			}
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
		for _, ref := range refs {
			n, err := r.Repair(ctx, ref)
			if err != nil && !errors.Is(err, admission.ErrNotFound) {
				return away("stock.redis", err)
			}
			repaired += n
		}
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		lines := []string{}
		for _, d := range lasting {
			lines = append(lines, d.String())
		}
		if err := printJSON(cmd, map[string]any{"skus": len(refs), "differences": lines, "verdicts_applied": repaired}); err != nil {
			return err
		}
	} else {
		for _, d := range lasting {
			fmt.Fprintln(cmd.OutOrStdout(), d)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d SKUs, %d differences, %d verdicts applied\n", len(refs), len(lasting), repaired)
	}
	if len(lasting) > 0 && !repair {
		return exit.Code(exit.No, errors.New("the stock store and SQL differ"))
	}
	return nil
}
