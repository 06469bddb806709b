package lease

import (
	"context"
	"math"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// spendCentral asks the limiter store for every request: exact, and one round trip each.
// Its tokens cannot be returned, and what one budget charged stays charged when the other
// refuses.
func (c *Client) spendCentral(ctx context.Context, p *pair) (Token, admission.Decision) {
	if c.c.Limiters == nil {
		return Token{}, c.counted(storeAway(0))
	}
	var takes [2]admission.Take
	for i, b := range p.each() {
		budget := b.slice.budget.Load()
		if budget == nil {
			c.wantBudget()
			return Token{}, c.counted(storeAway(round))
		}
		takes[i] = centralTake(b.slice.ref, *budget)
	}
	ctx, cancel := context.WithTimeout(ctx, c.syncBudget())
	defer cancel()
	taken, err := c.c.Limiters.Take(ctx, takes[:])
	if err != nil || len(taken) != len(takes) {
		d := storeAway(0)
		d.Cause = err
		return Token{}, c.counted(d)
	}
	for _, t := range taken {
		if t.Err != nil {
			d := storeAway(0)
			d.Cause = t.Err
			return Token{}, c.counted(d)
		}
		if !t.OK {
			return Token{}, c.counted(full(min(max(t.RetryAfter, time.Millisecond), time.Hour)))
		}
	}
	return Token{}, admission.Decision{}
}

// centralTake spells a rate exactly: thousandths of a token below 1,000/s, whole tokens
// above, where a thousandth does not matter.
func centralTake(ref admission.SKURef, b admission.Budget) admission.Take {
	tag := ref.Tag()
	if ref.SKUID == "" {
		tag = admission.ActivityTag(ref.ActivityID)
	}
	t := admission.Take{Key: "rl:central:" + tag, Capacity: max(b.Burst, 1), Cost: 1, Tokens: int64(b.Rate), Period: time.Second}
	if b.Rate < 1000 {
		t.Tokens, t.Period = int64(math.Floor(b.Rate*1000+1e-6)), 1000*time.Second
	}
	return t
}
