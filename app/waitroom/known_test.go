package waitroom

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// stateStore answers State alone.
type stateStore struct {
	admission.Room
	state admission.RoomState
	err   error
}

func (s *stateStore) State(context.Context, string) (admission.RoomState, error) {
	return s.state, s.err
}

func (*stateStore) Open(context.Context, string) error { return nil }

// TestARoomThatHasNotReadKnowsNothing: an instance that has just started is told apart from
// one for which nothing was published; and what was read once stays when the store dies.
func TestARoomThatHasNotReadKnowsNothing(t *testing.T) {
	store := &stateStore{err: fmt.Errorf("connection refused: %w", admission.ErrUnavailable)}
	room := New(Config{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	a := []*admission.Activity{{ID: "10001", Version: 1}}
	knows := func(want bool, when string) {
		t.Helper()
		if got := room.Knows("10001"); got != want {
			t.Errorf("%s: knows %v, want %v", when, got, want)
		}
	}
	knows(false, "before the first reading")
	if err := room.Refresh(t.Context(), a); err == nil {
		t.Error("a store that is away is no error")
	}
	knows(false, "store away")
	store.err = fmt.Errorf("no state: %w", admission.ErrNotFound)
	if err := room.Refresh(t.Context(), a); err != nil {
		t.Error(err)
	}
	knows(true, "nothing was published yet")
	store.err, store.state = nil, admission.RoomState{Term: 3, State: StateOpen, EmitAt: time.Now()}
	if err := room.Refresh(t.Context(), a); err != nil {
		t.Error(err)
	}
	store.err = fmt.Errorf("connection refused: %w", admission.ErrUnavailable)
	_ = room.Refresh(t.Context(), a)
	knows(true, "store away later")
	if got := room.State("10001").State; got != StateOpen {
		t.Errorf("store away later: state %q, want the last one", got)
	}
}
