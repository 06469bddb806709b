package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// InternalDeps is what the internal listener asks.
type InternalDeps struct {
	Now        func() time.Time
	Jitter     func() float64
	Log        *slog.Logger
	PaymentKey []byte // HMAC-SHA256 of the payment service's callback
	Pay        func(ctx context.Context, orderID string, p admission.Payment) (admission.Order, admission.Decision)
	Unready    func() []string // why this instance is not ready; empty: it is
	Metrics    http.Handler
}

// signatureSkew is how far a callback's timestamp may be from ours, either way.
const signatureSkew = 300 // seconds

// signatureScheme is what a payment callback is asked for; nobody signs in here.
var signatureScheme = []string{"Sluice-Signature"}

type internalAPI struct {
	d      InternalDeps
	render *Renderer
}

// NewInternal builds the routes of the internal listener: the payment callback, health,
// readiness with its reasons, and metrics.
func NewInternal(d InternalDeps) http.Handler {
	a := &internalAPI{d: d, render: NewRenderer(d.Now, d.Jitter)}
	e := newEngine()
	e.Use(a.recovered)
	e.POST("/internal/v1/orders/:order/payments", a.pay)
	for _, method := range []string{http.MethodGet, http.MethodHead} { // balancers probe with either
		e.Handle(method, "/healthz", func(c *gin.Context) { writePrivate(c, []byte(`{"status":"ok"}`)) })
		e.Handle(method, "/readyz", a.ready)
	}
	e.GET("/metrics", gin.WrapH(d.Metrics))
	e.NoRoute(func(c *gin.Context) { a.refuse(c, Answer{Outcome: admission.NotFound}) })
	e.NoMethod(func(c *gin.Context) { a.refuse(c, Answer{Outcome: admission.MethodNotAllowed}) })
	return e
}

func (a *internalAPI) refuse(c *gin.Context, answer Answer) {
	a.render.Write(c.Writer, c.Request, answer)
}

// recovered: a payment whose handler died may have been recorded.
func (a *internalAPI) recovered(c *gin.Context) {
	defer func() {
		if p := recover(); p != nil {
			if Aborted(p) {
				panic(p)
			}
			a.d.Log.Error("handler panicked", "event", "panic", "path", c.FullPath(), "panic", p)
			c.Abort()
			if !c.Writer.Written() {
				a.refuse(c, Answer{Outcome: admission.DependencyUnavailable})
			}
		}
	}()
	c.Next()
}

func (a *internalAPI) ready(c *gin.Context) {
	reasons := a.d.Unready()
	if len(reasons) == 0 {
		writePrivate(c, []byte(`{"status":"ready","reasons":[]}`))
		return
	}
	a.render.unready(c.Writer, reasons)
}

// pay is the payment service's callback. Its signature covers the time and the bytes
// of the body, so nothing is parsed before it has been checked.
func (a *internalAPI) pay(c *gin.Context) {
	if o := guardBody(c.Request, false); o != admission.Pass {
		a.refuse(c, Answer{Outcome: o})
		return
	}
	body, o := readBody(c.Writer, c.Request)
	if o != admission.Pass {
		a.refuse(c, Answer{Outcome: o})
		return
	}
	if !a.signed(c.Request, body) {
		c.Writer.Header()["Www-Authenticate"] = signatureScheme
		a.refuse(c, Answer{Outcome: admission.Unauthenticated, Detail: "X-Sluice-Signature: must be the hex HMAC-SHA256 of the timestamp, a dot and the body, within 300 s"})
		return
	}
	orderID := c.Param("order")
	payment, bad := parsePayment(orderID, body)
	if bad != nil {
		a.refuse(c, Answer{Outcome: admission.InvalidArgument, Field: bad.Field, Detail: bad.Error()})
		return
	}
	ctx, cancel := personalBudget(c)
	defer cancel()
	order, d := a.d.Pay(ctx, orderID, payment)
	if d.Refused() {
		if d.Cause != nil {
			a.d.Log.Warn("payment not taken", "event", "payment_refused", "order_id", orderID, "decision", d.Outcome.String(), "error", d.Cause)
		}
		answer := Answer{Outcome: d.Outcome, OrderID: orderID, RetryAfter: d.RetryAfter}
		if d.Outcome == admission.InvalidArgument {
			answer.Field, answer.Detail = "amount", "amount: must be the order's amount and currency"
		}
		a.refuse(c, answer)
		return
	}
	writePrivate(c, appendOrder(nil, order, a.d.Now()))
}

// maxPaymentIDLen is what the order database keeps, in bytes.
const maxPaymentIDLen = 128

func parsePayment(orderID string, body []byte) (p admission.Payment, bad *fieldError) {
	var in struct {
		PaymentID string          `json:"payment_id"`
		Amount    json.RawMessage `json:"amount"`
	}
	if bad = decodeStrict(body, &in, "payment_id", "amount"); bad != nil {
		return p, bad
	}
	switch {
	case !admission.ValidDecimal(orderID):
		return p, &fieldError{"order_id", "must be a decimal of 1 to 2^63-1"}
	case !printable(in.PaymentID):
		return p, &fieldError{"payment_id", "must be 1 to 128 printable ASCII characters"}
	case in.Amount == nil:
		return p, &fieldError{"amount", "is missing"}
	}
	p.ID = in.PaymentID
	if bad = decodeStrict(in.Amount, &p.Amount, "amount", "currency"); bad != nil {
		bad.Field = strings.TrimSuffix("amount."+bad.Field, ".")
	}
	return p, bad
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && len(s) <= maxPaymentIDLen
}

// signed checks hex HMAC-SHA256(key, timestamp + "." + body) in constant time. The
// timestamp is whole seconds and is compared as such.
func (a *internalAPI) signed(r *http.Request, body []byte) bool {
	stamp, ok := header(r, "X-Sluice-Timestamp", admission.MaxDecimalLen)
	unix, canonical := admission.ParseDecimal(stamp)
	if skew := a.d.Now().Unix() - unix; !ok || !canonical || skew > signatureSkew || skew < -signatureSkew {
		return false
	}
	signature, ok := header(r, "X-Sluice-Signature", 2*sha256.Size)
	got, err := hex.DecodeString(signature)
	if !ok || err != nil {
		return false
	}
	mac := hmac.New(sha256.New, a.d.PaymentKey)
	mac.Write([]byte(stamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return hmac.Equal(got, mac.Sum(nil))
}
