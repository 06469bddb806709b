package lease

import (
	"context"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// spendLease is the default strategy: tokens from memory, or one shared wait for an ask.
func (c *Client) spendLease(ctx context.Context, p *pair) (Token, admission.Decision) {
	now := c.c.Clock()
	p.sku.tries.Add(1)
	p.activity.tries.Add(1)
	if t, ok := c.take(p, now); ok {
		return t, admission.Decision{}
	}
	waits, refused := c.askInHand(p, now)
	if refused.Refused() {
		return Token{}, c.counted(refused)
	}
	if !c.await(ctx, waits) {
		return Token{}, c.counted(storeAway(0))
	}
	now = c.c.Clock()
	if t, ok := c.take(p, now); ok {
		return t, admission.Decision{}
	}
	return Token{}, c.counted(p.refusal(now))
}

// take spends one token of each budget, or of none.
func (c *Client) take(p *pair, now Instant) (Token, bool) {
	sku, isDue := p.sku.take(now)
	if sku == nil {
		return Token{}, false
	}
	activity, isDueToo := p.activity.take(now)
	if activity == nil {
		sku.giveBack(now)
		return Token{}, false
	}
	if isDue || isDueToo {
		c.refill(p, now, [2]bool{isDue, isDueToo})
	}
	return Token{sku: sku, activity: activity}, true
}

// refill asks in the background for what is due, and for the other budget in the same
// trip when it soon would be.
func (c *Client) refill(p *pair, now Instant, isDue [2]bool) {
	var job []asked
	jitter := c.c.Jitter() // one for both, or they would drift into two trips
	for i, b := range p.each() {
		if isDue[i] {
			job = c.begin(job, &b.slice.bucket, b.policy, now, jitter, due)
		} else if b.slice.nearlyDue(now) {
			job = c.begin(job, &b.slice.bucket, b.policy, now, jitter, companion)
		}
	}
	c.send(job)
}

// askInHand asks for every budget of p that is empty, or joins the ask that is on its
// way. It returns what to wait for, or the refusal of somebody who need not wait.
func (c *Client) askInHand(p *pair, now Instant) ([2]*asking, admission.Decision) {
	var waits [2]*asking
	var empty [2]bool
	each := p.each()
	for i, b := range each {
		if b.slice.left(now) > 0 {
			continue
		}
		empty[i] = true
		if on := b.slice.pending.Load(); on != nil {
			if b.slice.down.Load() || !on.join() {
				return leave(waits), b.slice.refusal(now)
			}
			waits[i] = on
		} else if now.Mono < b.slice.askAt.Load() {
			return leave(waits), b.slice.refusal(now)
		}
	}
	var job []asked
	jitter := c.c.Jitter()
	for i, b := range each {
		if empty[i] && waits[i] == nil {
			job = c.begin(job, &b.slice.bucket, b.policy, now, jitter, inHand)
			if waits[i] = b.slice.pending.Load(); waits[i] != nil {
				waits[i].waiters.Add(1)
			}
		} else if !empty[i] && b.slice.nearlyDue(now) {
			job = c.begin(job, &b.slice.bucket, b.policy, now, jitter, companion)
		}
	}
	c.send(job)
	for i, b := range each {
		if waits[i] != nil && b.slice.down.Load() {
			return waits, b.slice.refusal(now) // the store is down: the ask is a probe, nobody waits for it
		}
	}
	return waits, admission.Decision{}
}

// leave gives back the place in the asks that were joined: somebody else may wait there.
func leave(waits [2]*asking) [2]*asking {
	for _, on := range waits {
		if on != nil {
			on.waiters.Add(-1)
		}
	}
	return [2]*asking{}
}

// await waits for the asks, at most SyncBudget. False: at least one is still on its way.
func (c *Client) await(ctx context.Context, waits [2]*asking) bool {
	timer := time.NewTimer(c.syncBudget())
	defer timer.Stop()
	for _, a := range waits {
		if a == nil {
			continue
		}
		select {
		case <-a.done:
		case <-timer.C:
			a.late.Store(true)
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (c *Client) syncBudget() time.Duration {
	if d := c.policies.Load().SyncBudget; d > 0 {
		return d
	}
	return c.c.SyncBudget
}

// begin adds the bucket's ask to a job, if one may be made.
func (c *Client) begin(job []asked, b *bucket, p Policy, now Instant, jitter float64, why occasion) []asked {
	uptime := time.Duration(now.Mono - c.born.Mono)
	on, ask, ok := b.begin(now, p, uptime, jitter, why)
	if !ok {
		return job
	}
	ask.InstanceID = c.asker
	ask.Seq = c.seq.Add(1)
	return append(job, asked{bucket: b, asking: on, ask: ask})
}

// send hands a job to Run without waiting.
func (c *Client) send(job []asked) {
	if len(job) == 0 {
		return
	}
	select {
	case c.jobs <- job:
	default:
		c.settle(job, nil, admission.ErrUnavailable, c.c.Clock())
	}
}

// budgetOf is one of the two budgets of a pair with its policy.
type budgetOf struct {
	slice  *slice
	policy Policy
}

func (p *pair) each() [2]budgetOf {
	policy := p.policy.Load()
	return [2]budgetOf{{p.sku, policy.sku}, {p.activity, policy.activity}}
}

// refusal is that of the budget with the longer wait.
func (p *pair) refusal(now Instant) admission.Decision {
	var worst admission.Decision
	for _, b := range p.each() {
		if b.slice.left(now) > 0 {
			continue
		}
		if d := b.slice.refusal(now); d.Outcome > worst.Outcome || d.Outcome == worst.Outcome && d.RetryAfter > worst.RetryAfter {
			worst = d
		}
	}
	if !worst.Refused() { // others were faster
		worst = full(time.Millisecond)
	}
	return worst
}

// refusal says why this bucket gives nothing now.
func (b *bucket) refusal(now Instant) admission.Decision {
	wait := time.Duration(max(b.retryAt.Load()-now.Mono, 0))
	if on := b.pending.Load(); b.down.Load() || on != nil && on.late.Load() {
		return storeAway(wait)
	}
	return full(max(wait, time.Millisecond))
}

func full(wait time.Duration) admission.Decision {
	return admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease, Reason: admission.ReasonLeaseEmpty, RetryAfter: wait}
}

func storeAway(wait time.Duration) admission.Decision {
	return admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageLease, Reason: admission.ReasonLeaseStore, RetryAfter: wait}
}

func (c *Client) counted(d admission.Decision) admission.Decision {
	c.metrics.refused(d.Reason)
	return d
}
