package soldout

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluice-io/sluice/app/admission"
)

// ledger is one incarnation of a SKU's log as far as it has been followed: who holds what.
// One goroutine at a time writes; the hot path reads without a lock. A reader who sees a
// cursor sees every holder before it, since holders are entered first.
type ledger struct {
	incarnation int64 // whose log it is; 0: none yet
	cursor      atomic.Int64
	seed        maphash.Seed
	table       atomic.Pointer[[]atomic.Pointer[entry]] // linear probing; a power of two, at most half full
	used        int                                     // of the writer
	unpaid      atomic.Int64                            // holders whose unit may still come back
}

// entry is a user in the followed log, and is not changed once it is entered. A user who
// was freed stays, for the attempt, so nothing is ever removed.
type entry struct {
	user   string
	holder admission.Holder
	holds  bool
}

// unpaid: the unit is held, and comes back when its order is not made, not paid or cancelled.
func (e *entry) unpaid() bool {
	return e != nil && e.holds && (e.holder.Outcome == admission.PollQueued || e.holder.Outcome == admission.PollOrderCreated)
}

const firstTable = 64

func newLedger(incarnation int64) *ledger {
	l := &ledger{incarnation: incarnation, seed: maphash.MakeSeed()}
	table := make([]atomic.Pointer[entry], firstTable)
	l.table.Store(&table)
	return l
}

// find returns what is known of a user; nil: nothing.
func (l *ledger) find(user string) *entry {
	table := *l.table.Load()
	return table[l.place(table, user)].Load()
}

// place is where a user is, or would be entered.
func (l *ledger) place(table []atomic.Pointer[entry], user string) int {
	last := uint64(len(table) - 1)
	for i := maphash.String(l.seed, user) & last; ; i = (i + 1) & last {
		if e := table[i].Load(); e == nil || e.user == user {
			return int(i)
		}
	}
}

// take follows one log event.
func (l *ledger) take(e admission.LogEvent) {
	if e.Kind == admission.LogEpoch || e.UserID == "" {
		return
	}
	if e.FreesUser {
		l.enter(&entry{user: e.UserID, holder: admission.Holder{Attempt: e.Attempt}})
		return
	}
	l.enter(&entry{user: e.UserID, holds: true, holder: admission.Holder{
		RequestID: e.RequestID, BodyHash: e.BodyHash, ReservationID: e.ReservationID,
		OrderID: e.OrderID, Outcome: e.Outcome, Attempt: e.Attempt,
	}})
}

// enter writes what is now known of a user. Its entries are bounded by the stock and its
// returns.
func (l *ledger) enter(e *entry) {
	table := *l.table.Load()
	at := &table[l.place(table, e.user)]
	before := at.Load()
	at.Store(e)
	if was, is := before.unpaid(), e.unpaid(); is && !was {
		l.unpaid.Add(1)
	} else if was && !is {
		l.unpaid.Add(-1)
	}
	if before != nil {
		return
	}
	if l.used++; l.used*2 <= len(table) {
		return
	}
	larger := make([]atomic.Pointer[entry], 2*len(table))
	for i := range table {
		if e := table[i].Load(); e != nil {
			larger[l.place(larger, e.user)].Store(e)
		}
	}
	l.table.Store(&larger)
}
