package rows

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/bench/pairs"
)

// KeyedLimiters returns the rows of the table of many keys, which are visited in random
// order: at a million keys the figure is mostly the price of a cache miss.
func KeyedLimiters() []pairs.Row {
	return []pairs.Row{
		{Name: "keyed, 100k keys", Against: allow, Gate: 1, Goal: 0.5, Subject: keyedOf(100_000), Baseline: rateAllow},
		{Name: "keyed, 1M keys", Against: allow, Gate: 4, Goal: 2.5, Subject: keyedOf(1_000_000), Baseline: rateAllow},
		{Name: "keyed, full, invented keys", Against: allow, Subject: invented, Baseline: rateAllow},
		{Name: "map of *rate.Limiter, 100k keys", Against: allow, Subject: limitersOf(100_000), Baseline: rateAllow},
		{Name: "throttled GCRA, 100k keys", Against: allow,
			Subject: func() pairs.Op { return throttledKeys(100_000) }, Baseline: rateAllow},
		{Name: "top-K of 1,000, skewed keys", Against: allow, Subject: topK, Baseline: rateAllow},
		{Name: "keyed, memory of a key at 1M", Against: "bytes", Gate: 64, Goal: 40, Value: once(bytesPerKey)},
		{Name: "keyed, full GC at 1M keys", Against: "ms", Gate: 5, Goal: 1, Value: gcPause()},
	}
}

// fill returns a table of this many keys, with room for some more, and the keys.
func fill(keys int) (*limit.Keyed, []uint64, limit.Rate) {
	k := must(limit.NewKeyed(limit.KeyedConfig{MaxEntries: keys + keys/8}))
	r := must(limit.NewRate(1e6, 1000))
	ids := make([]uint64, keys)
	for i := range ids {
		ids[i] = rand.Uint64()
		k.Allow(0, limit.Key{ID: ids[i]}, 1, r)
	}
	return k, ids, r
}

func keyedOf(keys int) func() pairs.Op {
	return func() pairs.Op {
		k, ids, r := fill(keys)
		clock, next := limit.NewClock(), 0
		return func(n int) {
			for range n {
				k.Allow(clock.Now(), limit.Key{ID: ids[next]}, 1, r)
				if next++; next == len(ids) {
					next = 0
				}
			}
		}
	}
}

// invented is the attack on a full table whose keys are all warm: each key is new, looks
// for a place in vain and ends at its stripe.
func invented() pairs.Op {
	k := must(limit.NewKeyed(limit.KeyedConfig{MaxEntries: 10_000}))
	slow := must(limit.NewRate(1e-3, 3))
	clock, id := limit.NewClock(), uint64(0)
	op := func(n int) {
		for range n {
			id += 0x9e3779b97f4a7c15 // 2^64 over the golden ratio: visits all keys, evenly
			k.Allow(clock.Now(), limit.Key{ID: id, Prefix: id >> 32}, 1, slow)
		}
	}
	op(50_000) // fills it
	return op
}

// topK counts keys of which the first few make up most.
func topK() pairs.Op {
	top := must(limit.NewTopK[uint64](1000))
	keys := make([]uint64, 1<<16)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.2, 1, 1<<20)
	for i := range keys {
		keys[i] = zipf.Uint64()
	}
	next := 0
	return func(n int) {
		for range n {
			top.Add(keys[next%len(keys)], 1)
			next++
		}
	}
}

// limitersOf is what most services write first: a mutex, a map, a *rate.Limiter a user.
func limitersOf(keys int) func() pairs.Op {
	return func() pairs.Op {
		var mu sync.Mutex
		limiters := map[uint64]*rate.Limiter{}
		ids := make([]uint64, keys)
		for i := range ids {
			ids[i] = rand.Uint64()
			limiters[ids[i]] = rate.NewLimiter(1e6, 1000)
		}
		next := 0
		return func(n int) {
			for range n {
				mu.Lock()
				l := limiters[ids[next]]
				mu.Unlock()
				l.Allow()
				if next++; next == keys {
					next = 0
				}
			}
		}
	}
}

// bytesPerKey is what the heap grows by when a million keys come, all of it, growth of the
// table and slack included.
func bytesPerKey() float64 {
	const keys = 1_000_000
	k := must(limit.NewKeyed(limit.KeyedConfig{MaxEntries: keys + keys/8}))
	r := must(limit.NewRate(1e6, 1000))
	before := heap()
	for range keys {
		k.Allow(0, limit.Key{ID: rand.Uint64()}, 1, r)
	}
	grown := heap() - before
	return float64(grown) / float64(k.Stats().Entries)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// gcPause returns samples of how long a full collection takes while a table of a million
// keys is alive.
func gcPause() func() float64 {
	var k *limit.Keyed
	return func() float64 {
		if k == nil {
			k, _, _ = fill(1_000_000)
			runtime.GC()
			runtime.GC() // sweeps what filling left
		}
		start := time.Now()
		runtime.GC()
		took := time.Since(start)
		runtime.KeepAlive(k)
		return took.Seconds() * 1e3
	}
}

// once samples a figure that does not vary a single time.
func once(value func() float64) func() float64 { return sync.OnceValue(value) }

func userName(id uint64) string { return "user-" + strconv.FormatUint(id, 10) }
