package order_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

func delivery(t *testing.T, m admission.OrderMessage, attempts int) admission.Delivery {
	t.Helper()
	body, err := order.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Delivery{Key: m.ReservationID, Body: body, Attempts: attempts}
}

func TestConsumer(t *testing.T) {
	t.Run("poison is a dead letter and the others are decided", func(t *testing.T) {
		s := openEmbedded(t, 10)
		var verdicts []admission.Verdict
		c := order.NewConsumer(&s.orders, &s.stock, order.ConsumerConfig{
			Verdict: func(v admission.Verdict) { verdicts = append(verdicts, v) },
		}, s.metrics, discard())
		elsewhere := s.message(s.request(3, 1, 1))
		elsewhere.ActivityID = "999" // SQL knows no such activity
		batch := []admission.Delivery{
			delivery(t, s.message(s.request(1, 1, 1)), 1),
			{Key: "r_garbage_garbage_garbage", Body: []byte(`{"schema_version":1}`), Attempts: 1},
			delivery(t, elsewhere, 1),
			delivery(t, s.message(s.request(2, 1, 1)), 1),
		}
		for i, err := range c.Handle(t.Context(), batch) {
			if err != nil {
				t.Errorf("delivery %d: %v", i, err)
			}
		}
		if _, sql := s.agree(t); sql.Created != 2 || sql.DeadLetters != 2 || len(verdicts) != 2 {
			t.Errorf("SQL %+v, %d verdicts told", sql, len(verdicts))
		}
	})

	t.Run("a panic is a failure of its message only", func(t *testing.T) {
		s := openEmbedded(t, 100)
		var batch []admission.Delivery
		for i := range 50 {
			batch = append(batch, delivery(t, s.message(s.request(i, 1, 1)), 1))
		}
		bad := s.message(s.request(17, 1, 1)).ReservationID
		s.orders.decide = func(ms []admission.OrderMessage) error {
			for _, m := range ms {
				if m.ReservationID == bad {
					panic("a broken row")
				}
			}
			return nil
		}
		c := order.NewConsumer(&s.orders, &s.stock, order.ConsumerConfig{PoisonAfter: 3}, s.metrics, discard())
		for i, err := range c.Handle(t.Context(), batch) {
			if (err != nil) != (i == 17) {
				t.Errorf("delivery %d: %v", i, err)
			}
		}
		if _, sql := s.agree(t); sql.Created != 49 || sql.DeadLetters != 0 {
			t.Errorf("SQL %+v", sql)
		}
		batch[17].Attempts = 3
		if errs := c.Handle(t.Context(), batch[17:18]); errs[0] != nil {
			t.Errorf("after three deliveries: %v, want a dead letter", errs[0])
		}
		if _, sql := s.agree(t); sql.DeadLetters != 1 {
			t.Errorf("SQL %+v", sql)
		}
	})

	t.Run("SQL away is never poison", func(t *testing.T) {
		s := openEmbedded(t, 10)
		calls := 0
		s.orders.decide = func([]admission.OrderMessage) error {
			calls++
			return fmt.Errorf("%w: gone", admission.ErrUnavailable)
		}
		c := order.NewConsumer(&s.orders, &s.stock, order.ConsumerConfig{}, s.metrics, discard())
		batch := []admission.Delivery{
			delivery(t, s.message(s.request(1, 1, 1)), 1000), delivery(t, s.message(s.request(2, 1, 1)), 1000),
		}
		for i, err := range c.Handle(t.Context(), batch) {
			if !errors.Is(err, admission.ErrUnavailable) {
				t.Errorf("delivery %d: %v", i, err)
			}
		}
		if calls != 1 {
			t.Errorf("%d transactions tried: a fault of the database is not narrowed down", calls)
		}
		if _, sql := s.tallies(t); sql.DeadLetters != 0 {
			t.Errorf("SQL %+v", sql)
		}
	})

	t.Run("without its effect a message comes again, ten times", func(t *testing.T) {
		s := openEmbedded(t, 10)
		if d := s.placer(t, nil).Place(t.Context(), s.request(1, 1, 1)); d.Refused() {
			t.Fatalf("%+v", d)
		}
		s.stock.apply = func([]admission.Verdict) error { return admission.ErrUnavailable }
		c := order.NewConsumer(&s.orders, &s.stock, order.ConsumerConfig{}, s.metrics, discard())
		m := s.message(s.request(1, 1, 1))
		if errs := c.Handle(t.Context(), []admission.Delivery{delivery(t, m, 1)}); errs[0] == nil {
			t.Error("acknowledged though the stock does not know")
		}
		if errs := c.Handle(t.Context(), []admission.Delivery{delivery(t, m, 10)}); errs[0] != nil {
			t.Errorf("the tenth time: %v, want it left to recovery", errs[0])
		}
		s.stock.apply = nil
		s.recover(t, settled())
		if stock, sql := s.agree(t); stock.Created != 1 || sql.Created != 1 {
			t.Errorf("stock %+v, SQL %+v", stock, sql)
		}
	})

	t.Run("the same message twice in one batch is one order", func(t *testing.T) {
		s := openEmbedded(t, 10)
		c := order.NewConsumer(&s.orders, &s.stock, order.ConsumerConfig{}, s.metrics, discard())
		d := delivery(t, s.message(s.request(1, 1, 1)), 1)
		for range 3 {
			for i, err := range c.Handle(t.Context(), []admission.Delivery{d, d, d}) {
				if err != nil {
					t.Errorf("delivery %d: %v", i, err)
				}
			}
		}
		if stock, sql := s.agree(t); sql.Created != 1 || stock.Remaining != 9 {
			t.Errorf("stock %+v, SQL %+v", stock, sql)
		}
	})
}

func TestDecode(t *testing.T) {
	s := &system{activity: admission.Activity{ID: "10001", SKUs: []admission.SKU{{ID: "90001"}}}}
	s.spec.Ref = admission.SKURef{ActivityID: "10001", SKUID: "90001"}
	m := s.message(s.request(1, 1, 1))
	m.CreatedAt = m.CreatedAt.Truncate(time.Millisecond)
	good, err := order.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := order.Decode(m.ReservationID, good); err != nil || got != m {
		t.Fatalf("%+v, %v", got, err)
	}
	change := func(from, to string) string { return strings.Replace(string(good), from, to, 1) }
	for name, c := range map[string]struct{ key, body string }{
		"empty":                 {"", ""},
		"null":                  {"", "null"},
		"an array":              {"", "[]"},
		"something after":       {"", string(good) + "x"},
		"two objects":           {"", string(good) + string(good)},
		"an unknown field":      {"", change(`{`, `{"extra":1,`)},
		"another schema":        {"", change(`"schema_version":1`, `"schema_version":2`)},
		"a number for an id":    {"", change(`"user_id":"70000001"`, `"user_id":70000001`)},
		"an id beyond 63 bits":  {"", change(`70000001`, `9223372036854775808`)},
		"a quantity of nothing": {"", change(`"quantity":1`, `"quantity":0`)},
		"too large a quantity":  {"", change(`"quantity":1`, `"quantity":1001`)},
		"a foreign reservation": {"r_another", string(good)},
		"no time":               {"", change(`"created_at":"2`, `"created_at":"x2`)},
		"too long":              {"", string(good) + strings.Repeat(" ", admission.MaxMessageLen)},
	} {
		if got, err := order.Decode(c.key, []byte(c.body)); err == nil {
			t.Errorf("%s: decoded to %+v", name, got)
		}
	}
}

// FuzzDecode: whatever decodes is within bounds and survives another round.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"message_id":"msg_abcdefgh","reservation_id":"r_abcdefgh","request_id":"q_abcdefgh","activity_id":"1","sku_id":"2","user_id":"3","quantity":1,"activity_version":1,"body_hash":"x","created_at":"2026-11-11T00:00:00.123Z"}`))
	f.Add([]byte(`{"schema_version":1}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := order.Decode("", body)
		if err != nil {
			return
		}
		if !admission.ValidID(m.ReservationID) || !admission.ValidDecimal(m.UserID) || m.Quantity < 1 {
			t.Fatalf("out of bounds: %+v", m)
		}
		again, err := order.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := order.Decode(m.ReservationID, again)
		if err != nil || !back.CreatedAt.Equal(m.CreatedAt) {
			t.Fatalf("%s -> %s: %v", body, again, err)
		}
		back.CreatedAt = m.CreatedAt
		if back != m {
			t.Fatalf("%+v -> %+v", m, back)
		}
	})
}
