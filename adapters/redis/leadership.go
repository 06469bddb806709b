package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	leaderTries = 3
	leaderDelay = 200 * time.Millisecond
	// leaderDrift is taken off the trust in a lock: clocks of N servers and ours may run
	// apart by so much within a ttl.
	leaderDrift = 150 * time.Millisecond
	// leaderNode bounds the wait for one node of the N, so that a silent one costs little.
	leaderNode = 150 * time.Millisecond
	// DefaultLeaderTTL is how long a role's lock lives when Acquire is given none.
	DefaultLeaderTTL = 30 * time.Second
)

// Leadership implements admission.Leadership by Redlock over independent nodes: whoever
// holds the lock on a majority leads. Trust runs from when the attempt started, so that
// a slow answer cannot stretch it. With a majority of the nodes away nobody leads, and
// what was taken is given back. A lock is no fence: what a leader writes carries a term.
type Leadership struct {
	locks *redsync.Redsync
	nodes int
}

// NewLeadership elects over nodes that do not replicate one another; one is enough for
// a process of its own.
func NewLeadership(nodes ...goredis.UniversalClient) *Leadership {
	pools := make([]redis.Pool, len(nodes))
	for i, n := range nodes {
		pools[i] = pool.NewPool(n)
	}
	return &Leadership{locks: redsync.New(pools...), nodes: len(nodes)}
}

// Acquire makes three tries 200 ms apart. ErrConflict: a majority says that somebody
// else leads. ErrUnavailable: no majority answered.
func (l *Leadership) Acquire(ctx context.Context, role string, ttl time.Duration) (admission.Held, error) {
	if l.nodes == 0 {
		return nil, fmt.Errorf("lead %s: no node to ask: %w", role, admission.ErrUnavailable)
	}
	if ttl == 0 {
		ttl = DefaultLeaderTTL
	}
	if ttl <= 2*leaderDrift {
		return nil, fmt.Errorf("lead %s: ttl %v leaves no trust after a drift of %v: %w", role, ttl, leaderDrift, admission.ErrUnavailable)
	}
	mutex := l.locks.NewMutex(leaderKey(role),
		redsync.WithExpiry(ttl), redsync.WithTries(leaderTries), redsync.WithRetryDelay(leaderDelay),
		redsync.WithDriftFactor(float64(leaderDrift)/float64(ttl)),
		redsync.WithTimeoutFactor(float64(leaderNode)/float64(ttl)))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, leaderFault("lead "+role, err)
	}
	return &held{mutex: mutex, role: role}, nil
}

// held is a lock that was acquired. One goroutine owns it.
type held struct {
	mutex *redsync.Mutex
	role  string
}

// Until is when trust ends.
func (h *held) Until() time.Time { return h.mutex.Until() }

// Extend renews the lock on a majority; after an error the role is to be given up.
func (h *held) Extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderNode)
	defer cancel()
	ok, err := h.mutex.ExtendContext(ctx)
	if ok {
		return nil
	}
	return leaderFault("keep leading "+h.role, err)
}

// Release gives the lock back where this process still holds it.
func (h *held) Release(ctx context.Context) error {
	ok, err := h.mutex.UnlockContext(ctx)
	if ok {
		return nil
	}
	return leaderFault("stop leading "+h.role, err)
}

// leaderFault tells "somebody else" from "no answer".
func leaderFault(op string, err error) error {
	var taken *redsync.ErrTaken    // by a majority
	var one *redsync.ErrNodeTaken  // a vote split among candidates, unless a node failed too
	var failed *redsync.RedisError // a node
	split := errors.As(err, &one) && !errors.As(err, &failed)
	if err == nil || split || errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return fmt.Errorf("%s: held by somebody else or expired: %w", op, admission.ErrConflict)
	}
	return fmt.Errorf("%s: %w: %w", op, admission.ErrUnavailable, err)
}
