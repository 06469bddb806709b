package rows

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttled/throttled/v2"

	"github.com/sluice-io/sluice/bench/pairs"
)

// throttledKeys measures throttled's GCRA over its keys in turn.
func throttledKeys(keys int) pairs.Op {
	l := must(throttled.NewGCRARateLimiterCtx(&mapStore{cells: map[string]*atomic.Int64{}}, throttled.RateQuota{
		MaxRate: throttled.PerDuration(wide, time.Second), MaxBurst: wideBurst,
	}))
	names := make([]string, keys)
	for i := range names {
		names[i] = userName(rand.Uint64())
	}
	ctx, next := context.Background(), 0
	return func(n int) {
		for range n {
			if _, _, err := l.RateLimitCtx(ctx, names[next], 1); err != nil {
				panic(err)
			}
			if next++; next == keys {
				next = 0
			}
		}
	}
}

// mapStore is a store for throttled with the design of its own memstore without a bound,
// its fastest mode: a map under a read-write lock to atomic words. (memstore itself would
// bring an LRU library into the module.)
type mapStore struct {
	mu    sync.RWMutex
	cells map[string]*atomic.Int64 // guarded by mu
}

func (s *mapStore) cell(key string) *atomic.Int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cells[key]
}

// GetWithTime implements throttled.GCRAStoreCtx.
func (s *mapStore) GetWithTime(_ context.Context, key string) (int64, time.Time, error) {
	now := time.Now()
	if c := s.cell(key); c != nil {
		return c.Load(), now, nil
	}
	return -1, now, nil
}

// SetIfNotExistsWithTTL implements throttled.GCRAStoreCtx. It ignores the TTL.
func (s *mapStore) SetIfNotExistsWithTTL(_ context.Context, key string, value int64, _ time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[key] != nil {
		return false, nil
	}
	c := &atomic.Int64{}
	c.Store(value)
	s.cells[key] = c
	return true, nil
}

// CompareAndSwapWithTTL implements throttled.GCRAStoreCtx. It ignores the TTL.
func (s *mapStore) CompareAndSwapWithTTL(_ context.Context, key string, was, value int64, _ time.Duration) (bool, error) {
	c := s.cell(key)
	return c != nil && c.CompareAndSwap(was, value), nil
}
