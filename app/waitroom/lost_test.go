package waitroom

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
)

// emptied replaces the bed's store by one that knows nothing, as a server that came back
// without its memory.
func (b *bed) emptied() {
	b.t.Helper()
	server, err := embedded.Start()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(server.Close)
	client, err := redis.Open(b.t.Context(), server.URL(), redis.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = client.Close() })
	b.store.Room = redis.NewRoom(client)
	b.now = b.now.Add(2 * blockLife) // what was leased before is over
}

// lose is what the leader publishes of a room whose store was emptied.
func (b *bed) lose(s admission.RoomState) {
	b.t.Helper()
	s.Lost = &admission.RoomLoss{Joined: s.Joined, Last: s.Last, Through: admission.Beyond(s.Last) - 1}
	s.Term++
	b.publish(s)
}

// TestALostRoomLetsNobodyInUnreleased: the watermark stays, the page says PAUSED, and who
// joins now does not come into the draw that is over.
func TestALostRoomLetsNobodyInUnreleased(t *testing.T) {
	b := newBed(t)
	passes := map[string]string{}
	for n := range 40 {
		user := fmt.Sprint(70_000_001 + n)
		passes[user] = b.join(user, "phone").Pass
	}
	s := b.draw(1, Drawn/2)
	b.now = b.a.OpensAt
	ask := func() (in map[string]bool) {
		in = map[string]bool{}
		for user, pass := range passes {
			if _, d := b.room.Exchange(t.Context(), b.request(user, "phone"), pass); !d.Refused() {
				in[user] = true
			}
		}
		return in
	}
	released := ask()
	if len(released) == 0 || len(released) == 40 {
		t.Fatalf("%d released: the test says nothing", len(released))
	}
	same := func(when string) {
		t.Helper()
		if in := ask(); fmt.Sprint(in) != fmt.Sprint(released) {
			t.Errorf("%s: %d are released, %d were", when, len(in), len(released))
		}
	}
	b.emptied()
	b.refresh()
	same("the store is empty")
	b.now = b.now.Add(documentAge)
	if w, _ := b.document(); w.State != StatePaused {
		t.Errorf("state %s, want %s until the room is written back", w.State, StatePaused)
	}
	newcomer := b.join("79999999", "phone")
	if newcomer.Standing.Rank < Drawn {
		t.Errorf("who joins an emptied room has rank %d of a draw that is over", newcomer.Standing.Rank)
	}
	passes["79999999"] = newcomer.Pass
	same("somebody has joined anew")

	// A leader that had forgotten begins at nothing: no instance follows it.
	b.publish(admission.RoomState{Term: 9, State: StateOpen, EmitAt: b.now.Add(1), Lanes: map[string]admission.LaneState{DefaultLane: {}}})
	same("a forgetful leader")
	if w := b.room.State("10001"); w.Term != 1 || w.Seal != s.Seal {
		t.Errorf("an instance takes over %+v", w)
	}
	b.emptied()
	b.lose(s)
	same("the room is written back")
	b.now = b.now.Add(documentAge)
	if w, _ := b.document(); w.State != StateOpen {
		t.Errorf("state %s after the room is written back", w.State)
	}
}

// TestAPassGivesALostPlaceBack: as it was, never a better one, and to its owner alone.
func TestAPassGivesALostPlaceBack(t *testing.T) {
	b := newBed(t)
	first := b.join("70000001", "phone")
	mine := b.join("70000002", "phone")
	stranger := b.join("70000003", "phone").Pass
	s := b.draw(1, 0)
	again := func(user, device, pass string) admission.Joined {
		t.Helper()
		j, d := b.room.Join(t.Context(), b.request(user, device), "", pass)
		if d.Refused() {
			t.Fatalf("%+v", d)
		}
		return j
	}
	stored := func(user string) admission.Place {
		t.Helper()
		page, _, _, err := b.store.Members(t.Context(), b.a.ID, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page {
			if p.UserID == user {
				return p
			}
		}
		return admission.Place{}
	}
	was := stored("70000002")
	// Nothing is lost: a pass is worth nothing at the door.
	if got := again("70000009", "phone", mine.Pass); got.Standing.Rank < Drawn {
		t.Errorf("a newcomer with a foreign pass: %+v", got)
	}
	b.emptied()
	b.lose(s)
	if got := again("70000002", "phone", mine.Pass); got.Pass != mine.Pass || stored("70000002") != was {
		t.Errorf("stored %+v, want %+v", stored("70000002"), was)
	}
	if got := again("70000002", "tablet", ""); !got.JoinedAt.Equal(mine.JoinedAt) {
		t.Errorf("on another device: %+v, want the place of before", got)
	}
	for name, pass := range map[string]string{"a stranger's": stranger, "a forged one": mine.Pass + "x", "of another device": again("70000002", "tablet", "").Pass} {
		if got := again("70000004", "phone", pass); got.Standing.Rank < Drawn {
			t.Errorf("%s pass gives rank %d of the draw", name, got.Standing.Rank)
		}
	}
	// Somebody who has joined anew keeps the place of the pass by the pass.
	b.join("70000001", "phone")
	if got := again("70000001", "phone", first.Pass); got.Pass != first.Pass || got.Standing.Rank >= Drawn {
		t.Errorf("%+v, want the place of the pass", got)
	}
	if late := stored("70000001"); late.Sequence <= b.room.State("10001").Lost.Through {
		t.Errorf("stored %+v: what is stored is set if absent", late)
	}
}

// copyStore answers State of a copy.
type copyStore struct{ state admission.RoomState }

func (c copyStore) State(context.Context, string) (admission.RoomState, error) { return c.state, nil }

func (copyStore) SetState(context.Context, string, admission.RoomState) error { return nil }

// TestAnInstanceThatStartsBesideALostRoom: it reads the copy, so that it neither says that
// nothing has begun nor gives anybody a number of before.
func TestAnInstanceThatStartsBesideALostRoom(t *testing.T) {
	b := newBed(t)
	pass := b.join("70000001", "phone").Pass
	s := b.draw(1, everybody-1)
	b.emptied()
	config := b.room.config
	config.Standby = copyStore{s}
	b.room = New(config)
	b.refresh()
	b.now = b.a.OpensAt
	b.exchange(admission.Pass, "70000001", "phone", pass)
	if w, _ := b.document(); w.State != StatePaused {
		t.Errorf("state %s, want %s", w.State, StatePaused)
	}
	if got := b.join("70000002", "phone"); got.Standing.Rank != LateRank(admission.Beyond(1)) {
		t.Errorf("who joins now: %+v, want the first number behind those of before", got.Standing)
	}
}
