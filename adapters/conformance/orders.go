package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
)

// OrdersDeadLetters is how many dead letters the store that open gives must keep.
const OrdersDeadLetters = 20

// Orders is what every implementation of admission.Orders must pass. open gives an empty store of its own, not yet
// migrated, that keeps OrdersDeadLetters dead letters; it registers its own clean-up.
func Orders(t *testing.T, open func(*testing.T) admission.Orders) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, orders)
	}{
		{"migrating again or at the same time changes nothing", ordersMigrate},
		{"terms rise strictly, whoever asks", ordersTerms},
		{"publishing moves one version at a time", ordersPublish},
		{"a publication may not change stock or fairness", ordersPublishRules},
		{"live activities come first, ended ones stay ended", ordersActivities},
		{"S01 ids beyond 2^53 stay exact", ordersBigIDs},
		{"a message is decided once", ordersDecideOnce},
		{"the batch is decided in message order", ordersMessageOrder},
		{"capacity is used to the last unit and not beyond", ordersCapacity},
		{"a second order of a user is a duplicate that names the first", ordersDuplicate},
		{"M01 concurrent twins get one order", ordersTwins},
		{"P01 two SKUs in both orders by 16 workers", ordersTwoSKUs},
		{"P02 a duplicate disturbs nobody", ordersP02},
		{"S08 cancel and pay at once end in one state", ordersCancelAndPay},
		{"S08 a second cancel returns the units once", ordersDoubleCancel},
		{"S08 a create after its cancel is refused by its outcome", ordersCreateAfterCancel},
		{"S09 one failure fails nobody else", ordersS09},
		{"a cancelled order counts unless rebuying is allowed", ordersRebuy},
		{"payments are exact and happen once", ordersPay},
		{"orders belong to their users", ordersOwner},
		{"unpaid orders are cancelled when their time has passed", ordersUnpaid},
		{"effects are due until they are cleared at their status", ordersEffects},
		{"verdicts come in pages, live orders last", ordersVerdicts},
		{"a request finds its verdict", ordersVerdictOf},
		{"the tally counts units, orders and outcomes", ordersTally},
		{"poison stops nobody", ordersPoison},
		{"dead letters are bounded", ordersDeadLetters},
		{"deleting an activity leaves the others", ordersDelete},
		{"a call after its deadline changes nothing", ordersDeadline},
		{"any sequence keeps the books", ordersProperty},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := orders{open(t)}
			if err := o.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.run(t, o)
		})
	}
}

// orders is a store under test with the few words that the cases are written in.
type orders struct{ admission.Orders }

var (
	ordersNow  = time.Date(2026, 11, 11, 0, 0, 1, 0, time.UTC)
	ordersSKU  = admission.SKURef{ActivityID: "10001", SKUID: "90001"}
	ordersSKU2 = admission.SKURef{ActivityID: "10001", SKUID: "90002"}
)

// ordersActivity sells 90001 and 90002, stock units each at 9.90.
func ordersActivity(stock int64) admission.Activity {
	price := admission.Money{Amount: "9.90", Currency: "CNY"}
	return admission.Activity{
		ID: "10001", Version: 1, PathID: "path-10001", Name: "Sale", OpensAt: ordersNow.Add(-time.Second), ClosesAt: ordersNow.Add(time.Hour),
		SKUs: []admission.SKU{
			{ID: "90001", Name: "One", Stock: stock, LimitPerUser: 3, Price: price},
			{ID: "90002", Name: "Two", Stock: stock, LimitPerUser: 3, Price: price},
		},
		Fairness:    admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second},
		MaxAttempts: 1, PayWithin: 15 * time.Minute, PublishedAt: ordersNow.Add(-time.Hour),
	}
}

func (o orders) publish(t *testing.T, a admission.Activity) admission.Activity {
	t.Helper()
	stored, err := o.PublishActivity(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// message is the request of a user; the same arguments give the same reservation.
func ordersMessage(ref admission.SKURef, user, request string, quantity int64) admission.OrderMessage {
	return admission.OrderMessage{
		SchemaVersion: 1, MessageID: "msg_1", ReservationID: "r_" + ref.ActivityID + "-" + ref.SKUID + "-" + user + "-" + request,
		RequestID: "request-" + request, ActivityID: ref.ActivityID, SKUID: ref.SKUID, UserID: user, Quantity: quantity,
		ActivityVersion: 1, BodyHash: "sha256:ab", CreatedAt: ordersNow.Add(-123 * time.Millisecond),
	}
}

// decide decides and demands that nothing was poison.
func (o orders) decide(t *testing.T, messages ...admission.OrderMessage) []admission.Verdict {
	t.Helper()
	verdicts, err := o.Decide(t.Context(), messages, ordersNow)
	if err != nil {
		t.Fatal(err)
	}
	if len(verdicts) != len(messages) {
		t.Fatalf("%d verdicts for %d messages", len(verdicts), len(messages))
	}
	for i, v := range verdicts {
		if v.ReservationID != messages[i].ReservationID {
			t.Fatalf("verdict %d is of %s, want %s", i, v.ReservationID, messages[i].ReservationID)
		}
	}
	return verdicts
}

func (o orders) tally(t *testing.T, ref admission.SKURef) admission.OrderTally {
	t.Helper()
	tally, err := o.Tally(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

func outcomes(verdicts []admission.Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		b.WriteString(string(v.Outcome[:min(len(v.Outcome), 1)]))
	}
	return b.String() // "CDN": created, duplicate, no capacity
}

func wantError(t *testing.T, err, want error, words string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), words) {
		t.Fatalf("got %v, want %v with %q", err, want, words)
	}
}

func wantOutcomes(t *testing.T, verdicts []admission.Verdict, want string) {
	t.Helper()
	if got := outcomes(verdicts); got != want {
		t.Fatalf("outcomes %s, want %s: %+v", got, want, verdicts)
	}
}

// atOnce runs n calls of f that begin together.
func atOnce(n int, f func(i int)) {
	var wait sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wait.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wait.Wait()
}

func ordersMigrate(t *testing.T, o orders) {
	o.publish(t, ordersActivity(1))
	errs := make([]error, 4)
	atOnce(len(errs), func(i int) { errs[i] = o.Migrate(t.Context()) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if a, err := o.Activities(t.Context()); err != nil || len(a) != 1 {
		t.Fatalf("%v %v", a, err)
	}
	if err := o.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func ordersTerms(t *testing.T, o orders) {
	const workers, each = 4, 10
	terms := make([][]int64, workers)
	atOnce(workers, func(i int) {
		for range each {
			term, err := o.NextTerm(t.Context())
			if err != nil {
				t.Error(err)
			}
			terms[i] = append(terms[i], term)
		}
	})
	seen := make(map[int64]bool)
	for _, own := range terms {
		if !slices.IsSorted(own) {
			t.Errorf("one caller saw %v", own)
		}
		for _, term := range own {
			if seen[term] || term < 1 {
				t.Errorf("term %d again", term)
			}
			seen[term] = true
		}
	}
}

func ordersPublish(t *testing.T, o orders) {
	a := ordersActivity(5)
	a.Version = 2
	_, err := o.PublishActivity(t.Context(), a)
	wantError(t, err, admission.ErrConflict, "activity_version: must be 1")
	a.Version = 1
	if got := o.publish(t, a); !reflect.DeepEqual(got, a) {
		t.Fatalf("got %+v, want %+v", got, a)
	}
	_, err = o.PublishActivity(t.Context(), a)
	wantError(t, err, admission.ErrConflict, "activity_version: must be 2")
	b := a
	b.Version, b.Name, b.PathID, b.PublishedAt, b.PayWithin = 2, "Sale again", "path-new", ordersNow, time.Minute
	b.SKUs = slices.Clone(a.SKUs)
	b.SKUs[0].Price.Amount, b.SKUs[0].LimitPerUser = "8.80", 2
	want := b
	want.PublishedAt = a.PublishedAt
	if got := o.publish(t, b); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	all, err := o.Activities(t.Context())
	if err != nil || !reflect.DeepEqual(all, []admission.Activity{want}) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, all, want)
	}
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1))
	got, err := o.Order(t.Context(), v[0].OrderID)
	if err != nil || got.Price.Amount != "8.80" || !got.PayBefore.Equal(ordersNow.Add(time.Minute)) {
		t.Fatalf("an order under version 2: %+v %v", got, err)
	}
	// of many at once one wins
	b.Version = 3
	errs := make([]error, 4)
	atOnce(len(errs), func(i int) { _, errs[i] = o.PublishActivity(t.Context(), b) })
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantError(t, err, admission.ErrConflict, "activity_version: must be 4")
		}
	}
	if won != 1 {
		t.Fatalf("%d publications of one version: %v", won, errs)
	}
}

func ordersPublishRules(t *testing.T, o orders) {
	first := ordersActivity(5)
	first.Fairness = admission.Fairness{Mode: admission.FairnessWeighted, DrawClosesBefore: 5 * time.Second, Weights: map[string]float64{"a": 1, "b": 2}}
	o.publish(t, first)
	other := ordersActivity(5)
	other.ID, other.PathID = "10002", "path-10002"
	o.publish(t, other)
	for _, c := range []struct {
		want   string
		change func(*admission.Activity)
	}{
		{"skus[1].stock: may not change from 5", func(a *admission.Activity) { a.SKUs[1].Stock = 6 }},
		{"skus: the SKUs may not change", func(a *admission.Activity) { a.SKUs = a.SKUs[:1] }},
		{"skus[0].sku_id: the SKUs may not change", func(a *admission.Activity) { a.SKUs[0].ID = "90009" }},
		{"skus[1].sku_id", func(a *admission.Activity) { a.SKUs[1].ID = "90001" }},
		{"fairness", func(a *admission.Activity) { a.Fairness.Mode = admission.FairnessQuota }},
		{"fairness", func(a *admission.Activity) { a.Fairness.DrawClosesBefore++ }},
		{"fairness", func(a *admission.Activity) { a.Fairness.Weights = map[string]float64{"a": 1, "b": 3} }},
		{"fairness", func(a *admission.Activity) { a.Fairness.Beacon = "x" }},
		{"opens_at: may not change once", func(a *admission.Activity) { a.OpensAt, a.PublishedAt = a.OpensAt.Add(time.Minute), ordersNow }},
		{"path_id: another live activity has it", func(a *admission.Activity) { a.PathID = other.PathID }},
		{"path_id: is missing", func(a *admission.Activity) { a.PathID = "" }},
		{"activity_version: must be 2", func(a *admission.Activity) { a.Version = 3 }},
		{"ended", func(a *admission.Activity) { a.Ended = true }},
	} {
		a := first
		a.Version, a.SKUs = 2, slices.Clone(first.SKUs)
		c.change(&a)
		_, err := o.PublishActivity(t.Context(), a)
		wantError(t, err, admission.ErrConflict, c.want)
	}
	postponed := first
	postponed.Version, postponed.OpensAt = 2, first.OpensAt.Add(time.Minute) // published before the draw closed
	o.publish(t, postponed)
	if err := o.EndActivity(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	postponed.Version = 3
	_, err := o.PublishActivity(t.Context(), postponed)
	wantError(t, err, admission.ErrConflict, "ended")
}

func ordersActivities(t *testing.T, o orders) {
	if a, err := o.Activities(t.Context()); err != nil || len(a) != 0 {
		t.Fatalf("%v %v", a, err)
	}
	for i, id := range []string{"10001", "10002", "10003"} {
		a := ordersActivity(1)
		a.ID, a.PathID, a.PublishedAt = id, "path-"+id, a.PublishedAt.Add(time.Duration(i)*time.Second)
		o.publish(t, a)
	}
	wantError(t, o.EndActivity(t.Context(), "10009"), admission.ErrNotFound, "10009")
	wantError(t, o.EndActivity(t.Context(), "x"), admission.ErrNotFound, "x")
	for range 2 {
		if err := o.EndActivity(t.Context(), "10002"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := o.Activities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all {
		got = append(got, fmt.Sprint(a.ID, a.Ended))
	}
	if want := []string{"10003false", "10001false", "10002true"}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	reused := ordersActivity(1)
	reused.ID, reused.PathID = "10004", "path-10002"
	o.publish(t, reused) // the path of an ended one is free
	wantOutcomes(t, o.decide(t, ordersMessage(admission.SKURef{ActivityID: "10002", SKUID: "90001"}, "1", "late", 1)), "C")
}

func ordersBigIDs(t *testing.T, o orders) {
	a := ordersActivity(10)
	a.ID, a.SKUs[0].ID = "9223372036854775807", "9007199254740993"
	o.publish(t, a)
	ref := admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}
	users := []string{"7300000000000000001", "7300000000000000002", "9223372036854775806", "9223372036854775807"}
	var messages []admission.OrderMessage
	for _, u := range users {
		messages = append(messages, ordersMessage(ref, u, "one", 1))
	}
	verdicts := o.decide(t, messages...)
	wantOutcomes(t, verdicts, "CCCC")
	for i, v := range verdicts {
		got, err := o.Order(t.Context(), v.OrderID)
		if err != nil || got.UserID != users[i] || got.Ref != ref || v.UserID != users[i] {
			t.Fatalf("%+v %+v %v", v, got, err)
		}
		of, err := o.VerdictOf(t.Context(), ref, users[i], "request-one")
		if err != nil || of != v {
			t.Fatalf("%+v %v", of, err)
		}
	}
	if tally := o.tally(t, ref); tally.Sold != 4 || tally.Users != 4 {
		t.Fatalf("%+v", tally)
	}
}

func ordersDecideOnce(t *testing.T, o orders) {
	o.publish(t, ordersActivity(3))
	if v, err := o.Decide(t.Context(), nil, ordersNow); err != nil || len(v) != 0 {
		t.Fatalf("an empty batch: %v %v", v, err)
	}
	m := ordersMessage(ordersSKU, "1", "one", 2)
	first := o.decide(t, m, m)
	want := admission.Verdict{
		ReservationID: m.ReservationID, Ref: ordersSKU, UserID: "1", RequestID: "request-one", BodyHash: "sha256:ab", Quantity: 2,
		CreatedAt: m.CreatedAt, Outcome: admission.VerdictCreated, OrderID: first[0].OrderID, OrderStatus: admission.OrderCreated,
		ClosesAt: ordersNow.Add(time.Hour),
	}
	if first[0] != want || first[1] != want || !admission.ValidDecimal(want.OrderID) {
		t.Fatalf("got  %+v\nwant %+v", first, want)
	}
	order, err := o.Order(t.Context(), want.OrderID)
	if wantOrder := (admission.Order{
		ID: want.OrderID, ReservationID: m.ReservationID, Ref: ordersSKU, UserID: "1", RequestID: "request-one", Quantity: 2,
		Price: admission.Money{Amount: "9.90", Currency: "CNY"}, Status: admission.OrderCreated, CreatedAt: ordersNow,
		PayBefore: ordersNow.Add(15 * time.Minute),
	}); err != nil || order != wantOrder {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, order, wantOrder)
	}
	if _, _, err := o.Pay(t.Context(), want.OrderID, admission.Payment{ID: "p", Amount: admission.Money{Amount: "19.8", Currency: "CNY"}}, ordersNow); err != nil {
		t.Fatal(err)
	}
	want.OrderStatus = admission.OrderPaid
	again, err := o.Decide(t.Context(), []admission.OrderMessage{m}, ordersNow.Add(time.Hour))
	if err != nil || again[0] != want {
		t.Fatalf("again: %+v %v", again, err)
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != 2 || tally.Paid != 1 || len(tally.Status) != 1 {
		t.Fatalf("%+v", tally)
	}
}

func ordersMessageOrder(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	verdicts := o.decide(t,
		ordersMessage(ordersSKU, "9", "one", 3),
		ordersMessage(ordersSKU, "8", "one", 3), // 6 do not fit
		ordersMessage(ordersSKU2, "8", "one", 3),
		ordersMessage(ordersSKU, "7", "one", 2), // but 5 do
		ordersMessage(ordersSKU, "9", "two", 1), // a duplicate, whatever is left
		ordersMessage(ordersSKU, "6", "one", 1),
	)
	wantOutcomes(t, verdicts, "CNCCDN")
	if a, b := len(verdicts[0].OrderID), len(verdicts[3].OrderID); a > b || a == b && verdicts[0].OrderID > verdicts[3].OrderID {
		t.Fatalf("order ids do not follow the messages: %s, %s", verdicts[0].OrderID, verdicts[3].OrderID)
	}
	if one, two := o.tally(t, ordersSKU), o.tally(t, ordersSKU2); one.Sold != 5 || two.Sold != 3 {
		t.Fatalf("%+v %+v", one, two)
	}
}

func ordersCapacity(t *testing.T, o orders) {
	const total, workers, each = 50, 8, 12
	o.publish(t, ordersActivity(total))
	var mu sync.Mutex
	counts := make(map[admission.VerdictOutcome]int)
	atOnce(workers, func(i int) {
		var batch []admission.OrderMessage
		for k := range each {
			batch = append(batch, ordersMessage(ordersSKU, fmt.Sprint(1+i*each+k), "one", 1))
		}
		verdicts, err := o.Decide(t.Context(), batch, ordersNow)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, v := range verdicts {
			counts[v.Outcome]++
		}
	})
	if counts[admission.VerdictCreated] != total || counts[admission.VerdictNoCapacity] != workers*each-total {
		t.Fatalf("%v", counts)
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != total || tally.Created != total || tally.NoCapacity != workers*each-total {
		t.Fatalf("%+v", tally)
	}
}

func ordersDuplicate(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	batch := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(ordersSKU, "1", "two", 1))
	later := o.decide(t, ordersMessage(ordersSKU, "1", "three", 1))
	wantOutcomes(t, append(batch, later...), "CDD")
	for _, v := range []admission.Verdict{batch[1], later[0]} {
		if v.OrderID != batch[0].OrderID || v.ExistingReservationID != batch[0].ReservationID || v.OrderStatus != "" {
			t.Fatalf("%+v does not name %+v", v, batch[0])
		}
	}
	again := o.decide(t, ordersMessage(ordersSKU, "1", "two", 1))
	if again[0] != batch[1] {
		t.Fatalf("read back %+v, want %+v", again[0], batch[1])
	}
}

func ordersTwins(t *testing.T, o orders) {
	o.publish(t, ordersActivity(100))
	var batch []admission.OrderMessage
	for i := range 20 {
		batch = append(batch, ordersMessage(ordersSKU, fmt.Sprint(1+i/2), fmt.Sprint(i%2), 1))
	}
	all := make([][]admission.Verdict, 8)
	atOnce(len(all), func(i int) {
		mine := slices.Clone(batch)
		if i%2 == 1 {
			slices.Reverse(mine)
		}
		verdicts, err := o.Decide(t.Context(), mine, ordersNow)
		if err != nil {
			t.Error(err)
			return
		}
		if i%2 == 1 {
			slices.Reverse(verdicts)
		}
		all[i] = verdicts
	})
	for _, verdicts := range all[1:] {
		if !reflect.DeepEqual(verdicts, all[0]) {
			t.Fatalf("got %+v\nand %+v", verdicts, all[0])
		}
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != 10 || tally.Created != 10 || tally.Duplicate != 10 {
		t.Fatalf("%+v", tally)
	}
}

func ordersTwoSKUs(t *testing.T, o orders) {
	const workers, rounds = 16, 3
	o.publish(t, ordersActivity(workers*rounds-10))
	atOnce(workers, func(i int) {
		for k := range rounds {
			user := fmt.Sprint(1 + i*rounds + k)
			batch := []admission.OrderMessage{ordersMessage(ordersSKU, user, "one", 1), ordersMessage(ordersSKU2, user, "one", 1)}
			if i%2 == 1 {
				slices.Reverse(batch)
			}
			verdicts, err := o.Decide(t.Context(), batch, ordersNow)
			if err != nil {
				t.Error(err)
				continue
			}
			if v := verdicts[0]; v.Outcome == admission.VerdictCreated && k == 1 { // cancels lock the same rows
				if _, _, err := o.Cancel(t.Context(), v.OrderID, user, ordersNow); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for _, ref := range []admission.SKURef{ordersSKU, ordersSKU2} {
		tally := o.tally(t, ref)
		if tally.Sold != tally.Created || tally.Created+tally.Cancelled+tally.NoCapacity != workers*rounds || tally.Sold > tally.Total {
			t.Fatalf("%+v", tally)
		}
	}
}

func ordersP02(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	first := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1))
	verdicts := o.decide(t,
		ordersMessage(ordersSKU, "2", "one", 1),
		ordersMessage(ordersSKU, "1", "one", 1), // delivered again
		ordersMessage(ordersSKU, "1", "two", 1), // another reservation of a user who has an order
		ordersMessage(ordersSKU, "3", "one", 1),
	)
	wantOutcomes(t, verdicts, "CCDC")
	if verdicts[1] != first[0] || verdicts[2].OrderID != first[0].OrderID {
		t.Fatalf("%+v, first %+v", verdicts, first)
	}
}

func ordersCancelAndPay(t *testing.T, o orders) {
	o.publish(t, ordersActivity(20))
	for i := range 10 {
		user := fmt.Sprint(1 + i)
		v := o.decide(t, ordersMessage(ordersSKU, user, "one", 2))[0]
		var cancelErr, payErr error
		atOnce(2, func(k int) {
			if k == 0 {
				_, _, cancelErr = o.Cancel(t.Context(), v.OrderID, user, ordersNow)
			} else {
				_, _, payErr = o.Pay(t.Context(), v.OrderID, ordersPayment("p"+user, "19.80"), ordersNow)
			}
		})
		got, err := o.Order(t.Context(), v.OrderID)
		if err != nil {
			t.Fatal(err)
		}
		switch got.Status {
		case admission.OrderCancelled:
			wantError(t, payErr, admission.ErrConflict, "CANCELLED")
		case admission.OrderPaid:
			wantError(t, cancelErr, admission.ErrConflict, "PAID")
		default:
			t.Fatalf("%+v: %v, %v", got, cancelErr, payErr)
		}
		if cancelErr == nil && payErr == nil {
			t.Fatal("both succeeded")
		}
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != 2*tally.Paid || tally.Paid+tally.Cancelled != 10 || tally.EffectsDue != 10 {
		t.Fatalf("%+v", tally)
	}
}

func ordersPayment(id, amount string) admission.Payment {
	return admission.Payment{ID: id, Amount: admission.Money{Amount: amount, Currency: "CNY"}}
}

func ordersDoubleCancel(t *testing.T, o orders) {
	o.publish(t, ordersActivity(3))
	created := o.decide(t, ordersMessage(ordersSKU, "1", "one", 2), ordersMessage(ordersSKU, "2", "one", 1))
	want := created[0]
	want.OrderStatus = admission.OrderCancelled
	atOnce(6, func(int) {
		order, v, err := o.Cancel(t.Context(), want.OrderID, "1", ordersNow)
		if err != nil || order.Status != admission.OrderCancelled || v != want {
			t.Errorf("%+v %+v %v", order, v, err)
		}
	})
	if tally := o.tally(t, ordersSKU); tally.Sold != 1 || tally.Cancelled != 1 {
		t.Fatalf("%+v", tally)
	}
	wantOutcomes(t, o.decide(t, ordersMessage(ordersSKU, "3", "one", 2)), "C")
}

func ordersCreateAfterCancel(t *testing.T, o orders) {
	a := ordersActivity(3)
	a.RebuyAfterCancel, a.MaxAttempts = true, 3
	o.publish(t, a)
	m := ordersMessage(ordersSKU, "1", "one", 1)
	v := o.decide(t, m)[0]
	if _, _, err := o.Cancel(t.Context(), v.OrderID, "1", ordersNow); err != nil {
		t.Fatal(err)
	}
	late := o.decide(t, m)[0]
	if late.OrderID != v.OrderID || late.OrderStatus != admission.OrderCancelled || late.PollOutcome() != admission.PollOrderCancelled {
		t.Fatalf("%+v", late)
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != 0 || tally.Created != 0 {
		t.Fatalf("%+v", tally)
	}
}

func ordersS09(t *testing.T, o orders) {
	o.publish(t, ordersActivity(2))
	wantOutcomes(t, o.decide(t, ordersMessage(ordersSKU, "1", "one", 3), ordersMessage(ordersSKU, "2", "one", 1)), "NC")
	for user, want := range map[string]admission.Outcome{"1": admission.PollNoCapacity, "2": admission.PollOrderCreated} {
		v, err := o.VerdictOf(t.Context(), ordersSKU, user, "request-one")
		if err != nil || v.PollOutcome() != want {
			t.Fatalf("user %s: %v %v, want %v", user, v.PollOutcome(), err, want)
		}
	}
	wantOutcomes(t, o.decide(t, ordersMessage(ordersSKU, "1", "two", 1)), "C") // a failure is not an order
}

func ordersRebuy(t *testing.T, o orders) {
	once, again := ordersActivity(5), ordersActivity(5)
	again.ID, again.PathID, again.RebuyAfterCancel, again.MaxAttempts = "10002", "path-10002", true, 3
	o.publish(t, once)
	o.publish(t, again)
	for ref, want := range map[admission.SKURef]string{ordersSKU: "D", {ActivityID: "10002", SKUID: "90001"}: "C"} {
		first := o.decide(t, ordersMessage(ref, "1", "one", 1))[0]
		if _, _, err := o.Cancel(t.Context(), first.OrderID, "1", ordersNow); err != nil {
			t.Fatal(err)
		}
		second := o.decide(t, ordersMessage(ref, "1", "two", 1), ordersMessage(ref, "1", "three", 1))
		wantOutcomes(t, second, want+"D")
		holder := first
		if want == "C" {
			holder = second[0]
		}
		if v := second[1]; v.ExistingReservationID != holder.ReservationID || v.OrderID != holder.OrderID || v.RebuyAfterCancel != (want == "C") {
			t.Fatalf("%+v names another than %+v", v, holder)
		}
	}
}

func ordersPay(t *testing.T, o orders) {
	o.publish(t, ordersActivity(9))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 2), ordersMessage(ordersSKU, "2", "one", 2), ordersMessage(ordersSKU, "3", "one", 1))
	for _, p := range []admission.Payment{
		ordersPayment("pay-1", "9.90"), ordersPayment("pay-1", "19.81"), ordersPayment("pay-1", ""), ordersPayment("pay-1", "1980e-2"),
		{ID: "pay-1", Amount: admission.Money{Amount: "19.80", Currency: "EUR"}},
	} {
		if _, _, err := o.Pay(t.Context(), v[0].OrderID, p, ordersNow); !errors.Is(err, admission.ErrAmount) {
			t.Fatalf("%+v: %v", p, err)
		}
	}
	for range 2 {
		order, verdict, err := o.Pay(t.Context(), v[0].OrderID, ordersPayment("pay-1", "19.8"), ordersNow)
		if err != nil || order.Status != admission.OrderPaid || order.PaymentID != "pay-1" || verdict.OrderStatus != admission.OrderPaid || verdict.ReservationID != v[0].ReservationID {
			t.Fatalf("%+v %+v %v", order, verdict, err)
		}
	}
	_, _, err := o.Pay(t.Context(), v[0].OrderID, ordersPayment("pay-2", "19.80"), ordersNow)
	wantError(t, err, admission.ErrConflict, "another payment")
	_, _, err = o.Pay(t.Context(), v[1].OrderID, ordersPayment("pay-1", "19.80"), ordersNow)
	wantError(t, err, admission.ErrConflict, "another order")
	for _, id := range []string{"", "a\x00b", strings.Repeat("x", 129)} {
		_, _, err = o.Pay(t.Context(), v[1].OrderID, ordersPayment(id, "19.80"), ordersNow)
		wantError(t, err, admission.ErrConflict, "payment_id")
	}
	_, _, err = o.Pay(t.Context(), "404", ordersPayment("pay-3", "19.80"), ordersNow)
	wantError(t, err, admission.ErrNotFound, "")
	if _, _, err := o.Cancel(t.Context(), v[1].OrderID, "2", ordersNow); err != nil {
		t.Fatal(err)
	}
	_, _, err = o.Pay(t.Context(), v[1].OrderID, ordersPayment("pay-3", "19.80"), ordersNow)
	wantError(t, err, admission.ErrConflict, "CANCELLED")
	_, _, err = o.Cancel(t.Context(), v[0].OrderID, "1", ordersNow)
	wantError(t, err, admission.ErrConflict, "PAID")
	// one payment for two orders at once pays one of them
	w := o.decide(t, ordersMessage(ordersSKU2, "4", "one", 1), ordersMessage(ordersSKU2, "5", "one", 1))
	errs := make([]error, 2)
	atOnce(2, func(i int) {
		_, _, errs[i] = o.Pay(t.Context(), w[i].OrderID, ordersPayment("pay-4", "9.90"), ordersNow)
	})
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("%v", errs)
	}
	wantError(t, errors.Join(errs...), admission.ErrConflict, "")
}

func ordersOwner(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1))[0]
	_, _, err := o.Cancel(t.Context(), v.OrderID, "2", ordersNow)
	wantError(t, err, admission.ErrNotFound, "")
	for _, id := range []string{"", "0", "x", "404", "9223372036854775808", v.OrderID + " ", "0" + v.OrderID} {
		_, err := o.Order(t.Context(), id)
		wantError(t, err, admission.ErrNotFound, "")
		_, _, err = o.Cancel(t.Context(), id, "1", ordersNow)
		wantError(t, err, admission.ErrNotFound, "")
	}
	if got, err := o.Order(t.Context(), v.OrderID); err != nil || got.Status != admission.OrderCreated {
		t.Fatalf("%+v %v", got, err)
	}
}

func ordersUnpaid(t *testing.T, o orders) {
	o.publish(t, ordersActivity(9))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(ordersSKU, "2", "one", 2), ordersMessage(ordersSKU2, "1", "one", 3), ordersMessage(ordersSKU, "3", "one", 1))
	if _, _, err := o.Pay(t.Context(), v[0].OrderID, ordersPayment("p", "9.90"), ordersNow); err != nil {
		t.Fatal(err)
	}
	deadline := ordersNow.Add(15 * time.Minute)
	if got, err := o.CancelUnpaid(t.Context(), deadline.Add(-time.Millisecond), 10); err != nil || len(got) != 0 {
		t.Fatalf("too early: %+v %v", got, err)
	}
	first, err := o.CancelUnpaid(t.Context(), deadline, 2)
	if err != nil || len(first) != 2 {
		t.Fatalf("%+v %v", first, err)
	}
	rest, err := o.CancelUnpaid(t.Context(), deadline, 2)
	if err != nil || len(rest) != 1 {
		t.Fatalf("%+v %v", rest, err)
	}
	for i, got := range append(first, rest...) {
		want := v[i+1]
		want.OrderStatus = admission.OrderCancelled
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	one, two := o.tally(t, ordersSKU), o.tally(t, ordersSKU2)
	if one.Sold != 1 || one.Cancelled != 2 || one.Paid != 1 || two.Sold != 0 || one.EffectsDue != 3 || two.EffectsDue != 1 {
		t.Fatalf("%+v %+v", one, two)
	}
}

func ordersEffects(t *testing.T, o orders) {
	o.publish(t, ordersActivity(9))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(ordersSKU, "2", "one", 1), ordersMessage(ordersSKU, "2", "two", 1))
	if due, err := o.EffectsDue(t.Context(), 10); err != nil || len(due) != 0 {
		t.Fatalf("after deciding: %+v %v", due, err)
	}
	_, paid, err := o.Pay(t.Context(), v[0].OrderID, ordersPayment("p", "9.90"), ordersNow.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	_, cancelled, err := o.Cancel(t.Context(), v[1].OrderID, "2", ordersNow)
	if err != nil {
		t.Fatal(err)
	}
	due, err := o.EffectsDue(t.Context(), 10)
	if want := []admission.Verdict{cancelled, paid}; err != nil || !reflect.DeepEqual(due, want) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, due, want)
	}
	if due, err := o.EffectsDue(t.Context(), 1); err != nil || len(due) != 1 {
		t.Fatalf("%+v %v", due, err)
	}
	if err := o.ClearEffects(t.Context(), v); err != nil { // their status is that of before
		t.Fatal(err)
	}
	if due, err := o.EffectsDue(t.Context(), 10); err != nil || len(due) != 2 {
		t.Fatalf("%+v %v", due, err)
	}
	if err := o.ClearEffects(t.Context(), []admission.Verdict{paid, v[2]}); err != nil {
		t.Fatal(err)
	}
	if due, err := o.EffectsDue(t.Context(), 10); err != nil || !reflect.DeepEqual(due, []admission.Verdict{cancelled}) {
		t.Fatalf("%+v %v", due, err)
	}
	if err := o.ClearEffects(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func ordersVerdicts(t *testing.T, o orders) {
	o.publish(t, ordersActivity(6))
	var batch []admission.OrderMessage
	for i := range 9 { // 6 created, 3 without capacity
		batch = append(batch, ordersMessage(ordersSKU, fmt.Sprint(9-i), "one", 1))
	}
	batch = append(batch, ordersMessage(ordersSKU, "9", "two", 1), ordersMessage(ordersSKU2, "1", "one", 1))
	v := o.decide(t, batch...)
	if _, _, err := o.Cancel(t.Context(), v[0].OrderID, "9", ordersNow); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Pay(t.Context(), v[1].OrderID, ordersPayment("p", "9.90"), ordersNow); err != nil {
		t.Fatal(err)
	}
	// by reservation_id: users 1, 2, 3 found nothing, 9-one is cancelled, 9-two a duplicate; then the live orders of 4..8
	const want = "NNNCDCCCCC"
	for _, limit := range []int{1, 2, 3, 5, 100} {
		var all []admission.Verdict
		for after := ""; ; {
			page, err := o.Verdicts(t.Context(), ordersSKU, after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("%d verdicts: %v", len(page), err)
			}
			if len(page) == 0 {
				break
			}
			all = append(all, page...)
			after = page[len(page)-1].ReservationID
		}
		live := false
		for i, v := range all {
			if v.Ref != ordersSKU {
				t.Fatalf("of another SKU: %+v", v)
			}
			isLive := v.OrderStatus == admission.OrderCreated || v.OrderStatus == admission.OrderPaid
			if live && (!isLive || v.ReservationID <= all[i-1].ReservationID) {
				t.Fatalf("limit %d: %d is out of order: %+v", limit, i, all)
			}
			live = live || isLive
		}
		wantOutcomes(t, all, want)
	}
	if page, err := o.Verdicts(t.Context(), ordersSKU, "r_nobodys-reservation", 5); err != nil || len(page) != 0 {
		t.Fatalf("after a reservation of nobody: %+v %v", page, err)
	}
}

func ordersVerdictOf(t *testing.T, o orders) {
	o.publish(t, ordersActivity(1))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(ordersSKU, "2", "one", 1), ordersMessage(ordersSKU, "1", "two", 1))
	for i, key := range [][2]string{{"1", "request-one"}, {"2", "request-one"}, {"1", "request-two"}} {
		got, err := o.VerdictOf(t.Context(), ordersSKU, key[0], key[1])
		if err != nil || got != v[i] {
			t.Fatalf("got %+v %v, want %+v", got, err, v[i])
		}
	}
	for _, key := range []struct {
		ref           admission.SKURef
		user, request string
	}{
		{ordersSKU, "3", "request-one"}, {ordersSKU, "1", "request-three"}, {ordersSKU2, "1", "request-one"},
		{ordersSKU, "x", "request-one"}, {ordersSKU, "1", "\x00\xff"}, {admission.SKURef{}, "1", "request-one"},
	} {
		_, err := o.VerdictOf(t.Context(), key.ref, key.user, key.request)
		wantError(t, err, admission.ErrNotFound, "")
	}
}

func ordersTally(t *testing.T, o orders) {
	_, err := o.Tally(t.Context(), ordersSKU)
	wantError(t, err, admission.ErrNotFound, "90001")
	o.publish(t, ordersActivity(7))
	v := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(ordersSKU, "2", "one", 2), ordersMessage(ordersSKU, "3", "one", 3),
		ordersMessage(ordersSKU, "4", "one", 3), ordersMessage(ordersSKU, "1", "two", 1))
	wantOutcomes(t, v, "CCCND")
	if _, _, err := o.Pay(t.Context(), v[0].OrderID, ordersPayment("p", "9.90"), ordersNow); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Cancel(t.Context(), v[1].OrderID, "2", ordersNow); err != nil {
		t.Fatal(err)
	}
	want := admission.OrderTally{Total: 7, Sold: 4, Created: 1, Paid: 1, Cancelled: 1, Users: 2, Duplicate: 1, NoCapacity: 1, EffectsDue: 2,
		Status: map[string]admission.OrderStatus{
			v[0].ReservationID: admission.OrderPaid, v[1].ReservationID: admission.OrderCancelled, v[2].ReservationID: admission.OrderCreated,
		}}
	if got := o.tally(t, ordersSKU); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if got := o.tally(t, ordersSKU2); got.Sold != 0 || got.Total != 7 || len(got.Status) != 0 {
		t.Fatalf("%+v", got)
	}
}

func ordersPoison(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	taken := ordersMessage(ordersSKU, "7", "one", 1)
	o.decide(t, taken)
	bad := func(change func(*admission.OrderMessage)) admission.OrderMessage {
		m := ordersMessage(ordersSKU, "5", "bad", 1)
		change(&m)
		return m
	}
	messages := []admission.OrderMessage{
		ordersMessage(ordersSKU, "1", "one", 1),
		bad(func(m *admission.OrderMessage) { m.ActivityID = "404" }),
		bad(func(m *admission.OrderMessage) { m.SKUID = "404" }),
		bad(func(m *admission.OrderMessage) { m.UserID = "0x5" }),
		bad(func(m *admission.OrderMessage) { m.Quantity = 0 }),
		bad(func(m *admission.OrderMessage) { m.Quantity = 1 << 40 }),
		bad(func(m *admission.OrderMessage) { m.ReservationID = "" }),
		bad(func(m *admission.OrderMessage) { m.RequestID = "a\x00bcdefgh" }),
		bad(func(m *admission.OrderMessage) { m.BodyHash = "\xff" }),
		bad(func(m *admission.OrderMessage) { m.SchemaVersion = 2 }),
		bad(func(m *admission.OrderMessage) { m.ReservationID = taken.ReservationID }),                // another user's
		bad(func(m *admission.OrderMessage) { m.UserID, m.ReservationID = "7", taken.ReservationID }), // the same user's, another request
		ordersMessage(ordersSKU, "2", "one", 1),
	}
	verdicts, err := o.Decide(t.Context(), messages, ordersNow)
	var poison *admission.PoisonError
	if !errors.As(err, &poison) || len(poison.Reasons) != len(messages)-2 || len(verdicts) != len(messages) {
		t.Fatalf("%v: %+v", err, verdicts)
	}
	for i, v := range verdicts {
		if good := i == 0 || i == len(messages)-1; good != (v.Outcome == admission.VerdictCreated) || good != (poison.Reasons[i] == "") || !good && v != (admission.Verdict{}) {
			t.Fatalf("message %d: %+v, %q", i, v, poison.Reasons[i])
		}
	}
	// a reservation of a user who is not in the batch is met only when it is written
	verdicts, err = o.Decide(t.Context(), []admission.OrderMessage{messages[10], ordersMessage(ordersSKU, "3", "one", 1)}, ordersNow)
	if !errors.As(err, &poison) || len(poison.Reasons) != 1 || poison.Reasons[0] == "" || outcomes(verdicts) != "C" {
		t.Fatalf("%v: %+v", err, verdicts)
	}
	if tally := o.tally(t, ordersSKU); tally.Sold != 4 || tally.Created != 4 || tally.Total != 5 {
		t.Fatalf("%+v", tally)
	}
}

func ordersDeadLetters(t *testing.T, o orders) {
	o.publish(t, ordersActivity(1))
	for i := range OrdersDeadLetters + 5 {
		body := []byte{0, 0xff, byte(i)}
		if i == 0 {
			body = make([]byte, 1<<20)
		}
		if err := o.DeadLetter(t.Context(), body, "broken \x00\xff"+strings.Repeat("é", 2000), ordersNow); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if tally := o.tally(t, ordersSKU); tally.DeadLetters != 1 {
				t.Fatalf("%+v", tally)
			}
		}
	}
	if tally := o.tally(t, ordersSKU); tally.DeadLetters != OrdersDeadLetters {
		t.Fatalf("%d dead letters, want %d", tally.DeadLetters, OrdersDeadLetters)
	}
}

func ordersDelete(t *testing.T, o orders) {
	other := ordersActivity(5)
	other.ID, other.PathID = "10002", "path-10002"
	o.publish(t, ordersActivity(5))
	o.publish(t, other)
	kept := admission.SKURef{ActivityID: "10002", SKUID: "90001"}
	before := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1), ordersMessage(kept, "1", "one", 1))
	for range 2 {
		if err := o.DeleteActivity(t.Context(), "10001"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := o.Tally(t.Context(), ordersSKU)
	wantError(t, err, admission.ErrNotFound, "")
	_, err = o.Order(t.Context(), before[0].OrderID)
	wantError(t, err, admission.ErrNotFound, "")
	if tally := o.tally(t, kept); tally.Sold != 1 {
		t.Fatalf("%+v", tally)
	}
	o.publish(t, ordersActivity(5)) // begins anew, at version 1
	after := o.decide(t, ordersMessage(ordersSKU, "1", "one", 1))[0]
	if after.Outcome != admission.VerdictCreated || after.OrderID == before[0].OrderID {
		t.Fatalf("%+v, before %+v", after, before[0])
	}
}

func ordersDeadline(t *testing.T, o orders) {
	o.publish(t, ordersActivity(5))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Decide(ctx, []admission.OrderMessage{ordersMessage(ordersSKU, "1", "one", 1)}, ordersNow)
	wantError(t, err, admission.ErrUnavailable, "")
	wantError(t, o.DeadLetter(ctx, nil, "", ordersNow), admission.ErrUnavailable, "")
	_, err = o.Activities(ctx)
	wantError(t, err, admission.ErrUnavailable, "")
	_, err = o.Tally(ctx, ordersSKU)
	wantError(t, err, admission.ErrUnavailable, "")
	wantError(t, o.Ping(ctx), admission.ErrUnavailable, "")
	if tally := o.tally(t, ordersSKU); tally.Sold != 0 || tally.DeadLetters != 0 {
		t.Fatalf("%+v", tally)
	}
}

// ordersProperty: whatever is decided, cancelled and paid in whatever order, sold is the sum of the units of the
// orders that are not cancelled and never above total, a user has at most one of them, and a verdict never changes
// but for its order's status, which only moves forward.
func ordersProperty(t *testing.T, o orders) {
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		a := ordersActivity(rapid.Int64Range(1, 8).Draw(r, "stock"))
		a.ID = fmt.Sprint(20000 + run)
		a.PathID = "path-" + a.ID
		a.RebuyAfterCancel = rapid.Bool().Draw(r, "rebuy")
		o.publish(t, a)
		defer func() {
			if err := o.DeleteActivity(context.Background(), a.ID); err != nil {
				t.Error(err)
			}
		}()
		ref := admission.SKURef{ActivityID: a.ID, SKUID: "90001"}
		known := make(map[string]admission.Verdict)
		learn := func(v admission.Verdict) {
			old, seen := known[v.ReservationID]
			if seen && old.OrderStatus != v.OrderStatus && (old.OrderStatus != admission.OrderCreated || v.OrderStatus == "") {
				r.Fatalf("status went from %q to %q", old.OrderStatus, v.OrderStatus)
			}
			old.OrderStatus = v.OrderStatus
			if seen && old != v {
				r.Fatalf("the verdict changed from %+v to %+v", old, v)
			}
			known[v.ReservationID] = v
		}
		pick := func() (admission.Verdict, bool) {
			var created []admission.Verdict
			for _, v := range known {
				if v.Outcome == admission.VerdictCreated {
					created = append(created, v)
				}
			}
			if len(created) == 0 {
				return admission.Verdict{}, false
			}
			slices.SortFunc(created, func(a, b admission.Verdict) int { return strings.Compare(a.ReservationID, b.ReservationID) })
			return rapid.SampledFrom(created).Draw(r, "order"), true
		}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"decide", "decide", "cancel", "pay", "expire"}).Draw(r, "step") {
			case "decide":
				var batch []admission.OrderMessage
				for range rapid.IntRange(1, 6).Draw(r, "messages") {
					user, request := rapid.IntRange(1, 4).Draw(r, "user"), rapid.IntRange(1, 3).Draw(r, "request")
					batch = append(batch, ordersMessage(ref, fmt.Sprint(user), fmt.Sprint(request), 1+int64(user+request)%3))
				}
				verdicts, err := o.Decide(t.Context(), batch, ordersNow)
				if err != nil {
					r.Fatal(err)
				}
				for _, v := range verdicts {
					learn(v)
				}
			case "cancel":
				if v, ok := pick(); ok {
					if _, after, err := o.Cancel(t.Context(), v.OrderID, v.UserID, ordersNow); err == nil {
						learn(after)
					} else if !errors.Is(err, admission.ErrConflict) || v.OrderStatus != admission.OrderPaid {
						r.Fatal(err)
					}
				}
			case "pay":
				if v, ok := pick(); ok {
					amount := a.SKUs[0].Price.Times(v.Quantity)
					if _, after, err := o.Pay(t.Context(), v.OrderID, admission.Payment{ID: "of-" + v.ReservationID, Amount: amount}, ordersNow); err == nil {
						learn(after)
					} else if !errors.Is(err, admission.ErrConflict) || v.OrderStatus != admission.OrderCancelled {
						r.Fatal(err)
					}
				}
			case "expire":
				verdicts, err := o.CancelUnpaid(t.Context(), ordersNow.Add(time.Hour), rapid.IntRange(1, 3).Draw(r, "limit"))
				if err != nil {
					r.Fatal(err)
				}
				for _, v := range verdicts {
					learn(v)
				}
			}
			var sold int64
			live := make(map[string]string)
			for id, v := range known {
				if v.Outcome != admission.VerdictCreated || v.OrderStatus == admission.OrderCancelled {
					continue
				}
				sold += v.Quantity
				if other, twice := live[v.UserID]; twice {
					r.Fatalf("user %s has %s and %s", v.UserID, other, id)
				}
				live[v.UserID] = id
			}
			tally, err := o.Tally(t.Context(), ref)
			if err != nil {
				r.Fatal(err)
			}
			if tally.Sold != sold || tally.Sold > tally.Total || tally.Users != int64(len(live)) {
				r.Fatalf("sold %d by %d users according to the verdicts: %+v", sold, len(live), tally)
			}
			for id, status := range tally.Status {
				if known[id].OrderStatus != status {
					r.Fatalf("%s is %s, known as %+v", id, status, known[id])
				}
			}
		}
	})
}
