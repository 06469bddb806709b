package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

const (
	// membersPage is how many join-log lines are read at once, pagesPerStep how many pages
	// in one step: a million joins are loaded in some seconds without holding a wave back.
	membersPage  = 5_000
	pagesPerStep = 20
	// stepWithin bounds one activity's step, so that a store that hangs is asked again.
	stepWithin = 2 * time.Second
	// wavesAfterClosing is how long the leader tries to publish an activity's last state.
	wavesAfterClosing = time.Minute
	// drawMargin lets the store's clock pass the closing of the draw when ours is ahead.
	// Whoever still slips in behind the root is served at the end of the line.
	drawMargin = 200 * time.Millisecond
	// waveBeat is how often it is looked whose wave is due: half the shortest interval that
	// the rules accept, so that each activity has the rhythm of its own policy, and a pushed
	// one at once.
	waveBeat = 50 * time.Millisecond
)

// Waves releases people while this process leads.
type Waves struct {
	Room admission.Room
	// Standby keeps a copy of the states in another store, from which a room is written back
	// that its own store has lost; nil: none. It is written first, so it is never behind.
	Standby admission.RoomStates

	Stock  admission.Stock
	Events admission.Events
	Seed   func(a *admission.Activity, joinRoot string) (waitroom.RankSeed, error)
	// Policy is the policy of the activity's first SKU, and the rates its SKUs add up to.
	Policy  func(a *admission.Activity) waitroom.WavePolicy
	Lines   func(ctx context.Context) ([]Line, error)
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
}

// reign is the time of one leader: its term, and what it holds of each activity. Whatever
// it knows it has read: a new leader goes on from the published records.
type reign struct {
	*Waves
	term  int64
	halls map[string]*hall // by activity; those of now, see tidy
	steps sync.WaitGroup
}

// Lead runs waves of the activities until ctx ends, and returns when all their steps have.
func (w *Waves) Lead(ctx context.Context, term int64, activities func() []*admission.Activity) {
	r := w.begin(term)
	Every(ctx, waveBeat, w.Log, "waves", func(ctx context.Context) error { return r.round(ctx, activities()) })
	r.end()
}

func (w *Waves) begin(term int64) *reign {
	return &reign{Waves: w, term: term, halls: map[string]*hall{}}
}

// end waits for the steps under way. What this leader measured is no longer its to show.
func (r *reign) end() {
	r.steps.Wait()
	r.tidy(nil)
}

// round begins the next step of every activity whose interval has passed but of those
// whose last step is still under way: an activity whose stock or log is slow holds back
// its own waves alone.
func (r *reign) round(ctx context.Context, activities []*admission.Activity) error {
	r.tidy(activities)
	now := r.Now()
	var due []*admission.Activity
	for _, a := range activities {
		h := r.halls[a.ID]
		if h == nil {
			if over(a, now) {
				continue
			}
			h = &hall{}
			r.halls[a.ID] = h
		}
		if !h.busy.Load() && h.due(now, r.Policy(a).Interval) {
			due = append(due, a)
		}
	}
	if len(due) == 0 {
		return nil
	}
	lines, err := r.Lines(ctx)
	if err != nil {
		return err // no counts: a release would be blind
	}
	counts := Counts(lines)
	for _, a := range due {
		h := r.halls[a.ID]
		h.begun = now
		h.busy.Store(true)
		r.steps.Go(func() {
			defer h.busy.Store(false)
			ctx, cancel := context.WithTimeout(ctx, stepWithin)
			defer cancel()
			r.say(ctx, a, h, r.step(ctx, a, h, counts[a.ID]))
		})
	}
	return nil
}

// tidy forgets the activities that are gone, or whose end was published.
func (r *reign) tidy(activities []*admission.Activity) {
	served := make(map[string]*admission.Activity, len(activities))
	for _, a := range activities {
		served[a.ID] = a
	}
	for id, h := range r.halls {
		if h.busy.Load() {
			continue
		}
		a, now := served[id], r.Now()
		published := h.state.State == waitroom.StateEnded
		if a == nil || over(a, now) && (published || now.After(a.ClosesAt.Add(wavesAfterClosing))) {
			delete(r.halls, id)
			r.Metrics.forget(id)
		}
	}
}

// say logs when an activity's steps begin and end to fail. After a failure what is stored
// is read again; the line stays, since it is read from an append-only log.
func (r *reign) say(ctx context.Context, a *admission.Activity, h *hall, err error) {
	switch {
	case err != nil:
		h.loaded = false
		if !h.failing && !errors.Is(ctx.Err(), context.Canceled) {
			h.failing = true
			r.Log.Warn("waves stand still", "event", "waves_failed", "activity_id", a.ID, "error", err)
		}
	case h.failing:
		h.failing = false
		r.Log.Info("waves go on", "event", "waves_work", "activity_id", a.ID)
	}
}

// step does one activity's next wave.
func (r *reign) step(ctx context.Context, a *admission.Activity, h *hall, counts waitroom.Counts) error {
	if !h.loaded {
		if err := r.load(ctx, a, h); err != nil {
			return err
		}
	}
	now := r.Now()
	next, err := r.gather(ctx, a, h, now)
	if err != nil {
		return err
	}
	// Instances tell a newer state by its time. A clock that steps back must not make the
	// leader's words look old for as long.
	next.Term, next.EmitAt = r.term, later(now, h.state.EmitAt.Add(time.Millisecond))
	next.State = phase(a, !next.Seal.Zero(), now)
	lane, records := next.Lanes[waitroom.DefaultLane], h.records
	if next.State == waitroom.StateOpen {
		if err := r.release(ctx, a, h, &next, &lane, &records, counts, now); err != nil {
			return err
		}
	}
	lane.Joined, lane.ReleasePerSec = next.Joined, h.rate
	next.Lanes = map[string]admission.LaneState{waitroom.DefaultLane: lane}
	if next.Waves, err = json.Marshal(records); err != nil {
		return err
	}
	if err := r.publish(ctx, a, next); err != nil {
		return err
	}
	moved := lane.Watermark != h.state.Lanes[waitroom.DefaultLane].Watermark || next.State != h.state.State
	h.state, h.records = next, records
	if moved {
		// Lost, it costs an instance the second until it rereads.
		_ = r.Events.Publish(ctx, admission.Event{SchemaVersion: 1, MessageID: fmt.Sprintf("msg_wave_%s_%d", a.ID, records.LastID), Type: admission.EventWatermark, ActivityID: a.ID, Version: a.Version, EmittedAt: now})
	}
	return nil
}

// publish writes a state to the copy and to the room. A leader that dies in between leaves
// a copy that is ahead, which the next one takes over.
func (r *reign) publish(ctx context.Context, a *admission.Activity, s admission.RoomState) error {
	if r.Standby != nil {
		if err := r.Standby.SetState(ctx, a.ID, s); err != nil {
			return fmt.Errorf("copy of the room's state: %w", err)
		}
	}
	return r.Room.SetState(ctx, a.ID, s)
}

// release decides the wave and moves the watermark. It reads the stock, which a sale that
// is not open yet does not need.
func (r *reign) release(ctx context.Context, a *admission.Activity, h *hall, next *admission.RoomState, lane *admission.LaneState, records *waitroom.Records, counts waitroom.Counts, now time.Time) error {
	remaining, stock, err := r.remaining(ctx, a)
	if err != nil {
		return err
	}
	if remaining <= 0 {
		next.State, records.SoldOutOnce = waitroom.StateSoldOut, true
	}
	exact := h.whole && h.line.Exact(lane.Watermark)
	if exact && next.Lost == nil {
		records.Released = h.line.Released(lane.Watermark) // where a leader before may have estimated
	}
	d := waitroom.Decide(waitroom.Situation{Now: now, Remaining: remaining, Stock: stock, Records: *records, Counts: counts, Policy: r.Policy(a)})
	end, people := waitroom.Proportional(lane.Watermark, d.People, crowd(a, *next))
	if exact {
		end, people = h.line.Advance(lane.Watermark, d.People)
	}
	elapsed := float64(now.UnixMilli()-records.LastAtMS) / 1000
	records.Carry = d.Carry
	records.Add(now, people, end)
	if elapsed > 0 && elapsed < 5 {
		h.rate += 0.2 * (float64(people)/elapsed - h.rate)
	}
	next.Reach = d.Reach
	lane.Watermark, lane.Released = end, records.Released
	r.Metrics.wave(a.ID, d, people)
	return nil
}

// remaining adds the SKUs' stocks up.
func (r *reign) remaining(ctx context.Context, a *admission.Activity) (remaining, stock int64, err error) {
	for i := range a.SKUs {
		s, err := r.Stock.Snapshot(ctx, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID})
		if err != nil {
			return 0, 0, fmt.Errorf("stock of SKU %s: %w", a.SKUs[i].ID, err)
		}
		remaining += max(0, s.Remaining)
		stock += s.Total
	}
	return remaining, stock, nil
}

// phase is the activity's state as far as the clock and the draw tell it.
func phase(a *admission.Activity, sealed bool, now time.Time) string {
	fifo := a.Fairness.Mode == admission.FairnessFIFO
	switch {
	case over(a, now):
		return waitroom.StateEnded
	case now.Before(a.OpensAt) && fifo, !sealed && !fifo:
		return waitroom.StatePrequeue
	case now.Before(a.OpensAt):
		return waitroom.StateDrawn
	default:
		return waitroom.StateOpen
	}
}

func over(a *admission.Activity, now time.Time) bool { return a.Ended || !now.Before(a.ClosesAt) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
