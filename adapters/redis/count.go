package redis

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Count is what one request cost at Redis.
type Count struct {
	mu       sync.Mutex
	commands int // guarded by mu
	trips    int // guarded by mu
	open     int // guarded by mu; round trips in flight
}

// Commands is how many commands were sent, each of a pipeline by itself.
func (c *Count) Commands() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commands
}

// Trips is how many round trips followed one another: those that overlap are one,
// and so is a pipeline.
func (c *Count) Trips() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}

func (c *Count) begin(commands int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands += commands
	if c.open == 0 {
		c.trips++
	}
	c.open++
}

func (c *Count) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

type countKey struct{}

// CountCommands counts what is sent on the returned context through any client that
// Open made: how tests and benchmarks show what a request costs.
func CountCommands(ctx context.Context) (context.Context, *Count) {
	c := new(Count)
	return context.WithValue(ctx, countKey{}, c), c
}

// hook counts commands for CountCommands, observes faults and durations, and tells
// the cluster client of unreachable nodes.
type hook struct {
	metrics     *storeMetrics             // nil counts nothing
	unreachable func(ctx context.Context) // nil unless Cluster
}

// DialHook implements goredis.Hook.
func (hook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// The driver also opens connections by commands, on the context of the request that found
// the pool empty: that is neither the request's cost, nor a fault when an old server does
// not know HELLO. Both hooks let it pass.

// ProcessHook implements goredis.Hook.
func (h hook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if opens(cmd) {
			return next(ctx, cmd)
		}
		if c, ok := ctx.Value(countKey{}).(*Count); ok {
			c.begin(1)
			defer c.end()
		}
		start := time.Now()
		err := next(ctx, cmd)
		h.metrics.took(time.Since(start))
		h.see(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (h hook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if !slices.ContainsFunc(cmds, func(cmd goredis.Cmder) bool { return !opens(cmd) }) {
			return next(ctx, cmds)
		}
		if c, ok := ctx.Value(countKey{}).(*Count); ok {
			c.begin(len(cmds))
			defer c.end()
		}
		start := time.Now()
		err := next(ctx, cmds)
		h.metrics.took(time.Since(start))
		for _, cmd := range cmds {
			h.see(ctx, cmd.Err())
		}
		return err
	}
}

// unreachableKinds are the faults after which another node may have the slot.
var unreachableKinds = []Kind{KindDial, KindConnection, KindTimeout, KindClusterDown, KindMasterDown, KindReadOnly}

func (h hook) see(ctx context.Context, err error) {
	if err == nil {
		return
	}
	kind := KindOf(Classify("", err))
	h.metrics.failed(kind)
	if h.unreachable == nil {
		return
	}
	if slices.Contains(unreachableKinds, kind) {
		h.unreachable(context.WithoutCancel(ctx))
	}
}

// opens reports whether cmd only opens a connection.
func opens(cmd goredis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client", "readonly":
		return true
	default:
		return false
	}
}
