package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/control"
	"github.com/sluice-io/sluice/app/order"
	"github.com/sluice-io/sluice/app/overload/cpu"
	"github.com/sluice-io/sluice/rules"
)

// Periods of the loops.
const (
	rereadEvery  = time.Second // directory, watermarks
	recoverEvery = time.Second
	budgetEvery  = time.Second
	mirrorEvery  = 5 * time.Second
	followEvery  = 300 * time.Millisecond // a third of the shortest mark's life by default
)

// start runs every loop of this process's roles until ctx ends. A loop that cannot go
// on reports to failed.
func (s *service) start(ctx context.Context, running *sync.WaitGroup, failed chan<- error) {
	loop := func(name string, f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				report(failed, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	plain := func(f func(context.Context)) {
		running.Go(func() { f(ctx) })
	}
	for _, w := range s.watched {
		plain(w.Run)
	}
	loop("rules", s.runRules)
	plain(func(ctx context.Context) { s.directory.Run(ctx, rereadEvery) })
	plain(s.followDirectory)
	plain(func(ctx context.Context) { s.board.Run(ctx, followEvery) })
	plain(func(ctx context.Context) { s.room.Run(ctx, rereadEvery, s.directory.All, s.wakeRoom) })
	loop("events", func(ctx context.Context) error { return s.stores.events.Listen(ctx, s.event) })
	loop("announcer", s.stores.announcer.Run)
	loop("lease", s.leases.Run)
	loop("sender", s.sendAndMark)
	plain(func(ctx context.Context) {
		control.Every(ctx, policyEvery, s.log, "eviction policies", s.checkPolicies)
	})
	plain(func(ctx context.Context) { control.Every(ctx, rereadEvery, s.log, "fleet", s.countFleet) })
	plain(func(ctx context.Context) { s.gate.Run(ctx, s.clock.Now) })
	plain(s.feedSystemRules)
	plain(s.fleet.Run)
	if s.config.Has("orders") {
		loop("consumer", func(ctx context.Context) error { return s.consumer.Run(ctx, s.stores.queue) })
	}
	if s.config.Has("control") {
		plain(func(ctx context.Context) { s.leader.Run(ctx, s.lead) })
	}
}

// feedSystemRules tells Sentinel's system rules how busy we are, and how busy the host is.
//
// An embedded process is its own store, database and, in a demonstration, its own crowd:
// that it uses all processors is no sign of overload. Its CPU counts against a quota only.
func (s *service) feedSystemRules(ctx context.Context) {
	sampler := cpu.NewSampler(os.DirFS("/"), func() int { return runtime.GOMAXPROCS(0) })
	quota, limited := sampler.Quota()
	if limited {
		s.log.Info("CPU is measured against a quota", "event", "cpu_quota", "cpus", quota)
	}
	sampler.Run(ctx, cpu.Every, func(used, load float64) {
		if s.stores.server != nil && !limited {
			used = cpu.Unknown
		}
		rules.FeedCPU(used)
		rules.FeedLoad(load)
	}, s.log)
}

// sendAndMark ends the marks after the sender: what it sends last is still marked.
func (s *service) sendAndMark(ctx context.Context) error {
	marking, stop := context.WithCancel(context.WithoutCancel(ctx))
	marked := make(chan error, 1)
	go func() { marked <- s.marks.Run(marking) }()
	err := s.sender.Run(ctx)
	stop()
	return errors.Join(err, <-marked)
}

// lead is everything that only the leader does.
func (s *service) lead(ctx context.Context, term int64) {
	var running sync.WaitGroup
	running.Go(func() { s.waves.Lead(ctx, term, s.directory.All) })
	running.Go(func() {
		control.Every(ctx, budgetEvery, s.log, "budgets", func(ctx context.Context) error { return s.budgets.Step(ctx, term) })
	})
	running.Go(func() {
		control.Every(ctx, recoverEvery, s.log, "recovery", func(ctx context.Context) error {
			var live []admission.Activity
			for _, a := range s.directory.All() {
				live = append(live, *a)
			}
			_, err := s.recovery.Step(ctx, s.now(), live)
			return err
		})
	})
	running.Go(func() {
		restorer := order.NewRestorer(s.stores.stocks, s.stores.queue, s.reconciler, s.orderMetrics, s.log)
		control.Every(ctx, recoverEvery, s.log, "restore", func(ctx context.Context) error {
			var live []admission.Activity
			for _, a := range s.directory.All() {
				if s.now().Before(a.ClosesAt) {
					live = append(live, *a)
				}
			}
			_, err := restorer.Step(ctx, live, term)
			return err
		})
	})
	running.Go(func() { control.Every(ctx, mirrorEvery, s.log, "mirror", s.publisher.Show) })
	running.Wait()
}

// followDirectory applies the rules anew when an activity comes or goes: its SKUs need
// seats, marks and leases.
func (s *service) followDirectory(ctx context.Context) {
	known := ""
	control.Every(ctx, rereadEvery/4, s.log, "directory", func(context.Context) error {
		var b strings.Builder
		for _, ref := range s.directory.SKUs(s.now()) {
			b.WriteString(ref.Tag())
		}
		if b.String() != known {
			known = b.String()
			s.apply()
			s.board.Wake()
			s.rereadRoom()
		}
		return nil
	})
}

// event takes a broadcast. All of them only hasten what the loops would see by themselves.
func (s *service) event(e admission.Event) {
	switch e.Type {
	case admission.EventActivity:
		s.directory.Wake()
	case admission.EventWatermark:
		s.rereadRoom()
	case admission.EventSoldOut, admission.EventReopened:
		s.board.Event(e, time.Now())
	}
}

func (s *service) rereadRoom() {
	select {
	case s.wakeRoom <- struct{}{}:
	default:
	}
}

// The demonstration activity, embedded only.
const (
	demoActivity = "10001"
	demoSKU      = "90001"
	demoDrawGap  = "1s"
)

// forgetDemonstration takes the last process's demonstration away: its stock went with that
// process, so its orders must go too, before any loop finds a sale without a stock.
func (s *service) forgetDemonstration(ctx context.Context) error {
	if err := s.stores.orders.DeleteActivity(ctx, demoActivity); err != nil && !errors.Is(err, admission.ErrNotFound) {
		return fmt.Errorf("demonstration activity: %w", err)
	}
	return nil
}

// beginDemonstration publishes the demonstration anew.
func (s *service) beginDemonstration(ctx context.Context) error {
	opens := s.now().Add(s.config.DemoOpensIn).Truncate(time.Millisecond)
	doc, err := json.Marshal(map[string]any{
		"activity_id": demoActivity, "activity_version": 1, "name": "Demonstration sale",
		"opens_at": opens.Format(time.RFC3339Nano), "closes_at": opens.Add(s.config.DemoDuration).Format(time.RFC3339Nano),
		"skus": []map[string]any{{
			"sku_id": demoSKU, "name": "A very popular thing", "stock": s.config.DemoStock, "limit_per_user": 1,
			"price": map[string]string{"amount": "9.90", "currency": "CNY"},
		}},
		"fairness":   map[string]string{"mode": "random", "draw_closes_before": demoDrawGap},
		"pay_within": "15m",
	})
	if err != nil {
		return err
	}
	_, faults, err := s.publisher.Publish(ctx, doc)
	if len(faults) > 0 {
		return fmt.Errorf("demonstration activity: %w", faults[0])
	}
	if err != nil {
		return fmt.Errorf("demonstration activity: %w", err)
	}
	return s.directory.Refresh(ctx)
}
