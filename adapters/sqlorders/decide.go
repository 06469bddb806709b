package sqlorders

import (
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// sku is what a decision needs to know of a SKU and its activity.
type sku struct {
	total, sold int64 // units
	price       admission.Money
	payWithin   time.Duration
	rebuy       bool // a CANCELLED order does not count
	closesAt    time.Time
}

// buyer is one user of one SKU.
type buyer struct {
	ref  admission.SKURef
	user string
}

// ledger is the state that a batch is decided on: the locked SKUs, and every earlier verdict on the batch's users.
type ledger struct {
	skus    map[admission.SKURef]*sku
	decided map[string]admission.Verdict // by reservation_id
	orders  map[buyer]admission.Verdict  // the order that stands in the way of a second one
}

func newLedger(skus map[admission.SKURef]*sku) *ledger {
	return &ledger{
		skus:    skus,
		decided: make(map[string]admission.Verdict),
		orders:  make(map[buyer]admission.Verdict),
	}
}

// learn takes in a verdict, an earlier or a new one.
func (l *ledger) learn(v admission.Verdict) {
	l.decided[v.ReservationID] = v
	if v.Outcome != admission.VerdictCreated {
		return
	}
	cancelled := v.OrderStatus == admission.OrderCancelled
	if cancelled && v.RebuyAfterCancel {
		return
	}
	b := buyer{v.Ref, v.UserID}
	if _, found := l.orders[b]; found && cancelled {
		return // a live order is named before a cancelled one
	}
	l.orders[b] = v
}

// decide is the verdict on one message, and whether it is new. The SKU of a new one must be in the ledger. Deciding
// the messages of a batch one after the other gives what single transactions in that order would give.
func (l *ledger) decide(m admission.OrderMessage) (v admission.Verdict, fresh bool) {
	if v, seen := l.decided[m.ReservationID]; seen {
		return v, false
	}
	s := l.skus[m.Ref()]
	v = admission.Verdict{
		ReservationID: m.ReservationID, Ref: m.Ref(), UserID: m.UserID, RequestID: m.RequestID, BodyHash: m.BodyHash,
		Quantity: m.Quantity, CreatedAt: m.CreatedAt.UTC().Truncate(time.Millisecond),
		RebuyAfterCancel: s.rebuy, ClosesAt: s.closesAt,
	}
	if order, found := l.orders[buyer{v.Ref, v.UserID}]; found {
		v.Outcome, v.ExistingReservationID, v.OrderID = admission.VerdictDuplicate, order.ReservationID, order.OrderID
	} else if m.Quantity <= s.total-s.sold {
		v.Outcome, v.OrderStatus = admission.VerdictCreated, admission.OrderCreated
		s.sold += m.Quantity
	} else {
		v.Outcome = admission.VerdictNoCapacity
	}
	l.learn(v)
	return v, true
}

// flaw says why a message can never be decided, "" when it can. What passes here is accepted by every column.
func flaw(m admission.OrderMessage) string {
	switch {
	case m.SchemaVersion != 1:
		return "schema_version is not 1"
	case !admission.ValidID(m.ReservationID):
		return "reservation_id is malformed"
	case !admission.ValidID(m.RequestID):
		return "request_id is malformed"
	case !admission.ValidDecimal(m.ActivityID), !admission.ValidDecimal(m.SKUID), !admission.ValidDecimal(m.UserID):
		return "an activity, SKU or user id is no canonical decimal"
	case m.Quantity < 1 || m.Quantity > admission.MaxUserUnits:
		return "quantity is out of bounds"
	case len(m.BodyHash) > maxHashLen || printable(m.BodyHash) != m.BodyHash:
		return "body_hash is malformed"
	case m.CreatedAt.Year() < 1 || m.CreatedAt.Year() > 9999:
		return "created_at is out of bounds"
	default:
		return ""
	}
}

// foreign says why an earlier verdict is not the message's own: two requests never share a reservation.
func foreign(m admission.OrderMessage, v admission.Verdict) bool {
	return v.Ref != m.Ref() || v.UserID != m.UserID || v.RequestID != m.RequestID
}

// printable replaces what is not printable ASCII: PostgreSQL refuses NUL and broken UTF-8.
func printable(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			clean := []byte(s)
			for j, c := range clean {
				if c < ' ' || c > '~' {
					clean[j] = '?'
				}
			}
			return string(clean)
		}
	}
	return s
}
