// Package waitroom is the waiting room: who is in line, whose turn it is, and what a turn
// is exchanged for.
//
// The store holds who joined, never an order. A place becomes a rank by the draw
// (draw.go), the control leader releases ranks in waves (waves.go, line.go), and every
// instance compares rank and watermark in memory. So one public document serves
// everybody's poll, and a place survives tabs, devices and restarts.
//
// When the store dies, watermarks stay where they are: people wait, and those released
// before still get their tickets. Nobody is let in unreleased.
package waitroom

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

// DefaultLane is the lane of somebody whose session names none.
const DefaultLane = "default"

// Config is what a Room is built from.
type Config struct {
	Store   admission.Room
	Ring    *ticket.Ring
	Deriver *ticket.Deriver
	DrawKey keys.Key
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics

	// Holder finds what the user holds of the SKU, and which attempt is theirs.
	Holder func(ref admission.SKURef, userID string) (h admission.Holder, ok bool)
	// SoldOut reports a sold-out mark that is up.
	SoldOut func(ref admission.SKURef) bool
	// MayReturn reports whether units may come back to a SKU that is sold out.
	MayReturn func(ref admission.SKURef) bool
	// Policy is the policy in force of a SKU.
	Policy func(ref admission.SKURef) Policy
}

// Policy is what the rules say to an instance's side of the room.
type Policy struct {
	TicketTTL   time.Duration
	LongestPoll time.Duration  // upper end of the poll hint
	Mode        admission.Mode // the effective one
	// ChallengeBits is the work that a join before the opening must show: leading zero bits
	// of a SHA-256. 0 asks for none.
	ChallengeBits int
}

// Room is this instance's waiting room.
type Room struct {
	config     Config
	challenges challenges
	states     atomic.Pointer[map[string]*standing] // by activity
	counts     *counts
}

// standing is the published state of one activity as this instance last read it.
type standing struct {
	state   admission.RoomState
	records Records
	seed    RankSeed
	sealed  bool // the draw is over and seed is good
	doc     atomic.Pointer[document]
}

// New makes a room that knows nothing yet: everybody waits.
func New(c Config) *Room {
	r := &Room{config: c, challenges: newChallenges(c.DrawKey), counts: newCounts()}
	r.states.Store(&map[string]*standing{})
	return r
}

// Join gives the user a place, or finds it. solution is of the challenge that a join may
// have to solve before the opening; without one that holds, Need says what to solve.
func (r *Room) Join(ctx context.Context, req *admission.Request, solution string) (admission.Joined, admission.Decision) {
	a := req.Activity
	if a.Ended || !req.Now.Before(a.ClosesAt) {
		return admission.Joined{}, ended
	}
	if need := r.demand(req, solution); need != nil {
		return admission.Joined{Need: need}, challengeRequired
	}
	lane := req.Lane
	if lane == "" {
		lane = DefaultLane
	}
	place, err := r.config.Store.Join(ctx, a.ID, req.UserID, lane)
	if err != nil {
		return admission.Joined{}, storeAway(err)
	}
	pass, err := r.config.Ring.IssuePass(ticket.Pass{
		ActivityID: a.ID, UserID: req.UserID, DeviceHash: req.DeviceHash,
		Lane: place.Lane, JoinedAt: place.JoinedAt, Sequence: place.Sequence,
	})
	if err != nil {
		return admission.Joined{}, storeAway(err)
	}
	s := r.standing(a.ID)
	st := r.where(a, s, place)
	return admission.Joined{
		Pass: pass, State: stateAt(a, s.state.State, req.Now), Lane: place.Lane, JoinedAt: place.JoinedAt,
		Standing: st, Poll: r.poll(a, st, req.Now),
	}, admission.Decision{}
}

// Exchange turns a released pass into a ticket. Everything is decided in memory: the
// pass proves the place, the watermark is this instance's copy.
func (r *Room) Exchange(_ context.Context, req *admission.Request, raw string) (admission.Exchanged, admission.Decision) {
	a, ref := req.Activity, req.Ref()
	pass, reason := r.config.Ring.VerifyPass(raw, ticket.PassExpect{ActivityID: a.ID, UserID: req.UserID, DeviceHash: req.DeviceHash})
	if reason != ticket.OK {
		return admission.Exchanged{}, admission.Decision{Outcome: admission.TokenInvalid, Stage: admission.StageRoom, Reason: admission.ReasonTicketInvalid}
	}
	holder, holds := r.config.Holder(ref, req.UserID)
	// Attempts count from 1, as the stock does: somebody who has reserved nothing yet is
	// at their first, and keeps its nonce once they have.
	// Those who have used up their attempts keep the last: its request reads CANCELLED.
	holder.Attempt = min(max(holder.Attempt, 1), max(a.MaxAttempts, 1))
	if holds {
		// Whoever has a reservation gets its nonce and request_id again, also when all is
		// sold out or over: they may have lost them with their phone's memory. The nonce is
		// of the activity's version; the request_id is the one that holds.
		got, d := r.issue(req, holder.Attempt)
		got.RequestID = holder.RequestID
		return got, d
	}
	if a.Ended || !req.Now.Before(a.ClosesAt) {
		return admission.Exchanged{}, ended
	}
	s := r.standing(a.ID)
	st := r.where(a, s, admission.Place{UserID: pass.UserID, Lane: pass.Lane, JoinedAt: pass.JoinedAt, Sequence: pass.Sequence})
	policy := r.config.Policy(ref)
	waiting := admission.Exchanged{Standing: st, Poll: r.poll(a, st, req.Now)}
	wait := admission.Decision{Outcome: admission.QueueWaiting, Stage: admission.StageRoom, Reason: admission.ReasonNotReleased}
	switch {
	case policy.Mode >= admission.ModeQueueOnly, req.Now.Before(a.OpensAt):
		return waiting, wait
	case r.config.SoldOut(ref):
		return admission.Exchanged{}, admission.Decision{Outcome: admission.SoldOut, Stage: admission.StageRoom, Reason: admission.ReasonSoldOutMark}
	case !st.Drawn || st.Rank >= s.state.Lanes[DefaultLane].Watermark:
		return waiting, wait
	}
	got, d := r.issue(req, holder.Attempt)
	if !d.Refused() {
		r.counts.issued(a.ID, req.SKU.ID, pass.Sequence, holder.Attempt, s.records.Of(st.Rank), req.Now)
		r.config.Metrics.Issued.Inc()
	}
	return got, d
}

// issue signs a ticket whose nonce, and with it the request_id, is always the same for
// the same attempt.
func (r *Room) issue(req *admission.Request, attempt int64) (admission.Exchanged, admission.Decision) {
	a := req.Activity
	nonce := r.config.Deriver.Nonce(req.UserID, a.ID, req.SKU.ID, a.Version, attempt)
	from := req.Now.UTC().Truncate(time.Millisecond)
	until := from.Add(r.config.Policy(req.Ref()).TicketTTL)
	t, err := r.config.Ring.Issue(ticket.Claims{
		ActivityID: a.ID, SKUID: req.SKU.ID, UserID: req.UserID, DeviceHash: req.DeviceHash,
		ActivityVersion: a.Version, PathID: a.PathID, Nonce: nonce, NotBefore: from, ExpiresAt: until,
	})
	if err != nil {
		return admission.Exchanged{}, storeAway(err)
	}
	return admission.Exchanged{Ticket: t, RequestID: ticket.RequestID(nonce), PathID: a.PathID, Nonce: nonce, ExpiresAt: until}, admission.Decision{}
}

// Reserved counts a reservation by the second in which its ticket was issued.
func (r *Room) Reserved(req *admission.Request) {
	r.counts.reserved(req.Activity.ID, req.Nonce, req.TicketIssuedAt)
}

// Shed remembers that a ticket's holder was told "we are full": no no-show, and no reason
// to release another person in their place.
func (r *Room) Shed(req *admission.Request) {
	ends := req.Now.Add(comesAgainWithin)
	if req.TicketExpires.Before(ends) {
		ends = req.TicketExpires
	}
	r.counts.shed(req.Activity.ID, req.Nonce, ends)
}

// comesAgainWithin is how long somebody who was shed is waited for: several times what
// they were told to wait. Each further try begins it anew.
const comesAgainWithin = 8 * time.Second

// Counted is what this instance counted for the waves, for its line in the fleet.
func (r *Room) Counted() map[string]ActivityCounts { return r.counts.snapshot(r.config.Now()) }

// State is the published state of an activity.
func (r *Room) State(activityID string) admission.RoomState { return r.standing(activityID).state }

var unknown standing

func (r *Room) standing(activityID string) *standing {
	if s := (*r.states.Load())[activityID]; s != nil {
		return s
	}
	return &unknown
}

// Knows reports whether this instance has read the activity's state at least once. Until then it
// would tell people of a sale under way that it has not begun.
func (r *Room) Knows(activityID string) bool { return r.standing(activityID) != &unknown }

// Refresh rereads the states of the activities. A state of a lower term, or with a lower
// watermark under the same term, is older and is ignored.
func (r *Room) Refresh(ctx context.Context, activities []*admission.Activity) error {
	old := *r.states.Load()
	next := make(map[string]*standing, len(activities))
	var first error
	for _, a := range activities {
		before := old[a.ID]
		state, err := r.config.Store.State(ctx, a.ID)
		if err != nil {
			notFound := errors.Is(err, admission.ErrNotFound)
			switch {
			case before != nil:
				next[a.ID] = before
			case notFound: // read: nobody has published anything yet
				next[a.ID] = &standing{}
			}
			if !notFound && first == nil {
				first = err
			}
			continue
		}
		if before != nil && older(state, before.state) {
			next[a.ID] = before
			continue
		}
		s := &standing{state: state}
		if len(state.Waves) > 0 {
			if err := json.Unmarshal(state.Waves, &s.records); err != nil && first == nil {
				first = err
			}
		}
		if s.sealed = state.JoinRoot != ""; s.sealed {
			if before != nil && before.sealed && before.state.JoinRoot == state.JoinRoot {
				s.seed = before.seed
			} else if s.seed, err = r.Seed(a, state.JoinRoot); err != nil {
				return err // start-up has checked the key
			}
		}
		next[a.ID] = s
	}
	r.states.Store(&next)
	r.counts.keep(func(id string) bool {
		return slices.ContainsFunc(activities, func(a *admission.Activity) bool { return a.ID == id })
	})
	return first
}

// Seed is the activity's rank seed for a join root. The secret belongs to the first
// version, whose draw all later ones keep.
func (r *Room) Seed(a *admission.Activity, joinRoot string) (RankSeed, error) {
	secret, err := DeriveSecret(r.config.DrawKey, a.ID, firstVersion)
	if err != nil {
		return RankSeed{}, err
	}
	return secret.Seed(joinRoot, a.Fairness.Beacon), nil
}

const firstVersion = 1

func older(s, than admission.RoomState) bool {
	if s.Term != than.Term {
		return s.Term < than.Term
	}
	return s.EmitAt.Before(than.EmitAt)
}

// Run rereads every period, or when woken, until ctx ends.
func (r *Room) Run(ctx context.Context, period time.Duration, activities func() []*admission.Activity, wake <-chan struct{}) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := r.Refresh(ctx, activities()); err != nil && ctx.Err() == nil {
			r.config.Metrics.StoreErrors.Inc()
			r.config.Log.Warn("watermarks not reread", "event", "room_stale", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
	}
}

// where is a place's standing: exact for a rank, estimated for people ahead.
func (r *Room) where(a *admission.Activity, s *standing, p admission.Place) admission.Standing {
	rank, ok := RankOf(a, p, s.state.Drawn, s.seed, s.sealed)
	if !ok {
		return admission.Standing{}
	}
	st := admission.Standing{Drawn: true, Rank: rank}
	lane := s.state.Lanes[DefaultLane]
	position := p.Sequence - 1 // fifo, and those behind the draw: exact
	if a.Fairness.Mode != admission.FairnessFIFO && p.Sequence <= s.state.Drawn {
		position = int64(float64(rank) / float64(Drawn) * float64(s.state.Drawn))
	}
	if rank < lane.Watermark {
		return st // it is their turn
	}
	st.Place = max(0, position-lane.Released)
	// The estimate of how far the stock reaches is the leader's; a fifth on top, because
	// "unlikely" must not be said to somebody whose turn comes.
	if s.state.Reach > 0 && float64(position) > 1.2*float64(s.state.Reach) {
		st.Unlikely = true
		return st
	}
	perSecond := max(lane.ReleasePerSec, 1)
	now := r.config.Now()
	longest := max(0, a.ClosesAt.Sub(now)) // nobody waits longer than the sale lasts
	wait := min(time.Duration(float64(st.Place)/perSecond*1000)*time.Millisecond, longest)
	until := max(0, a.OpensAt.Sub(now)) // certain, so not widened
	st.WaitLow, st.WaitHigh = min(until+wait*7/10, longest), min(until+wait*3/2+time.Second, longest)
	return st
}

// poll says when to look again: soon when the turn is near, never later than the policy's longest.
func (r *Room) poll(a *admission.Activity, st admission.Standing, now time.Time) time.Duration {
	longest := r.config.Policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}).LongestPoll
	if until := a.OpensAt.Sub(now); until > 0 {
		return min(max(until/2, time.Second), longest)
	}
	return min(max(st.WaitLow/2, time.Second), longest)
}

var ended = admission.Decision{Outcome: admission.ActivityEnded, Stage: admission.StageRoom, Reason: admission.ReasonEnded}

func storeAway(err error) admission.Decision {
	return admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageRoom, Reason: admission.ReasonRoomStore, RetryAfter: time.Second, Cause: err}
}
