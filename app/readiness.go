package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/exit"
)

// unread is what an instance has not read yet since its start, and without which it would
// answer people wrongly: which activities there are, and how far those that are open have come.
func (s *service) unread() (reasons []string) {
	if !s.directory.Read() {
		return []string{"the activities are not read yet"}
	}
	now := s.now()
	for _, a := range s.directory.All() {
		if !a.Ended && !now.Before(a.OpensAt) && now.Before(a.ClosesAt) && !s.room.Knows(a.ID) {
			reasons = append(reasons, fmt.Sprintf("the waiting room of activity %s is not read yet", a.ID))
		}
	}
	return reasons
}

// unready says why this instance must not get traffic.
func (s *service) unready() []string {
	reasons := []string{}
	if s.draining.Load() {
		reasons = append(reasons, "draining")
	}
	if err := s.rules.Ready(); err != nil {
		reasons = append(reasons, "rules: "+err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.stores.stocks.Policy(ctx); err != nil {
		reasons = append(reasons, "stock store: "+err.Error())
	}
	if s.evicting.Load() {
		reasons = append(reasons, "stock or limiter store: may evict keys; new submits are closed")
	}
	if err := s.stores.queue.Ready(ctx); err != nil {
		reasons = append(reasons, "queue: "+err.Error())
	}
	reasons = append(reasons, s.unread()...)
	for _, ref := range s.directory.SKUs(s.now()) {
		if !s.board.CaughtUp(ref) {
			reasons = append(reasons, fmt.Sprintf("sold-out snapshot of activity %s SKU %s is not read yet", ref.ActivityID, ref.SKUID))
		}
	}
	return reasons
}

// When what is missing at a start is said: soon, or an operator looks at a silent log, and
// then rarely.
const (
	unreadyFirst = 2 * time.Second
	unreadyAgain = 30 * time.Second

	readyInterval = 20 * time.Millisecond // between two looks
)

// errStopped is the end of a wait that was asked for.
var errStopped = errors.New("stopped before it was ready")

// awaitReady waits until nothing is missing, and says what is. It returns errStopped when
// ctx ends before that, and what failed reports. An embedded service waits unreadyAgain:
// there is nobody whose return would help.
func awaitReady(ctx context.Context, missing func() []string, embedded bool, failed <-chan error, log *slog.Logger) error {
	began := time.Now()
	next := unreadyFirst
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		reasons := missing()
		if len(reasons) == 0 {
			return nil
		}
		waited := time.Since(began)
		if waited >= unreadyAgain && embedded {
			return exit.Code(exit.Away, errors.New("not ready: "+strings.Join(reasons, "; ")))
		}
		if waited >= next {
			next += unreadyAgain
			log.Warn("not ready: waiting", "event", "not_ready", "reasons", reasons, "for", waited.Round(time.Second).String())
		}
		select {
		case <-ctx.Done():
			return errStopped
		case err := <-failed:
			return err
		case <-tick.C:
		}
	}
}
