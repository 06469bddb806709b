package slots

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
)

// seat takes one of the SKU's seats in flight: the hard cap, which Sentinel's own
// isolation is not. It never waits.
func (g *Gate) seat(v *visit) admission.Decision {
	seats := v.policy.seats
	if !seats.TryAcquire() {
		return admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageSeat, Reason: admission.ReasonSeats, RetryAfter: seatRetry}
	}
	v.req.AtEnd((*seatTaken)(seats))
	return admission.Decision{}
}

// seatTaken is one seat, to be given back.
type seatTaken limit.Seats

// Settle gives it back.
func (s *seatTaken) Settle(admission.Decision) { (*limit.Seats)(s).Release() }

// seatRetry: a seat comes back within the request budget, and a full house empties in a
// few of them.
const seatRetry = 500 * time.Millisecond

// lease spends a token of this instance's slice of the global budget. It is paid before
// the claim; a claim or a reservation that turns out to be an old one gives it back, and so
// does a user who was too fast for the cluster; an unknown result never does.
func (g *Gate) lease(v *visit) admission.Decision {
	giveBack, d := g.config.Spend(v.ctx, v.req.Ref())
	if d.Refused() {
		return d
	}
	v.req.AtEnd(token(giveBack))
	return admission.Decision{}
}

// token gives a token of the lease back.
type token func()

// Settle keeps it spent when the request was admitted, or nobody knows.
func (giveBack token) Settle(d admission.Decision) {
	switch d.Outcome {
	case admission.ReplayRejected, admission.RequestIDConflict, admission.Replayed, admission.RateLimited:
		giveBack()
	default:
	}
}

// nonce binds the ticket's nonce to this request_id: the first of the two round trips.
// A fault is not retried: the claim may have been made, and then a retry by the caller
// reads as "same".
func (g *Gate) nonce(v *visit) admission.Decision {
	req := v.req
	key := g.config.Hasher.Extend(v.userKey, req.Nonce)
	if first, ok := g.claims.get(v.userKey, key); ok && first != req.RequestID {
		g.metrics.claim(claimLocalConflict)
		return g.replayed(req, first)
	}
	ctx := withBudget(v.ctx, v.budgets.Claim)
	defer ctx.cancel()
	res, err := g.config.Nonces.Claim(ctx, admission.ClaimArgs{
		UserID: req.UserID, Nonce: req.Nonce, RequestID: req.RequestID, Ref: req.Ref(), BodyHash: req.BodyHash,
		TTL: req.Activity.ClosesAt.Sub(req.Now) + claimBuffer,
	})
	if err != nil {
		g.metrics.claim(claimError)
		reason := admission.ReasonLimiterResultUnknown
		if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() != nil {
			reason = admission.ReasonBudgetExhausted
		}
		return admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageNonce, Reason: reason, RetryAfter: time.Second, Cause: err}
	}
	switch res.Claim {
	case admission.ClaimFirst, admission.ClaimSame:
		if res.Claim == admission.ClaimFirst {
			g.metrics.claim(claimFirst)
		} else {
			g.metrics.claim(claimSame)
		}
		g.claims.put(v.userKey, key, req.RequestID)
		return admission.Decision{}
	case admission.ClaimNonceConflict:
		g.metrics.claim(claimNonceConflict)
		g.claims.put(v.userKey, key, res.FirstRequestID)
		return g.replayed(req, res.FirstRequestID)
	case admission.ClaimBodyConflict:
		g.metrics.claim(claimBodyConflict)
		return admission.Decision{Outcome: admission.RequestIDConflict, Stage: admission.StageNonce, Reason: admission.ReasonBodyConflict}
	default: // an answer that nobody knows is no admission
		g.metrics.claim(claimError)
		return admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageNonce, Reason: admission.ReasonLimiterResultUnknown, RetryAfter: time.Second}
	}
}

// claimBuffer is how long a nonce is remembered past the activity's end: longer than
// any ticket that is still accepted then, skew included.
const claimBuffer = 10 * time.Minute

func (g *Gate) replayed(req *admission.Request, first string) admission.Decision {
	req.Record = admission.RequestRecord{RequestID: first}
	return admission.Decision{Outcome: admission.ReplayRejected, Stage: admission.StageNonce, Reason: admission.ReasonNonceReplay}
}
