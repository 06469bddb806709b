package client

import "sync"

// Budget caps retries at a share of the requests: a first try earns the share, a retry costs one. When many
// fail at once it runs dry and the load stays near 1 + share times the normal one, instead of multiplying.
type Budget struct {
	share   float64
	reserve float64

	mu      sync.Mutex
	saved   float64 // guarded by mu; at most 100 reserves, so that a quiet hour does not pay for a storm
	first   int64   // guarded by mu
	retries int64   // guarded by mu
}

// NewBudget starts with the reserve, in retries, so that a single person's few requests can be retried at all.
func NewBudget(share, reserve float64) *Budget {
	return &Budget{share: share, reserve: reserve, saved: reserve}
}

// First counts a first try.
func (b *Budget) First() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first++
	b.saved = min(b.saved+b.share, 100*b.reserve)
}

// Retry takes one retry, or says that the budget is spent.
func (b *Budget) Retry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < 1 {
		return false
	}
	b.saved--
	b.retries++
	return true
}

// Amplification is requests / first tries so far; 1 before the first.
func (b *Budget) Amplification() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == 0 {
		return 1
	}
	return float64(b.first+b.retries) / float64(b.first)
}
