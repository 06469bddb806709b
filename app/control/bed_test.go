package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/waitroom"
)

// bed is a waiting room on an embedded store, with a clock and a stock of the test's own.
type bed struct {
	t        *testing.T
	base     time.Time // when people join: the store's clock is the real one
	now      time.Time
	room     *faultyRoom
	stock    *shelves
	events   *heard
	lines    []Line
	lost     error // of reading the lines
	log      *bytes.Buffer
	registry *prometheus.Registry
	waves    *Waves
}

func newBed(t *testing.T) *bed {
	t.Helper()
	client, err := redis.Open(t.Context(), store(t), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return newBedOn(t, redis.NewRoom(client))
}

func newBedOn(t *testing.T, room admission.Room) *bed {
	t.Helper()
	b := &bed{t: t, base: time.Now().UTC(), room: &faultyRoom{Room: room}, stock: &shelves{left: map[admission.SKURef]int64{}}, events: &heard{}, log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	b.now = b.base
	key, err := keys.Parse("test", []byte(`{"keys":[{"kty":"oct","kid":"draw","alg":"HS256","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b.waves = &Waves{
		Room: b.room, Stock: b.stock, Events: b.events,
		Seed: waitroom.New(waitroom.Config{DrawKey: key.First()}).Seed,
		Policy: func(*admission.Activity) waitroom.WavePolicy {
			return waitroom.WavePolicy{ShowUpPrior: 1, ReservePrior: 1, PriorWeight: 20, Claim: 7 * time.Second, Use: 4 * time.Second, WaveSize: 10, Rate: 1e6, ModeFactor: 1}
		},
		Lines: func(context.Context) ([]Line, error) { return b.lines, b.lost },
		Now:   func() time.Time { return b.now },
		Log:   slog.New(slog.NewTextHandler(b.log, nil)), Metrics: NewMetrics(b.registry),
	}
	return b
}

// sale is an activity that opens in an hour, with more stock than people.
func (b *bed) sale(id string, mode admission.FairnessMode) *admission.Activity {
	a := &admission.Activity{
		ID: id, Version: 1, OpensAt: b.base.Add(time.Hour), ClosesAt: b.base.Add(2 * time.Hour), PublishedAt: b.base,
		SKUs:     []admission.SKU{{ID: "9" + id, Stock: 100_000, LimitPerUser: 1}},
		Fairness: admission.Fairness{Mode: mode, DrawClosesBefore: 5 * time.Second},
	}
	b.stock.set(a, 100_000)
	if err := b.room.Open(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// join gives people numbered from..to-1 a place.
func (b *bed) join(a *admission.Activity, from, to int) {
	b.t.Helper()
	for n := from; n < to; n++ {
		number, err := b.room.Numbers(b.t.Context(), a.ID, 1, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		p := admission.Place{UserID: fmt.Sprint(70_000_000 + n), Lane: waitroom.DefaultLane, Sequence: number}
		if _, err := b.room.Join(b.t.Context(), a.ID, p, time.Time{}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// round is one round of a leader, its steps included.
func (b *bed) round(r *reign, activities ...*admission.Activity) {
	b.t.Helper()
	if err := r.round(b.t.Context(), activities); err != nil && !errors.Is(err, b.lost) {
		b.t.Fatal(err)
	}
	r.steps.Wait()
}

// state is what is published.
func (b *bed) state(a *admission.Activity) admission.RoomState {
	b.t.Helper()
	s, err := b.room.State(b.t.Context(), a.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func watermark(s admission.RoomState) uint64 { return s.Lanes[waitroom.DefaultLane].Watermark }

// places is the join log, in order of sequence.
func (b *bed) places(a *admission.Activity) []admission.Place {
	b.t.Helper()
	places, _, more, err := b.room.Room.Members(b.t.Context(), a.ID, nil, 10_000)
	if err != nil || more {
		b.t.Fatal(more, err)
	}
	slices.SortFunc(places, func(p, q admission.Place) int { return cmp.Compare(p.Sequence, q.Sequence) })
	return places
}

// released is who is released by a state, worked out from the log as an instance would.
func (b *bed) released(a *admission.Activity, s admission.RoomState) map[string]bool {
	b.t.Helper()
	seed, err := b.waves.Seed(a, s.Seal.Root)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range b.places(a) {
		if rank, ok := waitroom.RankOf(a, p, s.Seal, seed); ok && rank < watermark(s) {
			out[p.UserID] = true
		}
	}
	return out
}

// series are the activities that the metrics still name.
func (b *bed) series() []string {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			ids[m.GetLabel()[0].GetValue()] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// faultyRoom is a room whose calls can be made to fail, before or after they took effect.
type faultyRoom struct {
	admission.Room
	before func() error                                   // of SetState
	after  func() error                                   // of SetState
	pages  func(page []admission.Place) []admission.Place // of Members: another log than is stored
	gone   error                                          // of Members
}

func (r *faultyRoom) Members(ctx context.Context, activityID string, from admission.RoomCursor, limit int) ([]admission.Place, admission.RoomCursor, bool, error) {
	if r.gone != nil {
		return nil, nil, false, r.gone
	}
	page, next, more, err := r.Room.Members(ctx, activityID, from, limit)
	if r.pages != nil {
		page = r.pages(page)
	}
	return page, next, more, err
}

func (r *faultyRoom) SetState(ctx context.Context, activityID string, s admission.RoomState) error {
	if r.before != nil {
		if err := r.before(); err != nil {
			return err
		}
	}
	if err := r.Room.SetState(ctx, activityID, s); err != nil {
		return err
	}
	if r.after != nil {
		return r.after()
	}
	return nil
}

// shelves is the stock: what is left of each SKU. A SKU that is not there is not found;
// one that hangs answers when the question is withdrawn.
type shelves struct {
	admission.Stock
	mu    sync.Mutex
	left  map[admission.SKURef]int64
	hangs map[admission.SKURef]chan struct{} // closed when somebody has begun to wait
}

func (s *shelves) set(a *admission.Activity, left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}] = left
}

func (s *shelves) Snapshot(ctx context.Context, ref admission.SKURef) (admission.StockSnapshot, error) {
	s.mu.Lock()
	left, ok := s.left[ref]
	hangs := s.hangs[ref]
	s.mu.Unlock()
	if hangs != nil {
		close(hangs)
		<-ctx.Done()
		return admission.StockSnapshot{}, errGone
	}
	if !ok {
		return admission.StockSnapshot{}, fmt.Errorf("no stock: %w", admission.ErrNotFound)
	}
	return admission.StockSnapshot{Total: 100_000, Remaining: left, Open: true}, nil
}

// heard keeps the events.
type heard struct {
	mu   sync.Mutex
	all  []admission.Event
	fail error
}

func (h *heard) Publish(_ context.Context, e admission.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e)
	return h.fail
}

func (*heard) Listen(context.Context, func(admission.Event)) error { return nil }
