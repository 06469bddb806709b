package slots

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
)

// mode refuses while the sale is not open for new submits.
func (g *Gate) mode(v *visit) admission.Decision {
	switch max(v.policy.mode, g.config.Mode()) {
	case admission.ModeNormal, admission.ModeDegraded: // DEGRADED acts on the rate, not here
		return admission.Decision{}
	case admission.ModeQueueOnly:
		return admission.Decision{Outcome: admission.OverloadedQueueOnly, Stage: admission.StageMode, Reason: admission.ReasonModeQueueOnly, RetryAfter: queueOnlyRetry}
	default: // CLOSED, and whatever else somebody may have written
		return admission.Decision{Outcome: admission.OverloadedClosed, Stage: admission.StageMode, Reason: admission.ReasonModeClosed}
	}
}

// queueOnlyRetry is how long QUEUE_ONLY is held at the least (80-overload).
const queueOnlyRetry = 3 * time.Second

// source limits one address, and its /24 or /48 at ten times the rate. It comes before
// anything that costs a signature, and is coarse: many people may stand behind one.
func (g *Gate) source(v *visit) admission.Decision { return g.sourceOf(v, 0) }

// pollSource limits the source of somebody who asks for their own result, in a bucket
// apart: a crowd of submits behind one address must not hide their results from them.
func (g *Gate) pollSource(v *visit) admission.Decision { return g.sourceOf(v, pollSalt) }

// pollSalt makes another key of a source's; odd and random, nothing more.
const pollSalt = 0x9d3f5b1c7a24e86b

func (g *Gate) sourceOf(v *visit, salt uint64) admission.Decision {
	req, now := v.req, limit.Instant(v.req.Mono)
	rate, reason := v.view.source, admission.ReasonSourceRate
	if req.SourceUnparsable {
		rate, reason = v.view.unparsable, admission.ReasonSourceUnparsable
	} else if r, ok := v.view.sourceOverrides[req.SourceKey]; ok {
		rate = r
	}
	key := limit.Key{ID: req.SourceKey ^ salt, Prefix: req.SourcePrefixKey ^ salt}
	if r, ok := v.view.sourceShadowOf(req.SourceKey); ok {
		g.shadowCharge(v, admission.StageSource, key, r)
	}
	if d := g.sources.Allow(now, key, 1, rate); !d.OK {
		return g.limited(admission.StageSource, reason, d)
	}
	v.refundable(charge{table: g.sources, id: key.ID, rate: rate})
	if r, ok := v.view.sourceOverrides[req.SourcePrefixKey]; ok { // a bucket of its own, not a shared stripe
		key := limit.Key{ID: key.Prefix, Prefix: key.Prefix}
		if d := g.sources.Allow(now, key, 1, r); !d.OK {
			return g.limited(admission.StageSource, admission.ReasonSourcePrefixRate, d)
		}
		v.refundable(charge{table: g.sources, id: key.ID, rate: r})
		return admission.Decision{}
	}
	if d := g.prefixes.Allow(now, key.Prefix, 1); !d.OK {
		return g.limited(admission.StageSource, admission.ReasonSourcePrefixRate, d)
	}
	v.refundable(charge{id: key.Prefix, rate: v.view.prefix})
	return admission.Decision{}
}

// session finds out who is asking.
func (g *Gate) session(v *visit) admission.Decision {
	return g.Identify(v.req)
}

// ticket verifies the eligibility ticket and its binding to everything that the path,
// the session and the device said.
func (g *Gate) ticket(v *visit) admission.Decision {
	req := v.req
	t, reason := g.config.Ring.Verify(req.Ticket, req.Now, ticket.Expect{
		ActivityID: req.Activity.ID, SKUID: req.SKU.ID, UserID: req.UserID,
		DeviceHash: req.DeviceHash, ActivityVersion: req.Activity.Version, PathID: req.Activity.PathID,
	})
	g.metrics.ticket(reason, t.KeyID)
	if o := reason.Outcome(); o != admission.Pass {
		d := admission.Decision{Outcome: o, Stage: admission.StageTicket, Reason: admission.ReasonTicketInvalid}
		switch {
		case reason == ticket.Missing:
			d.Reason = admission.ReasonTicketMissing
		case o == admission.TokenExpired:
			d.Reason = admission.ReasonTicketExpired
		}
		return d
	}
	req.Nonce, req.TicketKeyID = t.Nonce.String(), t.KeyID
	req.TicketIssuedAt, req.TicketExpires = t.NotBefore, t.ExpiresAt
	return admission.Decision{}
}

// activity checks the opening hours by this instance's clock; the stock checks them
// again by its own.
func (g *Gate) activity(v *visit) admission.Decision {
	switch a := v.req.Activity; {
	case v.req.Now.Before(a.OpensAt):
		return admission.Decision{Outcome: admission.ActivityNotOpen, Stage: admission.StageActivity, Reason: admission.ReasonNotOpen, RetryAfter: a.OpensAt.Sub(v.req.Now)}
	case a.Ended || !v.req.Now.Before(a.ClosesAt):
		if h, holds := g.config.Board.Holder(v.req.Ref(), v.req.UserID); holds {
			v.req.Holder = h // their retry gets its result, also across the closing moment
			return admission.Decision{}
		}
		return admission.Decision{Outcome: admission.ActivityEnded, Stage: admission.StageActivity, Reason: admission.ReasonEnded}
	}
	return admission.Decision{}
}

// soldOut answers from the mark; a holder passes it.
func (g *Gate) soldOut(v *visit) admission.Decision { return g.config.Board.Check(v.req) }

// user limits one user on one SKU. Its key exists only now, after the ticket has been
// verified: nobody can fill the table with invented users.
func (g *Gate) user(v *visit) admission.Decision {
	req, now := v.req, limit.Instant(v.req.Mono)
	if v.counted {
		g.top.verified(req)
	}
	g.name(v)
	rate, key := v.policy.userRate(req.UserID), limit.Key{ID: v.userKey, Prefix: req.SourcePrefixKey}
	g.users.Warm(key) // three tables are met from here on: with a crowd, three waits for memory become one
	g.devices.Warm(limit.Key{ID: v.deviceKey})
	g.claims.warm(v.userKey)
	if wait := g.penalties.Serving(now, key.ID); wait > 0 {
		return punished(admission.StageUser, wait)
	}
	g.shadowLimit(v, admission.StageUser, &v.policy.user, req.UserID, key)
	d := g.users.Allow(now, key, 1, rate)
	req.Quota = quota(rate, d)
	if !d.OK {
		g.penalties.Refused(now, key.ID, v.view.penalty)
		return g.limited(admission.StageUser, admission.ReasonUserRate, d)
	}
	v.refundable(charge{table: g.users, id: key.ID, rate: rate})
	v.userRate = rate
	return admission.Decision{}
}

// device is a risk signal. A device over its rate takes one more from its user's bucket,
// and refuses only where the policy says so.
func (g *Gate) device(v *visit) admission.Decision {
	req, now := v.req, limit.Instant(v.req.Mono)
	rate, key := v.policy.deviceRate(req.DeviceHash), limit.Key{ID: v.deviceKey, Prefix: req.SourcePrefixKey}
	if wait := g.penalties.Serving(now, key.ID); wait > 0 && v.policy.deviceRefuses {
		return punished(admission.StageDevice, wait)
	}
	g.shadowLimit(v, admission.StageDevice, &v.policy.device, req.DeviceHash, key)
	d := g.devices.Allow(now, key, 1, rate)
	if d.OK {
		v.refundable(charge{table: g.devices, id: key.ID, rate: rate})
		return admission.Decision{}
	}
	if v.view.stages[admission.StageDevice] == rules.Shadow {
		return g.limited(admission.StageDevice, admission.ReasonDeviceRate, d) // counted by the chain, and no more
	}
	g.penalties.Refused(now, key.ID, v.view.penalty)
	if v.policy.deviceRefuses {
		return g.limited(admission.StageDevice, admission.ReasonDeviceRate, d)
	}
	g.metrics.deviceTightened.Inc()
	if g.users.Allow(now, limit.Key{ID: v.userKey, Prefix: req.SourcePrefixKey}, 1, v.userRate).OK { // refused means that it is empty already
		v.refundable(charge{table: g.users, id: v.userKey, rate: v.userRate})
	}
	return admission.Decision{}
}

// punished refuses whoever was refused too often of late, for the rest of the penalty.
func punished(stage admission.Stage, wait time.Duration) admission.Decision {
	return admission.Decision{Outcome: admission.RateLimited, Stage: stage, Reason: admission.ReasonPenalty, RetryAfter: wait}
}

// limited is a refusal of a limiter of ours.
func (g *Gate) limited(stage admission.Stage, reason admission.Reason, d limit.Decision) admission.Decision {
	return admission.Decision{Outcome: admission.RateLimited, Stage: stage, Reason: reason, RetryAfter: min(d.RetryAfter, maxRetryAfter)}
}

// maxRetryAfter bounds what a caller is told: a closed limiter knows no time.
const maxRetryAfter = time.Hour

// quota describes a bucket for the RateLimit headers, whose integers hold fifteen digits
// (RFC 9651): more than any burst that the rules let through.
func quota(r limit.Rate, d limit.Decision) admission.Quota {
	q := admission.Quota{Limit: r.Burst(), Window: r.FillTime(), Remaining: d.Remaining}
	if r.Burst() > 0 {
		q.Reset = time.Duration(float64(r.FillTime()) * float64(r.Burst()-d.Remaining) / float64(r.Burst()))
	}
	return q
}
