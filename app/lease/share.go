package lease

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// spendShare takes this instance's weight share of R, without asking anybody. Its bound
// holds while the shares of all instances add up to at most 1; an instance that starts or
// dies moves them for the second until everybody has seen it.
func (c *Client) spendShare(p *pair) (Token, admission.Decision) {
	now := c.c.Clock()
	part := max(0, min(c.c.Share(), 1))
	var taken [2]holder
	for i, b := range p.each() {
		budget := b.slice.budget.Load()
		if budget == nil {
			c.wantBudget()
			Token{sku: taken[0]}.giveBack(now)
			return Token{}, c.counted(storeAway(round))
		}
		rate := budget.Rate * part
		interval, wait, ok := b.slice.meter.take(now.Mono, rate, rate*b.policy.LeaseFor.Seconds())
		if !ok {
			Token{sku: taken[0]}.giveBack(now)
			return Token{}, c.counted(full(time.Duration(wait)))
		}
		taken[i] = metered{m: &b.slice.meter, interval: interval}
	}
	return Token{sku: taken[0], activity: taken[1]}, admission.Decision{}
}

// wantBudget hastens the next reading of the budgets.
func (c *Client) wantBudget() {
	select {
	case c.reread <- struct{}{}:
	default:
	}
}
