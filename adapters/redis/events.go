package redis

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// eventChannel is the one broadcast channel.
	eventChannel = "sec:events"
	// maxEventLen bounds one broadcast, bytes.
	maxEventLen = 4 << 10
	// eventSilence is how long a subscription may say nothing before it is pinged; as long
	// again without an answer, and it is made anew.
	eventSilence = 2 * time.Second
	// eventRetry is the pause before a failed subscription is made anew.
	eventRetry = 200 * time.Millisecond
)

// Events implements admission.Events on Pub/Sub. It loses what is sent while a
// subscription is broken; whoever listens converges by snapshots.
type Events struct {
	client goredis.UniversalClient
	now    func() time.Time
	log    *slog.Logger
}

var _ admission.Events = (*Events)(nil)

// NewEvents uses a client that Open made. now stamps events that carry no time.
func NewEvents(c goredis.UniversalClient, now func() time.Time, log *slog.Logger) *Events {
	return &Events{client: c, now: now, log: log}
}

// Publish implements admission.Events.
func (e *Events) Publish(ctx context.Context, event admission.Event) error {
	if event.SchemaVersion == 0 {
		event.SchemaVersion = 1
	}
	if event.EmittedAt.IsZero() {
		event.EmittedAt = e.now().UTC()
	}
	b, err := json.Marshal(event)
	if err == nil && len(b) > maxEventLen {
		err = errors.New("longer than an event may be")
	}
	if err != nil {
		return Classify("publish", badArgument(err.Error()))
	}
	return Classify("publish", e.client.Publish(ctx, eventChannel, b).Err())
}

// Listen implements admission.Events. It calls f from one goroutine.
func (e *Events) Listen(ctx context.Context, f func(admission.Event)) error {
	for ctx.Err() == nil {
		err := e.listenOnce(ctx, f)
		if ctx.Err() != nil {
			return nil
		}
		e.log.Warn("event subscription broke", "event", "events_resubscribe", "kind", string(KindOf(Classify("listen", err))))
		select {
		case <-ctx.Done():
		case <-time.After(eventRetry):
		}
	}
	return nil
}

// listenOnce listens on one subscription until it breaks.
func (e *Events) listenOnce(ctx context.Context, f func(admission.Event)) error {
	sub := e.client.Subscribe(ctx, eventChannel)
	closed := context.AfterFunc(ctx, func() { _ = sub.Close() }) // a read does not see ctx end by itself
	defer func() {
		if closed() {
			_ = sub.Close()
		}
	}()
	pinged := false
	for {
		message, err := sub.ReceiveTimeout(ctx, eventSilence)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
			if m, ok := message.(*goredis.Message); ok {
				e.deliver(m.Payload, f)
			}
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
		default:
			return err
		}
	}
}

func (e *Events) deliver(payload string, f func(admission.Event)) {
	var event admission.Event
	if len(payload) > maxEventLen {
		return
	}
	if err := json.Unmarshal([]byte(payload), &event); err != nil || event.SchemaVersion != 1 {
		e.log.Warn("event ignored", "event", "events_ignored", "bytes", len(payload))
		return
	}
	f(event)
}
