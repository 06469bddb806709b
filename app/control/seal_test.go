package control

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// TestTwoLeadersSealOneDraw: a leader was paused in the middle of its sealing write, and
// its successor read before that write landed. They know of different openings, so they
// would draw different people. The first seal that lands is the draw; the other leader
// takes it over, though its term is the greater.
func TestTwoLeadersSealOneDraw(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessRandom)
	b.join(a, 0, 30)
	moved := *a
	moved.Version, moved.OpensAt = 2, a.OpensAt.Add(2*time.Second)
	b.room.pages = func(page []admission.Place) []admission.Place { // ten are in the later draw only
		for i := range page {
			if page[i].Sequence > 20 {
				page[i].JoinedAt = a.DrawClosesAt().Add(time.Second)
			}
		}
		return page
	}
	paused, next := b.waves.begin(1), b.waves.begin(2)
	b.now = moved.DrawClosesAt().Add(drawMargin)
	writes := &late{Room: b.room, lost: true}
	b.waves.Room = writes
	b.round(paused, a)         // on its way
	b.waves.Room = b.room      //
	next.halls[a.ID] = &hall{} // the successor has read that nothing is sealed
	if err := next.load(t.Context(), &moved, next.halls[a.ID]); err != nil {
		t.Fatal(err)
	}
	writes.land(t)
	sealed := b.state(a)
	if sealed.Term != 1 || sealed.Seal.Drawn != 20 {
		t.Fatalf("%+v, want the paused leader's write with 20 people", sealed)
	}
	b.round(next, &moved)
	b.now = moved.OpensAt
	for range 6 {
		b.round(next, &moved)
		if s := b.state(a); s.Seal != sealed.Seal {
			t.Fatalf("sealed %+v and then %+v", sealed.Seal, s.Seal)
		}
		b.now = b.now.Add(300 * time.Millisecond)
	}
	s := b.state(a)
	places := map[string]bool{}
	for _, p := range b.room.pages(b.places(a)) {
		seed, _ := b.waves.Seed(a, s.Seal.Root)
		if rank, _ := waitroom.RankOf(a, p, s.Seal, seed); rank < watermark(s) {
			places[p.UserID] = true
		}
	}
	if s.Term != 2 || len(places) != 30 || s.Lanes[waitroom.DefaultLane].Released != 30 {
		t.Errorf("the successor: %+v, %d released, want all 30 by the draw of 20; log:\n%s", s, len(places), b.log)
	}
}

// TestLeadersRaceToSeal: whatever leaders read, write, lose and have land too late, a draw
// is sealed once and a watermark never goes back.
func TestLeadersRaceToSeal(t *testing.T) {
	client, err := redis.Open(t.Context(), store(t), redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		b := newBedOn(t, redis.NewRoom(client))
		a := b.sale(fmt.Sprint(20_000+run), admission.FairnessRandom)
		b.join(a, 0, 25)
		moved := *a
		moved.Version, moved.OpensAt = 2, a.OpensAt.Add(time.Minute)
		versions := []*admission.Activity{a, &moved}
		b.now = a.DrawClosesAt().Add(drawMargin)
		leaders := []*late{{Room: b.room}, {Room: b.room}, {Room: b.room}}
		reigns := make([]*reign, len(leaders))
		for i, l := range leaders {
			waves := *b.waves
			waves.Room = l
			reigns[i] = waves.begin(int64(i + 1))
		}
		var seal admission.RoomSeal
		var mark uint64
		check := func() {
			s, err := b.room.State(t.Context(), a.ID)
			if err != nil {
				return
			}
			if !seal.Zero() && s.Seal != seal || watermark(s) < mark {
				rt.Fatalf("sealed %+v and then %+v; watermark %d and then %d", seal, s.Seal, mark, watermark(s))
			}
			if s.Seal.Zero() && watermark(s) > 0 {
				rt.Fatal("released before the draw was sealed")
			}
			seal, mark = s.Seal, watermark(s)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "events") {
			i := rapid.IntRange(0, len(leaders)-1).Draw(rt, "leader")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				leaders[i].land(t)
			case 1:
				leaders[i].lost = rapid.Bool().Draw(rt, "late")
			case 2:
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 600).Draw(rt, "s")) * time.Second)
			default:
				b.round(reigns[i], versions[rapid.IntRange(0, 1).Draw(rt, "version")])
			}
			check()
		}
		last := reigns[len(reigns)-1]
		for _, l := range leaders {
			l.lost = false
			l.land(t)
		}
		b.now = moved.OpensAt.Add(10 * time.Minute)
		for range 6 {
			b.round(last, &moved)
			check()
			b.now = b.now.Add(300 * time.Millisecond)
		}
		if s := b.state(a); s.Seal.Zero() || len(b.released(a, s)) != 25 {
			rt.Fatalf("%+v: %d released in the end, want all 25; log:\n%s", s, len(b.released(a, s)), b.log)
		}
	})
}

// late is a room whose writes may land after their leader has given them up.
type late struct {
	admission.Room
	lost    bool
	waiting []func() error // writes on their way, at most one a round of its leader
}

func (l *late) SetState(ctx context.Context, activityID string, s admission.RoomState) error {
	if l.lost {
		l.waiting = append(l.waiting, func() error { return l.Room.SetState(context.WithoutCancel(ctx), activityID, s) })
		return fmt.Errorf("no reply: %w", admission.ErrUnknownResult)
	}
	return l.Room.SetState(ctx, activityID, s)
}

// land lets the writes take effect, or be refused.
func (l *late) land(t *testing.T) {
	t.Helper()
	for _, write := range l.waiting {
		_ = write() // a conflict is what it should be
	}
	l.waiting = nil
}
