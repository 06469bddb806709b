package client

import (
	"context"
	"errors"
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
// submit, poll. passed is told of every milestone and may end the purchase by returning false; nil goes on.
// The error says why an Ending is Lost.
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
	result   Result
}

func (b *purchase) run(ctx context.Context) (err error) {
	r := &b.result
	if r.Place.Pass == "" {
		if r.Place, err = b.c.Join(ctx, b.p, b.activity.ID); err != nil {
			return b.refused(err)
		}
	}
	if !b.passed(Joined) {
		r.Ending = Left
		return nil
	}
	for range mostTurns {
		again, err := b.turn(ctx)
		if err != nil || !again {
			return err
		}
	}
	r.Ending = Denied // every turn ended with a ticket out of time
	return nil
}

// turn waits for a turn and uses it; again says to go back to the line.
func (b *purchase) turn(ctx context.Context) (again bool, err error) {
	r := &b.result
	r.Place, err = b.c.WaitForTurn(ctx, b.p, b.activity, r.Place)
	switch {
	case errors.Is(err, ErrSoldOut):
		r.Ending = SoldOut
		return false, nil
	case errors.Is(err, ErrEnded):
		r.Ending = Closed
		return false, nil
	case err != nil:
		return false, b.refused(err)
	case !b.passed(Released):
		r.Ending = Left
		return false, nil
	}
	r.Ticket, err = b.c.Ticket(ctx, b.p, b.activity.ID, b.skuID, r.Place.Pass)
	var refused *Refused
	if errors.As(err, &refused) && refused.Answer.Code == CodeQueueWaiting {
		if refused.Answer.Rank != nil {
			r.Place.Rank = refused.Answer.Rank
		}
		wait := max(shortestPoll, refused.Answer.RetryAfter(), msec(refused.Answer.NextPollAfterMS))
		return true, b.c.config.Sleep(ctx, b.c.between(wait, 2*wait))
	}
	if err != nil {
		return false, b.refused(err)
	}
	if !b.passed(Ticketed) {
		r.Ending = Left
		return false, nil
	}
	want := Purchase{ActivityID: b.activity.ID, SKUID: b.skuID, Quantity: 1, Ticket: r.Ticket}
	if r.Answer, err = b.c.Submit(ctx, b.p, want); err != nil {
		return false, b.refused(err)
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
		r.Ending = SoldOut
		return false, nil
	case r.Answer.NextAction == actionQueryThenQueue, r.Answer.NextAction == actionRequeue:
		wait := max(shortestPoll, r.Answer.RetryAfter())
		return true, b.c.config.Sleep(ctx, b.c.between(wait, 2*wait))
	default:
		r.Ending = Denied
		return false, nil
	}
	if !b.passed(Reserved) {
		r.Ending = Left
		return false, nil
	}
	last, err := b.c.Poll(ctx, b.p, b.activity.ID, b.skuID, requestID, r.Answer)
	r.Answer = last
	if err != nil {
		return false, b.refused(err)
	}
	r.Ending = Ordered
	if last.Status == StatusFailed {
		r.Ending = Failed
	}
	b.passed(Finished)
	return false, nil
}

// refused turns an answer that ended a call into an ending; another error stays one.
func (b *purchase) refused(err error) error {
	var refused *Refused
	if !errors.As(err, &refused) || errors.Is(err, ErrGivenUp) {
		return err
	}
	b.result.Answer = refused.Answer
	switch refused.Answer.Code {
	case CodeSoldOut:
		b.result.Ending = SoldOut
	case CodeActivityEnded:
		b.result.Ending = Closed
	default:
		b.result.Ending = Denied
	}
	return nil
}
