package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// session signs a development user in. It exists in embedded mode only.
func (a *API) session(c *gin.Context) {
	req := a.newRequest(c.Request)
	body, ok := a.open(c, admission.CallSession, req, false)
	if !ok {
		return
	}
	var in struct {
		UserID string `json:"user_id"`
	}
	if bad := decodeStrict(body, &in, "user_id"); bad != nil {
		a.refuseField(c, admission.CallSession, req, bad, false)
		return
	}
	if !admission.ValidDecimal(in.UserID) {
		a.refuseField(c, admission.CallSession, req, &fieldError{"user_id", "must be a decimal of 1 to 2^63-1, as a string"}, false)
		return
	}
	token, expires, err := a.d.SignIn(in.UserID)
	if err != nil {
		d := admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageSession, Cause: err}
		a.decided(c, admission.CallSession, req, d, Answer{Outcome: d.Outcome}, false)
		return
	}
	a.d.Decided(admission.CallSession, req, admission.Decision{})
	b := appendMember([]byte{'{'}, "session", token)
	b = appendMember(b, "user_id", in.UserID)
	b = append(appendTime(append(b, `"expires_at":"`...), expires), `"}`...)
	writePrivate(c, b)
}

// join gives somebody a place in the waiting room, or finds the one they have.
func (a *API) join(c *gin.Context) {
	req, ok := a.call(c, admission.CallJoin, true)
	if !ok {
		return
	}
	body, ok := a.open(c, admission.CallJoin, req, true)
	if !ok {
		return
	}
	var in struct {
		Challenge string `json:"challenge"`
	}
	if len(body) > 0 {
		if bad := decodeStrict(body, &in, "challenge"); bad != nil {
			a.refuseField(c, admission.CallJoin, req, bad, false)
			return
		}
	}
	if len(in.Challenge) > maxChallengeBytes {
		a.refuseField(c, admission.CallJoin, req, &fieldError{"challenge", "is too long"}, false)
		return
	}
	got, d := a.d.Room.Join(c.Request.Context(), req, in.Challenge)
	if d.Refused() {
		a.decided(c, admission.CallJoin, req, d, Answer{Outcome: d.Outcome, RetryAfter: d.RetryAfter, Challenge: got.Need}, false)
		return
	}
	a.d.Decided(admission.CallJoin, req, admission.Decision{})
	b := appendMember([]byte{'{'}, "pass", got.Pass)
	b = appendMember(b, "state", got.State)
	b = appendMember(b, "lane", got.Lane)
	b = strconv.AppendInt(append(b, `"joined_ms":`...), got.JoinedAt.UnixMilli(), 10)
	if s := got.Standing; s.Drawn {
		b = strconv.AppendUint(append(b, `,"rank":`...), s.Rank, 10)
		b = strconv.AppendInt(append(b, `,"place":`...), s.Place, 10)
		if s.Unlikely {
			b = append(b, `,"unlikely":true`...)
		} else {
			b = strconv.AppendInt(append(b, `,"wait_ms":{"low":`...), s.WaitLow.Milliseconds(), 10)
			b = strconv.AppendInt(append(b, `,"high":`...), s.WaitHigh.Milliseconds(), 10)
			b = append(b, '}')
		}
	}
	b = strconv.AppendInt(append(b, `,"next_poll_after_ms":`...), a.render.pollAfter(got.Poll).Milliseconds(), 10)
	writePrivate(c, append(b, '}'))
}

// tickets exchanges a released pass for a ticket.
func (a *API) tickets(c *gin.Context) {
	req, ok := a.call(c, admission.CallTicket, true)
	if !ok {
		return
	}
	body, ok := a.open(c, admission.CallTicket, req, false)
	if !ok {
		return
	}
	var in struct {
		SKUID string `json:"sku_id"`
		Pass  string `json:"pass"`
	}
	if bad := decodeStrict(body, &in, "sku_id", "pass"); bad != nil {
		a.refuseField(c, admission.CallTicket, req, bad, false)
		return
	}
	if req.SKU = req.Activity.SKU(in.SKUID); req.SKU == nil {
		d := admission.Decision{Outcome: admission.NotFound, Stage: admission.StageGuard}
		a.decided(c, admission.CallTicket, req, d, Answer{Outcome: d.Outcome}, false)
		return
	}
	if len(in.Pass) > maxPassBytes {
		in.Pass = "" // no pass reads so; the room says so
	}
	got, d := a.d.Room.Exchange(c.Request.Context(), req, in.Pass)
	if d.Refused() {
		ans := Answer{Outcome: d.Outcome, RetryAfter: d.RetryAfter, PollAfter: got.Poll}
		if s := got.Standing; s.Drawn {
			ans.Rank, ans.HasRank, ans.Unlikely = s.Rank, true, s.Unlikely
			ans.WaitLow, ans.WaitHigh = s.WaitLow, s.WaitHigh
		}
		a.decided(c, admission.CallTicket, req, d, ans, false)
		return
	}
	a.d.Decided(admission.CallTicket, req, admission.Decision{})
	b := appendMember([]byte{'{'}, "ticket", got.Ticket)
	b = appendMember(b, "request_id", got.RequestID)
	b = appendMember(b, "path_id", got.PathID)
	b = appendMember(b, "nonce", got.Nonce)
	b = append(appendTime(append(b, `"expires_at":"`...), got.ExpiresAt), `"}`...)
	writePrivate(c, b)
}

// request is the poll of one's own result.
func (a *API) request(c *gin.Context) {
	req, ok := a.call(c, admission.CallStatus, false)
	if !ok {
		return
	}
	ref, bad := statusQuery(c.Request.URL.RawQuery)
	id := c.Param("request")
	if bad == nil && !admission.ValidID(id) {
		bad = &fieldError{"request_id", "must be 8 to 64 of [A-Za-z0-9_-]"}
	}
	if bad != nil {
		a.refuseField(c, admission.CallStatus, req, bad, false)
		return
	}
	req.RequestID = id
	rec, d := a.d.Results.Request(c.Request.Context(), req.UserID, id, ref)
	if d.Refused() {
		a.decided(c, admission.CallStatus, req, d, Answer{Outcome: d.Outcome, RequestID: id, RetryAfter: d.RetryAfter}, false)
		return
	}
	ans := Answer{Outcome: rec.Outcome, RequestID: id, ReservationID: rec.ReservationID, OrderID: rec.OrderID}
	if rec.Outcome == admission.PollQueued {
		ans.PollAfter = firstPoll
	}
	a.decided(c, admission.CallStatus, req, admission.Decision{Outcome: rec.Outcome}, ans, false)
}

// statusQuery reads activity_id and sku_id, each exactly once.
func statusQuery(raw string) (admission.SKURef, *fieldError) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return admission.SKURef{}, &fieldError{"query", "is malformed"}
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if name != "activity_id" && name != "sku_id" {
			return admission.SKURef{}, &fieldError{"query", "takes activity_id and sku_id only"}
		}
	}
	for _, name := range [...]string{"activity_id", "sku_id"} {
		if v := q[name]; len(v) != 1 || !admission.ValidDecimal(v[0]) {
			return admission.SKURef{}, &fieldError{name, "must be given once, a decimal of 1 to 2^63-1"}
		}
	}
	return admission.SKURef{ActivityID: q.Get("activity_id"), SKUID: q.Get("sku_id")}, nil
}

// order shows one's own order.
func (a *API) order(c *gin.Context) {
	a.oneOrder(c, a.d.Results.Order, false)
}

// cancel cancels one's own unpaid order. Cancelling twice is the same as once.
func (a *API) cancel(c *gin.Context) {
	a.oneOrder(c, a.d.Results.Cancel, true)
}

type orderCall = func(ctx context.Context, userID, orderID string) (admission.Order, admission.Decision)

func (a *API) oneOrder(c *gin.Context, do orderCall, post bool) {
	req, ok := a.call(c, admission.CallOrder, false)
	if !ok {
		return
	}
	if post {
		if _, ok := a.open(c, admission.CallOrder, req, true); !ok {
			return
		}
	}
	id := c.Param("order")
	if !admission.ValidDecimal(id) {
		a.refuseField(c, admission.CallOrder, req, &fieldError{"order_id", "must be a decimal of 1 to 2^63-1"}, false)
		return
	}
	o, d := do(c.Request.Context(), req.UserID, id)
	if d.Refused() {
		a.decided(c, admission.CallOrder, req, d, Answer{Outcome: d.Outcome, OrderID: id, RetryAfter: d.RetryAfter}, false)
		return
	}
	a.d.Decided(admission.CallOrder, req, admission.Decision{})
	writePrivate(c, appendOrder(nil, o))
}

func appendOrder(b []byte, o admission.Order) []byte {
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
	return append(appendTime(append(b, `"pay_before":"`...), o.PayBefore), `"}`...)
}

// call starts a personal call: its activity (when the path has one), the limits that
// need no body, and who is asking.
func (a *API) call(c *gin.Context, call admission.Call, device bool) (*admission.Request, bool) {
	var act *admission.Activity
	if id := c.Param("activity"); id != "" {
		if act = a.known(c); act == nil {
			return nil, false
		}
	}
	req := a.newRequest(c.Request)
	req.Activity = act
	req.Bearer = bearer(c.Request)
	req.GatewayUser = a.d.GatewayUser(c.Request)
	unread := c.Request.ContentLength != 0
	if device {
		if bad := readDevice(c, req); bad != nil {
			a.d.ChargeSource(req)
			a.refuseField(c, call, req, bad, unread)
			return nil, false
		}
	}
	d := a.d.Identify(req)
	if !d.Refused() {
		d = a.d.Call(call, req)
	} else {
		a.d.ChargeSource(req)
	}
	if d.Refused() {
		a.decided(c, call, req, d, Answer{Outcome: d.Outcome, RetryAfter: d.RetryAfter, Quota: req.Quota}, unread)
		return nil, false
	}
	return req, true
}

// open guards and reads the body of a call that is no submit.
func (a *API) open(c *gin.Context, call admission.Call, req *admission.Request, optional bool) ([]byte, bool) {
	o := guardBody(c.Request, optional)
	if o == admission.Pass && call == admission.CallSession {
		// Signing in has no user yet: its limits are its source's.
		if d := a.d.Call(call, req); d.Refused() {
			a.decided(c, call, req, d, Answer{Outcome: d.Outcome, RetryAfter: d.RetryAfter}, true)
			return nil, false
		}
	}
	var body []byte
	if o == admission.Pass {
		body, o = readBody(c)
	}
	if o != admission.Pass {
		d := admission.Decision{Outcome: o, Stage: admission.StageGuard, Reason: admission.ReasonGuard}
		a.decided(c, call, req, d, Answer{Outcome: o}, true)
		return nil, false
	}
	return body, true
}

// decodeStrict decodes one small object: exactly the known members at most once each,
// of the right type, nothing after it. Calls that are no submit are rare enough for
// encoding/json; names and repeats are checked here because it does not.
func decodeStrict(body []byte, into any, known ...string) *fieldError {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return &fieldError{"", "must be one JSON object"}
	}
	seen := make(map[string]bool, len(known))
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return &fieldError{"", "is not valid JSON"}
		}
		if !slices.Contains(known, name) {
			return &fieldError{"", "has an unknown member"}
		}
		if seen[name] {
			return &fieldError{name, "is given twice"}
		}
		seen[name] = true
		var value any
		if err := dec.Decode(&value); err != nil {
			return &fieldError{"", "is not valid JSON"}
		}
		if value == nil {
			return &fieldError{name, "must not be null"}
		}
	}
	if _, err := dec.Token(); err != nil {
		return &fieldError{"", "is not valid JSON"}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &fieldError{"", "has content after the object"}
	}
	if err := json.Unmarshal(body, into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return &fieldError{wrong.Field, "must be a " + wrong.Type.String()}
		}
		return &fieldError{"", "is not valid JSON"}
	}
	return nil
}

// writePrivate sends an answer that belongs to one user.
func writePrivate(c *gin.Context, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = contentTypeJSON
	h["Cache-Control"] = noStore
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.Status(http.StatusOK)
	_, _ = c.Writer.Write(body)
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
