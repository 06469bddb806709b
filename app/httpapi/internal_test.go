package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

const goodPayment = `{"payment_id":"pay-1","amount":{"amount":"9.90","currency":"CNY"}}`

var paymentKey = []byte("a payment key of thirty-two bytes")

func sign(stamp, body string) string {
	mac := hmac.New(sha256.New, paymentKey)
	_, _ = io.WriteString(mac, stamp+"."+body)
	return hex.EncodeToString(mac.Sum(nil))
}

// internalBed is the internal listener with a payment function that takes everything.
func internalBed(t *testing.T) (InternalDeps, *[]admission.Payment) {
	b := newBed(t)
	var paid []admission.Payment
	return InternalDeps{
		Now: b.deps.Now, Jitter: b.deps.Jitter, Log: b.deps.Log, PaymentKey: paymentKey,
		Pay: func(_ context.Context, id string, p admission.Payment) (admission.Order, admission.Decision) {
			paid = append(paid, p)
			o := anOrder(id)
			o.Status = admission.OrderPaid
			return o, admission.Decision{}
		},
		Unready: func() []string { return nil },
		Metrics: http.HandlerFunc(staticOK),
	}, &paid
}

func TestPayments(t *testing.T) {
	now := noon.Unix()
	stamp := fmt.Sprint(now)
	for _, c := range []struct {
		name, order, body, stamp, signature string
		headers                             []string
		want                                int
		field                               string
	}{
		{name: "good", want: 200},
		{name: "good, 300 s old", stamp: fmt.Sprint(now - 300), want: 200},
		{name: "good, 300 s ahead", stamp: fmt.Sprint(now + 300), want: 200},
		{name: "301 s old", stamp: fmt.Sprint(now - 301), want: 401},
		{name: "301 s ahead", stamp: fmt.Sprint(now + 301), want: 401},
		{name: "milliseconds", stamp: fmt.Sprint(now * 1000), want: 401},
		{name: "a signed time", stamp: "+" + stamp, want: 401},
		{name: "a time with a zero", stamp: "0" + stamp, want: 401},
		{name: "the least number", stamp: "-9223372036854775808", want: 401},
		{name: "the greatest number", stamp: "9223372036854775807", want: 401},
		{name: "no time", headers: []string{"X-Sluice-Timestamp"}, want: 401},
		{name: "no signature", headers: []string{"X-Sluice-Signature"}, want: 401},
		{name: "signature of another body", signature: sign(stamp, goodPayment+" "), want: 401},
		{name: "signature of another time", signature: sign(fmt.Sprint(now-1), goodPayment), want: 401},
		{name: "signature cut short", signature: sign(stamp, goodPayment)[:62], want: 401},
		{name: "signature in capitals", signature: strings.ToUpper(sign(stamp, goodPayment)), want: 200},
		{name: "signature that is no hex", signature: strings.Repeat("x", 64), want: 401},
		{name: "bad signature before a bad body", body: "{}", signature: sign(stamp, goodPayment), want: 401},
		{name: "order that is no number", order: "x", want: 400, field: "order_id"},
		{name: "no payment_id", body: `{"amount":{"amount":"9.90","currency":"CNY"}}`, want: 400, field: "payment_id"},
		{name: "payment_id of 129", body: strings.Replace(goodPayment, "pay-1", strings.Repeat("p", 129), 1), want: 400, field: "payment_id"},
		{name: "payment_id of 128", body: strings.Replace(goodPayment, "pay-1", strings.Repeat("p", 128), 1), want: 200},
		{name: "payment_id with a blank", body: strings.Replace(goodPayment, "pay-1", "pay 1", 1), want: 400, field: "payment_id"},
		{name: "payment_id twice", body: strings.Replace(goodPayment, "{", `{"payment_id":"x",`, 1), want: 400, field: "payment_id"},
		{name: "no amount", body: `{"payment_id":"pay-1"}`, want: 400, field: "amount"},
		{name: "amount a number", body: `{"payment_id":"pay-1","amount":9.90}`, want: 400, field: "amount"},
		{name: "amount.amount a number", body: `{"payment_id":"pay-1","amount":{"amount":9.90,"currency":"CNY"}}`, want: 400, field: "amount.amount"},
		{name: "amount.amount twice", body: `{"payment_id":"pay-1","amount":{"amount":"1","amount":"9.90","currency":"CNY"}}`, want: 400, field: "amount.amount"},
		{name: "unknown member", body: strings.Replace(goodPayment, "{", `{"x":1,`, 1), want: 400},
		{name: "text", headers: []string{"Content-Type: text/plain"}, want: 415},
		{name: "no length", headers: []string{"Content-Length"}, body: "-", want: 411},
		{name: "too long", body: strings.Repeat(" ", 9000), want: 413},
	} {
		deps, paid := internalBed(t)
		body, order, at := c.body, c.order, c.stamp
		if body == "" {
			body = goodPayment
		}
		if body == "-" {
			body = ""
		}
		if order == "" {
			order = "5"
		}
		if at == "" {
			at = stamp
		}
		signature := c.signature
		if signature == "" {
			signature = sign(at, body)
		}
		r := httptest.NewRequest("POST", "/internal/v1/orders/"+order+"/payments", strings.NewReader(body))
		r.Header = submitHeaders(body)
		r.Header.Set("X-Sluice-Timestamp", at)
		r.Header.Set("X-Sluice-Signature", signature)
		for _, line := range c.headers {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Del(name)
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		NewInternal(deps).ServeHTTP(w, r)
		g := read(t, w.Result())
		if g.HTTP != c.want || g.str("field") != c.field || g.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s, want %d for %q", c.name, g.HTTP, g.Body, c.want, c.field)
		}
		if scheme := g.Header.Get("WWW-Authenticate"); (scheme == "Sluice-Signature") != (c.want == 401) {
			t.Errorf("%s: WWW-Authenticate %q", c.name, scheme)
		}
		if (len(*paid) == 1) != (c.want == 200) {
			t.Errorf("%s: %d payments", c.name, len(*paid))
		}
		if c.want == 200 && (g.str("status") != "PAID" || (*paid)[0].Amount != admission.Money{Amount: "9.90", Currency: "CNY"}) {
			t.Errorf("%s: %s of %+v", c.name, g.Body, *paid)
		}
	}
}

// TestPaymentRefusals: what the order says becomes its row.
func TestPaymentRefusals(t *testing.T) {
	for outcome, field := range map[admission.Outcome]string{
		admission.NotFound: "", admission.OrderStateConflict: "", admission.InvalidArgument: "amount", admission.DependencyUnavailable: "",
	} {
		deps, _ := internalBed(t)
		deps.Pay = func(context.Context, string, admission.Payment) (admission.Order, admission.Decision) {
			return admission.Order{}, admission.Decision{Outcome: outcome, Cause: admission.ErrAmount}
		}
		stamp := fmt.Sprint(noon.Unix())
		r := httptest.NewRequest("POST", "/internal/v1/orders/5/payments", strings.NewReader(goodPayment))
		r.Header = submitHeaders(goodPayment)
		r.Header.Set("X-Sluice-Timestamp", stamp)
		r.Header.Set("X-Sluice-Signature", sign(stamp, goodPayment))
		w := httptest.NewRecorder()
		NewInternal(deps).ServeHTTP(w, r)
		if g := read(t, w.Result()); g.HTTP != outcome.Row().HTTP || g.str("code") != outcome.Row().Code || g.str("field") != field || g.str("order_id") != "5" {
			t.Errorf("%s: %d %s", outcome, g.HTTP, g.Body)
		}
	}
}

func TestProbes(t *testing.T) {
	deps, _ := internalBed(t)
	do := func(method, target string) got {
		r := httptest.NewRequest(method, target, nil)
		w := httptest.NewRecorder()
		NewInternal(deps).ServeHTTP(w, r)
		return read(t, w.Result())
	}
	if g := do("GET", "/healthz"); g.HTTP != 200 || g.str("status") != "ok" {
		t.Errorf("healthz: %d %s", g.HTTP, g.Body)
	}
	if g := do("GET", "/readyz"); g.HTTP != 200 || g.Body != `{"status":"ready","reasons":[]}` {
		t.Errorf("ready: %d %s", g.HTTP, g.Body)
	}
	deps.Unready = func() []string { return []string{"draining", `rules: "x"`} }
	for _, method := range []string{"GET", "HEAD"} {
		if g := do(method, "/readyz"); g.HTTP != 503 || method == "GET" && g.Body != `{"status":"unready","reasons":["draining","rules: \"x\""]}` {
			t.Errorf("unready: %d %s", g.HTTP, g.Body)
		}
	}
	for target, want := range map[string]int{
		"/metrics": 200, "/nothing": 404, "/healthz/": 404, "//healthz": 404, "/internal/v1/orders/5/payments": 405, "/internal/v1/orders%2f5/payments": 404,
		"/v1/activities/10001": 404, "/s/x/1": 404,
	} {
		if g := do("GET", target); g.HTTP != want {
			t.Errorf("%s: %d, want %d", target, g.HTTP, want)
		}
	}
	deps.Unready = func() []string { panic("secret") }
	if g := do("GET", "/readyz"); g.HTTP != 503 || strings.Contains(g.Body, "secret") {
		t.Errorf("a panic: %d %s", g.HTTP, g.Body)
	}
	deps.Now = func() time.Time { return noon }
}
