package conformance

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
)

// stockProperty interleaves reservations with the verdicts of a model of SQL: decided in
// any order, applied late, twice, stale, or never. After every step the units are
// conserved, and at the end the store agrees with SQL.
func stockProperty(t *testing.T, b StockBackend) {
	rapid.Check(t, func(r *rapid.T) {
		s := newSale(r, fresh(t), b)
		s.rebuy = rapid.Bool().Draw(r, "rebuy")
		if s.rebuy {
			s.max = 3
		}
		s.warm(rapid.Int64Range(1, 4).Draw(r, "total"))
		m := &stockModel{sale: s, sql: map[string]*decided{}}
		r.Repeat(map[string]func(*rapid.T){
			"reserve": m.reserve,
			"decide":  m.decide,
			"settle":  m.settle,
			"apply":   m.apply,
			"stale":   m.stale,
			"restore": m.restore,
			"":        m.check,
		})
		m.finish(r)
	})
}

// decided is one outcome row of the model's SQL.
type decided struct {
	verdict admission.Verdict
	read    []admission.Verdict // every state it was ever in: what a late process may still apply
}

type stockModel struct {
	*sale
	held []admission.ReserveArgs // reserved, not decided
	sql  map[string]*decided     // reservation_id -> outcome
	ids  []string                // of sql, in order
	sold int64
}

func (m *stockModel) user(r *rapid.T) string {
	return fmt.Sprintf("7000000%d", rapid.IntRange(0, 3).Draw(r, "user"))
}

func (m *stockModel) reserve(r *rapid.T) {
	a := m.args(m.user(r), fmt.Sprintf("request_%d", rapid.IntRange(0, 4).Draw(r, "request")))
	a.Quantity = rapid.Int64Range(1, 2).Draw(r, "quantity")
	a.BodyHash = fmt.Sprintf("h%d", a.Quantity)
	before := m.snapshot().Remaining
	result := m.try(a)
	after := m.snapshot().Remaining
	switch {
	case result.Code == admission.Reserved && after == before-a.Quantity:
		m.held = append(m.held, a)
	case result.Code == admission.Reserved || after != before:
		r.Fatalf("code %d moved remaining from %d to %d", result.Code, before, after)
	case result.Code == admission.ReserveSoldOut && before >= a.Quantity:
		r.Fatalf("sold out with %d remaining", before)
	}
}

// decide is the consumer's transaction on one reservation.
func (m *stockModel) decide(r *rapid.T) {
	if len(m.held) == 0 {
		r.Skip("nothing to decide")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(r, "held")
	a := m.held[i]
	m.held = append(m.held[:i], m.held[i+1:]...)
	v := m.verdict(a.UserID, a.RequestID, admission.VerdictCreated, admission.OrderCreated)
	v.Quantity, v.BodyHash = a.Quantity, a.BodyHash
	for _, id := range m.ids {
		o := m.sql[id].verdict
		if o.UserID == a.UserID && o.Outcome == admission.VerdictCreated &&
			(o.OrderStatus != admission.OrderCancelled || !m.rebuy) {
			v.Outcome, v.OrderStatus, v.OrderID, v.ExistingReservationID = admission.VerdictDuplicate, "", o.OrderID, o.ReservationID
		}
	}
	if v.Outcome == admission.VerdictCreated {
		if m.sold+v.Quantity > m.spec.Total {
			r.Fatalf("the store reserved more than SQL has")
		}
		m.sold += v.Quantity
	}
	m.sql[v.ReservationID] = &decided{verdict: v, read: []admission.Verdict{v}}
	m.ids = append(m.ids, v.ReservationID)
}

// settle pays or cancels an order.
func (m *stockModel) settle(r *rapid.T) {
	d := m.pick(r)
	if d.verdict.OrderStatus != admission.OrderCreated {
		r.Skip("no open order")
	}
	d.verdict.OrderStatus = admission.OrderPaid
	if rapid.Bool().Draw(r, "cancel") {
		d.verdict.OrderStatus = admission.OrderCancelled
		m.sold -= d.verdict.Quantity
	}
	d.read = append(d.read, d.verdict)
}

func (m *stockModel) pick(r *rapid.T) *decided {
	if len(m.ids) == 0 {
		r.Skip("nothing decided")
	}
	return m.sql[rapid.SampledFrom(m.ids).Draw(r, "reservation")]
}

func (m *stockModel) apply(r *rapid.T) { m.sale.apply(m.pick(r).verdict) }

func (m *stockModel) stale(r *rapid.T) {
	m.sale.apply(rapid.SampledFrom(m.pick(r).read).Draw(r, "reading"))
}

// restore is what a leader does on suspicion: it must do no harm at any moment.
func (m *stockModel) restore(r *rapid.T) {
	if err := m.Close(m.t.Context(), m.spec); err != nil {
		r.Fatal(err)
	}
	m.all()
	if err := m.Reopen(m.t.Context(), m.spec.Ref); err != nil {
		r.Fatal(err)
	}
}

// all applies every verdict, cancelled first, live orders last.
func (m *stockModel) all() {
	var first, last []admission.Verdict
	for _, id := range m.ids {
		v := m.sql[id].verdict
		if v.Outcome == admission.VerdictCreated && v.OrderStatus != admission.OrderCancelled {
			last = append(last, v)
		} else {
			first = append(first, v)
		}
	}
	m.sale.apply(append(first, last...)...)
}

func (m *stockModel) check(r *rapid.T) {
	n := m.tally()
	if !n.Conserved() {
		r.Fatalf("not conserved: %+v", n)
	}
	if n.Pending != m.live(n) {
		r.Fatalf("%d pending, %d live", n.Pending, m.live(n))
	}
	holds := map[string]int{}
	for _, a := range m.reservations() {
		switch n.Orders[a.ReservationID] {
		case admission.Live, admission.Created, admission.Paid:
			holds[a.UserID]++
		case admission.Returned, admission.Duplicate, admission.NoCapacity: // gave back
		}
	}
	for user, held := range holds {
		if held > 1 {
			r.Fatalf("user %s holds %d reservations", user, held)
		}
	}
}

func (m *stockModel) live(n admission.StockTally) (live int64) {
	for _, state := range n.Orders {
		if state == admission.Live {
			live++
		}
	}
	return live
}

// reservations are all that were ever made.
func (m *stockModel) reservations() []admission.Verdict {
	var all []admission.Verdict
	for _, a := range m.held {
		all = append(all, admission.Verdict{ReservationID: a.ReservationID, UserID: a.UserID})
	}
	for _, id := range m.ids {
		all = append(all, m.sql[id].verdict)
	}
	return all
}

// finish decides and applies everything: the store then says what SQL says.
func (m *stockModel) finish(r *rapid.T) {
	for len(m.held) > 0 {
		m.decide(r)
	}
	m.all()
	n := m.tally()
	if !n.Conserved() || n.Live != 0 || n.Pending != 0 || n.Created+n.Paid != m.sold || n.Remaining != m.spec.Total-m.sold {
		r.Fatalf("SQL sold %d of %d, the store says %+v", m.sold, m.spec.Total, n)
	}
	for _, id := range m.ids {
		v := m.sql[id].verdict
		rec, err := m.Stock.Record(m.t.Context(), m.spec.Ref, v.UserID, v.RequestID)
		if err != nil || rec.Outcome != v.PollOutcome() || rec.ReservationID != id {
			r.Fatalf("record of %s: %+v, %v; SQL says %v", id, rec, err, v.PollOutcome())
		}
	}
	due, err := m.Stock.Due(m.t.Context(), m.spec.Ref, time.Now().Add(24*time.Hour), 100)
	if err != nil || len(due) != 0 {
		r.Fatalf("still due: %+v, %v", due, err)
	}
}
