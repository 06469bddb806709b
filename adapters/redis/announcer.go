package redis

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// announceWithin bounds one publication.
const announceWithin = 500 * time.Millisecond

// Announcer publishes what Stock tells through StockOptions.Crossed, off the path of the
// request that crossed zero. A full queue drops the event: instances learn by snapshot.
type Announcer struct {
	events admission.Events
	queue  chan admission.Event
	log    *slog.Logger
}

// NewAnnouncer keeps at most 256 events waiting.
func NewAnnouncer(e admission.Events, log *slog.Logger) *Announcer {
	return &Announcer{events: e, queue: make(chan admission.Event, 256), log: log}
}

// Crossed queues an event; it never blocks.
func (a *Announcer) Crossed(e admission.Event) {
	select {
	case a.queue <- e:
	default:
		a.log.Warn("event dropped: too many wait", "event", "announce_dropped", "event_type", e.Type)
	}
}

// Run publishes until ctx ends.
func (a *Announcer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-a.queue:
			within, cancel := context.WithTimeout(ctx, announceWithin)
			if err := a.events.Publish(within, e); err != nil && ctx.Err() == nil {
				a.log.Warn("event not published", "event", "announce_failed", "event_type", e.Type, "reason", err.Error())
			}
			cancel()
		}
	}
}
