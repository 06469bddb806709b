// Package console is the admin listener: activities, rules, modes, tallies and the
// state of limiters, for an operator with a token. It is loopback by default.
//
// A viewer may look; whatever changes something needs an operator. When a dependency is
// away the call says which, and nothing is half done that a second call cannot finish.
package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	runtimepprof "runtime/pprof"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
)

// Deps is what the admin calls ask.
type Deps struct {
	Tokens Tokens
	Log    *slog.Logger
	Now    func() time.Time

	Publish func(ctx context.Context, document []byte) (admission.Activity, []admission.FieldError, error)
	End     func(ctx context.Context, activityID string) (admission.Activity, error)
	List    func(ctx context.Context) ([]admission.Activity, error)
	// Tally counts one SKU in the stock store and in SQL.
	Tally func(ctx context.Context, ref admission.SKURef) (admission.StockTally, admission.OrderTally, error)

	Rules       func() any                               // this instance's: see 10-http-api
	RulesStatus func(ctx context.Context) (any, error)   // the fleet's
	Bundle      func() []byte                            // in force, bare
	Mode        func() admission.Mode                    // the operator's
	SetMode     func(m admission.Mode) error             // of this instance
	Limiter     func(dimension, key string) (any, error) // one key's bucket
	Reset       func(dimension, key string) error
	Top         func(n int) any // the n most frequent SKUs, users and sources of late
}

type console struct {
	d      Deps
	render *httpapi.Renderer
}

// Bounds of an admin call.
const (
	maxDocument  = admission.MaxDocumentLen
	bodyDeadline = 5 * time.Second
)

// New builds the admin routes.
func New(d Deps) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	noJitter := func() float64 { return 0 } // operators are few
	c := &console{d, httpapi.NewRenderer(d.Now, noJitter)}
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	e.UseRawPath = true // an escaped slash stays part of its segment
	e.Use(c.recovered, c.hardened)
	v := e.Group("/admin/v1", c.allow(RoleViewer))
	v.GET("/activities", c.list)
	v.GET("/activities/:activity", c.show)
	v.GET("/activities/:activity/skus/:sku/tally", c.tally)
	v.GET("/rules", func(g *gin.Context) { c.answer(g, d.Rules()) })
	v.GET("/rules/status", c.status)
	v.GET("/rules/bundle", func(g *gin.Context) { httpapi.SendJSON(g.Writer, g.Request, d.Bundle()) })
	v.GET("/mode", func(g *gin.Context) { c.answer(g, gin.H{"mode": d.Mode().String()}) })
	v.GET("/limiters/:dimension/:key", c.inspect)
	v.GET("/top", c.top)
	o := e.Group("/admin/v1", c.allow(RoleOperator))
	o.POST("/activities", c.publish)
	o.POST("/activities/:activity/end", c.end)
	o.PUT("/mode", c.setMode)
	o.GET("/pprof/profile", gin.WrapF(pprof.Profile)) // ?seconds=10
	o.GET("/pprof/:name", c.profile)
	o.DELETE("/limiters/:dimension/:key", c.reset)
	e.NoRoute(func(g *gin.Context) { c.refuse(g, admission.NotFound, "") })
	e.NoMethod(func(g *gin.Context) { c.refuse(g, admission.MethodNotAllowed, "") })
	return e
}

func (c *console) recovered(g *gin.Context) {
	defer func() {
		if p := recover(); p != nil {
			if httpapi.Aborted(p) {
				panic(p)
			}
			c.d.Log.Error("admin call panicked", "event", "panic", "path", g.FullPath(), "panic", p)
			g.Abort()
			if !g.Writer.Written() {
				c.refuse(g, admission.DependencyUnavailable, "the call failed; the log says why")
			}
		}
	}()
	g.Next()
}

func (c *console) hardened(g *gin.Context) {
	g.Header("Cache-Control", "no-store")
	g.Header("X-Content-Type-Options", "nosniff")
	if g.Request.ContentLength == 0 {
		// net/http takes a read deadline that passes for a caller that left.
		_ = http.NewResponseController(g.Writer).SetReadDeadline(time.Time{}) // unsupported only without a connection
	}
	g.Next()
}

func (c *console) allow(least Role) gin.HandlerFunc {
	return func(g *gin.Context) {
		switch role := c.d.Tokens.role(bearer(g.Request.Header)); {
		case role == RoleNone:
			c.refuse(g, admission.Unauthenticated, "send Authorization: Bearer <admin token>")
		case role < least:
			c.refuse(g, admission.Forbidden, "this call needs an operator's token")
		}
	}
}

// answer sends what a call came to.
func (c *console) answer(g *gin.Context, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		c.refuseError(g, err)
		return
	}
	httpapi.SendJSON(g.Writer, g.Request, body)
}

// refuse answers in the one error shape and ends the call.
func (c *console) refuse(g *gin.Context, o admission.Outcome, detail string, faults ...admission.FieldError) {
	g.Abort()
	c.render.Write(g.Writer, g.Request, httpapi.Answer{Outcome: o, Detail: detail, Errors: faults})
}

// refuseError says which kind of fault an error is.
func (c *console) refuseError(g *gin.Context, err error) {
	switch {
	case errors.Is(err, admission.ErrNotFound):
		c.refuse(g, admission.NotFound, err.Error())
	case errors.Is(err, admission.ErrConflict):
		c.refuse(g, admission.OrderStateConflict, err.Error())
	default:
		c.refuse(g, admission.DependencyUnavailable, err.Error())
	}
}

// body reads the whole body; nil: it has refused, and the call is over.
func (c *console) body(g *gin.Context) []byte {
	control := http.NewResponseController(g.Writer)
	_ = control.SetReadDeadline(c.d.Now().Add(bodyDeadline))
	body, err := io.ReadAll(http.MaxBytesReader(g.Writer, g.Request.Body, maxDocument))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		c.refuse(g, admission.BodyTooLarge, fmt.Sprintf("a document is at most %d KiB", maxDocument>>10))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.refuse(g, admission.BodyTimeout, "")
	case err != nil:
		c.refuse(g, admission.InvalidArgument, "the body ended early")
	case len(body) == 0:
		c.refuse(g, admission.InvalidArgument, "this call needs a body")
	default:
		_ = control.SetReadDeadline(time.Time{})
		g.Request.Body = http.NoBody // read
		return body
	}
	return nil
}

func (c *console) publish(g *gin.Context) {
	body := c.body(g)
	if body == nil {
		return
	}
	a, faults, err := c.d.Publish(g.Request.Context(), body)
	switch {
	case len(faults) > 0:
		c.refuse(g, admission.InvalidArgument, "", faults...)
	case err != nil:
		c.refuseError(g, err)
	default:
		c.d.Log.Info("activity published", "event", "activity_published", "activity_id", a.ID, "activity_version", a.Version)
		httpapi.SendJSON(g.Writer, g.Request, admission.EncodeActivity(a))
	}
}

func (c *console) end(g *gin.Context) {
	a, err := c.d.End(g.Request.Context(), g.Param("activity"))
	if err != nil {
		c.refuseError(g, err)
		return
	}
	c.d.Log.Info("activity ended", "event", "activity_ended", "activity_id", a.ID)
	httpapi.SendJSON(g.Writer, g.Request, admission.EncodeActivity(a))
}

func (c *console) list(g *gin.Context) {
	all, err := c.d.List(g.Request.Context())
	if err != nil {
		c.refuseError(g, err)
		return
	}
	docs := make([]json.RawMessage, len(all))
	for i, a := range all {
		docs[i] = admission.EncodeActivity(a)
	}
	c.answer(g, gin.H{"activities": docs})
}

func (c *console) show(g *gin.Context) {
	all, err := c.d.List(g.Request.Context())
	if err != nil {
		c.refuseError(g, err)
		return
	}
	for _, a := range all {
		if a.ID == g.Param("activity") {
			httpapi.SendJSON(g.Writer, g.Request, admission.EncodeActivity(a))
			return
		}
	}
	c.refuse(g, admission.NotFound, "")
}

func (c *console) tally(g *gin.Context) {
	ref := admission.SKURef{ActivityID: g.Param("activity"), SKUID: g.Param("sku")}
	if !admission.ValidDecimal(ref.ActivityID) || !admission.ValidDecimal(ref.SKUID) {
		c.refuse(g, admission.NotFound, "")
		return
	}
	stock, orders, err := c.d.Tally(g.Request.Context(), ref)
	if err != nil {
		c.refuseError(g, err)
		return
	}
	c.answer(g, gin.H{"stock": stock, "orders": orders, "conserved": stock.Conserved()})
}

func (c *console) status(g *gin.Context) {
	s, err := c.d.RulesStatus(g.Request.Context())
	if err != nil {
		c.refuseError(g, err)
		return
	}
	c.answer(g, s)
}

func (c *console) setMode(g *gin.Context) {
	body := c.body(g)
	if body == nil {
		return
	}
	m, fault := decodeMode(body)
	if fault != nil {
		c.refuse(g, admission.InvalidArgument, "", *fault)
		return
	}
	if err := c.d.SetMode(m); err != nil {
		c.refuseError(g, err)
		return
	}
	c.d.Log.Warn("operator mode set", "event", "mode_set", "mode", m.String())
	c.answer(g, gin.H{"mode": m.String()})
}

// profile serves one of the runtime's profiles. pprof answers an unknown name in words of its own.
func (c *console) profile(g *gin.Context) {
	name := g.Param("name")
	if runtimepprof.Lookup(name) == nil {
		c.refuse(g, admission.NotFound, "")
		return
	}
	pprof.Handler(name).ServeHTTP(g.Writer, g.Request)
}

// decodeMode reads {"mode":"…"} and nothing else.
func decodeMode(body []byte) (admission.Mode, *admission.FieldError) {
	const shape = `must be {"mode":"NORMAL|DEGRADED|QUEUE_ONLY|CLOSED"} and nothing else`
	dec := json.NewDecoder(bytes.NewReader(body))
	var text string
	for i, want := range [...]any{json.Delim('{'), "mode", nil, json.Delim('}')} {
		token, err := dec.Token()
		word, isText := token.(string)
		if want == nil && isText {
			text = word
			continue
		}
		if err != nil || token != want {
			path := ""
			if i == 2 {
				path = "mode"
			}
			return 0, &admission.FieldError{Path: path, Message: shape}
		}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return 0, &admission.FieldError{Message: shape}
	}
	m, ok := admission.ParseMode(text)
	if !ok {
		return 0, &admission.FieldError{Path: "mode", Message: "must be NORMAL, DEGRADED, QUEUE_ONLY or CLOSED"}
	}
	return m, nil
}

func (c *console) inspect(g *gin.Context) {
	v, err := c.d.Limiter(g.Param("dimension"), g.Param("key"))
	if err != nil {
		c.refuseError(g, err)
		return
	}
	c.answer(g, v)
}

// shownTop is how many are listed when ?n= does not say.
const shownTop = 20

func (c *console) top(g *gin.Context) {
	n := shownTop
	if text, given := g.GetQuery("n"); given {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > 100 {
			c.refuse(g, admission.InvalidArgument, "n must be a whole number in 1..100")
			return
		}
	}
	c.answer(g, c.d.Top(n))
}

func (c *console) reset(g *gin.Context) {
	if err := c.d.Reset(g.Param("dimension"), g.Param("key")); err != nil {
		c.refuseError(g, err)
		return
	}
	c.d.Log.Warn("limiter key reset", "event", "limiter_reset", "dimension", g.Param("dimension"))
	c.answer(g, gin.H{"reset": true})
}
