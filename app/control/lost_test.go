package control

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// lostBed is a sale whose room's store can be emptied. people are the places as their
// passes say them.
type lostBed struct {
	*bed
	empty  func()
	people map[string]admission.Place
	mark   uint64
	seal   admission.RoomSeal
	turn   map[string]int // user -> round in which they were released
	rounds int
}

// everyStore runs a test on an embedded store and, unless -short, on a Redis of its own
// that is killed and comes back with nothing.
func everyStore(t *testing.T, f func(t *testing.T, b *lostBed)) {
	t.Run("embedded", func(t *testing.T) {
		b := newLostBed(t, store(t))
		b.empty = func() {
			if err := b.client.FlushAll(t.Context()).Err(); err != nil { // a store of this test alone
				t.Fatal(err)
			}
		}
		f(t, b.lostBed)
	})
	t.Run("redis", func(t *testing.T) {
		own := servers.StartOwnRedis(t)
		b := newLostBed(t, own.URL())
		b.empty = func() { own.Kill(); own.Start() }
		f(t, b.lostBed)
	})
}

type openedBed struct {
	*lostBed
	client goredis.UniversalClient
}

func newLostBed(t *testing.T, url string) openedBed {
	t.Helper()
	open := func(url string) goredis.UniversalClient {
		client, err := redis.Open(t.Context(), url, redis.Options{Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client := open(url)
	b := &lostBed{bed: newBedOn(t, redis.NewRoom(client)), people: map[string]admission.Place{}, turn: map[string]int{}}
	b.waves.Standby = redis.NewRoom(open(store(t)))
	return openedBed{b, client}
}

// enter lets people numbered from..to-1 join, as an instance does that has read s.
func (b *lostBed) enter(a *admission.Activity, s admission.RoomState, from, to int) {
	b.t.Helper()
	var closed time.Time
	if !s.Seal.Zero() {
		closed = time.UnixMilli(s.Seal.BeforeMS)
	}
	for n := from; n < to; n++ {
		number, err := b.room.Numbers(b.t.Context(), a.ID, 1, s.Last)
		if err != nil {
			b.t.Fatal(err)
		}
		p, err := b.room.Join(b.t.Context(), a.ID, admission.Place{UserID: fmt.Sprint(70_000_000 + n), Lane: waitroom.DefaultLane, Sequence: number}, closed)
		if err != nil {
			b.t.Fatal(err)
		}
		b.people[p.UserID] = p
	}
}

// step is one round, and what must be true after each: the draw stays, the watermark does
// not go back, and each turn comes once.
func (b *lostBed) step(r *reign, a *admission.Activity) (released int) {
	b.t.Helper()
	b.round(r, a)
	b.now = b.now.Add(300 * time.Millisecond)
	b.rounds++
	s := b.state(a)
	if watermark(s) < b.mark || !b.seal.Zero() && s.Seal != b.seal {
		b.t.Fatalf("round %d: %+v after watermark %d of %+v; log:\n%s", b.rounds, s, b.mark, b.seal, b.log)
	}
	b.mark, b.seal = watermark(s), s.Seal
	seed, err := b.waves.Seed(a, s.Seal.Root)
	if err != nil {
		b.t.Fatal(err)
	}
	for user, p := range b.people {
		rank, ok := waitroom.RankOf(a, p, s.Seal, seed)
		if _, had := b.turn[user]; !had && ok && rank < b.mark {
			b.turn[user] = b.rounds
			released++
		}
	}
	return released
}

// TestARoomEmptiedInTheMiddleOfASale: the leader goes on from the copy, whether it is the
// same or a new one. Those who joined are released by their passes, at the pace of before;
// who joins after the loss comes behind them.
func TestARoomEmptiedInTheMiddleOfASale(t *testing.T) {
	for _, mode := range []admission.FairnessMode{admission.FairnessRandom, admission.FairnessFIFO} {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, same leader %v", mode, same), func(t *testing.T) {
				everyStore(t, func(t *testing.T, b *lostBed) {
					a := b.sale("10001", mode)
					b.enter(a, admission.RoomState{}, 0, 200)
					r := b.waves.begin(1)
					b.now = a.DrawClosesAt().Add(drawMargin)
					b.step(r, a)
					b.enter(a, b.state(a), 200, 230) // behind the draw
					b.now = a.OpensAt
					for range 6 {
						if n := b.step(r, a); n != 10 {
							t.Fatalf("%d released in a wave of 10", n)
						}
					}
					before := b.state(a)
					b.empty()
					if !same {
						r = b.waves.begin(2)
					}
					b.enter(a, before, 1000, 1005) // before the leader has looked
					for i := 0; len(b.turn) < 230; i++ {
						n := b.step(r, a)
						if n > 40 || i > 60 {
							t.Fatalf("%d released in round %d after the loss, %d in all", n, i, len(b.turn))
						}
					}
					s := b.state(a)
					if s.Lost == nil || s.Lost.Joined != 230 || s.Joined != 235 {
						t.Errorf("%+v (%+v), want 230 lost and five since", s, s.Lost)
					}
					last := 0
					for n := range 230 {
						last = max(last, b.turn[fmt.Sprint(70_000_000+n)])
					}
					b.enter(a, s, 1005, 1025)
					for range 6 {
						if n := b.step(r, a); n > 10 {
							t.Errorf("%d of those who joined since released in one wave: the log has them all", n)
						}
					}
					for n := range 25 {
						if turn := b.turn[fmt.Sprint(70_001_000+n)]; turn < last {
							t.Errorf("newcomer %d was released in round %d, the last of those of before in %d", n, turn, last)
						}
					}
					if recordsOf(t, b.state(a)).Released < 230 {
						t.Errorf("the records count %d", recordsOf(t, b.state(a)).Released)
					}
				})
			})
		}
	}
}

// TestARoomThatRefillsBeforeTheLeaderCounts: more people join the emptied room than it had,
// so that no count tells of the loss. All are released, at about the pace of before; and so again
// after a second loss, when not even those of before the first have all had their turn.
func TestARoomThatRefillsBeforeTheLeaderCounts(t *testing.T) {
	for _, mode := range []admission.FairnessMode{admission.FairnessRandom, admission.FairnessFIFO} {
		t.Run(string(mode), func(t *testing.T) {
			everyStore(t, func(t *testing.T, b *lostBed) {
				a := b.sale("10001", mode)
				b.enter(a, admission.RoomState{}, 0, 25)
				r := b.waves.begin(1)
				b.now = a.DrawClosesAt().Add(drawMargin)
				b.step(r, a)
				b.now = a.OpensAt
				if n := b.step(r, a); n != 10 {
					t.Fatalf("%d released in a wave of 10", n)
				}
				// lose empties the room, fills it up to all people before a leader looks, and
				// goes on until some of them were released.
				lose := func(term int64, all, released int) {
					t.Helper()
					before := b.state(a)
					b.empty()
					b.enter(a, before, len(b.people), all)
					r = b.waves.begin(term)
					for i := 0; len(b.turn) < released; i++ {
						if n := b.step(r, a); n > 40 || i > 60 {
							t.Fatalf("%d released in round %d after a loss, %d in all; log:\n%s", n, i, len(b.turn), b.log)
						}
					}
					if s := b.state(a); s.Lost == nil || s.Lost.Joined != before.Joined || s.Joined != int64(all) || s.State != waitroom.StateOpen {
						t.Errorf("%+v (%+v), want %d lost of %d", s, s.Lost, before.Joined, all)
					}
				}
				lose(2, 85, 20)
				lose(3, 205, 205)
			})
		})
	}
}

// TestARoomEmptiedBeforeTheDraw: who shows a pass is in the log and the root again; who
// does not keeps the rank of the draw by the pass.
func TestARoomEmptiedBeforeTheDraw(t *testing.T) {
	everyStore(t, func(t *testing.T, b *lostBed) {
		a := b.sale("10001", admission.FairnessRandom)
		b.enter(a, admission.RoomState{}, 0, 100)
		r := b.waves.begin(1)
		b.step(r, a)
		before := b.state(a)
		b.empty()
		b.step(r, a)
		for n := range 60 {
			p := b.people[fmt.Sprint(70_000_000+n)]
			if got, err := b.room.Join(t.Context(), a.ID, p, time.Time{}); err != nil || got != p {
				t.Fatalf("%+v, %v, want %+v", got, err, p)
			}
		}
		b.enter(a, before, 100, 110)
		b.now = a.DrawClosesAt().Add(drawMargin)
		b.step(b.waves.begin(2), a)
		s := b.state(a)
		if s.Seal.Drawn != 70 || s.Lost.InDraw != 110 || s.Joined != 110 {
			t.Fatalf("%+v (%+v), want 70 under the root, 110 in the draw; log:\n%s", s, s.Lost, b.log)
		}
		b.enter(a, s, 110, 120)
		b.now = a.OpensAt
		r = b.waves.begin(3)
		for i := 0; len(b.turn) < 120; i++ {
			if n := b.step(r, a); n > 40 || i > 30 {
				t.Fatalf("%d released in round %d, %d in all", n, i, len(b.turn))
			}
		}
	})
}

// TestACopyThatIsAheadIsTakenOver: the leader died between the copy and the room.
func TestACopyThatIsAheadIsTakenOver(t *testing.T) {
	b := newLostBed(t, store(t))
	a := b.sale("10001", admission.FairnessRandom)
	b.enter(a, admission.RoomState{}, 0, 50)
	r := b.waves.begin(1)
	b.now = a.DrawClosesAt().Add(drawMargin)
	b.room.before = func() error { return errGone } // the seal is in the copy alone
	b.round(r, a)
	b.room.before = nil
	kept, err := b.waves.Standby.State(t.Context(), a.ID)
	if err != nil || kept.Seal.Drawn != 50 {
		t.Fatalf("%+v, %v", kept, err)
	}
	b.seal, b.now = kept.Seal, a.OpensAt
	r = b.waves.begin(2)
	b.step(r, a)
	b.room.before = func() error { return errGone } // a wave is in the copy alone
	b.round(r, a)
	b.room.before = nil
	kept, err = b.waves.Standby.State(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.mark = watermark(kept)
	b.now = b.now.Add(300 * time.Millisecond)
	r = b.waves.begin(3)
	for range 3 {
		b.step(r, a)
	}
	if s := b.state(a); len(b.turn) != 50 || s.Lanes[waitroom.DefaultLane].Released != 50 || recordsOf(t, s).Released != 50 {
		t.Errorf("%d released, %+v", len(b.turn), s)
	}
	// A copy that is away stops the waves: it must never be behind.
	b.waves.Standby = &faultyRoom{Room: redis.NewRoom(b.client), before: func() error { return errGone }}
	b.enter(a, b.state(a), 50, 60)
	b.round(r, a)
	if s := b.state(a); watermark(s) != b.mark {
		t.Errorf("a watermark that the copy does not have: %d", watermark(s))
	}
}

// TestALeaderOpensARoomOnce: the first number of a new room is 1. Of one that was opened and is
// lost it is a greater one, also where nothing was ever published of it but in the copy, or not
// even there.
func TestALeaderOpensARoomOnce(t *testing.T) {
	for _, copied := range []bool{true, false} {
		t.Run(fmt.Sprintf("a copy %v", copied), func(t *testing.T) {
			b := newLostBed(t, store(t))
			a := b.sale("10001", admission.FairnessFIFO)
			number := func() int64 {
				t.Helper()
				b.enter(a, admission.RoomState{}, len(b.people), len(b.people)+1)
				return b.people[fmt.Sprint(70_000_000+len(b.people)-1)].Sequence
			}
			forget := func() {
				t.Helper()
				if err := b.client.FlushAll(t.Context()).Err(); err != nil { // a store of this test alone
					t.Fatal(err)
				}
			}
			forget() // sale has opened it
			b.room.before = func() error { return errGone }
			if copied {
				b.round(b.waves.begin(1), a)
			} else {
				b.waves.Standby = &faultyRoom{Room: b.waves.Standby.(admission.Room), before: func() error { return errGone }}
				b.round(b.waves.begin(1), a)
			}
			b.room.before = nil
			if n := number(); n != 1 {
				t.Fatalf("the first number is %d", n)
			}
			forget()
			b.round(b.waves.begin(2), a)
			if n := number(); n < 1_000_000 {
				t.Errorf("the first number since the loss is %d", n)
			}
		})
	}
}
