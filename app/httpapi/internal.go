package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// InternalDeps is what the internal listener asks.
type InternalDeps struct {
	Now        func() time.Time
	Jitter     func() float64
	PaymentKey []byte // HMAC-SHA256 of the payment service's callback
	Pay        func(ctx context.Context, orderID string, p admission.Payment) (admission.Order, admission.Decision)
	Unready    func() []string // why this instance is not ready; empty: it is
	Metrics    http.Handler
}

// signatureSkew is how far a callback's timestamp may be from ours, either way.
const signatureSkew = 300 * time.Second

type internalAPI struct {
	d      InternalDeps
	render *Renderer
}

// NewInternal builds the routes of the internal listener: the payment callback, health,
// readiness with its reasons, and metrics.
func NewInternal(d InternalDeps) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	a := &internalAPI{d: d, render: NewRenderer(d.Now, d.Jitter)}
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	e.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: admission.DependencyUnavailable}, true)
	}))
	e.POST("/internal/v1/orders/:order/payments", a.pay)
	e.GET("/healthz", func(c *gin.Context) { writePrivate(c, []byte(`{"status":"ok"}`)) })
	e.GET("/readyz", a.ready)
	e.GET("/metrics", gin.WrapH(d.Metrics))
	e.NoRoute(a.refuse(admission.NotFound))
	e.NoMethod(a.refuse(admission.MethodNotAllowed))
	return e
}

func (a *internalAPI) refuse(o admission.Outcome) gin.HandlerFunc {
	return func(c *gin.Context) {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: o}, c.Request.ContentLength != 0)
	}
}

func (a *internalAPI) ready(c *gin.Context) {
	reasons := a.d.Unready()
	if len(reasons) == 0 {
		writePrivate(c, []byte(`{"status":"ready","reasons":[]}`))
		return
	}
	body, _ := json.Marshal(map[string]any{"status": "unready", "reasons": reasons})
	h := c.Writer.Header()
	h["Content-Type"] = contentTypeJSON
	h["Cache-Control"] = noStore
	c.Status(admission.DependencyUnavailable.Row().HTTP)
	_, _ = c.Writer.Write(body)
}

// pay is the payment service's callback. Its signature covers the time and the bytes
// of the body, so nothing is parsed before it has been checked.
func (a *internalAPI) pay(c *gin.Context) {
	if o := guardBody(c.Request, false); o != admission.Pass {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: o}, true)
		return
	}
	body, o := readBody(c)
	if o != admission.Pass {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: o}, true)
		return
	}
	if !a.signed(c.Request, body) {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: admission.Unauthenticated}, false)
		return
	}
	var in struct {
		PaymentID string          `json:"payment_id"`
		Amount    admission.Money `json:"amount"`
	}
	orderID := c.Param("order")
	bad := decodeStrict(body, &in, "payment_id", "amount")
	switch {
	case bad != nil:
	case !admission.ValidID(in.PaymentID):
		bad = &fieldError{"payment_id", "must be 8 to 64 of [A-Za-z0-9_-]"}
	case !admission.ValidDecimal(orderID):
		bad = &fieldError{"order_id", "must be a decimal of 1 to 2^63-1"}
	}
	if bad != nil {
		a.render.Write(c.Writer, c.Request, Answer{Outcome: admission.InvalidArgument, Field: bad.Field, Detail: bad.Error()}, false)
		return
	}
	order, d := a.d.Pay(c.Request.Context(), orderID, admission.Payment{ID: in.PaymentID, Amount: in.Amount})
	if d.Refused() {
		ans := Answer{Outcome: d.Outcome, OrderID: orderID, RetryAfter: d.RetryAfter}
		if d.Outcome == admission.InvalidArgument {
			ans.Field, ans.Detail = "amount", "amount: must be the order's amount and currency"
		}
		a.render.Write(c.Writer, c.Request, ans, false)
		return
	}
	writePrivate(c, appendOrder(nil, order))
}

// signed checks hex HMAC-SHA256(key, timestamp + "." + body) in constant time.
func (a *internalAPI) signed(r *http.Request, body []byte) bool {
	stamp := r.Header.Get("X-Sluice-Timestamp")
	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || math.Abs(a.d.Now().Sub(time.Unix(unix, 0)).Seconds()) > signatureSkew.Seconds() {
		return false
	}
	got, err := hex.DecodeString(r.Header.Get("X-Sluice-Signature"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, a.d.PaymentKey)
	mac.Write([]byte(stamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return hmac.Equal(got, mac.Sum(nil))
}
