package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
)

// lastGoodRules is the file of the rules that were last in force.
func lastGoodRules(c *config.Config) string { return filepath.Join(c.DataDir, "rules.last-good.json") }

// rulesOrigin names the source of the rules for good: its kind and what is read there. The
// last good file is bound to it, so that a service of one source never begins with, nor is
// held to, the versions of another that ran in the same data directory. A Nacos that has
// moved, or has one server more, is the same source: it must not take the last good rules
// away just when it cannot be reached.
func rulesOrigin(c *config.Config) string {
	if c.RulesSource != "nacos" {
		path := rulesPath(c)
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return c.RulesSource + " " + path
	}
	return "nacos " + c.Nacos.Namespace + "/" + c.Nacos.Group + "/" + c.Nacos.DataID
}

// runRules looks once whether the source can work at all, then follows it until ctx ends.
func (s *service) runRules(ctx context.Context) error {
	if err := s.checkSource(ctx); err != nil {
		return err
	}
	return away("rules.source", s.rules.Run(ctx, s.source))
}

// checkSource ends a start that could never become ready: nobody answers at the address, the
// user is refused, or the port of the pushes is closed. A source that is away is no such
// thing while the rules of the last run are young enough to begin with.
func (s *service) checkSource(ctx context.Context) error {
	source, ok := s.source.(interface{ Check(context.Context) error })
	if !ok {
		return nil // a file is read at once, and says so itself
	}
	within, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	err := source.Check(within)
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, nacos.ErrDenied):
		return exit.Code(exit.Away, fmt.Errorf("nacos.username: %w", err))
	case errors.Is(err, admission.ErrUnavailable) && rules.LastGoodUsable(lastGoodRules(s.config), rulesOrigin(s.config), time.Now()):
		s.log.Warn("the rules source is away; the rules of the last run will do", "event", "rules_source_away", "error", err)
		return nil
	}
	return away("nacos.servers", err)
}
