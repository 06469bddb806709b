package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/control"
	"github.com/sluice-io/sluice/app/lease"
)

// policyEvery is how often the stores' eviction policies are looked at: an operator may
// change one on a running server.
const policyEvery = 10 * time.Second

// checkPolicies closes new submits while a store that holds stock or nonces says that it
// may evict keys (05-decisions 13). A store that does not answer changes nothing here:
// whoever needs it finds out.
func (s *service) checkPolicies(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	var evicts []error
	unknown := false
	for _, store := range []goredis.UniversalClient{s.stores.stock, s.stores.limiter} {
		err := redis.Policy(within, store)
		switch {
		case err == nil:
		case redis.KindOf(err) == redis.KindMisconf:
			evicts = append(evicts, err)
		default:
			unknown = true
		}
	}
	if len(evicts) > 0 || !unknown {
		s.evicting.Store(len(evicts) > 0)
	}
	return errors.Join(evicts...)
}

// share is this instance's part of the fleet, for budgets that are spent without
// coordination. Before anything is known it is nothing: such a policy then over-refuses.
type share struct{ bits atomic.Uint64 }

func (s *share) of() float64 { return math.Float64frombits(s.bits.Load()) }

// countFleet keeps the share, as long as some policy asks for it.
func (s *service) countFleet(ctx context.Context) error {
	wanted := false
	for _, ref := range s.directory.SKUs(s.now()) {
		wanted = wanted || lease.Strategy(s.policy(ref).Lease.Strategy.String()) == lease.Share
	}
	if !wanted {
		return nil
	}
	lines, err := s.fleet.Lines(ctx)
	if err != nil {
		return err // the last count holds
	}
	if n := control.Live(lines, s.now(), "gateway"); n > 0 {
		s.share.bits.Store(math.Float64bits(1 / float64(n)))
	}
	return nil
}
