package waitroom

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/ticket"
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
	if _, err := b.store.Numbers(b.t.Context(), b.a.ID, 1, s.Last); err != nil {
		b.t.Fatal(err)
	}
	count, err := b.store.Joined(b.t.Context(), b.a.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	s.Lost = &admission.RoomLoss{Joined: s.Joined, Last: s.Last, Through: count.From, From: count.From}
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
	if w, _ := b.document(); w.State != StateOpen || len(w.Gaps) != 1 || w.Gaps[0].Joined != 40 || w.Gaps[0].Through != b.room.State("10001").Lost.Through {
		t.Errorf("state %s after the room is written back, gaps %+v", w.State, w.Gaps)
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

func (copyStore) Begin(context.Context, string) (bool, error) { return false, nil }

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
	if got := b.join("70000002", "phone"); got.Standing.Rank < LateRank(1_000_000) {
		t.Errorf("who joins now: %+v, want a number far behind those of before", got.Standing)
	}
}

// TestNumbersOfALostRoomNeverRepeat: no leader has published anything, one instance has
// leased far beyond what the other knows of, and the store comes back empty. The other is the
// first to lease there, or a third that starts beside the lost room.
func TestNumbersOfALostRoomNeverRepeat(t *testing.T) {
	for _, started := range []bool{false, true} {
		t.Run(fmt.Sprintf("an instance starts since %v", started), func(t *testing.T) {
			b := newBed(t)
			b.emptied() // nobody has opened it
			server, err := embedded.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			client, err := redis.Open(t.Context(), server.URL(), redis.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			config := b.room.config
			config.Standby = redis.NewRoom(client)
			instance := func() *Room {
				room := New(config)
				if err := room.Refresh(t.Context(), []*admission.Activity{b.a}); err != nil {
					t.Fatal(err)
				}
				return room
			}
			ahead, behind := instance(), instance()
			whose := map[int64]string{}
			join := func(room *Room, from, to int) (numbers []int64) {
				t.Helper()
				for n := from; n < to; n++ {
					user := fmt.Sprint(70_000_000 + n)
					j, d := room.Join(t.Context(), b.request(user, "phone"), "", "")
					if d.Refused() {
						t.Fatalf("%+v", d)
					}
					pass, _ := b.room.config.Ring.VerifyPass(j.Pass, ticket.PassExpect{ActivityID: b.a.ID, UserID: user, DeviceHash: b.request(user, "phone").DeviceHash})
					if other, given := whose[pass.Sequence]; given {
						t.Fatalf("number %d is %s's and %s's", pass.Sequence, other, user)
					}
					whose[pass.Sequence] = user
					numbers = append(numbers, pass.Sequence)
				}
				return numbers
			}
			if n := join(behind, 0, 3); n[0] != 1 {
				t.Fatalf("a new room begins at %d", n[0])
			}
			join(ahead, 3, 300)
			for loss := range 2 {
				b.emptied()
				if started {
					behind = instance()
				}
				join(behind, 1000*(loss+1), 1000*(loss+1)+100)
				join(ahead, 1000*(loss+1)+100, 1000*(loss+1)+400)
				b.refresh()
			}
			// Ranks behind the draw stay exact numbers in JSON and in a watermark.
			for n := range whose {
				if LateRank(n) >= 1<<53 {
					t.Fatalf("number %d", n)
				}
			}
		})
	}
}

// TestOneLeaseIsRemembered: an instance asks no store to count behind less than it was given.
func TestOneLeaseIsRemembered(t *testing.T) {
	for _, strict := range []bool{false, true} {
		var known []int64
		n := newNumbers(func(_ context.Context, _ string, size, told int64) (int64, error) {
			known = append(known, told)
			return told + 500, nil
		})
		for i, published := range []int64{7, 0, 2000} {
			if _, err := n.take(t.Context(), "10001", published, strict, time.Unix(int64(1000+10*i), 0)); err != nil {
				t.Fatal(err)
			}
		}
		if want := []int64{7, 507, 2000}; !slices.Equal(known, want) {
			t.Errorf("strict %v: known %d, want %d", strict, known, want)
		}
	}
}

// TestPeopleAheadAcrossLosses: numbers leap with each loss, the estimate does not.
func TestPeopleAheadAcrossLosses(t *testing.T) {
	const first, second = 200_000_000_000_000, 210_000_000_000_000
	open := admission.RoomState{Joined: 100, Last: 120}
	once := admission.RoomState{Joined: 150, Last: first + 60, Lost: &admission.RoomLoss{Joined: 100, Last: 120, Through: first, From: first}}
	twice := admission.RoomState{Joined: 180, Last: second + 30, Lost: &admission.RoomLoss{Joined: 150, Last: first + 60, Through: second, From: second, Earlier: once.Lost.Gaps()}}
	for _, c := range []struct {
		name     string
		sequence int64
		state    admission.RoomState
		want     int64
	}{
		{"no loss", 61, open, 50},
		{"lost, and nothing published of it", first + 5, open, 100},
		{"nothing published at all", 3, admission.RoomState{}, 2},
		{"of before", 61, once, 50},
		{"just before the loss", 5000, once, 99},
		{"since", first + 31, once, 125},
		{"of before both", 61, twice, 50},
		{"between them", first + 31, twice, 125},
		{"just before the second", first + 500, twice, 149},
		{"since the second", second + 11, twice, 160},
		{"lost for the third time, and nothing published of it", second + 10*unheard, twice, 180},
	} {
		if got := ahead(c.sequence, c.state); got != c.want {
			t.Errorf("%s: %d ahead, want %d", c.name, got, c.want)
		}
	}
}
