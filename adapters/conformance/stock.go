package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// StockBackend is a stock store under test and what the suite needs beyond the port.
type StockBackend struct {
	Stock admission.Stock
	// Close and Reopen are the two ends of a restore.
	Close  func(ctx context.Context, spec admission.StockSpec) error
	Reopen func(ctx context.Context, ref admission.SKURef) error
	// Lose removes the stock key alone, as an operator's mistake would.
	Lose func(ctx context.Context, ref admission.SKURef) error
	// LoseKey removes another key of the SKU alone: "rsv", "buyers" or "pending".
	LoseKey func(ctx context.Context, ref admission.SKURef, name string) error
	// Scribble writes a value into a field of the stock that no script would write.
	Scribble func(ctx context.Context, ref admission.SKURef, field, value string) error
	// Expire removes the record of one request, as its TTL would.
	Expire func(ctx context.Context, ref admission.SKURef, userID, requestID string) error
}

// Stock is the suite of admission.Stock. After every case the units are counted.
func Stock(t *testing.T, open func(t *testing.T) StockBackend) {
	cases := []struct {
		name string
		run  func(t *testing.T, s *sale)
	}{
		{"S01 ids beyond 2^53 stay exact", stockS01},
		{"S04 one user, many requests, one unit", stockS04},
		{"S06a warming again never overwrites", stockS06a},
		{"S06b a missing stock is not sold out", stockS06b},
		{"S06c before the opening and after the end", stockS06c},
		{"S06d the last unit has one buyer", stockS06d},
		{"S08a a paid order is not returned", stockS08a},
		{"S08b a second cancel returns nothing", stockS08b},
		{"S08c a create after its cancel changes nothing", stockS08c},
		{"S11a another user's request_id is another request", stockS11a},
		{"S11b another body conflicts", stockS11b},
		{"S11c twins hold one reservation", stockS11c},
		{"a repeated request tells its current result", stockRepeat},
		{"an expired record never hides a reservation", stockExpired},
		{"who was freed learns what became of his request, sold out or not", stockFreed},
		{"a stock that was lost and made anew remembers who was freed", stockFreedLost},
		{"sold out carries the mark, also across versions", stockMark},
		{"fewer units than wanted is sold out without a mark", stockTooFew},
		{"another activity version is refused", stockVersion},
		{"a duplicate gives back and names the order", stockDuplicate},
		{"a duplicate of an order cancelled since frees the user", stockDuplicateOfCancelled},
		{"a verdict on an older reservation leaves the holder alone", stockOlder},
		{"what was taken goes back, whatever the verdict says", stockQuantity},
		{"no capacity gives back and closes until reopened", stockNoCapacity},
		{"an unknown order is adopted, below zero too", stockAdopt},
		{"an unknown reservation without an order moves no units", stockUnknown},
		{"a lost stock is restored from verdicts in any order", stockRestore},
		{"lost reservations close the SKU and its units are counted anew", stockLostReservations},
		{"lost buyers close the SKU and hold again", stockLostBuyers},
		{"a lost next action is due again", stockLostPending},
		{"what goes on as it should is not taken for a lost key", stockWhole},
		{"a lost stock with its reservations is counted from them", stockLostStock},
		{"a field that cannot be read is a lost stock", stockUnreadable},
		{"a verdict while the units are counted is counted too", stockCountedMeanwhile},
		{"a user buys again after a cancel, max_attempts times", stockRebuy},
		{"without rebuy a cancelled order still counts", stockNoRebuy},
		{"the log tells everything in order", stockLog},
		{"recovery sees what is due, and only that", stockDue},
		{"a verdict without a state is refused and the others applied", stockBadVerdict},
		{"arguments out of range are refused", stockArguments},
		{"an ended SKU is removed, again too", stockRemove},
		{"crowds never sell more than there is", stockCrowd},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSale(t, fresh(t), open(t))
			c.run(t, s)
			s.conserved()
		})
	}
	t.Run("no interleaving breaks conservation", func(t *testing.T) { stockProperty(t, open(t)) })
}

// sale is one SKU under test: 10 units unless a case warms it otherwise.
type sale struct {
	t checker
	StockBackend
	spec   admission.StockSpec
	rebuy  bool
	max    int64 // attempts
	warmed bool
}

// checker is what the suite needs of a test, so that a property's steps can be one too.
type checker interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Errorf(format string, args ...any)
	Error(args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
	Failed() bool
}

func newSale(t checker, activityID string, b StockBackend) *sale {
	now := time.Now()
	return &sale{t: t, StockBackend: b, max: 1, spec: admission.StockSpec{
		Ref: admission.SKURef{ActivityID: activityID, SKUID: "90001"}, Version: 1, Total: 10,
		OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour),
	}}
}

func (s *sale) warm(total int64) {
	s.t.Helper()
	s.spec.Total = total
	created, err := s.Stock.Warm(s.t.Context(), s.spec)
	if err != nil || !created {
		s.t.Fatalf("warm: created %v, %v", created, err)
	}
	s.warmed = true
	s.t.Cleanup(func() { _ = s.Stock.Remove(context.Background(), s.spec.Ref) })
}

func (s *sale) args(user, request string) admission.ReserveArgs {
	return admission.ReserveArgs{
		Ref: s.spec.Ref, Version: s.spec.Version, UserID: user, RequestID: request,
		ReservationID: "r_" + user + "_" + request, BodyHash: "h1", Quantity: 1, MaxAttempts: s.max,
		SendGrace: time.Second, RecordTTL: time.Hour,
	}
}

func (s *sale) try(a admission.ReserveArgs) admission.ReserveResult {
	s.t.Helper()
	r, err := s.Stock.Reserve(s.t.Context(), a)
	if err != nil {
		s.t.Fatalf("reserve %s/%s: %v", a.UserID, a.RequestID, err)
	}
	return r
}

// want reserves and demands the code.
func (s *sale) want(code admission.ReserveCode, user, request string) admission.ReserveResult {
	s.t.Helper()
	r := s.try(s.args(user, request))
	if r.Code != code {
		s.t.Fatalf("reserve %s/%s: code %d, want %d (%+v)", user, request, r.Code, code, r)
	}
	return r
}

// verdict is what SQL says of a reservation that args would make.
func (s *sale) verdict(user, request string, outcome admission.VerdictOutcome, status admission.OrderStatus) admission.Verdict {
	a := s.args(user, request)
	v := admission.Verdict{
		ReservationID: a.ReservationID, Ref: a.Ref, UserID: user, RequestID: request, BodyHash: a.BodyHash,
		Quantity: a.Quantity, CreatedAt: time.Now(), Outcome: outcome, OrderStatus: status,
		RebuyAfterCancel: s.rebuy, ClosesAt: s.spec.ClosesAt,
	}
	if outcome == admission.VerdictCreated {
		v.OrderID = "7" + request
	}
	return v
}

func (s *sale) apply(v ...admission.Verdict) {
	s.t.Helper()
	if err := s.Stock.Apply(s.t.Context(), v); err != nil {
		s.t.Fatalf("apply: %v", err)
	}
}

func (s *sale) created(user, request string) {
	s.t.Helper()
	s.apply(s.verdict(user, request, admission.VerdictCreated, admission.OrderCreated))
}

func (s *sale) paid(user, request string) {
	s.t.Helper()
	s.apply(s.verdict(user, request, admission.VerdictCreated, admission.OrderPaid))
}

func (s *sale) cancelled(user, request string) {
	s.t.Helper()
	s.apply(s.verdict(user, request, admission.VerdictCreated, admission.OrderCancelled))
}

func (s *sale) snapshot() admission.StockSnapshot {
	s.t.Helper()
	n, err := s.Stock.Snapshot(s.t.Context(), s.spec.Ref)
	if err != nil {
		s.t.Fatalf("snapshot: %v", err)
	}
	return n
}

func (s *sale) remaining(want int64) {
	s.t.Helper()
	if n := s.snapshot(); n.Remaining != want {
		s.t.Fatalf("remaining %d, want %d", n.Remaining, want)
	}
}

func (s *sale) epoch(want int64) {
	s.t.Helper()
	if n := s.snapshot(); n.Epoch != want {
		s.t.Fatalf("epoch %d, want %d", n.Epoch, want)
	}
}

func (s *sale) record(user, request string, want admission.Outcome) admission.RequestRecord {
	s.t.Helper()
	r, err := s.Stock.Record(s.t.Context(), s.spec.Ref, user, request)
	if err != nil || r.Outcome != want {
		s.t.Fatalf("record %s/%s: %+v, %v; want %v", user, request, r, err, want)
	}
	return r
}

func (s *sale) tally() admission.StockTally {
	s.t.Helper()
	n, err := s.Stock.Tally(s.t.Context(), s.spec.Ref)
	if err != nil {
		s.t.Fatalf("tally: %v", err)
	}
	return n
}

func (s *sale) conserved() {
	s.t.Helper()
	if !s.warmed || s.t.Failed() {
		return
	}
	if n := s.tally(); !n.Conserved() {
		s.t.Fatalf("units are lost or invented: %+v", n)
	}
}

func (s *sale) log() []admission.LogEvent {
	s.t.Helper()
	events, err := s.Stock.Log(s.t.Context(), s.spec.Ref, 0, 1000)
	if err != nil {
		s.t.Fatalf("log: %v", err)
	}
	return events
}

func stockS01(t *testing.T, s *sale) {
	s.warm(10)
	one, two := "7300000000000000001", "7300000000000000002"
	s.want(admission.Reserved, one, "request_1")
	s.want(admission.Reserved, two, "request_1")
	s.remaining(8)
	due, err := s.Stock.Due(t.Context(), s.spec.Ref, time.Now().Add(time.Hour), 10)
	if err != nil || len(due) != 2 || due[0].UserID == due[1].UserID {
		t.Fatalf("due: %+v, %v", due, err)
	}
	for _, r := range due {
		if r.UserID != one && r.UserID != two {
			t.Errorf("user %q is neither", r.UserID)
		}
	}
	v := s.verdict(one, "request_1", admission.VerdictCreated, admission.OrderCreated)
	v.OrderID = "9007199254740993"
	s.apply(v)
	if r := s.record(one, "request_1", admission.PollOrderCreated); r.OrderID != v.OrderID {
		t.Errorf("order %s, want %s", r.OrderID, v.OrderID)
	}
	s.record(two, "request_1", admission.PollQueued)
}

func stockS04(_ *testing.T, s *sale) {
	s.warm(10)
	codes := s.together(20, func(i int) admission.ReserveArgs { return s.args("70000001", fmt.Sprintf("request_%d", i)) })
	if codes[admission.Reserved] != 1 || codes[admission.ReserveHolder] != 19 {
		s.t.Fatalf("codes %v, want 1 reserved and 19 holders", codes)
	}
	s.remaining(9)
}

// together reserves n times at once and counts the codes.
func (s *sale) together(n int, args func(i int) admission.ReserveArgs) map[admission.ReserveCode]int {
	s.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[admission.ReserveCode]int{}
	for i := range n {
		wg.Go(func() {
			r, err := s.Stock.Reserve(s.t.Context(), args(i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.t.Errorf("reserve: %v", err)
			}
			codes[r.Code]++
		})
	}
	wg.Wait()
	return codes
}

func stockS06a(t *testing.T, s *sale) {
	s.warm(10)
	for i := range 7 {
		s.want(admission.Reserved, fmt.Sprintf("7000000%d", i), "request_1")
	}
	before := s.snapshot()
	for range 3 {
		if created, err := s.Stock.Warm(t.Context(), s.spec); created || err != nil {
			t.Fatalf("warm again: created %v, %v", created, err)
		}
	}
	if after := s.snapshot(); after != before {
		t.Errorf("stock changed from %+v to %+v", before, after)
	}
	next := s.spec
	next.Version, next.ClosesAt = 2, s.spec.ClosesAt.Add(time.Hour)
	if created, err := s.Stock.Warm(t.Context(), next); created || err != nil {
		t.Fatalf("warm version 2: created %v, %v", created, err)
	}
	after := s.snapshot()
	if after.ActivityVersion != 2 || after.Remaining != 3 || after.Epoch < before.Epoch || !after.ClosesAt.Equal(next.ClosesAt.Truncate(time.Millisecond)) {
		t.Errorf("version 2: %+v", after)
	}
	if _, err := s.Stock.Warm(t.Context(), s.spec); err != nil { // a process that was asleep
		t.Errorf("warm version 1 after 2: %v", err)
	}
	if late := s.snapshot(); late != after {
		t.Errorf("an older version changed %+v to %+v", after, late)
	}
	other := s.spec
	other.Total = 11
	if _, err := s.Stock.Warm(t.Context(), other); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("another total: %v, want a conflict", err)
	}
	s.remaining(3)
}

func stockS06b(t *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	if err := s.Lose(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	r := s.want(admission.ReserveMissing, "70000002", "request_1")
	if r.Mark != (admission.Mark{}) {
		t.Errorf("a missing stock set the mark %+v", r.Mark)
	}
	if _, err := s.Stock.Snapshot(t.Context(), s.spec.Ref); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("snapshot: %v, want not found", err)
	}
	v := s.verdict("70000001", "request_1", admission.VerdictCreated, admission.OrderCreated)
	if err := s.Stock.Apply(t.Context(), []admission.Verdict{v}); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("effect: %v, want unavailable, so that it stays due", err)
	}
	s.want(admission.ReserveSame, "70000001", "request_1") // a holder still learns what he holds
	s.warmed = false                                       // nothing left to count
}

func stockS06c(_ *testing.T, s *sale) {
	s.spec.OpensAt = time.Now().Add(time.Hour)
	s.spec.ClosesAt = s.spec.OpensAt.Add(time.Hour)
	s.warm(10)
	s.want(admission.ReserveNotOpen, "70000001", "request_1")
	s.spec.Version, s.spec.OpensAt, s.spec.ClosesAt = 2, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	if _, err := s.Stock.Warm(s.t.Context(), s.spec); err != nil {
		s.t.Fatal(err)
	}
	s.want(admission.ReserveEnded, "70000001", "request_1")
	s.remaining(10)
	if n := s.tally(); n.Reservations != 0 || n.Buyers != 0 || n.Pending != 0 {
		s.t.Errorf("something was written: %+v", n)
	}
}

func stockS06d(_ *testing.T, s *sale) {
	s.warm(1)
	codes := s.together(2, func(i int) admission.ReserveArgs { return s.args(fmt.Sprintf("7000000%d", i), "request_1") })
	if codes[admission.Reserved] != 1 || codes[admission.ReserveSoldOut] != 1 {
		s.t.Fatalf("codes %v, want one reserved and one sold out", codes)
	}
	s.remaining(0)
	s.epoch(1)
}

func stockS08a(_ *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.created("70000001", "request_1")
	s.paid("70000001", "request_1")
	s.cancelled("70000001", "request_1") // a stale reading
	s.created("70000001", "request_1")
	s.record("70000001", "request_1", admission.PollOrderPaid)
	s.remaining(0)
	s.epoch(1)
}

func stockS08b(_ *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.created("70000001", "request_1")
	s.cancelled("70000001", "request_1")
	s.remaining(1)
	s.epoch(2) // sold out is 1, reopened 2
	s.cancelled("70000001", "request_1")
	s.remaining(1)
	s.epoch(2)
	s.record("70000001", "request_1", admission.PollOrderCancelled)
}

func stockS08c(_ *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.cancelled("70000001", "request_1")
	s.created("70000001", "request_1")
	s.paid("70000001", "request_1")
	s.remaining(1)
	s.record("70000001", "request_1", admission.PollOrderCancelled)
}

func stockS11a(t *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	if _, err := s.Stock.Record(t.Context(), s.spec.Ref, "70000002", "request_1"); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("another user reads the record: %v", err)
	}
	r := s.want(admission.Reserved, "70000002", "request_1")
	if r.Record.ReservationID != s.args("70000002", "request_1").ReservationID {
		t.Errorf("the second user was shown %+v", r.Record)
	}
	a := s.args("70000003", "request_1")
	a.ReservationID = r.Record.ReservationID // cannot be derived; must not show what is another's
	if r, err := s.Stock.Reserve(t.Context(), a); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("another's reservation_id: %+v, %v", r, err)
	}
	s.remaining(8)
}

func stockS11b(_ *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	a := s.args("70000001", "request_1")
	a.BodyHash, a.Quantity = "h2", 2
	if r := s.try(a); r.Code != admission.ReserveBodyConflict {
		s.t.Errorf("code %d, want a body conflict", r.Code)
	}
	s.remaining(9)
}

func stockS11c(_ *testing.T, s *sale) {
	s.warm(10)
	codes := s.together(16, func(int) admission.ReserveArgs { return s.args("70000001", "request_1") })
	if codes[admission.Reserved] != 1 || codes[admission.ReserveSame] != 15 {
		s.t.Fatalf("codes %v, want one reserved, the others the same", codes)
	}
	s.remaining(9)
	if n := s.tally(); n.Reservations != 1 {
		s.t.Errorf("%d reservations, want 1", n.Reservations)
	}
}

func stockRepeat(_ *testing.T, s *sale) {
	s.warm(10)
	first := s.want(admission.Reserved, "70000001", "request_1")
	if first.Record.Outcome != admission.PollQueued || first.Record.OrderID != "" {
		s.t.Errorf("reserved: %+v", first.Record)
	}
	if again := s.want(admission.ReserveSame, "70000001", "request_1"); again.Record != first.Record {
		s.t.Errorf("repeated: %+v, want %+v", again.Record, first.Record)
	}
	s.created("70000001", "request_1")
	if r := s.want(admission.ReserveSame, "70000001", "request_1"); r.Record.Outcome != admission.PollOrderCreated || r.Record.OrderID != "7request_1" {
		s.t.Errorf("after the order: %+v", r.Record)
	}
	holder := s.want(admission.ReserveHolder, "70000001", "request_2")
	if holder.Record.RequestID != "request_1" || holder.Record.OrderID != "7request_1" || holder.Record.BodyHash != "h1" ||
		holder.Record.ReservationID != first.Record.ReservationID || holder.Record.Outcome != admission.PollOrderCreated {
		s.t.Errorf("holder: %+v", holder.Record)
	}
	s.remaining(9)
}

func stockExpired(t *testing.T, s *sale) {
	s.warm(10)
	s.rebuy, s.max = true, 3
	s.want(admission.Reserved, "70000001", "request_1")
	expire := func() {
		if err := s.Expire(t.Context(), s.spec.Ref, "70000001", "request_1"); err != nil {
			t.Fatal(err)
		}
	}
	expire()
	s.record("70000001", "request_1", admission.PollQueued)
	s.want(admission.ReserveSame, "70000001", "request_1")
	other := s.args("70000001", "request_1")
	other.BodyHash = "h2"
	if r := s.try(other); r.Code != admission.ReserveBodyConflict {
		t.Errorf("another body: code %d", r.Code)
	}
	if _, err := s.Stock.Record(t.Context(), s.spec.Ref, "70000001", "request_9"); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("another request of the holder: %v, want not found", err)
	}
	s.cancelled("70000001", "request_1")
	expire()
	if r := s.want(admission.ReserveSame, "70000001", "request_1"); r.Record.Outcome != admission.PollOrderCancelled {
		t.Errorf("a returned request_id held again: %+v", r)
	}
	s.remaining(10)
}

// stockFreed: users who are no buyers any more, and whose records may have expired. What they asked for then has its
// own result, before the user's other reservation and before SOLD_OUT.
func stockFreed(t *testing.T, s *sale) {
	s.rebuy, s.max = true, 3
	s.warm(3)
	for i, v := range []func(user string) admission.Verdict{
		func(u string) admission.Verdict {
			return s.verdict(u, "request_1", admission.VerdictCreated, admission.OrderCancelled)
		},
		func(u string) admission.Verdict {
			return s.verdict(u, "request_1", admission.VerdictNoCapacity, "")
		},
		func(u string) admission.Verdict {
			v := s.verdict(u, "request_1", admission.VerdictDuplicate, "")
			v.OrderID, v.ExistingReservationID = "71", "r_"+u+"_request_0"
			return v
		},
	} {
		user := fmt.Sprintf("7000000%d", i)
		s.want(admission.Reserved, user, "request_1")
		verdict := v(user)
		s.apply(verdict)
		if err := s.Reopen(t.Context(), s.spec.Ref); err != nil { // NO_CAPACITY closed it
			t.Fatal(err)
		}
		for expired := range 2 {
			for _, left := range []int{3, 0} {
				if left == 0 {
					for other := range 3 {
						s.want(admission.Reserved, fmt.Sprintf("8000000%d", other), fmt.Sprintf("request_%d%d", i, expired))
					}
				}
				if r := s.want(admission.ReserveSame, user, "request_1"); r.Record.Outcome != verdict.PollOutcome() || r.Record.OrderID != verdict.OrderID {
					t.Errorf("%s, %d left, expired %d: %+v", verdict.Outcome, left, expired, r.Record)
				}
				other := s.args(user, "request_1")
				other.BodyHash = "h2"
				if r := s.try(other); r.Code != admission.ReserveBodyConflict {
					t.Errorf("%s, %d left, expired %d: another body: code %d", verdict.Outcome, left, expired, r.Code)
				}
			}
			for other := range 3 {
				s.cancelled(fmt.Sprintf("8000000%d", other), fmt.Sprintf("request_%d%d", i, expired))
			}
			s.max += 3 // the others come again
			if err := s.Expire(t.Context(), s.spec.Ref, user, "request_1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func stockFreedLost(t *testing.T, s *sale) {
	s.rebuy = true
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.cancelled("70000001", "request_1")
	if err := s.Lose(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	s.want(admission.ReserveSame, "70000001", "request_1")
	if created, err := s.Stock.Warm(t.Context(), s.spec); !created || err != nil {
		t.Fatalf("warm: created %v, %v", created, err)
	}
	s.want(admission.ReserveSame, "70000001", "request_1")
	s.want(admission.ReserveHolder, "70000001", "request_2") // one attempt was all he had
	if err := s.Lose(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context(), s.spec); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	s.want(admission.ReserveSame, "70000001", "request_1")
	s.want(admission.ReserveHolder, "70000001", "request_2")
}

func stockMark(_ *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	r := s.want(admission.ReserveSoldOut, "70000002", "request_1")
	want := s.snapshot().Mark
	if r.Mark != want || r.Mark.Epoch != 1 || r.Mark.Incarnation != 1 || r.Mark.ActivityVersion != 1 || r.Mark.LogLength != 2 {
		s.t.Errorf("mark %+v, snapshot %+v", r.Mark, want)
	}
	s.cancelled("70000001", "request_1")
	reopened := s.snapshot()
	if reopened.SoldOut() || reopened.Compare(r.Mark) <= 0 {
		s.t.Errorf("reopened %+v is not after %+v", reopened.Mark, r.Mark)
	}
	s.want(admission.Reserved, "70000002", "request_1") // SOLD_OUT was not stored
	if again := s.want(admission.ReserveSoldOut, "70000003", "request_1"); again.Mark.Epoch != 3 {
		s.t.Errorf("epoch %d, want 3", again.Mark.Epoch)
	}
}

func stockTooFew(_ *testing.T, s *sale) {
	s.warm(1)
	a := s.args("70000001", "request_1")
	a.Quantity = 2
	if r := s.try(a); r.Code != admission.ReserveSoldOut || r.Mark != (admission.Mark{}) {
		s.t.Errorf("got %+v, want sold out and no mark", r)
	}
	s.epoch(0)
	s.want(admission.Reserved, "70000002", "request_1")
}

func stockVersion(_ *testing.T, s *sale) {
	s.warm(10)
	for _, version := range []int64{2, 3} {
		a := s.args("70000001", "request_1")
		a.Version = version
		if r := s.try(a); r.Code != admission.ReserveVersion {
			s.t.Errorf("version %d: code %d", version, r.Code)
		}
	}
	s.remaining(10)
}

func stockDuplicate(_ *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_2")
	v := s.verdict("70000001", "request_2", admission.VerdictDuplicate, "")
	v.OrderID, v.ExistingReservationID = "71", "r_70000001_request_1"
	s.apply(v, v)
	s.remaining(10)
	if r := s.record("70000001", "request_2", admission.PollDuplicate); r.OrderID != "71" {
		s.t.Errorf("record %+v does not name the order", r)
	}
	if r := s.want(admission.ReserveHolder, "70000001", "request_3"); r.Record.ReservationID != v.ExistingReservationID {
		s.t.Errorf("holder of %+v, want the existing order's reservation", r.Record)
	}
	s.created("70000001", "request_1") // the existing order arrives: adopted
	s.remaining(9)
	if r := s.want(admission.ReserveHolder, "70000001", "request_3"); r.Record.RequestID != "request_1" {
		s.t.Errorf("holder of %+v", r.Record)
	}
}

func stockDuplicateOfCancelled(_ *testing.T, s *sale) {
	s.rebuy, s.max = true, 3
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_2")
	s.created("70000001", "request_1") // adopted: it was lost, and request_2 got past it
	s.want(admission.ReserveHolder, "70000001", "request_3")
	v := s.verdict("70000001", "request_2", admission.VerdictDuplicate, "")
	v.OrderID, v.ExistingReservationID = "7request_1", "r_70000001_request_1"
	s.apply(v)
	s.cancelled("70000001", "request_1")
	s.want(admission.Reserved, "70000001", "request_3")

	s.want(admission.Reserved, "70000002", "request_2")
	s.cancelled("70000002", "request_1") // unknown: leaves request_2 the holder
	v = s.verdict("70000002", "request_2", admission.VerdictDuplicate, "")
	v.OrderID, v.ExistingReservationID = "7request_1", "r_70000002_request_1"
	s.apply(v)
	s.want(admission.Reserved, "70000002", "request_3")
	s.remaining(8)
}

func stockOlder(_ *testing.T, s *sale) {
	s.rebuy, s.max = true, 3
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_9")
	s.cancelled("70000001", "request_1")
	duplicate := s.verdict("70000001", "request_2", admission.VerdictDuplicate, "")
	duplicate.OrderID, duplicate.ExistingReservationID = "71", "r_70000001_request_1"
	s.apply(duplicate)
	s.apply(s.verdict("70000001", "request_3", admission.VerdictNoCapacity, ""))
	if err := s.Reopen(s.t.Context(), s.spec.Ref); err != nil {
		s.t.Fatal(err)
	}
	if r := s.want(admission.ReserveHolder, "70000001", "request_4"); r.Record.RequestID != "request_9" {
		s.t.Errorf("holder of %+v, want request_9", r.Record)
	}
	s.remaining(9)
}

func stockQuantity(_ *testing.T, s *sale) {
	s.warm(10)
	a := s.args("70000001", "request_1")
	a.Quantity = 3
	if r := s.try(a); r.Code != admission.Reserved {
		s.t.Fatalf("code %d", r.Code)
	}
	s.remaining(7)
	s.created("70000001", "request_1") // says 1
	s.remaining(7)
	s.cancelled("70000001", "request_1")
	s.remaining(10)
}

func stockNoCapacity(t *testing.T, s *sale) {
	s.warm(2)
	s.want(admission.Reserved, "70000001", "request_1")
	s.apply(s.verdict("70000001", "request_1", admission.VerdictNoCapacity, ""))
	s.record("70000001", "request_1", admission.PollNoCapacity)
	s.remaining(2)
	if n := s.snapshot(); n.Open {
		t.Error("the SKU is open after a NO_CAPACITY")
	}
	s.want(admission.ReserveClosed, "70000002", "request_1")
	if err := s.Reopen(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	if n := s.snapshot(); !n.Open || n.Incarnation != 2 {
		t.Errorf("reopened: %+v", n)
	}
	s.want(admission.Reserved, "70000002", "request_1")
	s.want(admission.Reserved, "70000001", "request_2") // he holds nothing
	if err := s.Reopen(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	if n := s.snapshot(); n.Incarnation != 2 {
		t.Errorf("reopening an open SKU: %+v", n)
	}
}

func stockAdopt(_ *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.created("70000002", "request_1")
	s.remaining(-1)
	s.epoch(1)
	if n := s.snapshot(); !n.SoldOut() {
		s.t.Error("-1 is not sold out")
	}
	s.want(admission.ReserveHolder, "70000002", "request_2")
	if r := s.want(admission.ReserveSoldOut, "70000003", "request_1"); r.Mark.Epoch != 1 {
		s.t.Errorf("mark %+v", r.Mark)
	}
	s.created("70000002", "request_1")
	s.remaining(-1)
	s.cancelled("70000002", "request_1")
	s.remaining(0)
	s.epoch(1)
	s.cancelled("70000001", "request_1")
	s.remaining(1)
	s.epoch(2)
}

func stockUnknown(_ *testing.T, s *sale) {
	s.warm(10)
	s.cancelled("70000001", "request_1")
	v := s.verdict("70000002", "request_1", admission.VerdictDuplicate, "")
	v.OrderID, v.ExistingReservationID = "71", "r_70000002_request_0"
	s.apply(v)
	s.remaining(10)
	s.record("70000001", "request_1", admission.PollOrderCancelled)
	s.record("70000002", "request_1", admission.PollDuplicate)
	s.created("70000001", "request_1") // the create, late
	s.remaining(10)
}

func stockRestore(t *testing.T, s *sale) {
	s.warm(5)
	for i := range 5 {
		s.want(admission.Reserved, fmt.Sprintf("7000000%d", i), "request_1")
	}
	before := s.snapshot()
	if err := s.Stock.Remove(t.Context(), s.spec.Ref); err != nil { // everything is lost
		t.Fatal(err)
	}
	if err := s.Close(t.Context(), s.spec); err != nil {
		t.Fatal(err)
	}
	s.want(admission.ReserveClosed, "70000009", "request_1")
	verdicts := []admission.Verdict{
		s.verdict("70000000", "request_1", admission.VerdictCreated, admission.OrderCancelled),
		s.verdict("70000001", "request_1", admission.VerdictNoCapacity, ""),
		s.verdict("70000002", "request_1", admission.VerdictCreated, admission.OrderPaid),
		s.verdict("70000003", "request_1", admission.VerdictCreated, admission.OrderCreated),
		s.verdict("70000004", "request_1", admission.VerdictCreated, admission.OrderCreated),
	}
	s.apply(verdicts...)
	s.apply(verdicts...) // a leader that died half way
	if err := s.Close(t.Context(), s.spec); err != nil {
		t.Fatal(err)
	}
	s.remaining(2)
	if err := s.Reopen(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	if after := s.snapshot(); !after.Open || after.Compare(before.Mark) <= 0 {
		t.Errorf("restored %+v is not after %+v", after, before)
	}
	s.want(admission.Reserved, "70000009", "request_1")
	s.want(admission.ReserveSame, "70000002", "request_1")
	s.remaining(1)
}

func stockRebuy(_ *testing.T, s *sale) {
	s.rebuy, s.max = true, 2
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	s.created("70000001", "request_1")
	s.want(admission.ReserveHolder, "70000001", "request_2")
	s.cancelled("70000001", "request_1")
	s.want(admission.Reserved, "70000001", "request_2")
	s.cancelled("70000001", "request_1") // a late repetition takes nothing from the second
	s.want(admission.ReserveHolder, "70000001", "request_3")
	s.cancelled("70000001", "request_2")
	r := s.want(admission.ReserveHolder, "70000001", "request_3") // two attempts are spent
	if r.Record.RequestID != "request_2" || r.Record.Outcome != admission.PollOrderCancelled {
		s.t.Errorf("after the last attempt: %+v", r.Record)
	}
	s.remaining(10)
	events := s.log()
	last := events[len(events)-1]
	if last.Kind != admission.LogReturned || last.Attempt != 3 || !last.FreesUser {
		s.t.Errorf("last event %+v", last)
	}
}

func stockNoRebuy(_ *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	s.cancelled("70000001", "request_1")
	s.want(admission.ReserveHolder, "70000001", "request_2")
	s.cancelled("70000002", "request_1") // unknown until now
	s.want(admission.ReserveHolder, "70000002", "request_2")
	for _, e := range s.log() {
		if e.FreesUser || e.Attempt > 1 {
			s.t.Errorf("event %+v frees a user or raises an attempt", e)
		}
	}
	s.remaining(10)
}

func stockLog(t *testing.T, s *sale) {
	s.warm(1)
	s.want(admission.Reserved, "70000001", "request_1")
	s.created("70000001", "request_1")
	s.created("70000001", "request_1") // changes nothing, tells nothing
	s.cancelled("70000001", "request_1")
	s.want(admission.Reserved, "70000002", "request_1")
	s.apply(s.verdict("70000002", "request_1", admission.VerdictNoCapacity, ""))
	base := admission.LogEvent{UserID: "70000001", RequestID: "request_1", BodyHash: "h1", ReservationID: "r_70000001_request_1", Attempt: 1}
	event := func(kind admission.LogKind, order string, o admission.Outcome) admission.LogEvent {
		e := base
		e.Kind, e.OrderID, e.Outcome = kind, order, o
		return e
	}
	epoch := admission.LogEvent{Kind: admission.LogEpoch}
	want := []admission.LogEvent{
		event(admission.LogReserved, "", admission.PollQueued), epoch,
		event(admission.LogCreated, "7request_1", admission.PollOrderCreated),
		event(admission.LogReturned, "7request_1", admission.PollOrderCancelled), epoch,
	}
	base.UserID, base.ReservationID = "70000002", "r_70000002_request_1"
	failed := event(admission.LogFailed, "", admission.PollNoCapacity)
	failed.FreesUser = true
	want = append(want, event(admission.LogReserved, "", admission.PollQueued), epoch, failed, epoch)
	got := s.log()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if n := s.snapshot(); n.LogLength != int64(len(want)) || n.Epoch != 4 {
		t.Errorf("snapshot %+v", n)
	}
	page, err := s.Stock.Log(t.Context(), s.spec.Ref, 2, 2)
	if err != nil || len(page) != 2 || page[0] != want[2] || page[1] != want[3] {
		t.Errorf("page: %+v, %v", page, err)
	}
	if past, err := s.Stock.Log(t.Context(), s.spec.Ref, 99, 10); err != nil || len(past) != 0 {
		t.Errorf("past the end: %+v, %v", past, err)
	}
}

func stockDue(t *testing.T, s *sale) {
	s.warm(10)
	now := time.Now()
	due := func(at time.Time, limit int) []admission.Reservation {
		t.Helper()
		r, err := s.Stock.Due(t.Context(), s.spec.Ref, at, limit)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range 4 {
		s.want(admission.Reserved, fmt.Sprintf("7000000%d", i), "request_1")
	}
	if r := due(now, 10); len(r) != 0 {
		t.Errorf("due within the grace: %+v", r)
	}
	all := due(now.Add(time.Minute), 10)
	if len(all) != 4 {
		t.Fatalf("%d due, want 4", len(all))
	}
	if one := all[0]; one.State != admission.Live || one.RequestID != "request_1" || one.BodyHash != "h1" || one.Quantity != 1 ||
		one.Ref != s.spec.Ref || one.CreatedAt.Sub(now).Abs() > 10*time.Second {
		t.Errorf("reservation %+v", one)
	}
	if r := due(now.Add(time.Minute), 3); len(r) != 3 {
		t.Errorf("%d due, want the limit of 3", len(r))
	}
	late := now.Add(time.Hour)
	if err := s.Stock.MarkSent(t.Context(), s.spec.Ref, []string{all[0].ID, all[1].ID, "r_unknown"}, late); err != nil {
		t.Fatal(err)
	}
	if err := s.Stock.Postpone(t.Context(), s.spec.Ref, all[2].ID, late); err != nil {
		t.Fatal(err)
	}
	if r := due(now.Add(time.Minute), 10); len(r) != 1 || r[0].ID != all[3].ID {
		t.Errorf("due %+v, want only %s", r, all[3].ID)
	}
	s.created(all[3].UserID, "request_1")
	if err := s.Stock.MarkSent(t.Context(), s.spec.Ref, []string{all[3].ID}, now); err != nil { // late
		t.Fatal(err)
	}
	if r := due(now.Add(time.Minute), 10); len(r) != 0 {
		t.Errorf("a decided reservation is due again: %+v", r)
	}
	if n := s.tally(); n.Pending != 3 || n.Live != 3 || n.Created != 1 {
		t.Errorf("tally %+v", n)
	}
}

func stockBadVerdict(t *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, "70000001", "request_1")
	bad := s.verdict("70000002", "request_1", admission.VerdictCreated, "REFUNDED")
	good := s.verdict("70000001", "request_1", admission.VerdictCreated, admission.OrderCreated)
	if err := s.Stock.Apply(t.Context(), []admission.Verdict{bad, good}); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	s.record("70000001", "request_1", admission.PollOrderCreated)
}

func stockArguments(t *testing.T, s *sale) {
	s.warm(10)
	for name, change := range map[string]func(a *admission.ReserveArgs){
		"quantity 0":           func(a *admission.ReserveArgs) { a.Quantity = 0 },
		"quantity -1":          func(a *admission.ReserveArgs) { a.Quantity = -1 },
		"quantity 2^53":        func(a *admission.ReserveArgs) { a.Quantity = 1 << 53 },
		"no attempts":          func(a *admission.ReserveArgs) { a.MaxAttempts = 0 },
		"no record TTL":        func(a *admission.ReserveArgs) { a.RecordTTL = 0 },
		"a bar in the id":      func(a *admission.ReserveArgs) { a.ReservationID = "r_1|2" },
		"a bar in the hash":    func(a *admission.ReserveArgs) { a.BodyHash = "h|" },
		"a bar in the request": func(a *admission.ReserveArgs) { a.RequestID = "x|y" },
	} {
		a := s.args("70000001", "request_1")
		change(&a)
		if r, err := s.Stock.Reserve(t.Context(), a); !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("%s: %+v, %v; want unavailable", name, r, err)
		}
	}
	s.remaining(10)
	if n := s.tally(); n.Reservations != 0 || n.Buyers != 0 || n.Pending != 0 {
		t.Errorf("something was written: %+v", n)
	}
}

func stockRemove(t *testing.T, s *sale) {
	s.warm(10)
	for i := range 3 {
		s.want(admission.Reserved, fmt.Sprintf("7000000%d", i), "request_1")
	}
	for range 2 {
		if err := s.Stock.Remove(t.Context(), s.spec.Ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stock.Record(t.Context(), s.spec.Ref, "70000001", "request_1"); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("record: %v, want not found", err)
	}
	if events := s.log(); len(events) != 0 {
		t.Errorf("log: %+v", events)
	}
	s.want(admission.ReserveMissing, "70000001", "request_1")
	s.warmed = false
}

func stockCrowd(_ *testing.T, s *sale) {
	s.warm(20)
	codes := s.together(200, func(i int) admission.ReserveArgs {
		return s.args(fmt.Sprintf("7000%04d", i%100), fmt.Sprintf("request_%d", i))
	})
	if codes[admission.Reserved] != 20 {
		s.t.Fatalf("codes %v, want 20 reserved", codes)
	}
	s.remaining(0)
	s.epoch(1)
	n := s.tally()
	if n.Reservations != 20 || n.Buyers != 20 || n.Pending != 20 || n.Live != 20 {
		s.t.Errorf("tally %+v", n)
	}
}

// restored closes the SKU, applies the verdicts and opens it.
func (s *sale) restored(v ...admission.Verdict) {
	s.t.Helper()
	if err := s.Close(s.t.Context(), s.spec); err != nil {
		s.t.Fatal(err)
	}
	s.apply(v...)
	if err := s.Reopen(s.t.Context(), s.spec.Ref); err != nil {
		s.t.Fatal(err)
	}
	if n := s.snapshot(); !n.Open {
		s.t.Fatalf("restored and not open: %+v", n)
	}
	s.conserved()
}

// lose removes a key; the SKU must then read as closed.
func (s *sale) lose(key string) {
	s.t.Helper()
	if err := s.LoseKey(s.t.Context(), s.spec.Ref, key); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sale) open(want bool, when string) {
	s.t.Helper()
	if n := s.snapshot(); n.Open != want {
		s.t.Errorf("%s: open is %v (%+v)", when, n.Open, n)
	}
}

func nthUser(i int) string { return fmt.Sprintf("7000%04d", i) }

// stockLostReservations: 7 of 20 are sold, the reservations are lost, 6 more are sold. SQL has
// decided 5 of the first and 4 of the others. Adopting the 5 takes units that were taken
// already: only a count tells.
func stockLostReservations(t *testing.T, s *sale) {
	s.warm(20)
	for i := range 7 {
		s.want(admission.Reserved, nthUser(i), "request_1")
	}
	s.lose("rsv")
	s.open(false, "rsv lost")
	var verdicts []admission.Verdict
	for i := range 13 {
		if i >= 7 {
			s.want(admission.Reserved, nthUser(i), "request_1")
		}
		if i < 5 || i >= 9 {
			verdicts = append(verdicts, s.verdict(nthUser(i), "request_1", admission.VerdictCreated, admission.OrderCreated))
		}
	}
	s.open(false, "rsv lost and begun anew")
	s.apply(verdicts...) // as the consumer does, who knows of nothing
	s.open(false, "lost ones adopted")
	before := s.snapshot()
	s.restored(verdicts...)
	s.remaining(20 - 9 - 2)
	if n := s.tally(); n.Created != 9 || n.Live != 2 || n.Buyers != 11 || n.Pending != 2 {
		t.Errorf("tally %+v, want 9 created and 2 live, and no trace of the 2 that nobody can decide", n)
	}
	if after := s.snapshot(); after.Incarnation <= before.Incarnation {
		t.Errorf("incarnation %d after %d", after.Incarnation, before.Incarnation)
	}
	// The two that were lost before SQL knew of them: as if they had never asked.
	if _, err := s.Stock.Record(t.Context(), s.spec.Ref, nthUser(5), "request_1"); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("record of a lost reservation: %v, want not found", err)
	}
	events := s.log()
	if last := events[len(events)-1]; !last.FreesUser || last.ReservationID == "" {
		t.Errorf("followers are not told: %+v", last)
	}
	s.want(admission.Reserved, nthUser(5), "request_1")
	s.want(admission.ReserveHolder, nthUser(0), "request_2")
	s.restored() // a second one changes nothing
	s.remaining(20 - 9 - 3)
}

func stockLostBuyers(t *testing.T, s *sale) {
	s.warm(20)
	for i := range 4 {
		s.want(admission.Reserved, nthUser(i), "request_1")
	}
	verdicts := []admission.Verdict{
		s.verdict(nthUser(0), "request_1", admission.VerdictCreated, admission.OrderPaid),
		s.verdict(nthUser(1), "request_1", admission.VerdictCreated, admission.OrderCreated),
		s.verdict(nthUser(2), "request_1", admission.VerdictCreated, admission.OrderCancelled),
	}
	s.apply(verdicts...)
	s.open(true, "nothing lost")
	s.lose("buyers")
	s.open(false, "buyers lost")
	s.want(admission.Reserved, nthUser(9), "request_1")
	s.open(false, "buyers lost and begun anew")
	s.restored(verdicts...)
	for i := range 4 { // created, paid, cancelled without another attempt, live
		s.want(admission.ReserveHolder, nthUser(i), "request_2")
	}
	if n := s.tally(); n.Buyers != 5 {
		t.Errorf("tally %+v, want 5 buyers", n)
	}
	s.remaining(16)
}

func stockLostPending(t *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, nthUser(0), "request_1")
	s.want(admission.Reserved, nthUser(1), "request_1")
	s.created(nthUser(1), "request_1")
	s.lose("pending")
	s.restored()
	due, err := s.Stock.Due(t.Context(), s.spec.Ref, time.Now(), 10)
	if err != nil || len(due) != 1 || due[0].UserID != nthUser(0) {
		t.Errorf("due %+v, %v; want the live one, at once", due, err)
	}
}

// stockWhole: every way in which reservations and buyers come apart by themselves.
func stockWhole(_ *testing.T, s *sale) {
	s.warm(10)
	s.rebuy, s.max = true, 9
	step := func(what string, f func()) {
		s.t.Helper()
		f()
		s.open(true, what)
	}
	step("warmed", func() {})
	step("reserved", func() { s.want(admission.Reserved, nthUser(0), "request_1") })
	step("created", func() { s.created(nthUser(0), "request_1") })
	step("cancelled", func() { s.cancelled(nthUser(0), "request_1") })
	step("bought again", func() { s.want(admission.Reserved, nthUser(0), "request_2") })
	step("an older one adopted", func() { s.created(nthUser(0), "request_0") })
	step("a duplicate of it", func() {
		v := s.verdict(nthUser(0), "request_2", admission.VerdictDuplicate, "")
		v.OrderID, v.ExistingReservationID = "7request_0", "r_"+nthUser(0)+"_request_0"
		s.apply(v, v)
	})
	step("its order cancelled", func() { s.cancelled(nthUser(0), "request_0") })
	step("an unknown one cancelled", func() { s.cancelled(nthUser(1), "request_1") })
	step("an unknown duplicate", func() {
		v := s.verdict(nthUser(2), "request_1", admission.VerdictDuplicate, "")
		v.OrderID, v.ExistingReservationID = "71", "r_"+nthUser(2)+"_request_0"
		s.apply(v)
	})
	s.rebuy = false
	step("an unknown one cancelled for good", func() { s.cancelled(nthUser(3), "request_1"); s.cancelled(nthUser(3), "request_1") })
	step("a paid one", func() { s.want(admission.Reserved, nthUser(4), "request_1"); s.paid(nthUser(4), "request_1") })
	step("no capacity, and restored", func() {
		s.want(admission.Reserved, nthUser(5), "request_1")
		s.apply(s.verdict(nthUser(5), "request_1", admission.VerdictNoCapacity, ""))
		s.restored()
	})
	step("after a restore", func() { s.want(admission.Reserved, nthUser(6), "request_1"); s.cancelled(nthUser(6), "request_1") })
	step("sold out", func() {
		a := s.args(nthUser(7), "request_1")
		a.Quantity = s.snapshot().Remaining
		s.try(a)
	})
}

func stockLostStock(_ *testing.T, s *sale) {
	s.warm(10)
	for i := range 3 {
		s.want(admission.Reserved, nthUser(i), "request_1")
	}
	s.created(nthUser(0), "request_1")
	if err := s.Lose(s.t.Context(), s.spec.Ref); err != nil {
		s.t.Fatal(err)
	}
	s.restored(s.verdict(nthUser(0), "request_1", admission.VerdictCreated, admission.OrderCreated))
	s.remaining(7)
	// A publisher who is quicker than the leader makes it anew with all its units: no sale on these.
	if err := s.Lose(s.t.Context(), s.spec.Ref); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Stock.Warm(s.t.Context(), s.spec); err != nil {
		s.t.Fatal(err)
	}
	s.open(false, "warmed over reservations")
	s.restored()
	s.remaining(7)
}

func stockUnreadable(t *testing.T, s *sale) {
	s.warm(10)
	s.want(admission.Reserved, nthUser(0), "request_1")
	s.want(admission.Reserved, nthUser(1), "request_1")
	s.created(nthUser(0), "request_1")
	for _, field := range []string{"total", "remaining", "incarnation", "activity_version", "stock_epoch", "opens_at_ms", "closes_at_ms"} {
		if err := s.Scribble(t.Context(), s.spec.Ref, field, "abc"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Stock.Snapshot(t.Context(), s.spec.Ref)
		if !errors.Is(err, admission.ErrNotFound) || !strings.Contains(err.Error(), s.spec.Ref.Tag()) {
			t.Errorf("%s: snapshot %v; want not found, and the SKU's name", field, err)
		}
		if field == "remaining" {
			v := s.verdict(nthUser(0), "request_1", admission.VerdictCreated, admission.OrderPaid)
			if err := s.Stock.Apply(t.Context(), []admission.Verdict{v}); !errors.Is(err, admission.ErrUnavailable) {
				t.Errorf("effect: %v, want unavailable, so that it stays due", err)
			}
			s.record(nthUser(0), "request_1", admission.PollOrderCreated) // and nothing written
		}
		s.restored()
		s.remaining(8)
	}
	for field, value := range map[string]string{"total": "600", "remaining": "5"} { // readable, and wrong
		if err := s.Scribble(t.Context(), s.spec.Ref, field, value); err != nil {
			t.Fatal(err)
		}
		if s.tally().Conserved() {
			t.Errorf("%s %s is conserved", field, value)
		}
		s.restored()
		s.remaining(8)
	}
}

// stockCountedMeanwhile: orders are paid and cancelled while the SKU is counted and opened.
func stockCountedMeanwhile(t *testing.T, s *sale) {
	const n = 40
	s.warm(n)
	for i := range n {
		s.want(admission.Reserved, nthUser(i), "request_1")
	}
	if err := s.Close(t.Context(), s.spec); err != nil {
		t.Fatal(err)
	}
	var cancelling sync.WaitGroup
	cancelling.Go(func() {
		for i := range n / 2 {
			v := s.verdict(nthUser(i), "request_1", admission.VerdictCreated, admission.OrderCancelled)
			if err := s.Stock.Apply(t.Context(), []admission.Verdict{v}); err != nil {
				t.Error(err)
			}
		}
	})
	err := s.Reopen(t.Context(), s.spec.Ref)
	cancelling.Wait()
	if err != nil && !errors.Is(err, admission.ErrUnavailable) { // it may give up, to be called again
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context(), s.spec.Ref); err != nil {
		t.Fatal(err)
	}
	s.open(true, "reopened")
	s.remaining(n / 2)
	s.epoch(2)
}
