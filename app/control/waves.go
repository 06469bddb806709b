package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// membersPage is how many join-log lines are read at once, pagesPerStep how many pages
// in one step: a million joins are loaded in some seconds without holding a wave back.
const (
	membersPage  = 5_000
	pagesPerStep = 20
)

// Waves releases people while this process leads.
type Waves struct {
	Room   admission.Room
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

// wavesAfterClosing is how long the leader still publishes an activity's last state.
const wavesAfterClosing = time.Minute

// hall is what the leader holds of one activity.
type hall struct {
	line    *waitroom.Line
	state   admission.RoomState
	records waitroom.Records
	loaded  bool
	rate    float64 // EWMA of people released a second
}

// Lead runs waves of the activities until ctx ends. Whatever it knows it read: a new
// leader goes on from the published records.
func (w *Waves) Lead(ctx context.Context, term int64, interval time.Duration, activities func() []*admission.Activity) {
	halls := map[string]*hall{}
	every(ctx, interval, w.Log, "waves", func(ctx context.Context) error {
		lines, err := w.Lines(ctx)
		if err != nil {
			return err // no counts: a release would be blind
		}
		counts := Counts(lines)
		var first error
		for _, a := range activities() {
			if w.Now().After(a.ClosesAt.Add(wavesAfterClosing)) || a.Ended && halls[a.ID] == nil {
				delete(halls, a.ID)
				continue
			}
			h := halls[a.ID]
			if h == nil {
				h = &hall{line: waitroom.NewLine(*a)}
				halls[a.ID] = h
			}
			if err := w.step(ctx, term, a, h, counts[a.ID]); err != nil {
				delete(halls, a.ID) // begin anew from what is stored
				if first == nil {
					first = fmt.Errorf("activity %s: %w", a.ID, err)
				}
			}
		}
		return first
	})
}

// step does one activity's next wave.
func (w *Waves) step(ctx context.Context, term int64, a *admission.Activity, h *hall, counts waitroom.Counts) error {
	if !h.loaded {
		if err := w.load(ctx, h); err != nil {
			return err
		}
	}
	complete, err := w.follow(ctx, a, h)
	if err != nil {
		return err
	}
	now := w.Now()
	next := h.state
	next.Term, next.EmitAt = term, now
	if next.Joined, err = w.Room.Joined(ctx, a.ID); err != nil {
		return err
	}
	if err := w.draw(a, h, &next, complete, now); err != nil {
		return err
	}
	records := h.records
	remaining, stock, err := w.remaining(ctx, a)
	if err != nil {
		return err
	}
	records.SoldOutOnce = records.SoldOutOnce || remaining <= 0
	next.State = w.name(a, next, remaining, now)

	lane := next.Lanes[waitroom.DefaultLane]
	if next.State == waitroom.StateOpen || next.State == waitroom.StateSoldOut {
		d := waitroom.Decide(waitroom.Situation{Now: now, Remaining: remaining, Stock: stock, Records: records, Counts: counts, Policy: w.Policy(a)})
		end, people := h.line.Advance(lane.Watermark, d.People)
		elapsed := float64(now.UnixMilli()-records.LastAtMS) / 1000
		records.Carry = d.Carry
		records.Add(now, people, end)
		if elapsed > 0 && elapsed < 5 {
			h.rate += 0.2 * (float64(people)/elapsed - h.rate)
		}
		next.Reach = d.Reach
		lane.Watermark, lane.Released = end, records.Released
		w.Metrics.wave(a.ID, d, people)
	}
	lane.Joined, lane.ReleasePerSec = next.Joined, h.rate
	next.Lanes = map[string]admission.LaneState{waitroom.DefaultLane: lane}
	if next.Waves, err = json.Marshal(records); err != nil {
		return err
	}
	if err := w.Room.SetState(ctx, a.ID, next); err != nil {
		return err
	}
	moved := lane.Watermark != h.state.Lanes[waitroom.DefaultLane].Watermark || next.State != h.state.State
	h.state, h.records = next, records
	if moved {
		// Lost, it costs an instance the second until it rereads.
		_ = w.Events.Publish(ctx, admission.Event{SchemaVersion: 1, MessageID: fmt.Sprintf("msg_wave_%s_%d", a.ID, records.LastID), Type: admission.EventWatermark, ActivityID: a.ID, Version: a.Version, EmittedAt: now})
	}
	return nil
}

// load reads what the leader before left.
func (w *Waves) load(ctx context.Context, h *hall) error {
	state, err := w.Room.State(ctx, h.line.ActivityID())
	if err != nil && !errors.Is(err, admission.ErrNotFound) {
		return err
	}
	if err == nil {
		h.state = state
		if len(state.Waves) > 0 {
			if err := json.Unmarshal(state.Waves, &h.records); err != nil {
				return fmt.Errorf("wave records: %w", err)
			}
		}
	}
	h.loaded = true
	return nil
}

// follow reads the join log on. complete: its end was reached.
func (w *Waves) follow(ctx context.Context, a *admission.Activity, h *hall) (complete bool, err error) {
	for range pagesPerStep {
		page, err := w.Room.Members(ctx, a.ID, h.line.Cursor(), membersPage)
		if err != nil {
			return false, err
		}
		h.line.Append(page)
		if len(page) < membersPage {
			return true, nil
		}
	}
	return false, nil
}

// draw seals the draw once joining for it has closed and its log has been read to the
// end. A leader that finds a root published orders by that.
func (w *Waves) draw(a *admission.Activity, h *hall, next *admission.RoomState, complete bool, now time.Time) error {
	if a.Fairness.Mode == admission.FairnessFIFO || h.line.Sealed() || !complete {
		return nil
	}
	if next.JoinRoot == "" {
		if now.Before(a.DrawClosesAt().Add(drawMargin)) {
			return nil
		}
		next.JoinRoot, next.Drawn = h.line.Root()
	}
	if root, drawn := h.line.Root(); root != next.JoinRoot || drawn != next.Drawn {
		return fmt.Errorf("join root %s over %d people was published, the log gives %s over %d: the log was changed, nobody is released", next.JoinRoot, next.Drawn, root, drawn)
	}
	seed, err := w.Seed(a, next.JoinRoot)
	if err != nil {
		return err
	}
	h.line.Draw(seed)
	return nil
}

// drawMargin lets the store's clock pass the closing of the draw when ours is ahead.
// Whoever still slips in behind the root is served at the end of the line.
const drawMargin = 200 * time.Millisecond

// remaining adds the SKUs' stocks up.
func (w *Waves) remaining(ctx context.Context, a *admission.Activity) (remaining, stock int64, err error) {
	for i := range a.SKUs {
		ref := admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID}
		s, err := w.Stock.Snapshot(ctx, ref)
		if err != nil {
			return 0, 0, err
		}
		remaining += max(0, s.Remaining)
		stock += s.Total
	}
	return remaining, stock, nil
}

// name is the activity's state for the queue document.
func (w *Waves) name(a *admission.Activity, s admission.RoomState, remaining int64, now time.Time) string {
	drawn := a.Fairness.Mode == admission.FairnessFIFO || s.JoinRoot != ""
	switch {
	case a.Ended || !now.Before(a.ClosesAt):
		return waitroom.StateEnded
	case now.Before(a.OpensAt) && !drawn, !drawn:
		return waitroom.StatePrequeue
	case now.Before(a.OpensAt) && a.Fairness.Mode == admission.FairnessFIFO:
		return waitroom.StatePrequeue
	case now.Before(a.OpensAt):
		return waitroom.StateDrawn
	case remaining <= 0:
		return waitroom.StateSoldOut
	default:
		return waitroom.StateOpen
	}
}
