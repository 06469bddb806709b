package httpapi

import (
	"context"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// call is one kind of call that is no submit: a person's own business, or the sign-in
// that makes somebody a person.
type call struct {
	resource admission.Call
	body     bodyRule
	device   bool // X-Device-Id is demanded
	answer   func(a *API, c *gin.Context, req *admission.Request, body []byte) reply
}

// bodyRule says whether a call has a body.
type bodyRule uint8

const (
	bodyNone     bodyRule = iota // GET
	bodyOptional                 // join, cancel
	bodyRequired
)

// reply is what a call came to: a document, or a decision with its answer.
type reply struct {
	document []byte // of success; nil: answer
	answer   Answer
	decision admission.Decision
}

// refused is a reply that says no more than its decision.
func refused(d admission.Decision) reply {
	return reply{decision: d, answer: Answer{Outcome: d.Outcome, RetryAfter: d.RetryAfter}}
}

// invalid is a reply that names what to fix.
func invalid(req *admission.Request, bad *fieldError) reply {
	return reply{decision: malformed, answer: fieldAnswer(req, bad)}
}

// personal is the one order in which all these calls are refused: guard, unknown
// activity, malformed headers, the call's chain (flow, source, session, user), body.
// What the chain was charged goes back when the answer is "we are full".
func (a *API) personal(k call) gin.HandlerFunc {
	return func(c *gin.Context) {
		if k.body != bodyNone {
			if o := guardBody(c.Request, k.body == bodyOptional); o != admission.Pass {
				a.refuseGuard(c, o)
				return
			}
		}
		req := a.newRequest(c.Request)
		if id, named := c.Params.Get("activity"); named {
			if req.Activity = a.d.ByID(id); req.Activity == nil {
				a.refuseGuard(c, a.unknown())
				return
			}
		}
		var r reply
		defer func() { req.End(r.decision) }()
		r = a.reply(c, k, req)
		a.d.Decided(k.resource, req, r.decision)
		if r.document != nil {
			writeQuota(c.Writer.Header(), req.Quota)
			writePrivate(c, r.document)
			return
		}
		r.answer.Quota = req.Quota
		a.render.Write(c.Writer, c.Request, r.answer)
	}
}

func (a *API) reply(c *gin.Context, k call, req *admission.Request) reply {
	req.Bearer = bearer(c.Request)
	req.GatewayUser = a.d.GatewayUser(c.Request)
	if k.device {
		if bad := readDevice(c.Request, req); bad != nil {
			a.d.ChargeSource(req)
			return invalid(req, bad)
		}
	}
	if d := a.d.Call(k.resource, req); d.Refused() {
		return refused(d)
	}
	var body []byte
	if k.body != bodyNone {
		var o admission.Outcome
		if body, o = readBody(c.Writer, c.Request); o != admission.Pass {
			return refused(admission.Decision{Outcome: o, Stage: admission.StageGuard, Reason: admission.ReasonGuard})
		}
	}
	return k.answer(a, c, req, body)
}

// sessionCall signs a development user in. It exists in embedded mode only.
var sessionCall = call{resource: admission.CallSession, body: bodyRequired, answer: func(a *API, _ *gin.Context, req *admission.Request, body []byte) reply {
	var in struct {
		UserID string `json:"user_id"`
	}
	bad := decodeStrict(body, &in, "user_id")
	if bad == nil && !admission.ValidDecimal(in.UserID) {
		bad = &fieldError{"user_id", "must be a decimal of 1 to 2^63-1, as a string"}
	}
	if bad != nil {
		return invalid(req, bad)
	}
	token, expires, err := a.d.SignIn(in.UserID)
	if err != nil {
		return refused(admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageSession, Cause: err})
	}
	b := appendMember([]byte{'{'}, "session", token)
	b = appendMember(b, "user_id", in.UserID)
	return reply{document: append(appendTime(append(b, `"expires_at":"`...), expires), `"}`...)}
}}

// joinCall gives somebody a place in the waiting room, or finds the one they have.
var joinCall = call{resource: admission.CallJoin, body: bodyOptional, device: true, answer: func(a *API, c *gin.Context, req *admission.Request, body []byte) reply {
	var in struct {
		Challenge string `json:"challenge"`
		Pass      string `json:"pass"` // of a place that is to be kept
	}
	if len(body) > 0 {
		bad := decodeStrict(body, &in, "challenge", "pass")
		if bad == nil && len(in.Challenge) > maxChallengeBytes {
			bad = &fieldError{"challenge", "must be at most " + strconv.Itoa(maxChallengeBytes) + " bytes"}
		}
		if bad != nil {
			return invalid(req, bad)
		}
	}
	ctx, cancel := personalBudget(c)
	defer cancel()
	if len(in.Pass) > maxPassBytes {
		in.Pass = "" // no pass reads so
	}
	got, d := a.d.Room.Join(ctx, req, in.Challenge, in.Pass)
	if d.Refused() {
		r := refused(d)
		r.answer.Challenge = got.Need
		return r
	}
	b := appendMember([]byte{'{'}, "pass", got.Pass)
	b = appendMember(b, "state", got.State)
	b = appendMember(b, "lane", got.Lane)
	b = strconv.AppendInt(append(b, `"joined_ms":`...), got.JoinedAt.UnixMilli(), 10)
	b = append(b, ',')
	b = appendStanding(b, got.Standing)
	b = strconv.AppendInt(append(b, `"next_poll_after_ms":`...), a.render.pollAfter(got.Poll).Milliseconds(), 10)
	return reply{document: append(b, '}')}
}}

// ticketCall exchanges a released pass for a ticket.
var ticketCall = call{resource: admission.CallTicket, body: bodyRequired, device: true, answer: func(a *API, c *gin.Context, req *admission.Request, body []byte) reply {
	var in struct {
		SKUID *string `json:"sku_id"`
		Pass  *string `json:"pass"`
	}
	bad := decodeStrict(body, &in, "sku_id", "pass")
	switch {
	case bad != nil:
	case in.SKUID == nil:
		bad = &fieldError{"sku_id", "is missing"}
	case !admission.ValidDecimal(*in.SKUID):
		bad = &fieldError{"sku_id", "must be a decimal of 1 to 2^63-1, as a string"}
	case in.Pass == nil:
		bad = &fieldError{"pass", "is missing"}
	}
	if bad != nil {
		return invalid(req, bad)
	}
	if req.SKU = req.Activity.SKU(*in.SKUID); req.SKU == nil {
		return refused(admission.Decision{Outcome: admission.NotFound, Stage: admission.StageGuard, Reason: admission.ReasonGuard})
	}
	if len(*in.Pass) > maxPassBytes {
		*in.Pass = "" // no pass reads so; the room says so
	}
	ctx, cancel := personalBudget(c)
	defer cancel()
	got, d := a.d.Room.Exchange(ctx, req, *in.Pass)
	if d.Refused() {
		r := refused(d)
		r.answer.PollAfter, r.answer.Standing = got.Poll, got.Standing
		return r
	}
	b := appendMember([]byte{'{'}, "ticket", got.Ticket)
	b = appendMember(b, "request_id", got.RequestID)
	b = appendMember(b, "path_id", got.PathID)
	b = appendMember(b, "nonce", got.Nonce)
	return reply{document: append(appendTime(append(b, `"expires_at":"`...), got.ExpiresAt), `"}`...)}
}}

// statusCall is the poll of one's own result.
var statusCall = call{resource: admission.CallStatus, answer: func(a *API, c *gin.Context, req *admission.Request, _ []byte) reply {
	ref, bad := statusQuery(c.Request.URL.RawQuery)
	id := c.Param("request")
	if !admission.ValidID(id) {
		bad = &fieldError{"request_id", "must be 8 to 64 of [A-Za-z0-9_-]"}
	}
	if bad != nil {
		return invalid(req, bad)
	}
	req.RequestID = id
	ctx, cancel := personalBudget(c)
	defer cancel()
	rec, d := a.d.Results.Request(ctx, req.UserID, id, ref)
	if d.Refused() {
		r := refused(d)
		r.answer.RequestID = id
		return r
	}
	r := reply{decision: admission.Decision{Outcome: rec.Outcome}}
	r.answer = Answer{Outcome: rec.Outcome, RequestID: id, ReservationID: rec.ReservationID, OrderID: rec.OrderID}
	if rec.Outcome == admission.PollQueued {
		r.answer.PollAfter = a.pace.next(req.Now)
	}
	return r
}}

// statusQuery reads activity_id and sku_id. That no key comes twice was checked before;
// keys that we do not know are nobody's harm.
func statusQuery(raw string) (admission.SKURef, *fieldError) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return admission.SKURef{}, &fieldError{"query", "is malformed"}
	}
	ref := admission.SKURef{ActivityID: q.Get("activity_id"), SKUID: q.Get("sku_id")}
	const want = "must be given once in the query, a decimal of 1 to 2^63-1"
	if !admission.ValidDecimal(ref.ActivityID) {
		return ref, &fieldError{"activity_id", want}
	}
	if !admission.ValidDecimal(ref.SKUID) {
		return ref, &fieldError{"sku_id", want}
	}
	return ref, nil
}

// orderCall shows one's own order.
var orderCall = call{resource: admission.CallOrder, answer: func(a *API, c *gin.Context, req *admission.Request, _ []byte) reply {
	return oneOrder(a, c, req, a.d.Results.Order)
}}

// cancelCall cancels one's own unpaid order. Cancelling twice is the same as once.
var cancelCall = call{resource: admission.CallOrder, body: bodyOptional, answer: func(a *API, c *gin.Context, req *admission.Request, body []byte) reply {
	if len(body) > 0 {
		if bad := decodeStrict(body, &struct{}{}); bad != nil {
			return invalid(req, bad)
		}
	}
	return oneOrder(a, c, req, a.d.Results.Cancel)
}}

func oneOrder(a *API, c *gin.Context, req *admission.Request, do func(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision)) reply {
	id := c.Param("order")
	if !admission.ValidDecimal(id) {
		return invalid(req, &fieldError{"order_id", "must be a decimal of 1 to 2^63-1"})
	}
	ctx, cancel := personalBudget(c)
	defer cancel()
	o, d := do(ctx, req.UserID, id)
	if d.Refused() {
		r := refused(d)
		r.answer.OrderID = id
		return r
	}
	return reply{document: appendOrder(nil, o, a.d.Now())}
}

func appendOrder(b []byte, o admission.Order, now time.Time) []byte {
	b = append(b, '{')
	b = appendMember(b, "order_id", o.ID)
	b = appendMember(b, "reservation_id", o.ReservationID)
	b = appendMember(b, "request_id", o.RequestID)
	b = appendMember(b, "activity_id", o.Ref.ActivityID)
	b = appendMember(b, "sku_id", o.Ref.SKUID)
	b = strconv.AppendInt(append(b, `"quantity":`...), o.Quantity, 10)
	b = append(b, ',')
	b = appendMember(b, "status", string(o.Status))
	b = append(appendTime(append(b, `"created_at":"`...), o.CreatedAt), `",`...)
	b = append(appendTime(append(b, `"pay_before":"`...), o.PayBefore), `",`...)
	return append(appendTime(append(b, `"server_time":"`...), now), `"}`...)
}

// writePrivate sends a document that belongs to one user.
func writePrivate(c *gin.Context, body []byte) {
	c.Writer.Header()["Cache-Control"] = noStore
	SendJSON(c.Writer, c.Request, body)
}

func appendWeights(b []byte, w map[string]float64) []byte {
	b = append(b, '{')
	for i, lane := range slices.Sorted(maps.Keys(w)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, lane), ':')
		if v := w[lane]; !math.IsInf(v, 0) && !math.IsNaN(v) {
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		} else {
			b = append(b, '0')
		}
	}
	return append(b, '}')
}

// personalWithin bounds a call that is no submit: long enough for a database that is busy,
// far below the time at which the connection would be cut. What is away then is a 503.
const personalWithin = 3 * time.Second

func personalBudget(c *gin.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request.Context(), personalWithin)
}
