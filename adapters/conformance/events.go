package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// EventsBackend is a broadcast channel under test.
type EventsBackend struct {
	Events admission.Events
	// Disconnect breaks the connections of all listeners, as a restart of the server would.
	Disconnect func(ctx context.Context) error
}

// Events is the suite of admission.Events. The channel is one for a whole store, so the
// cases look only at events of their own activity.
func Events(t *testing.T, open func(t *testing.T) EventsBackend) {
	t.Run("every listener hears an event", func(t *testing.T) { eventsAll(t, open(t)) })
	t.Run("a listener comes back after a lost connection", func(t *testing.T) { eventsReconnect(t, open(t)) })
	t.Run("listening ends with its context", func(t *testing.T) { eventsEnd(t, open(t)) })
}

// eventsBound is how long a case waits for what must come.
const eventsBound = time.Minute

// listen returns the events of one activity until the test ends.
func listen(t *testing.T, e admission.Events, activityID string) <-chan admission.Event {
	t.Helper()
	heard := make(chan admission.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Listen(ctx, func(v admission.Event) {
			if v.ActivityID == activityID {
				heard <- v
			}
		}); err != nil {
			t.Errorf("listen: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return heard
}

// until publishes an event again and again, since one may be lost, until it was heard.
func until(t *testing.T, e admission.Events, event admission.Event, heard <-chan admission.Event) admission.Event {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	end := time.After(eventsBound)
	for {
		_ = e.Publish(t.Context(), event) // fails while the server is away
		select {
		case got := <-heard:
			if got.MessageID == event.MessageID {
				return got
			}
		case <-again.C:
		case <-end:
			t.Fatalf("%s was not heard within %v", event.MessageID, eventsBound)
		}
	}
}

func eventsAll(t *testing.T, b EventsBackend) {
	id := fresh(t)
	one, two := listen(t, b.Events, id), listen(t, b.Events, id)
	want := admission.Event{
		SchemaVersion: 1, MessageID: "msg_1", Type: admission.EventReopened, ActivityID: id, SKUID: "9007199254740993",
		Version: 8, Incarnation: 1, Epoch: 31, EmittedAt: time.UnixMilli(1782388800000).UTC(),
	}
	for _, heard := range []<-chan admission.Event{one, two} {
		if got := until(t, b.Events, want, heard); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	unstamped := admission.Event{MessageID: "msg_2", Type: admission.EventActivity, ActivityID: id}
	if got := until(t, b.Events, unstamped, one); got.EmittedAt.IsZero() || got.SchemaVersion != 1 {
		t.Errorf("got %+v, want a time and a schema version", got)
	}
}

func eventsReconnect(t *testing.T, b EventsBackend) {
	id := fresh(t)
	heard := listen(t, b.Events, id)
	until(t, b.Events, admission.Event{MessageID: "msg_1", Type: admission.EventSoldOut, ActivityID: id}, heard)
	if err := b.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, b.Events, admission.Event{MessageID: "msg_2", Type: admission.EventReopened, ActivityID: id}, heard)
}

func eventsEnd(t *testing.T, b EventsBackend) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Events.Listen(ctx, func(admission.Event) {}) }()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Listen() = %v, want nil", err)
		}
	case <-time.After(eventsBound):
		t.Error("it did not end")
	}
}
