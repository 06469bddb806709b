package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Room is the suite of admission.Room. Cases use activities of their own.
func Room(t *testing.T, open func(t *testing.T) admission.Room) {
	t.Run("one place a user", func(t *testing.T) { roomOnePlace(t, open(t)) })
	t.Run("W04 ten tabs at once are one place", func(t *testing.T) { roomTabs(t, open(t)) })
	t.Run("the log is everybody once, as they were told", func(t *testing.T) { roomLog(t, open(t)) })
	t.Run("a join out of range takes no place", func(t *testing.T) { roomArguments(t, open(t)) })
	t.Run("a number is given once", func(t *testing.T) { roomNumbers(t, open(t)) })
	t.Run("numbers go on behind what a lost room had given", func(t *testing.T) { roomLostNumbers(t, open(t)) })
	t.Run("a room begins once", func(t *testing.T) { roomBegin(t, open(t)) })
	t.Run("a lost place is given back as it was", func(t *testing.T) { roomGivenBack(t, open(t)) })
	t.Run("after the draw has closed nobody has joined before", func(t *testing.T) { roomClose(t, open(t)) })
	t.Run("state: terms and watermarks never go back", func(t *testing.T) { roomState(t, open(t)) })
	t.Run("state: a draw is sealed once, whatever the term", func(t *testing.T) { roomSeal(t, open(t)) })
	t.Run("state: of leaders that race to seal one wins", func(t *testing.T) { roomSealRace(t, open(t)) })
	t.Run("removal leaves nothing", func(t *testing.T) { roomRemove(t, open(t)) })
}

// opened is a room that begins.
func opened(t *testing.T, r admission.Room) (activity string) {
	t.Helper()
	a := fresh(t)
	mustOpen(t, r, a)
	return a
}

func mustOpen(t *testing.T, r admission.Room, activity string) {
	t.Helper()
	if err := r.Open(t.Context(), activity); err != nil {
		t.Fatal(err)
	}
}

func mustJoin(t *testing.T, r admission.Room, activity, user, lane string) admission.Place {
	t.Helper()
	p, err := roomJoin(t, r, activity, user, lane)
	if err != nil {
		t.Fatalf("join %s: %v", user, err)
	}
	return p
}

// roomJoin joins with a number of its own.
func roomJoin(t *testing.T, r admission.Room, activity, user, lane string) (admission.Place, error) {
	n, err := r.Numbers(t.Context(), activity, 1, 0)
	if err != nil {
		return admission.Place{}, err
	}
	return r.Join(t.Context(), activity, admission.Place{UserID: user, Lane: lane, Sequence: n}, time.Time{})
}

// roomMembers reads the whole log in pages of about limit.
func roomMembers(t *testing.T, r admission.Room, activity string, limit int) (members []admission.Place, cursor admission.RoomCursor) {
	t.Helper()
	for {
		page, next, more, err := r.Members(t.Context(), activity, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		members, cursor = append(members, page...), next
		if !more {
			return members, cursor
		}
	}
}

func roomOnePlace(t *testing.T, r admission.Room) {
	a := opened(t, r)
	first := mustJoin(t, r, a, "7300000000000000001", "default")
	other := mustJoin(t, r, a, "7300000000000000002", "vip")
	again := mustJoin(t, r, a, "7300000000000000001", "vip")
	if again != first {
		t.Errorf("joining again, from another lane: got %+v, want the first place %+v", again, first)
	}
	if first.Sequence != 1 || other.Sequence != 2 || other.Lane != "vip" {
		t.Errorf("got %+v and %+v, want sequences 1 and 2", first, other)
	}
	mustOpen(t, r, a+"1")
	if elsewhere := mustJoin(t, r, a+"1", "7300000000000000001", "default"); elsewhere.Sequence != 1 {
		t.Errorf("another activity: got %+v, want a line of its own", elsewhere)
	}
}

func roomTabs(t *testing.T, r admission.Room) {
	a := opened(t, r)
	places := make([]admission.Place, 10)
	var group sync.WaitGroup
	for i := range places {
		group.Go(func() {
			var err error
			if places[i], err = roomJoin(t, r, a, "70000001", "default"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, p := range places {
		if p != places[0] || p.Sequence < 1 {
			t.Fatalf("got %+v, want ten times the same place", places)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != (admission.RoomCount{People: 1, Last: 10}) || err != nil {
		t.Errorf("joined: got %+v, %v, want 1 with ten numbers given", n, err)
	}
}

func roomLog(t *testing.T, r admission.Room) {
	a := opened(t, r)
	const people = 100
	byUser := make(map[string]admission.Place, people)
	var mu sync.Mutex
	join := func(from, to int) {
		var group sync.WaitGroup
		for i := from; i < to; i++ {
			group.Go(func() {
				p, err := roomJoin(t, r, a, fmt.Sprint(70000000+i), "default")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				byUser[p.UserID] = p
			})
		}
		group.Wait()
	}
	join(0, people/2)
	members, cursor := roomMembers(t, r, a, 33)
	join(people/2, people)
	for more := true; more; { // on from where it was
		var page []admission.Place
		var err error
		if page, cursor, more, err = r.Members(t.Context(), a, cursor, 33); err != nil {
			t.Fatal(err)
		}
		members = append(members, page...)
	}
	if len(members) != people {
		t.Fatalf("the log has %d lines, want %d", len(members), people)
	}
	for _, m := range members {
		if p := byUser[m.UserID]; p != m {
			t.Errorf("the log has %+v, its user was told %+v", m, p)
		}
		delete(byUser, m.UserID)
	}
	if n, err := r.Joined(t.Context(), a); n != (admission.RoomCount{People: people, Last: people}) || err != nil {
		t.Errorf("joined: got %+v, %v, want %d", n, err, people)
	}
}

func roomArguments(t *testing.T, r admission.Room) {
	a := fresh(t)
	for _, bad := range []admission.Place{
		{UserID: "", Lane: "default", Sequence: 1}, {UserID: "7 8", Lane: "default", Sequence: 1},
		{UserID: "70000001", Lane: "", Sequence: 1}, {UserID: "70000001", Lane: "a lane", Sequence: 1},
		{UserID: "70000001", Lane: long(long("x")) + "y", Sequence: 1},
		{UserID: "70000001", Lane: "default"}, {UserID: "70000001", Lane: "default", Sequence: -1}, {UserID: "70000001", Lane: "default", Sequence: 1 << 53},
	} {
		if p, err := r.Join(t.Context(), a, bad, time.Time{}); err == nil {
			t.Errorf("join %+v: got %+v, want an error", bad, p)
		}
	}
	for _, n := range []int64{-1, 0, admission.MaxNumbers + 1} {
		if first, err := r.Numbers(t.Context(), a, n, 0); err == nil {
			t.Errorf("%d numbers: got %d, want an error", n, first)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != (admission.RoomCount{}) || err != nil {
		t.Errorf("joined: got %+v, %v, want nobody", n, err)
	}
	if page, _, more, err := r.Members(t.Context(), a, nil, 10); len(page) != 0 || more || err != nil {
		t.Errorf("members: got %v, %v, %v, want nobody", page, more, err)
	}
}

func roomNumbers(t *testing.T, r admission.Room) {
	a := opened(t, r)
	const blocks, size = 20, 7
	given := make([]int64, blocks)
	var group sync.WaitGroup
	for i := range given {
		group.Go(func() {
			var err error
			if given[i], err = r.Numbers(t.Context(), a, size, 0); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	slices.Sort(given)
	for i, first := range given {
		if want := int64(i)*size + 1; first != want {
			t.Fatalf("blocks begin at %v, want one every %d numbers from 1", given, size)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != (admission.RoomCount{Last: blocks * size}) || err != nil {
		t.Errorf("joined: got %+v, %v", n, err)
	}
}

// roomLostNumbers: whatever the caller knows, the numbers of a store without its count are
// none of before, and Joined tells from where they go on.
func roomLostNumbers(t *testing.T, r admission.Room) {
	count := func(a string) admission.RoomCount {
		t.Helper()
		c, err := r.Joined(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lease := func(a string, n, known int64) int64 {
		t.Helper()
		first, err := r.Numbers(t.Context(), a, n, known)
		if err != nil {
			t.Fatal(err)
		}
		return first
	}
	const ten = 600_000_000 // numbers that a million a second give in ten minutes
	for _, known := range []int64{0, 5000} {
		a := fresh(t)
		before := time.Since(time.Unix(1577836800, 0)).Microseconds() - ten
		first := lease(a, 10, known)
		if first < before || first > before+2*ten {
			t.Fatalf("a store that knows nothing: got %d, want the microseconds since 2020", first)
		}
		if c := count(a); c != (admission.RoomCount{Last: first + 9, From: first - 1, Known: known}) {
			t.Fatalf("%+v after the numbers from %d", c, first)
		}
		for n, known := range []int64{0, known, known + 1, first + 9} { // whoever knows less, or as much
			if next := lease(a, 1, known); next != first+10+int64(n) {
				t.Fatalf("after %d, to one who knows of %d: %d", first, known, next)
			}
		}
		mustOpen(t, r, a) // too late
		if again := lease(a, 1, 0); again != first+14 {
			t.Errorf("opened since: %d, want %d", again, first+14)
		}
		// Lost again.
		if err := r.RemoveRoom(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if again := lease(a, 1, known); again <= first+14 || count(a).From == first-1 {
			t.Errorf("lost twice: %d after %d, %+v", again, first+14, count(a))
		}
	}
	// The clock is behind: a caller knows better. And a store that came back with less.
	a := opened(t, r)
	const far = 900_000_000_000_000
	if first := lease(a, 1, far); first != far+1 {
		t.Errorf("got %d, want the number behind %d", first, int64(far))
	}
}

func roomBegin(t *testing.T, r admission.Room) {
	a := fresh(t)
	first := make([]bool, 5)
	var group sync.WaitGroup
	for i := range first {
		group.Go(func() {
			var err error
			if first[i], err = r.Begin(t.Context(), a); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	begun := 0
	for _, yes := range first {
		if yes {
			begun++
		}
	}
	if begun != 1 {
		t.Errorf("%d have begun it, want one", begun)
	}
	if s, err := r.State(t.Context(), a); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("before the first write: got %+v, %v, want ErrNotFound", s, err)
	}
	if err := r.SetState(t.Context(), a, admission.RoomState{Term: 1, State: "OPEN"}); err != nil {
		t.Fatal(err)
	}
	if again, err := r.Begin(t.Context(), a); again || err != nil {
		t.Errorf("beside a state: %v, %v", again, err)
	}
	for range 2 {
		mustOpen(t, r, a)
		if _, err := r.Numbers(t.Context(), a, 3, 0); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := r.Joined(t.Context(), a); err != nil || c != (admission.RoomCount{Last: 6}) {
		t.Errorf("%+v, %v, want six numbers from 1", c, err)
	}
}

func roomGivenBack(t *testing.T, r admission.Room) {
	a := fresh(t)
	was := admission.Place{UserID: "70000001", Lane: "vip", JoinedAt: time.UnixMilli(1782388800123), Sequence: 17}
	if got, err := r.Join(t.Context(), a, was, time.Now()); err != nil || got != was {
		t.Errorf("got %+v, %v, want %+v", got, err, was)
	}
	better := was
	better.JoinedAt, better.Sequence = was.JoinedAt.Add(-time.Hour), 1
	if got, err := r.Join(t.Context(), a, better, time.Time{}); err != nil || got != was {
		t.Errorf("a better one: got %+v, %v, want %+v", got, err, was)
	}
	anew := mustJoin(t, r, a, "70000002", "default")
	other := admission.Place{UserID: "70000002", Lane: "default", JoinedAt: was.JoinedAt, Sequence: 3}
	if got, err := r.Join(t.Context(), a, other, time.Time{}); err != nil || got != anew {
		t.Errorf("one who has joined anew: got %+v, %v, want %+v", got, err, anew)
	}
	if members, _ := roomMembers(t, r, a, 10); len(members) != 2 {
		t.Errorf("the log has %+v, want both once", members)
	}
}

func roomClose(t *testing.T, r admission.Room) {
	a := fresh(t)
	before := mustJoin(t, r, a, "70000001", "default")
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond) // the store's clock is behind the closing
	for _, to := range []time.Time{at, at.Add(-time.Minute)} {
		if err := r.CloseDraw(t.Context(), a, to); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 100 { // in every part of the room
		if p := mustJoin(t, r, a, fmt.Sprint(70001000+n), "default"); p.JoinedAt.Before(at) {
			t.Fatalf("%+v joined before %v, when the draw had closed", p, at)
		}
	}
	if again := mustJoin(t, r, a, "70000001", "default"); again != before {
		t.Errorf("got %+v, want the place of before %+v", again, before)
	}
	// A store that has lost even that is told by who joins there.
	told, err := r.Join(t.Context(), a+"1", admission.Place{UserID: "70000001", Lane: "default", Sequence: 1}, at)
	if err != nil || told.JoinedAt.Before(at) {
		t.Errorf("got %+v, %v, want %v at the least", told, err, at)
	}
}

func roomSeal(t *testing.T, r admission.Room) {
	a := fresh(t)
	state := func(term int64, seal admission.RoomSeal) admission.RoomState {
		return admission.RoomState{Term: term, State: "DRAWN", Seal: seal, EmitAt: time.UnixMilli(1782388800123).UTC()}
	}
	one := admission.RoomSeal{Root: "aa", Drawn: 10, BeforeMS: 1782388800000, Last: 12}
	other := func(change func(*admission.RoomSeal)) admission.RoomSeal {
		s := one
		change(&s)
		return s
	}
	for _, step := range []struct {
		what     string
		state    admission.RoomState
		conflict bool
	}{
		{"open", state(1, admission.RoomSeal{}), false},
		{"sealed", state(1, one), false},
		{"the same by the next leader", state(2, one), false},
		{"another root", state(3, other(func(s *admission.RoomSeal) { s.Root = "bb" })), true},
		{"another count", state(3, other(func(s *admission.RoomSeal) { s.Drawn = 11 })), true},
		{"another boundary", state(3, other(func(s *admission.RoomSeal) { s.BeforeMS++ })), true},
		{"none", state(3, admission.RoomSeal{}), true},
		{"the same", state(3, one), false},
	} {
		err := r.SetState(t.Context(), a, step.state)
		if errors.Is(err, admission.ErrConflict) != step.conflict || (err != nil) != step.conflict {
			t.Errorf("%s: got %v, want conflict %v", step.what, err, step.conflict)
		}
	}
	if got, err := r.State(t.Context(), a); err != nil || got.Seal != one || got.Term != 3 {
		t.Errorf("stored %+v, %v", got, err)
	}
}

// roomSealRace: a paused leader's write and its successor's meet in every order; the store
// keeps the first, and tells all others so.
func roomSealRace(t *testing.T, r admission.Room) {
	for round := range 20 {
		a := fmt.Sprint(fresh(t), round)
		const leaders = 4
		won := make([]bool, leaders)
		var group sync.WaitGroup
		for n := range leaders {
			group.Go(func() {
				s := admission.RoomState{Term: int64(n + 1), State: "DRAWN", Seal: admission.RoomSeal{Root: fmt.Sprintf("%02x", n), Drawn: int64(n), BeforeMS: 1}}
				err := r.SetState(t.Context(), a, s)
				if won[n] = err == nil; err != nil && !errors.Is(err, admission.ErrConflict) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		s, err := r.State(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for n, won := range won {
			if won != (s.Seal.Root == fmt.Sprintf("%02x", n)) {
				t.Fatalf("round %d: %v won, stored %+v", round, won, s.Seal)
			}
		}
	}
}

func roomState(t *testing.T, r admission.Room) {
	a := fresh(t)
	if s, err := r.State(t.Context(), a); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("before the first write: got %+v, %v, want ErrNotFound", s, err)
	}
	state := func(term int64, watermarks map[string]uint64) admission.RoomState {
		s := admission.RoomState{
			Term: term, State: "OPEN", Joined: 12, Last: 14, Seal: admission.RoomSeal{Root: "ab", Drawn: 10, BeforeMS: 7, Last: 11}, Lanes: map[string]admission.LaneState{},
			Waves: json.RawMessage(`[{"at":1}]`), EmitAt: time.UnixMilli(1782388800123).UTC(),
		}
		for lane, w := range watermarks {
			s.Lanes[lane] = admission.LaneState{Watermark: w, Released: 3, ReleasePerSec: 1.5}
		}
		return s
	}
	const top = 1<<53 - 1
	for _, step := range []struct {
		what     string
		state    admission.RoomState
		conflict bool
	}{
		{"first", state(3, map[string]uint64{"default": 10}), false},
		{"the same again", state(3, map[string]uint64{"default": 10}), false},
		{"forward", state(3, map[string]uint64{"default": top - 1}), false},
		{"back by one, near 2^53", state(3, map[string]uint64{"default": top - 2}), true},
		{"forward by one, near 2^53", state(3, map[string]uint64{"default": top}), false},
		{"a new leader goes back", state(4, map[string]uint64{"default": 5}), true},
		{"a new leader goes on", state(4, map[string]uint64{"default": top, "vip": 1}), false},
		{"the old leader wakes up", state(3, map[string]uint64{"default": top, "vip": 2}), true},
		{"a lane is forgotten", state(5, map[string]uint64{"default": top}), true},
	} {
		before, _ := r.State(t.Context(), a)
		err := r.SetState(t.Context(), a, step.state)
		if errors.Is(err, admission.ErrConflict) != step.conflict || (err != nil) != step.conflict {
			t.Errorf("%s: got %v, want conflict %v", step.what, err, step.conflict)
		}
		want := step.state
		if step.conflict {
			want = before
		}
		got, err := r.State(t.Context(), a)
		if err != nil || asJSON(t, got) != asJSON(t, want) {
			t.Errorf("%s: stored %s, %v, want %s", step.what, asJSON(t, got), err, asJSON(t, want))
		}
	}
	if err := r.SetState(t.Context(), a, state(9, map[string]uint64{"default": 1 << 53})); err == nil || errors.Is(err, admission.ErrConflict) {
		t.Errorf("a watermark of 2^53: got %v, want it refused as out of range", err)
	}
}

func roomRemove(t *testing.T, r admission.Room) {
	a := opened(t, r)
	mustJoin(t, r, a, "70000001", "default")
	if err := r.SetState(t.Context(), a, admission.RoomState{Term: 1, State: "OPEN"}); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveRoom(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := r.State(t.Context(), a); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("state: got %v, want ErrNotFound", err)
	}
	mustOpen(t, r, a)
	if p := mustJoin(t, r, a, "70000002", "default"); p.Sequence != 1 {
		t.Errorf("got %+v, want a new line", p)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
