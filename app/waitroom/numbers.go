package waitroom

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// blockLife is how long leased numbers are given out: an order of joining is right to so
// much across instances. Older ones are skipped.
const blockLife = time.Second

// leaseWithin bounds one lease of a block.
const leaseWithin = time.Second

// numbers leases sequence numbers in blocks, so that a burst of joins does not meet on one
// key of the store. A block is leased when a join needs one, as large as this instance's
// joins of the last second; joins that find it empty wait for one lease together.
type numbers struct {
	lease func(ctx context.Context, activityID string, n, known int64) (first int64, err error)

	mu     sync.Mutex
	blocks map[string]*block // guarded by mu; by activity, those that Refresh keeps
}

// block is what is left of one activity's lease. All of it is guarded by mu of numbers.
type block struct {
	first, next, end int64
	back             []int64   // of this block, taken by a join that had a place already
	born             time.Time // when it was asked for
	flight           *flight   // the lease under way
	greatest         int64     // leased so far: a store that has not got as far has lost its count

	second       int64 // Unix second of joins
	joins, prior int64 // in that second, and in the one before
}

// flight is a lease under way, whose end its waiters share.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

func newNumbers(lease func(ctx context.Context, activityID string, n, known int64) (int64, error)) *numbers {
	return &numbers{lease: lease, blocks: map[string]*block{}}
}

// take gives a join its number. known is the greatest that was published to be given; what
// was leased here counts as well. strict asks the store for one number alone.
func (n *numbers) take(ctx context.Context, activityID string, known int64, strict bool, now time.Time) (int64, error) {
	n.mu.Lock()
	b := n.blocks[activityID]
	if b == nil {
		b = &block{}
		n.blocks[activityID] = b
	}
	if strict {
		return n.one(ctx, activityID, b, known) // unlocks
	}
	b.count(now)
	for {
		if number, ok := b.pop(now); ok {
			n.mu.Unlock()
			return number, nil
		}
		if b.flight == nil {
			return n.ask(ctx, activityID, b, known, now) // unlocks
		}
		f := b.flight
		n.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if f.err != nil {
			return 0, f.err // the store's; asking once more for each would only queue up there
		}
		n.mu.Lock()
	}
}

// one leases one number. The caller holds mu, and does not after.
func (n *numbers) one(ctx context.Context, activityID string, b *block, known int64) (int64, error) {
	known = max(known, b.greatest)
	n.mu.Unlock()
	number, err := n.lease(ctx, activityID, 1, known)
	n.mu.Lock()
	defer n.mu.Unlock()
	b.greatest = max(b.greatest, number)
	return number, err
}

// ask leases a block and takes its first number. The caller holds mu, and does not after.
func (n *numbers) ask(ctx context.Context, activityID string, b *block, known int64, now time.Time) (int64, error) {
	f := &flight{done: make(chan struct{})}
	b.flight = f
	size, known := min(max(b.prior, b.joins, 1), admission.MaxNumbers), max(known, b.greatest)
	n.mu.Unlock()
	// Others wait for it too: it does not end with a caller who leaves.
	leasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseWithin)
	defer cancel()
	first, err := n.lease(leasing, activityID, size, known)
	n.mu.Lock()
	defer n.mu.Unlock()
	b.flight, f.err = nil, err
	close(f.done)
	if err != nil {
		return 0, err
	}
	b.first, b.next, b.end, b.back, b.born = first, first+1, first+size, b.back[:0], now
	b.greatest = max(b.greatest, b.end-1)
	return first, nil
}

// giveBack returns a number that was certainly not used.
func (n *numbers) giveBack(activityID string, number int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b := n.blocks[activityID]; b != nil && number >= b.first && number < b.next && len(b.back) < maxBack {
		b.back = append(b.back, number)
	}
}

// maxBack bounds the numbers that wait to be taken again; more are skipped.
const maxBack = 1024

// keep forgets the activities that are not served any more.
func (n *numbers) keep(served func(activityID string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, b := range n.blocks {
		if b.flight == nil && !served(id) {
			delete(n.blocks, id)
		}
	}
}

// count counts a join.
func (b *block) count(now time.Time) {
	switch second := now.Unix(); second - b.second {
	case 0:
	case 1:
		b.second, b.prior, b.joins = second, b.joins, 0
	default:
		b.second, b.prior, b.joins = second, 0, 0
	}
	b.joins++
}

// pop takes a number of a block that lives, the oldest first.
func (b *block) pop(now time.Time) (int64, bool) {
	if now.Sub(b.born).Abs() >= blockLife {
		return 0, false
	}
	if last := len(b.back) - 1; last >= 0 {
		number := b.back[last]
		b.back = b.back[:last]
		return number, true
	}
	if b.next >= b.end {
		return 0, false
	}
	b.next++
	return b.next - 1, true
}
