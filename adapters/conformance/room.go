package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Room is the suite of admission.Room. Cases use activities of their own.
func Room(t *testing.T, open func(t *testing.T) admission.Room) {
	t.Run("one place a user", func(t *testing.T) { roomOnePlace(t, open(t)) })
	t.Run("W04 ten tabs at once are one place", func(t *testing.T) { roomTabs(t, open(t)) })
	t.Run("the log is everybody once, in order", func(t *testing.T) { roomLog(t, open(t)) })
	t.Run("a join out of range takes no place", func(t *testing.T) { roomArguments(t, open(t)) })
	t.Run("state: terms and watermarks never go back", func(t *testing.T) { roomState(t, open(t)) })
	t.Run("removal leaves nothing", func(t *testing.T) { roomRemove(t, open(t)) })
}

func mustJoin(t *testing.T, r admission.Room, activity, user, lane string) admission.Place {
	t.Helper()
	p, err := r.Join(t.Context(), activity, user, lane)
	if err != nil {
		t.Fatalf("join %s: %v", user, err)
	}
	return p
}

func roomOnePlace(t *testing.T, r admission.Room) {
	a := fresh(t)
	first := mustJoin(t, r, a, "7300000000000000001", "default")
	other := mustJoin(t, r, a, "7300000000000000002", "vip")
	again := mustJoin(t, r, a, "7300000000000000001", "vip")
	if again != first {
		t.Errorf("joining again, from another lane: got %+v, want the first place %+v", again, first)
	}
	if first.Sequence != 1 || other.Sequence != 2 || other.Lane != "vip" {
		t.Errorf("got %+v and %+v, want sequences 1 and 2", first, other)
	}
	if elsewhere := mustJoin(t, r, a+"1", "7300000000000000001", "default"); elsewhere.Sequence != 1 {
		t.Errorf("another activity: got %+v, want a line of its own", elsewhere)
	}
}

func roomTabs(t *testing.T, r admission.Room) {
	a := fresh(t)
	places := make([]admission.Place, 10)
	var group sync.WaitGroup
	for i := range places {
		group.Go(func() {
			var err error
			if places[i], err = r.Join(t.Context(), a, "70000001", "default"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, p := range places {
		if p != places[0] || p.Sequence != 1 {
			t.Fatalf("got %+v, want ten times the same place", places)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != 1 || err != nil {
		t.Errorf("joined: got %d, %v, want 1", n, err)
	}
}

func roomLog(t *testing.T, r admission.Room) {
	a := fresh(t)
	const people = 100
	places := make([]admission.Place, people)
	var group sync.WaitGroup
	for i := range places {
		group.Go(func() {
			var err error
			if places[i], err = r.Join(t.Context(), a, fmt.Sprint(70000000+i), "default"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()

	var members []admission.Place
	for {
		page, err := r.Members(t.Context(), a, int64(len(members)), 33)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		members = append(members, page...)
	}
	if len(members) != people {
		t.Fatalf("the log has %d lines, want %d", len(members), people)
	}
	bySequence := make(map[int64]admission.Place, people)
	for _, p := range places {
		bySequence[p.Sequence] = p
	}
	var last time.Time
	for i, m := range members {
		if m.JoinedAt.Before(last) {
			t.Errorf("line %d: time goes back from %v to %v", i, last, m.JoinedAt)
		}
		last = m.JoinedAt
		if p := bySequence[int64(i)+1]; p != m {
			t.Errorf("line %d is %+v, its user was told %+v", i, m, p)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != people || err != nil {
		t.Errorf("joined: got %d, %v, want %d", n, err, people)
	}
}

func roomArguments(t *testing.T, r admission.Room) {
	a := fresh(t)
	for _, bad := range [][2]string{{"", "default"}, {"7 8", "default"}, {"70000001", ""}, {"70000001", "a lane"}, {"70000001", long(long("x")) + "y"}} {
		if p, err := r.Join(t.Context(), a, bad[0], bad[1]); err == nil {
			t.Errorf("join %q in lane %q: got %+v, want an error", bad[0], bad[1], p)
		}
	}
	if n, err := r.Joined(t.Context(), a); n != 0 || err != nil {
		t.Errorf("joined: got %d, %v, want nobody", n, err)
	}
	if page, err := r.Members(t.Context(), a, 0, 10); len(page) != 0 || err != nil {
		t.Errorf("members: got %v, %v, want nobody", page, err)
	}
}

func roomState(t *testing.T, r admission.Room) {
	a := fresh(t)
	if s, err := r.State(t.Context(), a); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("before the first write: got %+v, %v, want ErrNotFound", s, err)
	}
	state := func(term int64, watermarks map[string]uint64) admission.RoomState {
		s := admission.RoomState{
			Term: term, State: "OPEN", Joined: 12, JoinRoot: "ab", Drawn: 10, Lanes: map[string]admission.LaneState{},
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
	a := fresh(t)
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
