package client

import (
	"context"
	"errors"
	"fmt"
)

// Milestone is a point on the way of a purchase.
type Milestone string

// The milestones, in order. Those after Joined come again when somebody goes back to the line.
const (
	Joined   Milestone = "joined"
	Released Milestone = "released"
	Ticketed Milestone = "ticketed"
	Reserved Milestone = "reserved" // a unit is held; the order decides
	Finished Milestone = "finished" // the result is final
)

// Ending is how a purchase ended.
type Ending string

// The endings.
const (
	Ordered Ending = "ordered"  // there is an order
	SoldOut Ending = "sold_out" // nothing left for this person
	Failed  Ending = "failed"   // reserved, and then no order: the answer says why
	Denied  Ending = "refused"  // an answer that ends it: the code says why
	Closed  Ending = "ended"    // the sale was over
	Left    Ending = "left"     // the person walked away
	Lost    Ending = "unknown"  // no final answer: the error says why
)

// Result is what came of a purchase.
type Result struct {
	Ending Ending
	Place  Place
	Ticket Ticket // the last one
	Answer Answer // the last one
}

// mostTurns bounds how often somebody goes back to the line with an expired ticket.
const mostTurns = 20

// Buy goes the whole way for one unit: join (unless place has a pass), wait for the turn, take the ticket,
// submit, poll. A call that has given up is made again as a person would, after Config.Patience and from the
// line on; the ticket then brings the same request_id. passed is told of every milestone and may end the purchase
// by returning false; nil goes on. The error says why an Ending is Lost.
func (c *Client) Buy(ctx context.Context, p Person, a Activity, skuID string, place Place, passed func(Milestone) bool) (Result, error) {
	b := &purchase{c: c, p: p, activity: a, skuID: skuID, passed: passed}
	b.result.Place = place
	if b.passed == nil {
		b.passed = func(Milestone) bool { return true }
	}
	err := b.run(ctx)
	if err != nil && b.result.Ending == "" {
		b.result.Ending = Lost
	}
	return b.result, err
}

// purchase is one Buy on its way.
type purchase struct {
	c        *Client
	p        Person
	activity Activity
	skuID    string
	passed   func(Milestone) bool
	greeted  bool // passed was told of Joined
	unsure   bool // a submit went out and its result is not known
	result   Result
}

func (b *purchase) run(ctx context.Context) error {
	for range mostTurns {
		again, err := b.turn(ctx)
		if errors.Is(err, ErrGivenUp) && ctx.Err() == nil {
			half := b.c.config.Patience / 2
			again, err = true, b.c.config.Sleep(ctx, b.c.between(half, 3*half))
		}
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("%w after %d turns", ErrGivenUp, mostTurns)
}

// turn waits for a turn and uses it; again says to go back to the line.
func (b *purchase) turn(ctx context.Context) (again bool, err error) {
	r := &b.result
	if r.Place.Pass == "" {
		if r.Place, err = b.c.Join(ctx, b.p, b.activity.ID); err != nil {
			return false, b.refused(ctx, err)
		}
	}
	if !b.greeted {
		if b.greeted = true; !b.passed(Joined) {
			r.Ending = Left
			return false, nil
		}
	}
	if r.Place, err = b.c.WaitForTurn(ctx, b.p, b.activity, r.Place); err != nil {
		return false, b.refused(ctx, err)
	}
	if !b.passed(Released) {
		r.Ending = Left
		return false, nil
	}
	t, err := b.c.Ticket(ctx, b.p, b.activity.ID, b.skuID, r.Place.Pass)
	var refused *Refused
	if errors.As(err, &refused) && refused.Answer.Code == CodeQueueWaiting {
		if refused.Answer.Rank != nil {
			r.Place.Rank = refused.Answer.Rank
		}
		wait := max(shortestPoll, refused.Answer.RetryAfter(), msec(refused.Answer.NextPollAfterMS))
		return true, b.c.config.Sleep(ctx, b.c.between(wait, 2*wait))
	}
	if err != nil {
		return false, b.refused(ctx, err)
	}
	if r.Ticket = t; !b.passed(Ticketed) {
		r.Ending = Left
		return false, nil
	}
	want := Purchase{ActivityID: b.activity.ID, SKUID: b.skuID, Quantity: 1, Ticket: r.Ticket}
	if r.Answer, err = b.c.Submit(ctx, b.p, want); err != nil {
		b.unsure = true
		return false, b.refused(ctx, err)
	}
	return b.follow(ctx)
}

// follow does what the submit's answer says.
func (b *purchase) follow(ctx context.Context) (again bool, err error) {
	r := &b.result
	requestID := r.Ticket.RequestID
	switch {
	case r.Answer.Holds():
	case r.Answer.Code == CodeAlreadyPurchased && r.Answer.ExistingRequestID != "",
		r.Answer.Code == CodeReplayRejected && r.Answer.ExistingRequestID != "":
		requestID = r.Answer.ExistingRequestID
	case r.Answer.Code == CodeSoldOut:
		return false, b.refused(ctx, ErrSoldOut)
	case r.Answer.NextAction == actionQueryThenQueue, r.Answer.NextAction == actionRequeue:
		wait := max(shortestPoll, r.Answer.RetryAfter())
		return true, b.c.config.Sleep(ctx, b.c.between(wait, 2*wait))
	default:
		r.Ending = Denied
		return false, nil
	}
	return false, b.await(ctx, requestID)
}

// await polls until the result is final. A poll that has given up is patient and asks again: the unit is held.
func (b *purchase) await(ctx context.Context, requestID string) (err error) {
	r := &b.result
	if !b.passed(Reserved) {
		r.Ending = Left
		return nil
	}
	last := r.Answer
	for range mostTurns {
		if last, err = b.c.Poll(ctx, b.p, b.activity.ID, b.skuID, requestID, last); !errors.Is(err, ErrGivenUp) {
			break
		}
		half := b.c.config.Patience / 2
		if err := b.c.config.Sleep(ctx, b.c.between(half, 3*half)); err != nil {
			return err
		}
	}
	r.Answer = last
	if err != nil {
		b.unsure = false // the question was asked
		return b.refused(ctx, err)
	}
	r.Ending = Ordered
	if last.Status == StatusFailed {
		r.Ending = Failed
	}
	b.passed(Finished)
	return nil
}

// refused turns what ended a call into an ending; any other error stays one. "Sold out" is believed only when no
// earlier submit may have got a unit.
func (b *purchase) refused(ctx context.Context, err error) error {
	r := &b.result
	var refused *Refused
	switch {
	case errors.Is(err, ErrGivenUp):
		return err
	case errors.As(err, &refused):
		r.Answer = refused.Answer
	case !errors.Is(err, ErrSoldOut) && !errors.Is(err, ErrEnded):
		return err
	}
	switch {
	case errors.Is(err, ErrEnded), refused != nil && refused.Answer.Code == CodeActivityEnded:
		r.Ending = Closed
	case errors.Is(err, ErrSoldOut), refused != nil && refused.Answer.Code == CodeSoldOut:
		r.Ending = SoldOut
	default:
		r.Ending = Denied
		return nil
	}
	if !b.unsure {
		return nil
	}
	ending := r.Ending
	found, a, err := b.c.ask(ctx, b.p, Purchase{ActivityID: b.activity.ID, SKUID: b.skuID, Ticket: r.Ticket})
	switch {
	case err != nil:
		r.Ending = ""
		return err
	case !found:
		return nil
	}
	r.Ending, r.Answer, b.unsure = "", a, false
	if err := b.await(ctx, r.Ticket.RequestID); err != nil || r.Ending != "" {
		return err
	}
	r.Ending = ending
	return nil
}
