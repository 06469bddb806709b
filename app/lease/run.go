package lease

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Run sends the asks, rereads budgets where a strategy needs them and drops dead tokens,
// until ctx ends. It returns after its last ask has ended.
func (c *Client) Run(ctx context.Context) error {
	var running sync.WaitGroup // at most one ask a bucket, and one reread
	defer running.Wait()
	tick := time.NewTicker(round)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.abandon(ctx.Err())
			return nil
		case job := <-c.jobs:
			running.Go(func() { c.ask(ctx, job) })
		case <-c.reread:
			c.startReread(ctx, &running)
		case <-tick.C:
			c.sweep()
			c.startReread(ctx, &running)
		}
	}
}

// ask sends one job and takes in its answers. The store's answer may come after those
// who waited have left; its tokens live until lease_ms after sent all the same.
func (c *Client) ask(ctx context.Context, job []asked) {
	asks := make([]admission.LeaseAsk, len(job))
	for i, a := range job {
		asks[i] = a.ask
	}
	ctx, cancel := context.WithTimeout(ctx, c.c.AskTimeout)
	defer cancel()
	sent := c.c.Clock()
	answers, err := c.c.Store.Ask(ctx, asks)
	c.metrics.asked(time.Duration(c.c.Clock().Mono - sent.Mono))
	if err == nil && len(answers) != len(asks) {
		err = errors.New("lease: the store answered another number of asks")
	}
	c.settle(job, answers, err, sent)
}

// settle takes in a job's answers; with err none of them counts.
func (c *Client) settle(job []asked, answers []admission.LeaseAnswer, err error, sent Instant) {
	now := c.c.Clock()
	for i, a := range job {
		answer := admission.LeaseAnswer{Err: err}
		if err == nil {
			answer = answers[i]
		}
		c.metrics.answered(answer)
		c.metrics.waste(a.bucket.settle(a.asking, a.ask, answer, sent, now))
	}
}

// abandon fails the asks that nobody will send.
func (c *Client) abandon(err error) {
	for {
		select {
		case job := <-c.jobs:
			c.settle(job, nil, err, c.c.Clock())
		default:
			return
		}
	}
}

// sweep counts what died unspent and forgets what nobody asks for.
func (c *Client) sweep() {
	now := c.c.Clock()
	var left int64
	idle := make(map[admission.SKURef]bool)
	for ref, p := range *c.pairs.Load() {
		c.metrics.waste(p.sku.sweep(now))
		left += p.sku.left(now)
		if p.used.Swap(false) {
			p.idle.Store(0)
		} else if p.idle.Add(1) > forgetAfter {
			idle[ref] = true
		}
	}
	c.metrics.remaining(left)

	c.mu.Lock()
	defer c.mu.Unlock()
	busy := make(map[string]bool) // activities of the pairs of now: one may have been made since
	for ref := range *c.pairs.Load() {
		busy[ref.ActivityID] = busy[ref.ActivityID] || !idle[ref]
	}
	for id, a := range c.activities {
		c.metrics.waste(a.sweep(now))
		if !busy[id] {
			delete(c.activities, id)
		}
	}
	if len(idle) > 0 {
		pairs := maps.Clone(*c.pairs.Load())
		maps.DeleteFunc(pairs, func(ref admission.SKURef, _ *pair) bool { return idle[ref] })
		c.pairs.Store(&pairs)
	}
}

// startReread reads the budgets that share and central spend by, one reading at a time.
func (c *Client) startReread(ctx context.Context, running *sync.WaitGroup) {
	if !c.reading.CompareAndSwap(false, true) {
		return
	}
	running.Go(func() {
		defer c.reading.Store(false)
		seen := make(map[*slice]bool)
		for _, p := range *c.pairs.Load() {
			if p.policy.Load().sku.Strategy == Leased {
				continue
			}
			for _, s := range [...]*slice{p.sku, p.activity} {
				if !seen[s] {
					seen[s] = true
					c.readBudget(ctx, s)
				}
			}
		}
	})
}

// readBudget keeps the newest term; a budget that cannot be read stays what it was.
func (c *Client) readBudget(ctx context.Context, s *slice) {
	ctx, cancel := context.WithTimeout(ctx, c.c.AskTimeout)
	defer cancel()
	b, err := c.c.Store.Budget(ctx, s.ref)
	if err != nil {
		return
	}
	if old := s.budget.Load(); old == nil || b.Term >= old.Term {
		s.budget.Store(&b)
	}
}
