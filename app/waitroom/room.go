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

// DefaultLane is everybody's lane: a room has one watermark, and a session's region and tier
// say nothing about a place. Places, passes and the document carry its name.
const DefaultLane = "default"

// Config is what a Room is built from.
type Config struct {
	Store   admission.Room
	Standby admission.RoomStates // a copy of the states in another store; nil: none
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
	// StrictSequence takes one sequence number a join from the store, instead of blocks.
	StrictSequence bool
}

// Room is this instance's waiting room.
type Room struct {
	config     Config
	challenges challenges
	states     atomic.Pointer[map[string]*standing] // by activity
	counts     *counts
	numbers    *numbers
}

// standing is the published state of one activity as this instance last read it.
type standing struct {
	state   admission.RoomState
	records Records
	seed    RankSeed // good once the draw is sealed
	begun   bool     // Begin has been through for it, by this instance
	gone    bool     // the room's store does not have it any more, or never had: it is written back before people are released
	doc     atomic.Pointer[document]
}

// New makes a room that knows nothing yet: everybody waits.
func New(c Config) *Room {
	r := &Room{config: c, challenges: newChallenges(c.DrawKey), counts: newCounts()}
	r.numbers = newNumbers(func(ctx context.Context, activityID string, n, known int64) (int64, error) {
		return c.Store.Numbers(ctx, activityID, n, known)
	})
	r.states.Store(&map[string]*standing{})
	return r
}

// Join gives the user a place, or finds it. solution is of the challenge that a join may
// have to solve before the opening; without one that holds, Need says what to solve. Who
// shows the pass of a place that the store has lost gets that one.
func (r *Room) Join(ctx context.Context, req *admission.Request, solution, pass string) (admission.Joined, admission.Decision) {
	a := req.Activity
	if a.Ended || !req.Now.Before(a.ClosesAt) {
		return admission.Joined{}, ended
	}
	place, again := r.shown(req, pass)
	var err error
	if again {
		err = r.restore(ctx, req, place)
	} else {
		if need := r.demand(req, solution); need != nil {
			return admission.Joined{Need: need}, challengeRequired
		}
		place, err = r.place(ctx, req)
	}
	if err != nil {
		return admission.Joined{}, storeAway(err)
	}
	pass, err = r.config.Ring.IssuePass(ticket.Pass{
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

// place gives the user of a request a place, or finds it.
func (r *Room) place(ctx context.Context, req *admission.Request) (admission.Place, error) {
	a := req.Activity
	strict := r.config.Policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}).StrictSequence
	known := r.standing(a.ID).state
	number, err := r.numbers.take(ctx, a.ID, known.Last, strict, r.config.Now())
	if err != nil {
		return admission.Place{}, err
	}
	var closed time.Time
	if !known.Seal.Zero() {
		closed = time.UnixMilli(known.Seal.BeforeMS)
	}
	place, err := r.config.Store.Join(ctx, a.ID, admission.Place{UserID: req.UserID, Lane: DefaultLane, Sequence: number}, closed)
	if err == nil && place.Sequence != number {
		r.numbers.giveBack(a.ID, number) // they had a place
	}
	return place, err
}

// shown is the place that a pass proves, where the room was lost and the place is one of
// before. ok is false for every pass that says nothing of the kind.
func (r *Room) shown(req *admission.Request, raw string) (_ admission.Place, ok bool) {
	s := r.standing(req.Activity.ID)
	if raw == "" || !s.gone && s.state.Lost == nil {
		return admission.Place{}, false
	}
	pass, reason := r.config.Ring.VerifyPass(raw, ticket.PassExpect{ActivityID: req.Activity.ID, UserID: req.UserID, DeviceHash: req.DeviceHash})
	if reason != ticket.OK || !s.gone && pass.Sequence > s.state.Lost.Through {
		return admission.Place{}, false
	}
	return admission.Place{UserID: pass.UserID, Lane: pass.Lane, JoinedAt: pass.JoinedAt, Sequence: pass.Sequence}, true
}

// restore stores a place again as it was, set if absent: somebody who has joined anew since
// keeps that place in the store, and the one of their pass by the pass.
func (r *Room) restore(ctx context.Context, req *admission.Request, p admission.Place) error {
	if _, err := r.config.Store.Join(ctx, req.Activity.ID, p, time.Time{}); err != nil {
		return err
	}
	r.config.Metrics.Restored.Inc()
	return nil
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
		s, err := r.reread(ctx, a, old[a.ID])
		if err != nil && first == nil {
			first = err
		}
		if s != nil {
			next[a.ID] = s
		}
	}
	r.states.Store(&next)
	served := func(id string) bool {
		return slices.ContainsFunc(activities, func(a *admission.Activity) bool { return a.ID == id })
	}
	r.counts.keep(served)
	r.numbers.keep(served)
	return first
}

// reread is the activity's standing after what the store says now; nil while nothing is
// known. What was known stays when the store is away, and when it has come back empty.
func (r *Room) reread(ctx context.Context, a *admission.Activity, before *standing) (*standing, error) {
	state, err := r.config.Store.State(ctx, a.ID)
	nothing := errors.Is(err, admission.ErrNotFound)
	if nothing {
		err = nil
	}
	gone := nothing
	if (nothing || err != nil) && (before == nil || before.state.State == "" && !before.begun) {
		if r.config.Standby != nil {
			// An instance that starts now must not take a lost room for one that never was.
			copied, e := r.config.Standby.State(ctx, a.ID)
			if e == nil {
				s, e := r.read(a, copied, nil)
				s.gone = nothing
				return s, errors.Join(err, e)
			}
			if nothing && !errors.Is(e, admission.ErrNotFound) {
				return &standing{}, e // nobody knows whether the room has begun
			}
		}
		if nothing { // read: nobody has published anything yet
			err = Begin(ctx, r.config.Store, r.config.Standby, a.ID)
			return &standing{begun: err == nil}, err
		}
	}
	switch {
	case err != nil:
		return before, err // nil: nothing is known
	case nothing && before.state.State == "": // and still nobody has
		return before, nil
	case gone && !before.gone:
		s := &standing{state: before.state, records: before.records, seed: before.seed, gone: true}
		r.config.Log.Error("the waiting room's store has lost an activity: watermarks stay until the leader has written it back", "event", "room_lost", "activity_id", a.ID)
		return s, nil
	case gone, before != nil && older(state, before.state):
		return before, nil
	}
	return r.read(a, state, before)
}

// Begin opens a room of which neither its store nor the copy has a state, unless somebody
// has begun to. The mark comes first and is made once, in the other store: a room's store
// that comes back empty is not opened for the second time, and gives no number again. Whoever
// joins between the mark and the opening, or where the opener died in between, finds a room
// that looks lost: its numbers are greater ones, and right.
func Begin(ctx context.Context, store admission.Room, standby admission.RoomStates, activityID string) error {
	if standby != nil {
		if first, err := standby.Begin(ctx, activityID); err != nil || !first {
			return err
		}
	}
	return store.Open(ctx, activityID)
}

// read makes a standing of a published state.
func (r *Room) read(a *admission.Activity, state admission.RoomState, before *standing) (_ *standing, err error) {
	s := &standing{state: state}
	if len(state.Waves) > 0 {
		err = json.Unmarshal(state.Waves, &s.records)
	}
	switch {
	case state.Seal.Zero():
	case before != nil && before.state.Seal == state.Seal:
		s.seed = before.seed
	default:
		seed, e := r.Seed(a, state.Seal.Root) // start-up has checked the key
		if e != nil {
			return before, e
		}
		s.seed = seed
	}
	return s, err
}

// Seed is the activity's rank seed for a join root. The secret belongs to the first
// version, whose draw all later ones keep.
func (r *Room) Seed(a *admission.Activity, joinRoot string) (RankSeed, error) {
	secret, err := DeriveSecret(r.config.DrawKey, a.ID, firstVersion, a.PublishedAt)
	if err != nil {
		return RankSeed{}, err
	}
	return secret.Seed(joinRoot, a.Fairness.Beacon), nil
}

const firstVersion = 1

// older: by term, then by time. A watermark that goes back or another draw is older
// whatever it says of itself: who was released stays so.
func older(s, than admission.RoomState) bool {
	switch {
	case s.Lanes[DefaultLane].Watermark < than.Lanes[DefaultLane].Watermark, !than.Seal.Zero() && s.Seal != than.Seal:
		return true
	case s.Term != than.Term:
		return s.Term < than.Term
	default:
		return s.EmitAt.Before(than.EmitAt)
	}
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
	rank, ok := RankOf(a, p, s.state.Seal, s.seed)
	if !ok {
		return admission.Standing{}
	}
	st := admission.Standing{Drawn: true, Rank: rank}
	lane := s.state.Lanes[DefaultLane]
	position := ahead(p.Sequence, s.state) // of fifo, and behind the draw
	if a.Fairness.Mode != admission.FairnessFIFO && rank < Drawn {
		position = int64(float64(rank) / float64(Drawn) * float64(InDraw(s.state)))
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

// ahead is about how many people joined before somebody with this number.
func ahead(sequence int64, s admission.RoomState) int64 {
	var joined, through int64
	for _, gap := range s.Lost.Gaps() {
		if sequence <= gap.Through {
			return joined + share(sequence-through, gap.Joined-joined, gap.Last-through)
		}
		joined, through = gap.Joined, gap.Through
	}
	return joined + share(sequence-through, s.Joined-joined, s.Last-through)
}

// unheard is more numbers than a room gives between two publications of its state: one that
// is so far on is of a store that has lost its count, of which nothing is published yet.
const unheard = 1_000_000_000

// share is about how many of the people to whom numbers were given have one before the n-th:
// some numbers are nobody's.
func share(n, people, numbers int64) int64 {
	switch {
	case n-numbers > unheard:
		return people
	case numbers <= people: // no gaps, or nothing known of them
		return n - 1
	default:
		return min(int64(float64(n-1)*float64(people)/float64(numbers)), max(people-1, 0))
	}
}

// InDraw is how many people have a rank of the draw: those whom the root covers, or more
// when the room was lost before it and not everybody's place was stored again.
func InDraw(s admission.RoomState) int64 {
	if s.Lost != nil {
		return max(s.Seal.Drawn, s.Lost.InDraw)
	}
	return s.Seal.Drawn
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
