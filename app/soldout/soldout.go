// Package soldout answers "sold out" from memory, and knows who must not be told so.
//
// An instance keeps, for each SKU, a mark (the moment at which the stock was seen
// empty) and the holders: those who have a reservation, followed from the SKU's log.
// While a mark is up a holder passes, to get the result of their own request, and
// everybody else is answered SOLD_OUT without a command to Redis.
//
// The mark never takes part in the stock decision: it only saves the question. It is
// set from a reserve reply or a snapshot alone, expires by itself, and answers only
// once the log has been followed up to the mark, so that nobody who bought is told
// that nothing is left. When the stock store dies marks lapse; one probe at a time
// then goes through, and the stock stage answers it.
package soldout

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// pageSize is how many log events are read at once.
const pageSize = 1000

// Board holds the marks and holders of every SKU that this instance serves.
type Board struct {
	stock   admission.Stock
	now     func() int64 // monotonic, ns
	metrics *Metrics
	skus    atomic.Pointer[served]
	mu      sync.Mutex // guards replacing skus
	wake    chan struct{}
}

// served is the SKUs of this instance.
type served struct {
	bySKU map[admission.SKURef]*sku
	first *sku // where a sale has one hot SKU, it is this one; nil: none
}

// sku is the one of ref; nil: it is not served here.
func (b *Board) sku(ref admission.SKURef) *sku {
	all := b.skus.Load()
	if all.first != nil && all.first.ref == ref { // the same texts in memory: no byte is compared
		return all.first
	}
	return all.bySKU[ref]
}

// sku is one SKU's mark and holders.
type sku struct {
	ref     admission.SKURef
	mark    atomic.Pointer[mark]
	ledger  atomic.Pointer[ledger] // replaced, and written, under mu
	probing atomic.Bool            // one request is asking the stock in place of all

	mu     sync.Mutex
	latest admission.Mark // greatest moment seen; guarded by mu
	ttl    time.Duration  // of marks; guarded by mu
	open   bool           // the last snapshot's state; guarded by mu
	lost   bool           // the last look found no stock; guarded by mu

	confirmed int64 // monotonic ns of the last answer of the stock store; guarded by mu
}

// set changes the mark; nil takes it down. The caller holds s.mu.
func (b *Board) set(s *sku, m *mark) (was *mark) {
	was = s.mark.Swap(m)
	b.metrics.mark(s.ref, m)
	return was
}

// mark says that nothing was left at a moment.
type mark struct {
	at      admission.Mark
	expires int64 // monotonic ns
}

// New makes an empty board. now is the monotonic clock of Request.Mono, in nanoseconds.
func New(stock admission.Stock, now func() int64, metrics *Metrics) *Board {
	b := &Board{stock: stock, now: now, metrics: metrics, wake: make(chan struct{}, 1)}
	b.skus.Store(&served{})
	return b
}

// Check is the stage. It sets req.Holder for a holder, who passes.
func (b *Board) Check(req *admission.Request) admission.Decision {
	s := b.sku(req.Ref())
	if s == nil {
		return admission.Decision{}
	}
	m := s.mark.Load()
	if m == nil {
		return admission.Decision{}
	}
	ledger := s.ledger.Load()
	// The cursor before the holders, who are entered first. A reserve reply may put the mark
	// of a restored stock up before its log is followed.
	caughtUp := ledger.incarnation == m.at.Incarnation && ledger.cursor.Load() >= m.at.LogLength
	if e := ledger.find(req.UserID); e != nil && e.holds {
		req.Holder = e.holder
		return admission.Decision{}
	}
	if !caughtUp {
		return admission.Decision{} // somebody we do not know of yet may hold a unit: let the stock say
	}
	if req.Mono >= m.expires && s.probing.CompareAndSwap(false, true) {
		// The mark lapsed. This one asks; whatever it meets on the way, the turn goes on.
		req.OnEnd(func(admission.Decision) { s.probing.Store(false) })
		return admission.Decision{}
	}
	b.metrics.Hits.Inc()
	return soldOut
}

var soldOut = admission.Decision{Outcome: admission.SoldOut, Stage: admission.StageSoldOut, Reason: admission.ReasonSoldOutMark}

// Holder tells what a user holds and which attempt is theirs; ok is false for nothing.
func (b *Board) Holder(ref admission.SKURef, userID string) (h admission.Holder, ok bool) {
	s := b.sku(ref)
	if s == nil {
		return admission.Holder{}, false
	}
	e := s.ledger.Load().find(userID)
	if e == nil {
		return admission.Holder{}, false
	}
	return e.holder, e.holds
}

// SoldOut reports whether a mark that has not lapsed is up.
func (b *Board) SoldOut(ref admission.SKURef) bool {
	s := b.sku(ref)
	if s == nil {
		return false
	}
	m := s.mark.Load()
	return m != nil && b.now() < m.expires
}

// Open reports whether the SKU's stock was OPEN when last read.
func (b *Board) Open(ref admission.SKURef) bool {
	s := b.sku(ref)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// MayReturn reports whether units may come back to a SKU that is sold out: somebody holds one
// that is not paid, or this instance has not followed so far as to know. Wrong, it makes
// people look on in vain, never go away from a sale that goes on.
func (b *Board) MayReturn(ref admission.SKURef) bool {
	s := b.sku(ref)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ledger := s.ledger.Load()
	known := !s.lost && ledger.incarnation == s.latest.Incarnation && s.latest.ActivityVersion > 0 && ledger.cursor.Load() >= s.latest.LogLength
	return !known || ledger.unpaid.Load() > 0
}

// Observe takes the mark of a reserve reply.
func (b *Board) Observe(ref admission.SKURef, at admission.Mark) {
	if s := b.sku(ref); s != nil {
		s.mu.Lock()
		b.raise(s, at)
		s.mu.Unlock()
		b.Wake()
	}
}

// Event takes a broadcast that came at the wall time now. It only opens: a SOLD_OUT
// hastens the reading of the snapshot, which alone may set a mark.
func (b *Board) Event(e admission.Event, now time.Time) {
	s := b.sku(admission.SKURef{ActivityID: e.ActivityID, SKUID: e.SKUID})
	if s == nil {
		return
	}
	switch e.Type {
	case admission.EventReopened:
		s.mu.Lock()
		at := admission.Mark{Incarnation: e.Incarnation, ActivityVersion: e.Version, Epoch: e.Epoch}
		if at.Compare(s.latest) > 0 {
			s.latest = at
			b.set(s, nil)
			b.metrics.Reopened.Inc()
			b.metrics.reopen.Observe(max(0, now.Sub(e.EmittedAt).Seconds()))
		} else {
			b.metrics.Ignored.Inc()
		}
		s.mu.Unlock()
		b.Wake()
	case admission.EventSoldOut:
		b.Wake()
	}
}

// raise puts a mark up, or renews it. The caller holds s.mu.
func (b *Board) raise(s *sku, at admission.Mark) {
	if c := at.Compare(s.latest); c < 0 {
		b.metrics.Ignored.Inc()
		return
	}
	s.latest = at
	b.set(s, &mark{at: at, expires: b.now() + int64(s.ttl)})
}

// Wake makes Run read the snapshots at once.
func (b *Board) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Serve names the SKUs that this instance follows and how long their marks live.
// A SKU that is no longer named is forgotten with its holders.
func (b *Board) Serve(refs []admission.SKURef, ttl func(admission.SKURef) time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.skus.Load().bySKU
	next := &served{bySKU: make(map[admission.SKURef]*sku, len(refs))}
	for _, ref := range refs {
		s := old[ref]
		if s == nil {
			s = &sku{ref: ref, confirmed: b.now()}
			s.ledger.Store(newLedger(0))
		}
		s.mu.Lock()
		s.ttl = ttl(ref)
		s.mu.Unlock()
		next.bySKU[ref] = s
	}
	for ref := range old {
		if next.bySKU[ref] == nil {
			b.metrics.forget(ref)
		}
	}
	if len(refs) > 0 {
		next.first = next.bySKU[refs[0]]
	}
	b.skus.Store(next)
}

// Step reads every SKU's snapshot and follows its log. An error leaves that SKU as it
// was; its mark lapses by itself.
func (b *Board) Step(ctx context.Context) error {
	var first error
	for _, s := range b.skus.Load().bySKU {
		if err := b.follow(ctx, s); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// CaughtUp reports whether the SKU's log was followed to the end of its last snapshot:
// readiness asks, since a fresh instance knows no holders.
func (b *Board) CaughtUp(ref admission.SKURef) bool {
	s := b.sku(ref)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost || s.latest.ActivityVersion > 0 && s.ledger.Load().cursor.Load() >= s.latest.LogLength
}

func (b *Board) follow(ctx context.Context, s *sku) error {
	s.mu.Lock()
	b.metrics.diverged(s.ref, time.Duration(b.now()-s.confirmed))
	s.mu.Unlock()
	snap, err := b.stock.Snapshot(ctx, s.ref)
	if errors.Is(err, admission.ErrNotFound) {
		// That is an answer: nothing can be bought of this SKU until it is restored, and one
		// lost key is no reason to take a whole instance out of service.
		s.mu.Lock()
		s.open, s.lost, s.confirmed = false, true, b.now()
		s.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	b.apply(s, snap)
	for {
		ledger := s.ledger.Load()
		cursor := ledger.cursor.Load()
		if cursor >= snap.LogLength {
			return nil
		}
		events, err := b.stock.Log(ctx, s.ref, cursor, pageSize)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		s.mu.Lock()
		for _, e := range events {
			ledger.take(e)
		}
		ledger.cursor.Store(cursor + int64(len(events)))
		s.mu.Unlock()
	}
}

// apply takes a snapshot: it renews, sets, lowers or ignores the mark.
func (b *Board) apply(s *sku, snap admission.StockSnapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := snap.Compare(s.latest)
	if c < 0 {
		b.metrics.Ignored.Inc()
		return
	}
	s.confirmed = b.now()
	if snap.Incarnation != s.ledger.Load().incarnation {
		// The stock was restored, and its log starts over. An event or a reserve reply may
		// have told of it before: what was followed is a fact of its own.
		s.ledger.Store(newLedger(snap.Incarnation))
	}
	if c == 0 {
		snap.LogLength = max(snap.LogLength, s.latest.LogLength)
	}
	s.latest, s.open, s.lost = snap.Mark, snap.Open, false
	b.metrics.epoch(s.ref, snap)
	if !snap.SoldOut() {
		if b.set(s, nil) != nil {
			b.metrics.Reopened.Inc()
		}
		return
	}
	b.set(s, &mark{at: snap.Mark, expires: b.now() + int64(s.ttl)})
}

// Run follows until ctx ends, every period (a third of the shortest mark's life) or
// when woken.
func (b *Board) Run(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		b.metrics.step(b.Step(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.wake:
			// A sell-out wakes every instance by every refused reserve at once: the reads
			// that follow are spread over a twentieth of the period.
			pause := time.NewTimer(period / 20)
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
		}
	}
}
