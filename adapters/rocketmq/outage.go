package rocketmq

import (
	"log/slog"
	"strings"
	"time"
)

// remindEvery is how often an outage that lasts is said again.
const remindEvery = 30 * time.Second

// outage tells the log of the queue's absence as an operator wants to read it: when it
// begins, when its cause becomes another one, every remindEvery while it lasts, and when it
// is over; not each time that somebody looks. One goroutine uses it.
type outage struct {
	log   *slog.Logger
	queue Config
	since time.Time // zero: the queue is there
	said  time.Time
	cause string
}

// away notes a look that found the queue away.
func (o *outage) away(now time.Time, err error) {
	if o.since.IsZero() {
		o.since = now
	}
	if o.cause == err.Error() && now.Sub(o.said) < remindEvery {
		return
	}
	o.cause, o.said = err.Error(), now
	o.log.Warn("order messages are away: reservations hold, and their orders follow when it is back",
		"event", "queue_away", "setting", "rocketmq.name_servers", "name_servers", strings.Join(o.queue.NameServers, ","),
		"topic", o.queue.Topic, "error", err, "for", now.Sub(o.since).Round(time.Second).String(), "looked_at_again_every", o.queue.Probe.String())
}

// back notes a look that found it there.
func (o *outage) back(now time.Time) {
	if o.since.IsZero() {
		return
	}
	o.log.Info("order messages are back", "event", "queue_back", "topic", o.queue.Topic, "after", now.Sub(o.since).Round(time.Millisecond).String())
	o.since, o.cause = time.Time{}, ""
}
