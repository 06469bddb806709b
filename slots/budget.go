package slots

import (
	"context"
	"sync"
	"time"
)

// budget is context.WithTimeout for a call that may not wait at all. The timer costs more
// than a whole chain, so it begins when somebody first asks for the deadline, for the end
// or for the error: a store that answers from memory never does, and one that waits cannot
// wait without asking.
type budget struct {
	context.Context // the request's
	length          time.Duration

	mu    sync.Mutex
	timed context.Context    // guarded by mu; nil: nobody has asked
	stop  context.CancelFunc // guarded by mu
	over  bool               // guarded by mu; the call has returned
}

func withBudget(ctx context.Context, length time.Duration) *budget {
	return &budget{Context: ctx, length: length}
}

// begin starts the timer, once. After the call has returned it has run out.
func (b *budget) begin() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.stop = context.WithTimeout(b.Context, b.length)
		if b.over {
			b.stop()
		}
	}
	return b.timed
}

// Deadline is at the most the request's own.
func (b *budget) Deadline() (time.Time, bool) { return b.begin().Deadline() }

// Done is closed when the budget is used up, the call has returned, or the request is over.
func (b *budget) Done() <-chan struct{} { return b.begin().Done() }

// Err says which of them.
func (b *budget) Err() error { return b.begin().Err() }

// Value asks the timed context, once there is one: package context recognises its own by
// it, and needs no goroutine to follow this one.
func (b *budget) Value(key any) any {
	b.mu.Lock()
	timed := b.timed
	b.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return b.Context.Value(key)
}

// cancel frees the timer. Whoever kept the context finds it over.
func (b *budget) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.stop != nil {
		b.stop()
	}
}
