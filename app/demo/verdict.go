package demo

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-io/sluice/app/client"
)

// seen is what the ledger holds when the sale is over, as plain values.
type seen struct {
	stock       int64
	accepted    []accepted
	holders     map[string]map[string]string // user -> reservation -> request_id
	orders      map[string]map[string]bool   // user -> orders
	waiting     int64                        // people still in line when it ended
	tally       Tally
	tallyFailed error
}

func (l *ledger) seen() seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := seen{holders: maps.Clone(l.holders), orders: maps.Clone(l.orders)}
	for _, key := range slices.Sorted(maps.Keys(l.accepted)) {
		s.accepted = append(s.accepted, *l.accepted[key])
	}
	return s
}

// units counts reservations that stand: all but those that ended without an order.
func (s seen) units() (n int64) {
	for _, a := range s.accepted {
		if a.answer.Status != client.StatusFailed && a.answer.Status != client.StatusCancelled {
			n++
		}
	}
	return n
}

// judge compares what the crowd was told with what the stores count. It is arithmetic alone.
func judge(s seen) []Violation {
	v := violations{}
	for _, user := range slices.Sorted(maps.Keys(s.holders)) {
		if n := len(s.holders[user]); n > 1 {
			v.add("one reservation per person", "user %s holds %d: %v", user, n, slices.Sorted(maps.Keys(s.holders[user])))
		}
	}
	for _, user := range slices.Sorted(maps.Keys(s.orders)) {
		if n := len(s.orders[user]); n > 1 {
			v.add("one order per person", "user %s has %d: %v", user, n, slices.Sorted(maps.Keys(s.orders[user])))
		}
	}
	units := s.units()
	if units > s.stock {
		v.add("no oversell", "%d people were promised one of %d units", units, s.stock)
	}
	for _, a := range s.accepted {
		if !a.answer.Final() {
			v.add("every reservation comes to an end", "user %s, request %s, reservation %s: still %s", a.person.UserID, a.requestID, a.answer.ReservationID, a.answer.Status)
		}
	}
	if s.tallyFailed != nil {
		v.add("the stores can be counted", "%v", s.tallyFailed)
		return v.list
	}
	st, or := s.tally.Stock, s.tally.Orders
	if st.Total != s.stock {
		v.add("conservation", "the stock store has a total of %d, published were %d", st.Total, s.stock)
	}
	if !st.Conserved() || !s.tally.Conserved {
		v.add("conservation", "total %d is not remaining %d + live %d + created %d + paid %d", st.Total, st.Remaining, st.Live, st.Created, st.Paid)
	}
	if or.Sold > or.Total || or.Created+or.Paid > s.stock {
		v.add("no oversell", "SQL has sold %d of %d units in %d orders", or.Sold, or.Total, or.Created+or.Paid)
	}
	if or.Created+or.Paid != or.Users {
		v.add("one order per person", "SQL has %d orders of %d people", or.Created+or.Paid, or.Users)
	}
	if or.EffectsDue == 0 && (st.Created != or.Created || st.Paid != or.Paid) {
		v.add("stock store and SQL agree", "orders created %d and %d, paid %d and %d", st.Created, or.Created, st.Paid, or.Paid)
	}
	if told := int64(len(s.orders)); told > or.Created+or.Paid+or.Cancelled {
		v.add("an order that somebody was told of is in SQL", "%d people were told of an order, SQL has %d", told, or.Created+or.Paid+or.Cancelled)
	}
	if st.Remaining > 0 && s.waiting > 0 {
		v.add("units are sold while people wait", "%d units left and %d people in line", st.Remaining, s.waiting)
	}
	return v.list
}

// violations gathers by rule.
type violations struct{ list []Violation }

func (v *violations) add(rule, format string, args ...any) {
	if i := slices.IndexFunc(v.list, func(o Violation) bool { return o.Rule == rule }); i >= 0 {
		v.list[i].Count++
		return
	}
	v.list = append(v.list, Violation{Rule: rule, Count: 1, Example: fmt.Sprintf(format, args...)})
}
