package rows

import (
	"net/netip"
	"time"

	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/combined"
	"github.com/sluice-io/sluice/app/limit/mutexwindow"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/limit/ticker"
	"github.com/sluice-io/sluice/bench/pairs"
)

// Settings, the same for all: one goroutine; the clock read belongs to the decision; the
// limit is so wide that every call is admitted, because an admission does the most work
// (the rows called "refused" measure the other end). uber/ratelimit cannot refuse, it
// sleeps: at 1e9/s it never has to. throttled is keyed by nature; it gets one key where
// others have none, and the same keys where others are keyed.
const (
	wide      = 1e9
	wideBurst = 1 << 20
	allow     = "rate.Allow"
)

// Limiters returns a row for each local limiter and for the libraries people know.
func Limiters() []pairs.Row {
	return []pairs.Row{
		{Name: "token bucket", Against: allow, Gate: 0.6, Goal: 0.35, Subject: bucketOf(wide, wideBurst), Baseline: rateAllow},
		{Name: "token bucket, refused", Against: allow + ", refused", Gate: 0.6, Goal: 0.35,
			Subject: bucketOf(1e-6, 1), Baseline: rateRefused},
		{Name: "leaky bucket", Against: allow, Subject: ours(leaky), Baseline: rateAllow},
		{Name: "fixed window", Against: allow, Subject: ours(fixedWindow), Baseline: rateAllow},
		{Name: "sliding counter", Against: allow, Subject: ours(slidingCounter), Baseline: rateAllow},
		{Name: "sliding log of 1,024", Against: allow, Subject: ours(slidingLog), Baseline: rateAllow},
		{Name: "slotted window", Against: allow, Subject: ours(slottedWindow), Baseline: rateAllow},
		{Name: "seat taken and given back", Against: allow, Subject: seats, Baseline: rateAllow},
		{Name: "handbook: ticker and channel", Against: allow, Subject: ours(tickerBucket), Baseline: rateAllow},
		{Name: "handbook: mutex window", Against: allow, Subject: ours(mutexWindow), Baseline: rateAllow},
		{Name: "handbook: combined, three dimensions", Against: allow, Subject: combinedAll, Baseline: rateAllow},
		{Name: "client address, one trusted hop", Against: allow, Subject: clientAddress, Baseline: rateAllow},
		{Name: "uber/ratelimit Take", Against: allow, Subject: uberTake, Baseline: rateAllow},
		{Name: "throttled GCRA", Against: allow, Subject: func() pairs.Op { return throttledKeys(1) }, Baseline: rateAllow},
	}
}

// must unwraps constructors whose arguments are constants of this file.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bucketOf measures the bucket as the service calls it: by its own type.
func bucketOf(perSecond float64, burst int64) func() pairs.Op {
	return func() pairs.Op {
		b, clock := limit.NewBucket(must(limit.NewRate(perSecond, burst))), limit.NewClock()
		return func(n int) {
			for range n {
				b.Allow(clock.Now(), 1)
			}
		}
	}
}

// ours measures a limiter of package limit as its callers use it: through the interface,
// with a reading of the clock.
func ours(build func() limit.Limiter) func() pairs.Op {
	return func() pairs.Op {
		l, clock := build(), limit.NewClock()
		return func(n int) {
			for range n {
				l.Allow(clock.Now(), 1)
			}
		}
	}
}

func leaky() limit.Limiter { return limit.NewLeakyBucket(must(limit.NewRate(wide, wideBurst))) }

func fixedWindow() limit.Limiter { return must(limit.NewFixedWindow(1<<28-1, time.Second)) }

func slidingCounter() limit.Limiter { return must(limit.NewSlidingCounter(1<<28-1, time.Second)) }

func slottedWindow() limit.Limiter { return must(limit.NewSlottedWindow(1<<28-1, time.Second)) }

// slidingLog cannot be wide: a wide log is a large one. Most of its calls are refused.
func slidingLog() limit.Limiter { return must(limit.NewSlidingLog(1024, time.Second)) }

// tickerBucket runs empty, for its goroutine does not run: this is the cost of asking.
func tickerBucket() limit.Limiter { return must(ticker.New(time.Millisecond, 1<<20)) }

func mutexWindow() limit.Limiter { return must(mutexwindow.New(1<<62, time.Hour)) }

func seats() pairs.Op {
	s := must(limit.NewSeats(10))
	return func(n int) {
		for range n {
			if s.TryAcquire() {
				s.Release()
			}
		}
	}
}

func combinedAll() pairs.Op {
	open := must(limit.NewRate(wide, wideBurst))
	l := must(combined.New(combined.Config{
		Source: open, User: open, Endpoints: map[string]limit.Rate{"/pay": open},
	}))
	clock, request := limit.NewClock(), combined.Request{Source: 1, User: 2, Endpoint: "/pay"}
	return func(n int) {
		for range n {
			l.Allow(clock.Now(), request, 1)
		}
	}
}

func clientAddress() pairs.Op {
	r := must(source.NewResolver(source.Config{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}))
	h, lines := limit.NewHasher(), []string{"203.0.113.7"}
	return func(n int) {
		for range n {
			r.Resolve("10.0.0.1:5000", lines).Key(h)
		}
	}
}

func rateAllow() pairs.Op {
	l := rate.NewLimiter(wide, wideBurst)
	return func(n int) {
		for range n {
			l.Allow()
		}
	}
}

func rateRefused() pairs.Op {
	l := rate.NewLimiter(1e-6, 1)
	l.Allow()
	return func(n int) {
		for range n {
			l.Allow()
		}
	}
}

func uberTake() pairs.Op {
	l := ratelimit.New(wide)
	return func(n int) {
		for range n {
			l.Take()
		}
	}
}
