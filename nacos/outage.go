package nacos

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// remindEvery is how often an outage that lasts is said again, and how often at most the SDK
// may warn of something.
const remindEvery = 30 * time.Second

// outage tells the log of the server's absence as an operator wants to read it: when it
// begins, when its cause becomes another one, every remindEvery while it lasts, and when it
// is over; not each time that somebody looks. Meanwhile the SDK, which says a line or two a
// second, speaks at DEBUG.
type outage struct {
	cfg Config

	mu      sync.Mutex
	since   time.Time // guarded by mu; zero: the server is there
	said    time.Time // guarded by mu
	cause   string    // guarded by mu
	sdkSaid time.Time // guarded by mu; when the SDK last warned
}

// away notes a look that found the server away, or its doors shut.
func (o *outage) away(now time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = now
	}
	if cause := causeOf(err); o.cause != cause {
		o.cause = cause
	} else if now.Sub(o.said) < remindEvery {
		return
	}
	o.said = now
	o.cfg.Log.Warn("the rules source is away: the rules in force stay, and what is published comes when it is back",
		"event", "rules_source_away", "setting", "nacos.servers", "servers", strings.Join(o.cfg.Servers, ","), "data_id", o.cfg.DataID,
		"error", err, "for", now.Sub(o.since).Round(time.Second).String(), "looked_at_again_every", o.cfg.PollEvery.String())
}

// back notes a look that found it there.
func (o *outage) back(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return
	}
	o.cfg.Log.Info("the rules source is back", "event", "rules_source_back", "data_id", o.cfg.DataID, "after", now.Sub(o.since).Round(time.Millisecond).String())
	o.since, o.cause = time.Time{}, ""
}

// sdkLevel is the level of something that the SDK warns of now. What it alone knows of, such
// as pushes that fail while reads work, is still heard.
func (o *outage) sdkLevel(now time.Time) slog.Level {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() || !o.sdkSaid.IsZero() && now.Sub(o.sdkSaid) < remindEvery {
		return slog.LevelDebug
	}
	o.sdkSaid = now
	return slog.LevelWarn
}

// causeOf is err without the ports of a connection, which are new ones at every look.
func causeOf(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
