// Package httpapi is the wire: gin routes, the request guard, strict parsing and the
// rendering of answers. It decides nothing about admission; it asks the funnel and
// writes down what the funnel says.
//
// A submit is read here on one page: submit in submit.go. From there it goes to
// slots.Enter, slots.Reserve and order.Placer through the functions of Deps.
//
// When a dependency dies the answer is the outcome that the funnel gives for it,
// DEPENDENCY_UNAVAILABLE for a purchase; the public documents go on from memory.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// Deps is what the handlers ask. Every function is safe for concurrent use.
type Deps struct {
	Now    func() time.Time // wall clock, UTC
	Mono   func() int64     // the limiters' clock, ns
	Jitter func() float64   // uniform in [0,1)
	Log    *slog.Logger

	ByPath func(pathID string) *admission.Activity // nil: no activity has this path
	ByID   func(id string) *admission.Activity     // nil: unknown
	// Read reports whether the activities have been read since the start; nil: they have.
	// Before that an unknown one is no "there is no such thing", which sends people home.
	Read func() bool

	// Source fills the request's source keys from the peer and X-Forwarded-For.
	Source func(r *http.Request, into *admission.Request)
	// GatewayUser is the identity that a gateway inside a trusted CIDR set; "" otherwise.
	GatewayUser func(r *http.Request) string

	// Budget is what a submit may take in all, from its body to its answer.
	Budget func() time.Duration

	// The funnel. Enter and Call decide in memory, and find out who is asking; Reserve
	// registers its releases with Request.OnEnd; Place fills Request.Record.
	Enter   func(req *admission.Request) admission.Decision
	Reserve func(ctx context.Context, req *admission.Request) admission.Decision
	Place   func(ctx context.Context, req *admission.Request) admission.Decision
	Call    func(call admission.Call, req *admission.Request) admission.Decision
	// ChargeSource counts a request that the guard refused; the answer stays the guard's.
	ChargeSource func(req *admission.Request)

	// Decided is told of every decision, once, for metrics and logs.
	Decided func(call admission.Call, req *admission.Request, d admission.Decision)
	// Served is told of every public document that was asked for here: what caches in
	// front of Sluice did not answer.
	Served func(doc Document)

	Room    Room
	Results Results
	// SignIn mints a development session; nil where there is none (production).
	SignIn func(userID string) (token string, expires time.Time, err error)
	// Page serves the activity page and its assets.
	Page Page
}

// Room is the waiting room as the handlers see it.
type Room struct {
	// Join gives or finds the user's place. challenge is the solution sent, "" when none.
	Join func(ctx context.Context, req *admission.Request, challenge, pass string) (admission.Joined, admission.Decision)
	// Exchange turns a released pass into a ticket; QueueWaiting is a decision.
	Exchange func(ctx context.Context, req *admission.Request, pass string) (admission.Exchanged, admission.Decision)
	// Queue is the public queue document, the same bytes for everyone, and how long it may be cached.
	Queue func(activity *admission.Activity) (body []byte, maxAge time.Duration)
	// Commitment is the hex commitment of the activity's draw, "" when it has no draw.
	Commitment func(activity *admission.Activity) string
}

// Results are a user's own results and orders.
type Results struct {
	Request func(ctx context.Context, userID, requestID string, ref admission.SKURef) (admission.RequestRecord, admission.Decision)
	Order   func(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision)
	Cancel  func(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision)
	Pay     func(ctx context.Context, orderID string, p admission.Payment) (admission.Order, admission.Decision)
}

// Page serves what is static.
type Page struct {
	Activity http.Handler // GET /a/{activity}
	Assets   http.Handler // GET /assets/{hashed name}
}

// API is the public listener's handler.
type API struct {
	d      Deps
	render *Renderer
	pace   pace // of polls of results
}

// New builds the public routes. Nothing in it redirects: a redirected POST would be
// sent twice, and a redirect is an answer outside the table.
func New(d Deps) http.Handler {
	a := &API{d: d, render: NewRenderer(d.Now, d.Jitter)}
	e := newEngine()
	e.Use(a.recovered, a.plainPath)

	e.POST(submitRoute, a.submit)
	e.POST("/v1/activities/:activity/queue/join", a.personal(joinCall))
	e.POST("/v1/activities/:activity/tickets", a.personal(ticketCall))
	e.GET("/v1/requests/:request", a.personal(statusCall))
	e.GET("/v1/orders/:order", a.personal(orderCall))
	e.POST("/v1/orders/:order/cancel", a.personal(cancelCall))
	if d.SignIn != nil {
		e.POST("/v1/session", a.personal(sessionCall))
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} { // what caches may ask for
		e.Handle(method, "/v1/activities/:activity", a.activity)
		e.Handle(method, "/v1/activities/:activity/queue", a.queue)
		if d.Page.Activity != nil {
			e.Handle(method, "/a/:activity", a.static(DocumentPage, d.Page.Activity))
			e.Handle(method, "/assets/:name", a.static(DocumentAsset, d.Page.Assets))
		}
	}
	e.NoRoute(func(c *gin.Context) {
		if c.Request.URL.Path == "/" && c.Request.Method == http.MethodGet && ReadsHTML(c.Request) && d.Page.Activity != nil {
			a.static(DocumentPage, d.Page.Activity)(c) // which says that there is no such sale
			return
		}
		a.refuseGuard(c, admission.NotFound)
	})
	e.NoMethod(func(c *gin.Context) { a.refuseGuard(c, admission.MethodNotAllowed) })
	return e
}

// submitRoute is the one route whose refusals are counted as submits.
const submitRoute = "/s/:path/:sku"

// newEngine is gin without anything that answers or guesses by itself.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	e.UseRawPath = true // an escaped slash stays part of its segment and matches nothing
	e.UnescapePathValues = false
	e.ForwardedByClientIP = false // the client address is ours to decide
	e.ContextWithFallback = false
	return e
}

// Absent answers for a process without the gateway role: nothing is here.
func Absent(now func() time.Time, jitter func() float64) http.Handler {
	r := NewRenderer(now, jitter)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Write(w, req, Answer{Outcome: admission.NotFound})
	})
}

// recovered turns a panic of a handler into a refusal. A purchase whose handler died
// may have happened, so the answer says that the result is unknown.
func (a *API) recovered(c *gin.Context) {
	defer func() {
		if p := recover(); p != nil {
			if Aborted(p) {
				panic(p)
			}
			a.d.Log.Error("handler panicked", "event", "panic", "path", c.FullPath(), "panic", p)
			c.Abort()
			if !c.Writer.Written() {
				d := admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageGuard, Reason: admission.ReasonPanic}
				call := admission.Calls
				if c.FullPath() == submitRoute {
					call = admission.CallSubmit
				}
				a.decided(c, call, &admission.Request{Now: a.d.Now()}, d, Answer{Outcome: d.Outcome})
			}
		}
	}()
	c.Next()
}

// newRequest starts the record of one call: clocks are read once, the source is keyed.
func (a *API) newRequest(r *http.Request) *admission.Request {
	req := &admission.Request{Now: a.d.Now(), Mono: a.d.Mono()}
	a.d.Source(r, req)
	return req
}

// decided ends a call: its decision is counted and rendered.
func (a *API) decided(c *gin.Context, call admission.Call, req *admission.Request, d admission.Decision, answer Answer) {
	a.d.Decided(call, req, d)
	a.render.Write(c.Writer, c.Request, answer)
}

// unknown is what an activity that was not found means.
func (a *API) unknown() admission.Outcome {
	if a.d.Read != nil && !a.d.Read() {
		return admission.DependencyUnavailable
	}
	return admission.NotFound
}

// refuseGuard answers what never was a call of ours. It charges the source, so that a
// flood of nonsense empties its own bucket, but keeps its own status.
func (a *API) refuseGuard(c *gin.Context, o admission.Outcome) {
	answer := Answer{Outcome: o}
	if o == admission.InvalidArgument {
		answer.Field, answer.Detail = "query", "query: must be well-formed and give each key once"
	}
	req := a.newRequest(c.Request)
	a.d.ChargeSource(req)
	d := admission.Decision{Outcome: o, Stage: admission.StageGuard, Reason: admission.ReasonGuard}
	a.decided(c, admission.Calls, req, d, answer)
}
