package admission

import (
	"context"
	"time"
)

// Stock is the stock store: reservations of units, one script each. Every method
// wraps its faults in ErrUnavailable or ErrUnknownResult.
type Stock interface {
	// Warm creates the SKU's stock if it is absent and otherwise changes only the
	// activity version and times, and only to a greater version: a publisher that died
	// before warming one version does not stop the next. It never touches remaining. A
	// different total of an existing stock is ErrConflict.
	Warm(ctx context.Context, spec StockSpec) (created bool, err error)
	// Reserve is idempotent on (user, request_id).
	Reserve(ctx context.Context, args ReserveArgs) (ReserveResult, error)
	// Apply carries SQL's verdicts into the store, one script per verdict in one
	// pipeline. It is idempotent and moves a reservation forward only. The error is
	// that of the first verdict that failed; the others are still applied.
	Apply(ctx context.Context, verdicts []Verdict) error
	// MarkSent moves the reservations' next action to due: their message was acknowledged.
	MarkSent(ctx context.Context, ref SKURef, reservationIDs []string, due time.Time) error
	// Due lists at most limit reservations in LIVE whose next action time has come. One whose
	// record cannot be read comes as Unreadable, with its id alone, and keeps no other back.
	Due(ctx context.Context, ref SKURef, now time.Time, limit int) ([]Reservation, error)
	// Postpone moves one reservation's next action time.
	Postpone(ctx context.Context, ref SKURef, reservationID string, due time.Time) error
	// Record reads what (user, request_id) came to; ErrNotFound when there is nothing.
	Record(ctx context.Context, ref SKURef, userID, requestID string) (RequestRecord, error)
	// Snapshot reads the SKU's stock hash and log length; ErrNotFound when the stock is absent
	// or cannot be read.
	Snapshot(ctx context.Context, ref SKURef) (StockSnapshot, error)
	// Log returns at most limit events from position from (0-based) of the SKU's log.
	Log(ctx context.Context, ref SKURef, from int64, limit int) ([]LogEvent, error)
	// Tally counts units by reservation state, over all reservations, in bounded parts.
	Tally(ctx context.Context, ref SKURef) (StockTally, error)
	// Remove deletes an ended activity's keys of one SKU in bounded parts.
	Remove(ctx context.Context, ref SKURef) error
	// Replicas waits until n replicas hold what was written before on the SKU's node.
	Replicas(ctx context.Context, ref SKURef, n int, within time.Duration) error
	// CloseSKU stops reservations of a SKU and returns the store's time after which none was
	// made. A stock that is lost or cannot be read is made anew from spec, closed.
	CloseSKU(ctx context.Context, spec StockSpec) (closedAt time.Time, err error)
	// Reopen opens a closed SKU on the primary that answers, under a greater incarnation: at
	// least the stored one + 1. What remains is counted anew: the total less what reservations
	// hold. An open one is left alone.
	Reopen(ctx context.Context, ref SKURef, least int64) error
	// Policy checks that the store never evicts (noeviction); an error says what it found.
	Policy(ctx context.Context) error
}

// StockSpec is what a SKU's stock is created from.
type StockSpec struct {
	Ref      SKURef
	Version  int64
	Total    int64 // units, 1..MaxStock
	OpensAt  time.Time
	ClosesAt time.Time
}

// ReserveArgs is one reservation wanted.
type ReserveArgs struct {
	Ref           SKURef
	Version       int64 // of the activity, as this instance knows it
	UserID        string
	RequestID     string
	ReservationID string // derived; one request_id can never hold two
	BodyHash      string
	Quantity      int64
	MaxAttempts   int64         // reservations one user may ever make on this SKU
	SendGrace     time.Duration // until recovery looks at it
	RecordTTL     time.Duration // of the request record, past the activity's end
}

// ReserveCode says how a reservation ended.
type ReserveCode uint8

// The codes; the zero value is none of them.
const (
	ReserveNone         ReserveCode = iota
	Reserved                        // a unit is held
	ReserveSame                     // this (user, request_id) was seen: Record is its current result
	ReserveBodyConflict             // same request_id, other body hash
	ReserveHolder                   // the user holds another reservation: Record names it
	ReserveSoldOut                  // Mark says when
	ReserveNotOpen                  // before opens_at by the store's clock
	ReserveEnded                    // after closes_at
	ReserveVersion                  // the activity moved on
	ReserveMissing                  // no stock key: an error, not sold out
	ReserveClosed                   // the SKU is not OPEN, or its primary changed: wait for a restore
)

// ReserveResult is the script's answer.
type ReserveResult struct {
	Code   ReserveCode
	Record RequestRecord // of Reserved, ReserveSame, ReserveHolder
	Mark   Mark          // of ReserveSoldOut when nothing is left; zero while fewer units than wanted are
}

// RequestRecord is the stored result of one (user, request_id).
type RequestRecord struct {
	RequestID     string
	BodyHash      string
	ReservationID string
	OrderID       string  // "" before the order exists
	Outcome       Outcome // a Poll… outcome
}

// Mark is a moment of a SKU's stock, ordered by (Incarnation, ActivityVersion, Epoch).
type Mark struct {
	Incarnation     int64
	ActivityVersion int64
	Epoch           int64
	LogLength       int64
}

// Compare orders two marks: negative when m is older than o.
func (m Mark) Compare(o Mark) int {
	for _, d := range [...]int64{m.Incarnation - o.Incarnation, m.ActivityVersion - o.ActivityVersion, m.Epoch - o.Epoch} {
		if d != 0 {
			if d < 0 {
				return -1
			}
			return 1
		}
	}
	return 0
}

// StockSnapshot is a SKU's stock as one read saw it.
type StockSnapshot struct {
	Mark
	Total     int64
	Remaining int64 // may be below zero after an adoption
	Open      bool  // state is OPEN, the primary is the one that was restored, and no other key of the SKU is lost
	OpensAt   time.Time
	ClosesAt  time.Time
}

// SoldOut reports whether nothing is left.
func (s StockSnapshot) SoldOut() bool { return s.Remaining <= 0 }

// ReservationState is where a reservation stands. It moves forward only.
type ReservationState string

// The states: LIVE -> CREATED -> PAID | RETURNED; LIVE -> PAID | RETURNED | DUPLICATE | NO_CAPACITY.
const (
	Live       ReservationState = "LIVE"
	Created    ReservationState = "CREATED"
	Paid       ReservationState = "PAID"
	Returned   ReservationState = "RETURNED"
	Duplicate  ReservationState = "DUPLICATE"
	NoCapacity ReservationState = "NO_CAPACITY"
)

// Reservation is one stored reservation.
type Reservation struct {
	ID        string
	Ref       SKURef
	UserID    string
	RequestID string
	BodyHash  string
	Quantity  int64
	State     ReservationState
	OrderID   string
	CreatedAt time.Time

	Unreadable bool // only the id is known: see Due
}

// StockTally is conservation in units: Total = Remaining + Live + Created + Paid.
type StockTally struct {
	Total        int64                       `json:"total"`
	Remaining    int64                       `json:"remaining"`
	Live         int64                       `json:"live"` // units held: Live, Created, Paid
	Created      int64                       `json:"created"`
	Paid         int64                       `json:"paid"`
	Returned     int64                       `json:"returned"` // units given back: Returned, Duplicate, NoCapacity
	Duplicate    int64                       `json:"duplicate"`
	NoCapacity   int64                       `json:"no_capacity"`
	Reservations int64                       `json:"reservations"` // how many there are in all
	Buyers       int64                       `json:"buyers"`       // users holding one
	Pending      int64                       `json:"pending"`      // reservations with a next action
	Orders       map[string]ReservationState `json:"-"`            // reservation_id -> state
}

// Conserved reports whether every unit is accounted for.
func (t StockTally) Conserved() bool { return t.Missing() == 0 }

// Missing is how many units nobody holds and nobody can buy; negative when there are more
// than the total.
func (t StockTally) Missing() int64 { return t.Total - t.Remaining - t.Live - t.Created - t.Paid }

// LogKind is what a log event tells.
type LogKind string

// The kinds.
const (
	LogReserved LogKind = "reserved"
	LogCreated  LogKind = "created"
	LogFailed   LogKind = "failed" // DUPLICATE or NO_CAPACITY
	LogPaid     LogKind = "paid"
	LogReturned LogKind = "returned"
	LogEpoch    LogKind = "epoch" // remaining crossed zero; carries no reservation
)

// LogEvent is one line of a SKU's append-only log.
type LogEvent struct {
	Kind          LogKind
	UserID        string
	RequestID     string
	BodyHash      string
	ReservationID string
	OrderID       string
	Outcome       Outcome // the Poll… outcome that the request has now
	Attempt       int64   // the user's attempt from now on
	FreesUser     bool    // the user no longer holds anything
}

// Mirror is the activities as every instance sees them, in the stock store.
type Mirror interface {
	PutActivity(ctx context.Context, a Activity) error // a lower version than the stored one is ErrConflict
	Activities(ctx context.Context) ([]Activity, error)
	RemoveActivity(ctx context.Context, activityID string) error
}

// Events is the broadcast channel: at most once, unordered, possibly lost. Whoever
// listens must converge without it.
type Events interface {
	Publish(ctx context.Context, e Event) error
	// Listen calls f for every event until ctx ends, reconnecting by itself; it
	// returns only then. f must not block.
	Listen(ctx context.Context, f func(Event)) error
}

// Event is one broadcast.
type Event struct {
	SchemaVersion int       `json:"schema_version"` // 1
	MessageID     string    `json:"message_id"`
	Type          string    `json:"event_type"` // SOLD_OUT, STOCK_REOPENED, ACTIVITY, WATERMARK, BUDGET
	ActivityID    string    `json:"activity_id"`
	SKUID         string    `json:"sku_id,omitempty"`
	Version       int64     `json:"activity_version,omitempty"`
	Incarnation   int64     `json:"incarnation,omitempty"`
	Epoch         int64     `json:"stock_epoch,omitempty"`
	EmittedAt     time.Time `json:"emitted_at"`
}

// The event types.
const (
	EventSoldOut   = "SOLD_OUT"
	EventReopened  = "STOCK_REOPENED"
	EventActivity  = "ACTIVITY"
	EventWatermark = "WATERMARK"
	EventBudget    = "BUDGET"
)
