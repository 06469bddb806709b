// Package console is the admin listener: activities, rules, modes, tallies and the
// state of limiters, for an operator with a token. It is loopback by default.
//
// A viewer may look; whatever changes something needs an operator. When a dependency is
// away the call says which, and nothing is half done that a second call cannot finish.
package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// Role is what a token allows.
type Role uint8

// The roles; more is greater.
const (
	RoleNone Role = iota
	RoleViewer
	RoleOperator
)

// Tokens are the hashes of admin tokens.
type Tokens map[[sha256.Size]byte]Role

// maxTokens bounds a token file.
const maxTokens = 1000

// ParseTokens reads lines `operator sha256:<hex>` or `viewer sha256:<hex>`; empty lines
// and lines that begin with # are skipped. An error names the line.
func ParseTokens(text string) (Tokens, error) {
	t := Tokens{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		role, hash, _ := strings.Cut(line, " ")
		sum, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(hash), "sha256:"))
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("line %d: want `operator sha256:<64 hex digits>` or `viewer sha256:…`", i+1)
		}
		switch role {
		case "operator":
			t[[sha256.Size]byte(sum)] = RoleOperator
		case "viewer":
			t[[sha256.Size]byte(sum)] = RoleViewer
		default:
			return nil, fmt.Errorf("line %d: role %q is neither operator nor viewer", i+1, role)
		}
		if len(t) > maxTokens {
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
	}
	if len(t) == 0 {
		return nil, errors.New("no token")
	}
	return t, nil
}

func (t Tokens) role(bearer string) Role {
	sum := sha256.Sum256([]byte(bearer))
	role := RoleNone
	for have, r := range t { // every one is compared, so that time tells nothing
		if subtle.ConstantTimeCompare(have[:], sum[:]) == 1 {
			role = r
		}
	}
	return role
}

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

type console struct{ d Deps }

// maxDocument bounds an admin body: an activity of 64 SKUs is below it.
const maxDocument = 256 << 10

// New builds the admin routes.
func New(d Deps) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	c := &console{d}
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	e.Use(c.recovered, c.hardened)
	v := e.Group("/admin/v1", c.allow(RoleViewer))
	v.GET("/activities", c.list)
	v.GET("/activities/:activity", c.show)
	v.GET("/activities/:activity/skus/:sku/tally", c.tally)
	v.GET("/rules", func(g *gin.Context) { g.JSON(http.StatusOK, d.Rules()) })
	v.GET("/rules/status", c.status)
	v.GET("/rules/bundle", func(g *gin.Context) { g.Data(http.StatusOK, "application/json; charset=utf-8", d.Bundle()) })
	v.GET("/mode", func(g *gin.Context) { g.JSON(http.StatusOK, gin.H{"mode": d.Mode().String()}) })
	v.GET("/limiters/:dimension/:key", c.inspect)
	v.GET("/top", c.top)
	o := e.Group("/admin/v1", c.allow(RoleOperator))
	o.POST("/activities", c.publish)
	o.POST("/activities/:activity/end", c.end)
	o.PUT("/mode", c.setMode)
	o.GET("/pprof/profile", gin.WrapF(pprof.Profile)) // ?seconds=10
	o.GET("/pprof/:name", func(g *gin.Context) { pprof.Handler(g.Param("name")).ServeHTTP(g.Writer, g.Request) })
	o.DELETE("/limiters/:dimension/:key", c.reset)
	e.NoRoute(func(g *gin.Context) { refuse(g, admission.NotFound, "") })
	e.NoMethod(func(g *gin.Context) { refuse(g, admission.MethodNotAllowed, "") })
	return e
}

func (c *console) recovered(g *gin.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.d.Log.Error("admin call panicked", "event", "panic", "path", g.FullPath(), "panic", p)
			refuse(g, admission.DependencyUnavailable, "the call failed; the log says why")
		}
	}()
	g.Next()
}

func (c *console) hardened(g *gin.Context) {
	g.Header("Cache-Control", "no-store")
	g.Header("X-Content-Type-Options", "nosniff")
	g.Request.Body = http.MaxBytesReader(g.Writer, g.Request.Body, maxDocument)
	g.Next()
}

func (c *console) allow(least Role) gin.HandlerFunc {
	return func(g *gin.Context) {
		const scheme = "Bearer "
		auth := g.GetHeader("Authorization")
		role := RoleNone
		if strings.HasPrefix(auth, scheme) {
			role = c.d.Tokens.role(auth[len(scheme):])
		}
		switch {
		case role == RoleNone:
			refuse(g, admission.Unauthenticated, "send Authorization: Bearer <admin token>")
		case role < least:
			refuse(g, admission.Forbidden, "this call needs an operator's token")
		}
	}
}

// refuse answers in the one error shape and ends the call.
func refuse(g *gin.Context, o admission.Outcome, detail string, faults ...admission.FieldError) {
	row := o.Row()
	body := gin.H{"status": row.Status, "code": row.Code, "message": row.English, "retryable": row.Retryable, "next_action": row.NextAction}
	if detail != "" {
		body["detail"] = detail
	}
	if len(faults) > 0 {
		body["errors"] = faults
	}
	g.AbortWithStatusJSON(row.HTTP, body)
}

// refuseError says which kind of fault an error is.
func refuseError(g *gin.Context, err error) {
	switch {
	case errors.Is(err, admission.ErrNotFound):
		refuse(g, admission.NotFound, err.Error())
	case errors.Is(err, admission.ErrConflict):
		refuse(g, admission.OrderStateConflict, err.Error())
	default:
		refuse(g, admission.DependencyUnavailable, err.Error())
	}
}

func (c *console) publish(g *gin.Context) {
	body, err := io.ReadAll(g.Request.Body)
	if err != nil {
		refuse(g, admission.BodyTooLarge, "an activity document is at most 256 KiB")
		return
	}
	a, faults, err := c.d.Publish(g.Request.Context(), body)
	switch {
	case len(faults) > 0:
		refuse(g, admission.InvalidArgument, "", faults...)
	case err != nil:
		refuseError(g, err)
	default:
		c.d.Log.Info("activity published", "event", "activity_published", "activity_id", a.ID, "activity_version", a.Version)
		g.Data(http.StatusOK, "application/json; charset=utf-8", admission.EncodeActivity(a))
	}
}

func (c *console) end(g *gin.Context) {
	a, err := c.d.End(g.Request.Context(), g.Param("activity"))
	if err != nil {
		refuseError(g, err)
		return
	}
	c.d.Log.Info("activity ended", "event", "activity_ended", "activity_id", a.ID)
	g.Data(http.StatusOK, "application/json; charset=utf-8", admission.EncodeActivity(a))
}

func (c *console) list(g *gin.Context) {
	all, err := c.d.List(g.Request.Context())
	if err != nil {
		refuseError(g, err)
		return
	}
	docs := make([]json.RawMessage, len(all))
	for i, a := range all {
		docs[i] = admission.EncodeActivity(a)
	}
	g.JSON(http.StatusOK, gin.H{"activities": docs})
}

func (c *console) show(g *gin.Context) {
	all, err := c.d.List(g.Request.Context())
	if err != nil {
		refuseError(g, err)
		return
	}
	for _, a := range all {
		if a.ID == g.Param("activity") {
			g.Data(http.StatusOK, "application/json; charset=utf-8", admission.EncodeActivity(a))
			return
		}
	}
	refuse(g, admission.NotFound, "")
}

func (c *console) tally(g *gin.Context) {
	ref := admission.SKURef{ActivityID: g.Param("activity"), SKUID: g.Param("sku")}
	if !admission.ValidDecimal(ref.ActivityID) || !admission.ValidDecimal(ref.SKUID) {
		refuse(g, admission.NotFound, "")
		return
	}
	stock, orders, err := c.d.Tally(g.Request.Context(), ref)
	if err != nil {
		refuseError(g, err)
		return
	}
	g.JSON(http.StatusOK, gin.H{"stock": stock, "orders": orders, "conserved": stock.Conserved()})
}

func (c *console) status(g *gin.Context) {
	s, err := c.d.RulesStatus(g.Request.Context())
	if err != nil {
		refuseError(g, err)
		return
	}
	g.JSON(http.StatusOK, s)
}

func (c *console) setMode(g *gin.Context) {
	var in struct {
		Mode string `json:"mode"`
	}
	dec := json.NewDecoder(g.Request.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		refuse(g, admission.InvalidArgument, "", admission.FieldError{Message: `must be {"mode":"NORMAL|DEGRADED|QUEUE_ONLY|CLOSED"}`})
		return
	}
	m, ok := admission.ParseMode(in.Mode)
	if !ok {
		refuse(g, admission.InvalidArgument, "", admission.FieldError{Path: "mode", Message: "must be NORMAL, DEGRADED, QUEUE_ONLY or CLOSED"})
		return
	}
	if err := c.d.SetMode(m); err != nil {
		refuseError(g, err)
		return
	}
	c.d.Log.Warn("operator mode set", "event", "mode_set", "mode", m.String())
	g.JSON(http.StatusOK, gin.H{"mode": m.String()})
}

func (c *console) inspect(g *gin.Context) {
	v, err := c.d.Limiter(g.Param("dimension"), g.Param("key"))
	if err != nil {
		refuseError(g, err)
		return
	}
	g.JSON(http.StatusOK, v)
}

// shownTop is how many are listed when ?n= does not say.
const shownTop = 20

func (c *console) top(g *gin.Context) {
	n := shownTop
	if text, given := g.GetQuery("n"); given {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > 100 {
			refuse(g, admission.InvalidArgument, "n must be a whole number in 1..100")
			return
		}
	}
	g.JSON(http.StatusOK, c.d.Top(n))
}

func (c *console) reset(g *gin.Context) {
	if err := c.d.Reset(g.Param("dimension"), g.Param("key")); err != nil {
		refuseError(g, err)
		return
	}
	c.d.Log.Warn("limiter key reset", "event", "limiter_reset", "dimension", g.Param("dimension"))
	g.JSON(http.StatusOK, gin.H{"reset": true})
}
