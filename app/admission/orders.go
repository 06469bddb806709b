package admission

import (
	"context"
	"fmt"
	"time"
)

// Orders is the database that decides. Every method is one transaction.
type Orders interface {
	// Migrate brings the schema up to date; calling it again does nothing.
	Migrate(ctx context.Context) error
	// NextTerm returns a number greater than every one before: the leader's fence.
	NextTerm(ctx context.Context) (int64, error)

	// PublishActivity stores a version. It must be the stored one + 1 (1 when there is
	// none) and may not change stock or fairness; else ErrConflict names the field. It
	// returns what it stored: PublishedAt stays that of the first version.
	PublishActivity(ctx context.Context, a Activity) (Activity, error)
	// Activities lists the newest version of each, live ones first, then the ended ones
	// that were published last; at most MaxActivities.
	Activities(ctx context.Context) ([]Activity, error)
	EndActivity(ctx context.Context, activityID string) error // for ever; ErrNotFound
	// DeleteActivity removes every row of one activity: the demonstration begins anew.
	DeleteActivity(ctx context.Context, activityID string) error

	// Decide is the consumer's transaction: see 60-orders. verdicts[i] belongs to
	// messages[i]; a message seen before gets the verdict that it got then, with the
	// order's status of now. Retries 40001 and 40P01 itself, bounded. A message that can
	// never be decided has the zero Verdict and does not stop the others: with a
	// *PoisonError, which names these, all other verdicts are good and committed. With
	// any other error there are no verdicts.
	Decide(ctx context.Context, messages []OrderMessage, now time.Time) (verdicts []Verdict, err error)
	// Verdicts reads what was decided on reservations of one SKU in pages: after is the
	// reservation_id of the page before, "" at first. Those without a live order come
	// first, live orders last. An order cancelled meanwhile may be seen twice or, with
	// its effect due, not at all.
	Verdicts(ctx context.Context, ref SKURef, after string, limit int) ([]Verdict, error)
	// VerdictOf reads what (user, request_id) came to; ErrNotFound.
	VerdictOf(ctx context.Context, ref SKURef, userID, requestID string) (Verdict, error)

	Order(ctx context.Context, orderID string) (Order, error) // ErrNotFound
	// Cancel moves CREATED -> CANCELLED with effect_due; ErrConflict when PAID; a second
	// cancel returns the cancelled order. ErrNotFound for another user's order.
	Cancel(ctx context.Context, orderID, userID string, now time.Time) (Order, Verdict, error)
	// Pay moves CREATED -> PAID with effect_due. The same payment_id again returns the
	// order; ErrConflict for a cancelled one or another payment_id; ErrAmount.
	Pay(ctx context.Context, orderID string, p Payment, now time.Time) (Order, Verdict, error)
	// CancelUnpaid cancels at most limit orders whose pay_before has passed.
	CancelUnpaid(ctx context.Context, now time.Time, limit int) ([]Verdict, error)
	// EffectsDue lists at most limit verdicts that may not have reached the stock store.
	EffectsDue(ctx context.Context, limit int) ([]Verdict, error)
	// ClearEffects forgets that these need one, if the order's status is still the verdict's.
	ClearEffects(ctx context.Context, verdicts []Verdict) error

	// DeadLetter keeps a message that can never be decided; the table is bounded.
	DeadLetter(ctx context.Context, body []byte, reason string, now time.Time) error
	Tally(ctx context.Context, ref SKURef) (OrderTally, error)
	Ping(ctx context.Context) error
	Close() error
}

// PoisonError says which messages of a Decide can never be decided, and why. They
// belong to the dead letters.
type PoisonError struct {
	Reasons map[int]string // index in messages -> reason
}

// Error counts them and gives one reason, that of the first.
func (e *PoisonError) Error() string {
	first := -1
	for i := range e.Reasons {
		if first < 0 || i < first {
			first = i
		}
	}
	return fmt.Sprintf("%d undecidable messages, the first: %s", len(e.Reasons), e.Reasons[first])
}

// ErrAmount means a payment of another amount or currency than the order's.
var ErrAmount = errAmount{}

type errAmount struct{}

func (errAmount) Error() string { return "amount does not match the order" }

// OrderStatus is an order's state; one terminal state.
type OrderStatus string

// The order statuses.
const (
	OrderCreated   OrderStatus = "CREATED"
	OrderPaid      OrderStatus = "PAID"
	OrderCancelled OrderStatus = "CANCELLED"
)

// VerdictOutcome is what SQL decided on a reservation, once.
type VerdictOutcome string

// The verdict outcomes.
const (
	VerdictCreated    VerdictOutcome = "CREATED"
	VerdictDuplicate  VerdictOutcome = "DUPLICATE"
	VerdictNoCapacity VerdictOutcome = "NO_CAPACITY"
)

// Verdict is what SQL says of one reservation. Stock.Apply carries it into the store.
type Verdict struct {
	ReservationID         string
	Ref                   SKURef
	UserID                string
	RequestID             string
	BodyHash              string
	Quantity              int64
	CreatedAt             time.Time // of the reservation
	Outcome               VerdictOutcome
	OrderID               string      // of CREATED; of DUPLICATE: the existing order
	OrderStatus           OrderStatus // of CREATED, as read now
	ExistingReservationID string      // of DUPLICATE: the existing order's
	RebuyAfterCancel      bool        // of the activity
	ClosesAt              time.Time   // of the activity: how long the record must live
}

// PollOutcome is the verdict as its owner reads it.
func (v Verdict) PollOutcome() Outcome {
	switch v.Outcome {
	case VerdictDuplicate:
		return PollDuplicate
	case VerdictNoCapacity:
		return PollNoCapacity
	case VerdictCreated:
		switch v.OrderStatus {
		case OrderPaid:
			return PollOrderPaid
		case OrderCancelled:
			return PollOrderCancelled
		case OrderCreated:
			return PollOrderCreated
		}
	}
	return PollQueued
}

// Order is one order.
type Order struct {
	ID            string
	ReservationID string
	Ref           SKURef
	UserID        string
	RequestID     string
	Quantity      int64
	Price         Money // of one unit
	Status        OrderStatus
	CreatedAt     time.Time
	PayBefore     time.Time
	PaymentID     string
}

// Payment is the payment service's callback.
type Payment struct {
	ID     string
	Amount Money // of the whole order: price x quantity
}

// OrderTally counts a SKU's orders and units in SQL.
type OrderTally struct {
	Total       int64                  `json:"total"` // units
	Sold        int64                  `json:"sold"`  // units
	Created     int64                  `json:"created"`
	Paid        int64                  `json:"paid"`
	Cancelled   int64                  `json:"cancelled"`
	Users       int64                  `json:"users"`     // distinct, with an order that is not CANCELLED
	Duplicate   int64                  `json:"duplicate"` // outcomes: Duplicate, NoCapacity
	NoCapacity  int64                  `json:"no_capacity"`
	EffectsDue  int64                  `json:"effects_due"`
	DeadLetters int64                  `json:"dead_letters"`
	Status      map[string]OrderStatus `json:"-"` // reservation_id -> order status
}
