package demo

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"context"
	"encoding/json"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/bench/load"
)

// ledger writes down what the crowd was told. It is safe for concurrent use.
type ledger struct {
	contract contract

	joined, released, ticketed, reserved, ordered, soldOut, left, refused atomic.Int64
	moves                                                                 atomic.Int64 // personal exchanges, to see that something happens

	mu       sync.Mutex
	calls    map[client.Call]*callFacts     // guarded by mu
	accepted map[string]*accepted           // guarded by mu; by user and request_id
	holders  map[string]map[string]string   // guarded by mu; user -> reservation -> request_id
	orders   map[string]map[string]bool     // guarded by mu; user -> orders
	byOrder  map[string]string              // guarded by mu; order -> user
	byRsv    map[string]string              // guarded by mu; reservation -> user
	broken   map[string]*Violation          // guarded by mu; by rule
	hostile  map[Kind]*HostileFacts         // guarded by mu
	endings  map[Kind]map[client.Ending]int // guarded by mu
	lastSale time.Time                      // guarded by mu; of the last 202
}

// callFacts are one call's figures.
type callFacts struct {
	requests, retries int64
	codes             map[string]int64
	faults            map[string]int64
	examples          map[string]string // of faults, by kind
	wire, intended    *load.Histogram
}

// accepted is one 202 and what became of it.
type accepted struct {
	person    client.Person
	requestID string
	answer    client.Answer // the newest
	since     time.Time
}

// Violation is a promise that was broken.
type Violation struct {
	Rule    string `json:"rule"`
	Count   int64  `json:"count"`
	Example string `json:"example"`
}

// HostileFacts are what one kind of hostile people did.
type HostileFacts struct {
	People   int64            `json:"people"`
	Attempts int64            `json:"attempts"`
	Admitted int64            `json:"admitted"` // of attempts that must not be
	Codes    map[string]int64 `json:"codes"`
}

func newLedger() *ledger {
	return &ledger{
		contract: newContract(), calls: map[client.Call]*callFacts{}, accepted: map[string]*accepted{},
		holders: map[string]map[string]string{}, orders: map[string]map[string]bool{}, byOrder: map[string]string{},
		byRsv: map[string]string{}, broken: map[string]*Violation{}, hostile: map[Kind]*HostileFacts{},
		endings: map[Kind]map[client.Ending]int{},
	}
}

// observe takes one exchange; p is who made it.
func (l *ledger) observe(p *person, x client.Exchange) {
	if p != nil {
		l.moves.Add(1)
	}
	var row admission.Outcome
	var wrong string
	if x.Err == nil {
		row, wrong = l.contract.check(x)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.calls[x.Call]
	if f == nil {
		f = &callFacts{codes: map[string]int64{}, faults: map[string]int64{}, examples: map[string]string{}, wire: load.NewHistogram(), intended: load.NewHistogram()}
		l.calls[x.Call] = f
	}
	f.requests++
	if x.Retry {
		f.retries++
	}
	if x.Err != nil {
		kind := faultKind(x.Err)
		if f.faults[kind]++; f.faults[kind] == 1 {
			f.examples[kind] = x.Err.Error()
		}
		return
	}
	f.wire.Record(x.Ended.Sub(x.Sent))
	f.intended.Record(x.Ended.Sub(x.Intended))
	if wrong != "" {
		l.breach("contract: "+string(x.Call), fmt.Sprintf("%s, in HTTP %d %.300s", wrong, x.HTTP, x.Body))
	}
	if row == admission.Pass {
		if wrong == "" {
			f.codes["OK"]++
		}
		return
	}
	f.codes[row.Row().Code]++
	if x.Call == client.CallSubmit || x.Call == client.CallRequest {
		l.result(p, x, row)
	}
}

// result writes down what an answer says about reservations and orders. Its caller holds mu.
func (l *ledger) result(p *person, x client.Exchange, row admission.Outcome) {
	var a client.Answer
	if p == nil || json.Unmarshal(x.Body, &a) != nil {
		return
	}
	if a.HTTP = x.HTTP; !a.Holds() {
		return
	}
	key := x.UserID + " " + a.RequestID
	acc := l.accepted[key]
	switch {
	case acc == nil:
		l.accepted[key] = &accepted{p.Person, a.RequestID, a, x.Ended}
		l.reserved.Add(1)
		l.lastSale = x.Ended
	case row == admission.Queued && acc.answer.Code == client.CodeQueued && acc.answer.HTTP == x.HTTP && !x.Retry:
		l.breach("one reservation, one 202: the second of two equal submits must be REQUEST_REPLAYED", fmt.Sprintf("user %s, request %s", x.UserID, a.RequestID))
	}
	if acc = l.accepted[key]; a.Final() && !acc.answer.Final() {
		if a.Status != client.StatusFailed {
			l.ordered.Add(1)
		}
		acc.answer = a
	}
	add(l.holders, x.UserID, a.ReservationID, a.RequestID)
	if who, taken := l.byRsv[a.ReservationID]; taken && who != x.UserID {
		l.breach("a reservation belongs to one person", fmt.Sprintf("%s: users %s and %s", a.ReservationID, who, x.UserID))
	}
	l.byRsv[a.ReservationID] = x.UserID
	if a.OrderID == "" || a.Status == client.StatusFailed { // DUPLICATE names the order that exists
		return
	}
	add(l.orders, x.UserID, a.OrderID, true)
	if who, taken := l.byOrder[a.OrderID]; taken && who != x.UserID {
		l.breach("an order belongs to one person", fmt.Sprintf("%s: users %s and %s", a.OrderID, who, x.UserID))
	}
	l.byOrder[a.OrderID] = x.UserID
}

func add[V any](m map[string]map[string]V, key, member string, v V) {
	if m[key] == nil {
		m[key] = map[string]V{}
	}
	m[key][member] = v
}

// breach writes a violation down. Its caller holds mu.
func (l *ledger) breach(rule, example string) {
	v := l.broken[rule]
	if v == nil {
		v = &Violation{Rule: rule, Example: example}
		l.broken[rule] = v
	}
	v.Count++
}

// violate writes a violation down that was seen outside an exchange.
func (l *ledger) violate(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breach(rule, fmt.Sprintf(format, args...))
}

// came counts a hostile person.
func (l *ledger) came(k Kind) { l.hostileFacts(k, func(h *HostileFacts) { h.People++ }) }

// attempt counts a hostile submit; forbidden says that it must not be admitted.
func (l *ledger) attempt(k Kind, x client.Exchange, forbidden bool) {
	if x.Err != nil {
		return
	}
	var a client.Answer
	_ = json.Unmarshal(x.Body, &a) // an answer that is none was counted by observe
	l.hostileFacts(k, func(h *HostileFacts) {
		h.Attempts++
		h.Codes[a.Code]++
		if forbidden && (x.HTTP == 202 || a.Code == client.CodeReplayed) {
			h.Admitted++
			l.breach("hostile attempts are not admitted", fmt.Sprintf("%s: %.300s", k, x.Body))
		}
	})
}

func (l *ledger) hostileFacts(k Kind, f func(*HostileFacts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hostile[k] == nil {
		l.hostile[k] = &HostileFacts{Codes: map[string]int64{}}
	}
	f(l.hostile[k])
}

// wronglyDenied are the answers that an honest person never deserves.
var wronglyDenied = []string{"TOKEN_INVALID", "REPLAY_REJECTED", "REQUEST_ID_CONFLICT", "INVALID_ARGUMENT", "UNAUTHENTICATED", "NOT_FOUND"}

// ended writes down how somebody's purchase ended.
func (l *ledger) ended(p *person, r client.Result, err error) {
	switch r.Ending {
	case client.SoldOut:
		l.soldOut.Add(1)
	case client.Left:
		l.left.Add(1)
	case client.Denied:
		l.refused.Add(1)
		if p.kind == Honest && slices.Contains(wronglyDenied, r.Answer.Code) {
			l.violate("an honest person is not refused like a hostile one", "user %s: HTTP %d %s %s", p.UserID, r.Answer.HTTP, r.Answer.Code, r.Answer.Detail)
		}
	default: // observe has counted what was bought
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endings[p.kind] == nil {
		l.endings[p.kind] = map[client.Ending]int{}
	}
	l.endings[p.kind][r.Ending]++
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		f := l.calls[client.CallSubmit]
		if f != nil {
			f.faults["given_up"]++
		}
	}
}

// open lists the 202s that have no final result yet.
func (l *ledger) open() []accepted {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []accepted
	for _, key := range slices.Sorted(maps.Keys(l.accepted)) {
		if a := l.accepted[key]; !a.answer.Final() {
			out = append(out, *a)
		}
	}
	return out
}

// faultKind names a network fault with one word of a small set.
func faultKind(err error) string {
	var f *client.Fault
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.As(err, &op) && op.Op == "dial":
		return "dial"
	case errors.As(err, &f) && f.Arrived:
		return "cut"
	default:
		return "other"
	}
}
