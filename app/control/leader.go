// Package control is what only one process of the fleet does at a time: waves, budgets,
// recovery, the mirror of activities; and what every process tells the others of itself.
//
// leader.go elects and hands a term to the work; every write that could do harm twice
// carries the term and is refused when a newer one was seen. A leader that pauses loses
// its lock within the ttl (3 s); its resends and effects do no harm, since SQL decides.
// When nobody leads, watermarks and budgets stay where they are and leases run on.
package control

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Role is the control role's name in the lock store.
const Role = "control"

const (
	// leaderTTL is how long the lock lives: a dead leader is replaced within it and one try.
	leaderTTL = 3 * time.Second
	// leaderMargin is how long before the end of trust the work's context ends, so that
	// what it was writing has stopped when somebody else may begin.
	leaderMargin = 100 * time.Millisecond
	// leaderRetry is how soon a renewal that failed is tried again, at the soonest.
	leaderRetry = 10 * time.Millisecond
)

var errTrustOver = errors.New("trust in the lock is over")

// Leader runs work while this process leads.
type Leader struct {
	Locks  admission.Leadership
	Orders admission.Orders // terms come from here
	Log    *slog.Logger

	leading atomic.Bool
}

// Leading reports whether this process leads now.
func (l *Leader) Leading() bool { return l.leading.Load() }

// Run tries to lead, and while it leads runs work with a fresh term, until ctx ends.
// work must return soon after its context ends: trust in the lock ends then.
func (l *Leader) Run(ctx context.Context, work func(ctx context.Context, term int64)) {
	for ctx.Err() == nil {
		if err := l.once(ctx, work); err != nil && ctx.Err() == nil && !errors.Is(err, admission.ErrConflict) {
			l.Log.Warn("not leading", "event", "leader_error", "error", err)
		}
		pause(ctx, leaderTTL/6)
	}
}

func (l *Leader) once(ctx context.Context, work func(ctx context.Context, term int64)) error {
	held, err := l.Locks.Acquire(ctx, Role, leaderTTL)
	if err != nil {
		return err
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = held.Release(release) // else it expires
	}()
	lead, stop := context.WithCancel(ctx)
	defer stop()
	// The end of trust does not wait for anybody: not for a renewal that hangs, nor for a
	// process that was paused and looks at its clock too late.
	trust := time.AfterFunc(left(held), func() {
		l.leading.Store(false)
		stop()
	})
	defer trust.Stop()
	term, err := l.Orders.NextTerm(lead) // after the lock: a greater term than any leader before
	if err != nil {
		return err
	}
	if lead.Err() != nil {
		return errTrustOver
	}
	l.leading.Store(true)
	l.Log.Info("leading", "event", "leader_elected", "term", term)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(lead, term)
	}()
	err = hold(lead, held, trust, done)
	stop()
	<-done
	l.leading.Store(false)
	l.Log.Info("leading no more", "event", "leader_ended", "term", term)
	return err
}

// hold renews the lock until the work or its context ends, or somebody else has the lock.
// Trust counts from when a renewal was begun, so a slow answer cannot stretch it.
func hold(ctx context.Context, held admission.Held, trust *time.Timer, done <-chan struct{}) error {
	for {
		next := time.NewTimer(max(left(held)/2, leaderRetry))
		select {
		case <-done:
			next.Stop()
			return nil
		case <-ctx.Done():
			next.Stop()
			return errTrustOver
		case <-next.C:
		}
		err := held.Extend(ctx)
		switch {
		case err == nil:
			trust.Reset(left(held))
		case errors.Is(err, admission.ErrConflict):
			return err
		}
	}
}

// left is how long work may go on.
func left(h admission.Held) time.Duration { return time.Until(h.Until()) - leaderMargin }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Every runs step each period until ctx ends; an error is logged and the next step tried.
func Every(ctx context.Context, period time.Duration, log *slog.Logger, name string, step func(context.Context) error) {
	everyOr(ctx, period, nil, log, name, step)
}

// everyOr is Every, and a step as well when woken.
func everyOr(ctx context.Context, period time.Duration, wake <-chan struct{}, log *slog.Logger, name string, step func(context.Context) error) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	failing := false
	for {
		err := step(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			log.Warn("step failed", "event", "step_failed", "step", name, "error", err)
			failing = true
		case err == nil && failing:
			log.Info("step works again", "event", "step_works", "step", name)
			failing = false
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
	}
}
