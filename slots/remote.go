package slots

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// remoteUser limits one user on one SKU across all instances: a token bucket in the limiter
// store, at the user's own rate. It is optional and costs a round trip more; the local
// bucket has gone before it, so that nobody reaches it faster than an instance allows. When
// the store is away it refuses. What it charged stays charged whatever becomes of the
// request: that over-refuses.
func (g *Gate) remoteUser(v *visit) admission.Decision {
	req := v.req
	unknown := admission.Decision{
		Outcome: admission.DependencyUnavailable, Stage: admission.StageRemoteUser, Reason: admission.ReasonLimiterResultUnknown, RetryAfter: time.Second,
	}
	if g.config.Limiters == nil {
		return unknown
	}
	ctx := withBudget(v.ctx, v.budgets.Claim)
	defer ctx.cancel()
	taken, err := g.config.Limiters.Take(ctx, []admission.Take{remoteTake(req, v.policy.user.keyed.For(req.UserID))})
	if err == nil && len(taken) == 1 {
		err = taken[0].Err
	}
	switch {
	case err != nil || len(taken) != 1:
		g.metrics.remote("error")
		unknown.Cause = err
		return unknown
	case !taken[0].OK:
		g.metrics.remote("refused")
		return admission.Decision{
			Outcome: admission.RateLimited, Stage: admission.StageRemoteUser, Reason: admission.ReasonUserRate, RetryAfter: min(taken[0].RetryAfter, maxRetryAfter),
		}
	}
	g.metrics.remote("allowed")
	return admission.Decision{}
}

// remoteTake charges one request at the rule's own rate, as the script can count it.
func remoteTake(req *admission.Request, l rules.Limit) admission.Take {
	tokens, period := l.Whole()
	return admission.Take{
		Key:       "rl:user:" + admission.UserTag(req.UserID) + ":a:" + req.Activity.ID + ":s:" + req.SKU.ID,
		Algorithm: admission.TokenBucket, Tokens: tokens, Period: period, Capacity: l.Burst, Cost: 1,
	}
}
