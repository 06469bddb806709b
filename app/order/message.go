package order

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Bounds of a message.
const (
	maxHashBytes  = 128 // "sha256:" and 64 digits, with room
	maxTraceBytes = 64  // a traceparent has 55
	schemaVersion = 1
)

// messageOf is the message of one reservation. Its id follows from the reservation's:
// however often a reservation is sent, it is the same message.
func messageOf(r admission.Reservation, activityVersion int64, traceParent string) admission.OrderMessage {
	return admission.OrderMessage{
		SchemaVersion:   schemaVersion,
		MessageID:       "msg_" + strings.TrimPrefix(r.ID, "r_"),
		ReservationID:   r.ID,
		RequestID:       r.RequestID,
		ActivityID:      r.Ref.ActivityID,
		SKUID:           r.Ref.SKUID,
		UserID:          r.UserID,
		Quantity:        r.Quantity,
		ActivityVersion: activityVersion,
		BodyHash:        r.BodyHash,
		CreatedAt:       r.CreatedAt.UTC(),
		TraceParent:     traceParent,
	}
}

// Encode writes a message's body.
func Encode(m admission.OrderMessage) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message %s: %w", m.ReservationID, err)
	}
	return b, nil
}

// Decode reads a body strictly: one JSON object with known fields only, within
// bounds, every id of its own alphabet, and the key of the delivery (when there is
// one) equal to the reservation. An error means that no delivery of these bytes will
// ever be decided.
func Decode(key string, body []byte) (admission.OrderMessage, error) {
	var m admission.OrderMessage
	if len(body) > admission.MaxMessageLen {
		return m, fmt.Errorf("body of %d bytes: at most %d", len(body), admission.MaxMessageLen)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("decode: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("decode: something follows the object")
	}
	if err := check(m); err != nil {
		return m, err
	}
	if key != "" && key != m.ReservationID {
		return m, fmt.Errorf("key %.80q is not the reservation", key)
	}
	return m, nil
}

func check(m admission.OrderMessage) error {
	for _, f := range [...]struct {
		name string
		ok   bool
	}{
		{"schema_version", m.SchemaVersion == schemaVersion},
		{"message_id", admission.ValidID(m.MessageID)},
		{"reservation_id", strings.HasPrefix(m.ReservationID, "r_") && admission.ValidID(m.ReservationID)},
		{"request_id", admission.ValidID(m.RequestID)},
		{"activity_id", admission.ValidDecimal(m.ActivityID)},
		{"sku_id", admission.ValidDecimal(m.SKUID)},
		{"user_id", admission.ValidDecimal(m.UserID)},
		{"quantity", 0 < m.Quantity && m.Quantity <= admission.MaxUserUnits},
		{"activity_version", m.ActivityVersion > 0},
		{"body_hash", 0 < len(m.BodyHash) && len(m.BodyHash) <= maxHashBytes},
		{"created_at", !m.CreatedAt.IsZero() && m.CreatedAt.Year() < 10000},
		{"traceparent", len(m.TraceParent) <= maxTraceBytes},
	} {
		if !f.ok {
			return fmt.Errorf("field %s is out of bounds", f.name)
		}
	}
	return nil
}

// dueAfterSend is when recovery looks again at a reservation that it has just sent
// without an acknowledgement.
func dueAfterSend(r admission.Reservation, now time.Time, grace, ttl time.Duration) time.Time {
	due, end := now.Add(grace), r.CreatedAt.Add(ttl)
	if end.Before(due) {
		return end
	}
	return due
}
