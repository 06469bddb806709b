package order_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// TestAFailureIsOfItsOwnStage: metrics and logs name the store that failed, not the last
// thing that a submit would have done.
func TestAFailureIsOfItsOwnStage(t *testing.T) {
	want := func(t *testing.T, what string, d admission.Decision, stage admission.Stage, reason admission.Reason) {
		t.Helper()
		if d.Outcome != admission.DependencyUnavailable || d.Stage != stage || d.Reason != reason || d.Cause == nil {
			t.Errorf("%s: %+v, want %s of stage %s for %s, and its cause", what, d, admission.DependencyUnavailable, stage, reason)
		}
	}
	ask := func(t *testing.T, s *system, r *admission.Request, open bool) admission.Decision {
		t.Helper()
		results := order.NewResults(&s.stock, &s.orders, func(admission.SKURef) order.Look { return order.Look{Selling: true, Open: open} })
		_, d := results.Request(t.Context(), r.UserID, r.RequestID, s.ref())
		return d
	}

	t.Run("stock away", func(t *testing.T) {
		s := openEmbedded(t, 10)
		_ = s.client.Close()
		want(t, "a result", ask(t, s, s.request(1, 1, 1), true), admission.StageStock, admission.ReasonStockStore)
		want(t, "a result of a closed SKU", ask(t, s, s.request(1, 1, 1), false), admission.StageStock, admission.ReasonStockStore)
		want(t, "a submit", s.placer(t, nil).Place(t.Context(), s.request(1, 1, 1)), admission.StageStock, admission.ReasonStockStore)
	})

	t.Run("orders away", func(t *testing.T) {
		s := openEmbedded(t, 10)
		_ = s.orders.Close()
		want(t, "a result", ask(t, s, s.request(1, 1, 1), true), admission.StageOrders, admission.ReasonOrderStore)
		service := s.service()
		_, read := service.Order(t.Context(), "70000001", "123")
		_, cancel := service.Cancel(t.Context(), "70000001", "123")
		_, pay := service.Pay(t.Context(), "123", admission.Payment{ID: "pay_one_", Amount: admission.Money{Amount: "9.90", Currency: "CNY"}})
		for what, d := range map[string]admission.Decision{"an order": read, "a cancel": cancel, "a payment": pay} {
			want(t, what, d, admission.StageOrders, admission.ReasonOrderStore)
		}
	})

	t.Run("neither sent nor replicated", func(t *testing.T) {
		s := openEmbedded(t, 10)
		p := s.placer(t, func(c *order.PlacerConfig) {
			c.WaitReplicas = 1
			c.Budgets = func() order.Budgets {
				return order.Budgets{Stock: time.Second, Queue: time.Nanosecond, Replicas: time.Millisecond}
			}
		})
		want(t, "a submit", p.Place(t.Context(), s.request(1, 1, 1)), admission.StageQueue, admission.ReasonReplicas)
	})
}
