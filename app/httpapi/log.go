package httpapi

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Log writes decisions, few of them: every one would cost more than the refusal it
// tells of. Each reason may write linesPerSecond; whether a line is written is decided
// before it is built. A decision with a fault behind it is a warning, an accepted submit
// is told, and plain refusals only when debugging.
type Log struct {
	log  *slog.Logger
	now  func() time.Time
	hash func(userID string) string // keyed: a log names nobody
	seen sync.Map                   // why -> *window; as many as there are reasons
}

const linesPerSecond = 5

// why is what lines are counted by: our own words, a closed set.
type why struct {
	outcome admission.Outcome
	reason  admission.Reason
	fault   bool
}

// window counts one reason's lines of one second.
type window struct {
	second  atomic.Int64
	written atomic.Int64
	dropped atomic.Int64
}

// NewLog writes to log; hash names a user by a keyed hash.
func NewLog(log *slog.Logger, now func() time.Time, hash func(userID string) string) *Log {
	return &Log{log: log, now: now, hash: hash}
}

// Decided writes a line for a decision, or counts that it did not.
func (l *Log) Decided(call admission.Call, req *admission.Request, d admission.Decision) {
	level := slog.LevelDebug
	if d.Cause != nil || d.Outcome == admission.DependencyUnavailable || d.Reason == admission.ReasonPanic {
		level = slog.LevelWarn
	} else if d.Outcome == admission.Queued {
		level = slog.LevelInfo
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	w := l.window(why{d.Outcome, d.Reason, d.Cause != nil})
	if second := req.Now.Unix(); w.second.Swap(second) != second {
		w.written.Store(0)
	}
	if w.written.Add(1) > linesPerSecond {
		w.dropped.Add(1)
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("event", "decision"), slog.String("call", call.String()), slog.String("request_id", req.RequestID),
		slog.String("admission_stage", d.Stage.String()), slog.String("decision", d.Outcome.String()), slog.String("reason", string(d.Reason)),
		slog.Int64("retry_after_ms", d.RetryAfter.Milliseconds()), slog.Int64("latency_ms", l.now().Sub(req.Now).Milliseconds()),
		slog.Int64("not_logged", w.dropped.Swap(0)),
	)
	if req.Activity != nil {
		attrs = append(attrs, slog.String("activity_id", req.Activity.ID), slog.Int64("activity_version", req.Activity.Version))
	}
	if req.SKU != nil {
		attrs = append(attrs, slog.String("sku_id", req.SKU.ID))
	}
	if req.UserID != "" {
		attrs = append(attrs, slog.String("user_id_hash", l.hash(req.UserID)))
	}
	if req.TicketKeyID != "" {
		attrs = append(attrs, slog.String("ticket_key_id", req.TicketKeyID))
	}
	if d.Cause != nil {
		attrs = append(attrs, slog.String("error", d.Cause.Error()))
	}
	l.log.LogAttrs(context.Background(), level, "decided", attrs...)
}

func (l *Log) window(k why) *window {
	if w, ok := l.seen.Load(k); ok {
		return w.(*window)
	}
	w, _ := l.seen.LoadOrStore(k, new(window))
	return w.(*window)
}
