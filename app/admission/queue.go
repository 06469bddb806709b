package admission

import (
	"context"
	"fmt"
	"time"
)

// MaxMessageLen bounds a message's body, in bytes. Ours have about 400.
const MaxMessageLen = 8 << 10

// CheckBatch reports a batch that no Queue sends: ErrUnavailable, since nothing was sent.
func CheckBatch(keys []string, bodies [][]byte) error {
	if len(keys) != len(bodies) {
		return fmt.Errorf("%w: %d keys for %d bodies", ErrUnavailable, len(keys), len(bodies))
	}
	for i, b := range bodies {
		if keys[i] == "" || len(keys[i]) > MaxIDLen || len(b) == 0 || len(b) > MaxMessageLen {
			return fmt.Errorf("%w: message %d: key of %d bytes, body of %d: at most %d and %d",
				ErrUnavailable, i, len(keys[i]), len(b), MaxIDLen, MaxMessageLen)
		}
	}
	return nil
}

// OrderMessage is one reservation on its way to the consumer. Ids are strings.
type OrderMessage struct {
	SchemaVersion   int       `json:"schema_version"` // 1
	MessageID       string    `json:"message_id"`
	ReservationID   string    `json:"reservation_id"` // also the message's key
	RequestID       string    `json:"request_id"`
	ActivityID      string    `json:"activity_id"`
	SKUID           string    `json:"sku_id"`
	UserID          string    `json:"user_id"`
	Quantity        int64     `json:"quantity"`
	ActivityVersion int64     `json:"activity_version"`
	BodyHash        string    `json:"body_hash"`
	CreatedAt       time.Time `json:"created_at"`
	TraceParent     string    `json:"traceparent,omitempty"`
}

// Ref names the message's SKU.
func (m OrderMessage) Ref() SKURef { return SKURef{ActivityID: m.ActivityID, SKUID: m.SKUID} }

// Delivery is one message as the queue hands it over.
type Delivery struct {
	Body     []byte
	Key      string // reservation_id as the sender set it; "" when absent
	Attempts int    // deliveries so far, from 1
}

// Queue carries order messages, at least once.
type Queue interface {
	// Send sends the bodies as one batch; keys[i] belongs to bodies[i]. nil: all
	// acknowledged. ErrUnavailable: certainly none was. ErrUnknownResult: some may be.
	// It never lets a context expire inside a send; the queue's own bound applies.
	Send(ctx context.Context, keys []string, bodies [][]byte) error
	// Consume gathers batches (at most max messages or linger) of the consumer group and
	// calls f until ctx ends. f's slice of errors has one entry per delivery: nil
	// acknowledges, else the message comes again after about 1 s. f is called by several
	// goroutines at once.
	Consume(ctx context.Context, max int, linger time.Duration, f func(context.Context, []Delivery) []error) error
	// Consumed reports whether the group has acknowledged everything sent before at.
	Consumed(ctx context.Context, at time.Time) (bool, error)
	// Ready reports nil when routes are warm and the group exists.
	Ready(ctx context.Context) error
	Close() error
}
