package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// hall is what the leader holds of one activity. While busy, its step owns all the rest.
type hall struct {
	busy    atomic.Bool
	begun   time.Time // when the last step began; the round's
	failing bool      // the last step failed, and the log says so

	state   admission.RoomState
	records waitroom.Records
	loaded  bool    // state and records are what is stored
	rate    float64 // EWMA of people released a second

	line   *waitroom.Line
	cursor admission.RoomCursor // of the line
	whole  bool                 // the line was read to the end of the log once
	closed bool                 // joining for the draw is closed in the store
}

// due reports whether the next wave's time has come, to half a beat. A clock that went
// back delays nothing.
func (h *hall) due(now time.Time, interval time.Duration) bool {
	since := now.Sub(h.begun)
	return since < 0 || since >= interval-waveBeat/2
}

// begin starts the line anew, by what is published.
func (h *hall) begin(a *admission.Activity) {
	h.line, h.cursor = waitroom.NewLine(*a, h.state), nil
	h.whole, h.closed = false, false
}

// load reads what the leader before left: of the room's state and its copy whatever is
// further. A line that was begun under another seal is begun again: what is published says
// who is in the draw.
func (r *reign) load(ctx context.Context, a *admission.Activity, h *hall) error {
	state, err := r.Room.State(ctx, a.ID)
	if err != nil && !errors.Is(err, admission.ErrNotFound) {
		return err
	}
	unheard := err != nil
	if r.Standby != nil {
		kept, err := r.Standby.State(ctx, a.ID)
		if err != nil && !errors.Is(err, admission.ErrNotFound) {
			return fmt.Errorf("copy of the room's state: %w", err)
		}
		unheard = unheard && err != nil
		state = further(state, kept)
	}
	if unheard && h.state.Term == 0 {
		if err := waitroom.Begin(ctx, r.Room, r.Standby, a.ID); err != nil {
			return fmt.Errorf("open the room: %w", err)
		}
	}
	var records waitroom.Records
	if len(state.Waves) > 0 {
		if err := json.Unmarshal(state.Waves, &records); err != nil {
			return fmt.Errorf("wave records: %w", err)
		}
	}
	h.state, h.records, h.loaded = state, records, true
	if h.line == nil || h.line.Seal() != state.Seal {
		h.begin(a)
	}
	return nil
}

// further is the newer of two states of one room, with a seal and a watermark that either has.
func further(a, b admission.RoomState) admission.RoomState {
	if b.Term > a.Term || b.Term == a.Term && b.EmitAt.After(a.EmitAt) {
		a, b = b, a
	}
	if a.Seal.Zero() {
		a.Seal = b.Seal
	}
	if mine, other := a.Lanes[waitroom.DefaultLane], b.Lanes[waitroom.DefaultLane]; other.Watermark > mine.Watermark {
		a.Lanes = map[string]admission.LaneState{waitroom.DefaultLane: other}
	}
	return a
}

// gather brings the line up to date, and seals the draw when its time has come. It returns
// the state with what it found.
func (r *reign) gather(ctx context.Context, a *admission.Activity, h *hall, now time.Time) (admission.RoomState, error) {
	if h.state.Seal.Zero() && !h.line.DrawClosesAt().Equal(a.DrawClosesAt()) {
		h.begin(a) // a new version moved the opening before the draw
	}
	count, err := r.count(ctx, a, h)
	if err != nil {
		return h.state, err
	}
	if err := r.close(ctx, a, h, now); err != nil {
		return h.state, err
	}
	complete, err := r.follow(ctx, a, h)
	if err != nil {
		return h.state, err
	}
	next := h.state
	next.Joined, next.Last = lostBefore(next)+count.People-h.line.Restored(), max(next.Last, count.Last)
	if complete && h.closed && !h.line.Sealed() {
		return next, r.draw(a, h, &next)
	}
	return next, nil
}

// count counts the room. One that has lost places does not give them to others: the numbers
// go on behind them, and their holders are released by their passes, as many as the state
// says that there were. Who is stored from now on is released exactly again.
func (r *reign) count(ctx context.Context, a *admission.Activity, h *hall) (admission.RoomCount, error) {
	count, err := r.Room.Joined(ctx, a.ID)
	if err != nil || !hasLost(h.state, count) {
		return count, err
	}
	if count.From == from(h.state) { // nobody has joined since, or a part of the log was lost
		if _, err := r.Room.Numbers(ctx, a.ID, 1, h.state.Last); err != nil {
			return count, err
		}
		if count, err = r.Room.Joined(ctx, a.ID); err != nil {
			return count, err
		}
	}
	lost := admission.RoomLoss{Joined: h.state.Joined, Last: max(h.state.Last, count.Known), Through: count.From, From: count.From}
	if count.From == from(h.state) {
		lost.Last, lost.Through = count.Last, count.Last
	}
	if before := h.state.Lost; before != nil {
		lost.InDraw, lost.Earlier = before.InDraw, before.Gaps()
	}
	h.state.Lost = &lost
	h.begin(a)
	r.Log.Error("the waiting room's store has lost places: their holders keep them by their passes",
		"event", "room_lost", "activity_id", a.ID, "joined", lost.Joined, "stored", count.People)
	return count, nil
}

// hasLost reports whether the store has lost places since s. It has when its numbers are
// counted on from elsewhere, however many have joined there by now; when it counts none; and
// when a part of the log is gone, so that fewer people are in it than were.
func hasLost(s admission.RoomState, count admission.RoomCount) bool {
	return count.From != from(s) || count.Last < s.Last || count.People < s.Joined-lostBefore(s)
}

// from is what the room's numbers are counted on from, as far as s knows.
func from(s admission.RoomState) int64 {
	if s.Lost == nil {
		return 0
	}
	return s.Lost.From
}

func lostBefore(s admission.RoomState) int64 {
	if s.Lost == nil {
		return 0
	}
	return s.Lost.Joined
}

// close closes joining for the draw in the store, once its time has come: whoever joins
// after that has joined after the draw, and its log can be read to an end.
func (r *reign) close(ctx context.Context, a *admission.Activity, h *hall, now time.Time) error {
	if a.Fairness.Mode == admission.FairnessFIFO || h.closed {
		return nil
	}
	at := a.DrawClosesAt()
	if seal := h.state.Seal; !seal.Zero() {
		at = time.UnixMilli(seal.BeforeMS) // again: a store that came back empty has forgotten
	} else if now.Before(at.Add(drawMargin)) {
		return nil
	}
	if err := r.Room.CloseDraw(ctx, a.ID, at); err != nil {
		return err
	}
	h.closed = true
	return nil
}

// follow reads the join log on. complete: its end was reached.
func (r *reign) follow(ctx context.Context, a *admission.Activity, h *hall) (complete bool, err error) {
	for range pagesPerStep {
		page, next, more, err := r.Room.Members(ctx, a.ID, h.cursor, membersPage)
		if err != nil {
			return false, err
		}
		h.line.Append(page)
		h.cursor = next
		if !more {
			h.whole = true
			return true, nil
		}
	}
	return false, nil
}

// draw orders those in the draw, whose log has been read to the end since joining for it
// closed, and seals it. A leader that finds a seal published orders by that; while it has
// not read so far as to check it, it releases by proportion.
func (r *reign) draw(a *admission.Activity, h *hall, next *admission.RoomState) error {
	root, drawn := h.line.Root()
	switch lost := next.Lost; {
	case next.Seal.Zero():
		next.Seal = admission.RoomSeal{Root: root, Drawn: drawn, BeforeMS: a.DrawClosesAt().UnixMilli(), Last: next.Last}
		if lost != nil {
			told := *lost
			told.InDraw = max(drawn, lost.Joined+drawn-h.line.Restored())
			next.Lost = &told
		}
	case lost == nil && (root != next.Seal.Root || drawn != next.Seal.Drawn):
		return fmt.Errorf("join root %s over %d people was published, the log gives %s over %d: the log was changed, nobody is released", next.Seal.Root, next.Seal.Drawn, root, drawn)
	}
	seed, err := r.Seed(a, next.Seal.Root)
	if err != nil {
		return err
	}
	h.line.Draw(next.Seal, seed)
	return nil
}

// crowd is what the state alone tells of the people in line. Behind the numbers of places
// that were lost the log is whole again.
func crowd(a *admission.Activity, s admission.RoomState) waitroom.Crowd {
	c := waitroom.Crowd{FIFO: a.Fairness.Mode == admission.FairnessFIFO, Drawn: waitroom.InDraw(s), From: s.Seal.Last, Last: s.Last}
	if s.Lost != nil {
		c.Last, c.Gaps = s.Lost.Last, s.Lost.Gaps()
	}
	return c
}
