package demo

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/client"
)

// edge is the cache between the crowd and the instances: one copy of the queue document, fetched at most once a
// second from each instance whatever the number of readers. When an instance is away the last copy is served,
// stale, as the shipped edge does.
type edge struct {
	sources []*client.Client // one per instance
	copy    atomic.Pointer[client.Queue]
	first   chan struct{} // closed when there is a copy
	once    sync.Once
	shown   func(*client.Queue) // told of every new copy
}

const edgeAge = time.Second // max-age of the queue document

func newEdge(sources []*client.Client, shown func(*client.Queue)) *edge {
	return &edge{sources: sources, first: make(chan struct{}), shown: shown}
}

// Run fetches until ctx ends.
func (e *edge) Run(ctx context.Context, activityID string) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, source := range e.sources {
		all.Go(func() {
			tick := time.NewTicker(edgeAge)
			defer tick.Stop()
			for {
				if q, err := source.Queue(ctx, activityID); err == nil {
					e.keep(q)
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
}

// keep takes the newer of two copies: instances reread the state at different moments.
func (e *edge) keep(q *client.Queue) {
	for {
		old := e.copy.Load()
		if old != nil && q.ServerTime.Before(old.ServerTime) {
			return
		}
		if e.copy.CompareAndSwap(old, q) {
			break
		}
	}
	e.once.Do(func() { close(e.first) })
	e.shown(q)
}

// Queue returns the copy; before there is one it waits.
func (e *edge) Queue(ctx context.Context, _ string) (*client.Queue, error) {
	select {
	case <-e.first:
		return e.copy.Load(), nil
	case <-ctx.Done():
		return nil, errors.Join(errors.New("no queue document"), ctx.Err())
	}
}
