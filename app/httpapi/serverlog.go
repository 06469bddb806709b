package httpapi

import (
	"context"
	"log/slog"
)

// addressless is a log handler for net/http's own lines. They name the client's address
// and are about what clients did wrong; ours are written elsewhere.
type addressless struct{ slog.Handler }

// Handle writes the record's message without addresses. These records have no attributes.
func (h addressless) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, withoutAddresses(r.Message), r.PC)
	clean.AddAttrs(slog.String("event", "http_server"))
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs keeps the wrapping.
func (h addressless) WithAttrs(attrs []slog.Attr) slog.Handler {
	return addressless{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the wrapping.
func (h addressless) WithGroup(name string) slog.Handler {
	return addressless{h.Handler.WithGroup(name)}
}
