package rules

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sentinel "github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/config"
	"github.com/alibaba/sentinel-golang/core/system_metric"
	"github.com/alibaba/sentinel-golang/util"
)

// Sentinel is one per process by its own design: its rules, its clock and its logger are
// package variables. These are their shadow, and all that can change of this package's own
// variables; whoever drives another library with such state (Nacos, RocketMQ) keeps its shadow
// there.
var (
	sentinelOnce  sync.Once
	sentinelClock = newForwardClock()
	breakers      = &breakerStates{open: map[string]circuitbreaker.State{}, closed: make(chan struct{}, 1)}
)

// InitSentinel sets Sentinel up for this process: explicit configuration, our logger, no
// files, no collectors and no goroutines, and a clock that never goes backwards (a step back
// of the wall clock would open every flow rule wide). CPU and load are fed by [FeedCPU] and
// [FeedLoad]. Only the first call does anything.
func InitSentinel(log *slog.Logger) error {
	var err error
	sentinelOnce.Do(func() {
		util.SetClock(sentinelClock)
		c := config.NewDefaultConfig()
		c.Sentinel.App.Name = "sluice"
		c.Sentinel.Log.Logger = sentinelLog{log.With("component", "sentinel")}
		c.Sentinel.Log.Metric.FlushIntervalSec = 0
		c.Sentinel.Stat.System = config.SystemStatConfig{}
		if err = sentinel.InitWithConfig(c); err != nil {
			err = fmt.Errorf("sentinel: %w", err)
			return
		}
		circuitbreaker.RegisterStateChangeListeners(breakers)
	})
	return err
}

// FeedCPU tells Sentinel's system rules how much of the cgroup's CPU quota is used, 0..1.
func FeedCPU(fraction float64) {
	TickSentinel()
	system_metric.SetSystemCpuUsage(fraction)
}

// FeedLoad tells Sentinel's system rules the host's one-minute load average.
func FeedLoad(load1 float64) { system_metric.SetSystemLoad(load1) }

// TickSentinel moves Sentinel's clock on to now. Whoever begins or ends an entry, or reads
// statistics, calls it first: Sentinel asks for the time six times an entry and more, and
// a reading of the clock is the dearest thing in it. Between two calls time stands still
// for Sentinel, which at the worst counts a request into the window before.
func TickSentinel() { sentinelClock.tick() }

// SentinelTicks makes the readings of another monotonic clock tick Sentinel's, for whoever
// has read that one anyway; now is its present reading, both in nanoseconds. A reading that
// jumps is not believed, and costs a look at the clock.
func SentinelTicks(now int64) func(at int64) {
	ahead := int64(time.Since(sentinelClock.start)) - now
	return func(at int64) { sentinelClock.tickTo(ahead + at) }
}

// believedStep is how far another clock's reading may move Sentinel's clock on.
const believedStep = 250 // ms

// forwardClock is the wall clock at start plus the monotonic time since, as of the last
// tick. It never goes backwards.
type forwardClock struct {
	start   time.Time
	startMS int64
	ms      *atomic.Int64 // since the epoch
}

func newForwardClock() forwardClock {
	now := time.Now()
	c := forwardClock{now, now.UnixMilli(), new(atomic.Int64)}
	c.tick()
	return c
}

func (c forwardClock) tick() {
	now := c.startMS + time.Since(c.start).Milliseconds()
	for {
		before := c.ms.Load()
		if now <= before || c.ms.CompareAndSwap(before, now) { // most ticks fall into the same millisecond
			return
		}
	}
}

// tickTo is tick at a time since start that the caller knows, in nanoseconds.
func (c forwardClock) tickTo(since int64) {
	now, before := c.startMS+since/int64(time.Millisecond), c.ms.Load()
	if now <= before {
		return
	}
	if now > before+believedStep || !c.ms.CompareAndSwap(before, now) {
		c.tick()
	}
}

func (c forwardClock) Now() time.Time            { return time.UnixMilli(c.ms.Load()) }
func (c forwardClock) Sleep(d time.Duration)     { time.Sleep(d) }
func (c forwardClock) CurrentTimeMillis() uint64 { return uint64(c.ms.Load()) }
func (c forwardClock) CurrentTimeNano() uint64   { return uint64(c.ms.Load()) * uint64(time.Millisecond) }

// sentinelLog is Sentinel's logger on ours. What Sentinel calls info is debugging to us.
type sentinelLog struct{ log *slog.Logger }

func (l sentinelLog) Debug(string, ...any)       {}
func (l sentinelLog) DebugEnabled() bool         { return false }
func (l sentinelLog) Info(msg string, kv ...any) { l.log.Debug("sentinel", words(msg, kv)...) }
func (l sentinelLog) InfoEnabled() bool          { return true }
func (l sentinelLog) Warn(msg string, kv ...any) { l.log.Warn("sentinel", words(msg, kv)...) }
func (l sentinelLog) WarnEnabled() bool          { return true }
func (l sentinelLog) Error(err error, msg string, kv ...any) {
	l.log.Error("sentinel", append(words(msg, kv), "error", err)...)
}
func (l sentinelLog) ErrorEnabled() bool { return true }

func words(msg string, kv []any) []any { return append([]any{"text", msg}, kv...) }

// breakerStates remembers which breakers are not closed, for Sentinel offers no way to ask.
type breakerStates struct {
	mu     sync.Mutex
	open   map[string]circuitbreaker.State // guarded by mu; only Open and HalfOpen
	closed chan struct{}                   // holds one token after a breaker closed
}

// breakerKey names a breaker whatever its numbers are.
func breakerKey(r circuitbreaker.Rule) string {
	if r.Id != "" {
		return r.Resource + "\x00" + r.Id
	}
	return fmt.Sprintf("%s\x00\x00%d", r.Resource, r.Strategy)
}

func (b *breakerStates) set(r circuitbreaker.Rule, s circuitbreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s != circuitbreaker.Closed {
		b.open[breakerKey(r)] = s
		return
	}
	delete(b.open, breakerKey(r))
	select {
	case b.closed <- struct{}{}:
	default:
	}
}

func (b *breakerStates) isOpen(r circuitbreaker.Rule) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.open[breakerKey(r)]
	return ok
}

// forget drops a breaker that was removed: nothing will ever tell that it closed.
func (b *breakerStates) forget(r circuitbreaker.Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, breakerKey(r))
}

func (b *breakerStates) OnTransformToClosed(_ circuitbreaker.State, r circuitbreaker.Rule) {
	b.set(r, circuitbreaker.Closed)
}

func (b *breakerStates) OnTransformToOpen(_ circuitbreaker.State, r circuitbreaker.Rule, _ interface{}) {
	b.set(r, circuitbreaker.Open)
}

func (b *breakerStates) OnTransformToHalfOpen(_ circuitbreaker.State, r circuitbreaker.Rule) {
	b.set(r, circuitbreaker.HalfOpen)
}
