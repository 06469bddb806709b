package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// submit is the hot path: what can be decided from path and headers is decided before
// the body is read, in memory; then the body; then what costs a round trip.
func (a *API) submit(c *gin.Context) {
	if o := guardBody(c.Request, false); o != admission.Pass {
		a.refuseGuard(c, o)
		return
	}
	req := a.newRequest(c.Request)
	if req.Activity = a.d.ByPath(c.Param("path")); req.Activity != nil {
		req.SKU = req.Activity.SKU(c.Param("sku"))
	}
	if req.SKU == nil {
		a.refuseGuard(c, a.unknown())
		return
	}
	if bad := a.readHeaders(c.Request, req); bad != nil {
		a.d.ChargeSource(req)
		a.refuseField(c, admission.CallSubmit, req, bad)
		return
	}

	var d admission.Decision
	defer func() { req.End(d) }()

	if d = a.d.Enter(req); d.Refused() {
		a.answer(c, req, d)
		return
	}
	body, o := readBody(c.Writer, c.Request)
	if o != admission.Pass {
		d = admission.Decision{Outcome: o, Stage: admission.StageParse, Reason: admission.ReasonMalformed}
		a.answer(c, req, d)
		return
	}
	parsed, bad := parseSubmit(body)
	if bad == nil {
		bad = parsed.check(req)
	}
	if bad != nil {
		d = malformed
		a.refuseField(c, admission.CallSubmit, req, bad)
		return
	}
	req.Quantity = parsed.Quantity
	req.BodyHash = admission.BodyHash(req.Activity.ID, req.SKU.ID, req.UserID, req.Quantity)
	if d = holderDecision(req); d.Refused() {
		a.answer(c, req, d)
		return
	}
	// A client that leaves now changes nothing: what was begun is finished within its
	// budget, and no store is blamed for the cut.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), a.d.Budget())
	defer cancel()
	if d = a.d.Reserve(ctx, req); !d.Refused() {
		d = a.d.Place(ctx, req)
	}
	if !d.Refused() {
		d = admission.Decision{Outcome: admission.Queued}
	}
	a.answer(c, req, d)
}

var malformed = admission.Decision{Outcome: admission.InvalidArgument, Stage: admission.StageParse, Reason: admission.ReasonMalformed}

// readHeaders fills the request from the headers of a submit.
func (a *API) readHeaders(r *http.Request, req *admission.Request) *fieldError {
	var ok bool
	if req.RequestID, ok = header(r, "Idempotency-Key", admission.MaxIDLen); !ok || !admission.ValidID(req.RequestID) {
		req.RequestID = "" // never echo what is not an id
		return &fieldError{"Idempotency-Key", "must be the request_id: 8 to 64 of [A-Za-z0-9_-]"}
	}
	if bad := readDevice(r, req); bad != nil {
		return bad
	}
	if req.Ticket, ok = header(r, "X-Seckill-Ticket", maxTicketBytes); !ok {
		req.Ticket = "?" // too long or repeated: no ticket reads so, and the ticket stage says so
	}
	req.Bearer = bearer(r)
	req.GatewayUser = a.d.GatewayUser(r)
	return nil
}

func readDevice(r *http.Request, req *admission.Request) *fieldError {
	device, ok := header(r, "X-Device-Id", admission.MaxDeviceIDLen)
	if !ok || !admission.ValidDeviceID(device) {
		return &fieldError{"X-Device-Id", "must be 16 to 128 of [A-Za-z0-9._:-]"}
	}
	req.DeviceHash = admission.DeviceHash(device)
	return nil
}

// holderDecision answers somebody who holds a reservation from memory. Holder is set only
// after a sold-out mark or the closing, when nothing new can be bought anyway.
func holderDecision(req *admission.Request) admission.Decision {
	h := req.Holder
	if h.ReservationID == "" {
		return admission.Decision{}
	}
	d := admission.Decision{Stage: admission.StageSoldOut, Reason: admission.ReasonHolder}
	req.Record = admission.RequestRecord{RequestID: h.RequestID, BodyHash: h.BodyHash, ReservationID: h.ReservationID, OrderID: h.OrderID, Outcome: h.Outcome}
	switch {
	case h.RequestID != req.RequestID:
		d.Outcome = admission.AlreadyPurchased
	case h.BodyHash != req.BodyHash:
		d.Outcome = admission.RequestIDConflict
	default:
		d.Outcome = admission.Replayed
	}
	return d
}

// answer renders a submit's decision with what belongs to it.
func (a *API) answer(c *gin.Context, req *admission.Request, d admission.Decision) {
	a.decided(c, admission.CallSubmit, req, d, submitAnswer(req, d, a.pace.current()))
}

func submitAnswer(req *admission.Request, d admission.Decision, poll time.Duration) Answer {
	ans := Answer{Outcome: d.Outcome, RequestID: req.RequestID, RetryAfter: d.RetryAfter, Quota: req.Quota}
	switch d.Outcome {
	case admission.Queued:
		ans.ReservationID = req.Record.ReservationID
		ans.PollAfter = poll
	case admission.Replayed:
		if ans.Current = req.Record.Outcome; ans.Current == admission.Pass {
			ans.Current = admission.PollQueued // a record that does not say: it is reserved
		}
		ans.ReservationID, ans.OrderID = req.Record.ReservationID, req.Record.OrderID
		if ans.Current == admission.PollQueued {
			ans.PollAfter = poll
		}
	case admission.AlreadyPurchased:
		ans.ExistingID = req.Record.RequestID
		ans.ReservationID, ans.OrderID = req.Record.ReservationID, req.Record.OrderID
	case admission.SoldOut:
		ans.TooFew = d.Reason == admission.ReasonStockTooFew
	case admission.TokenInvalid:
		if req.Ticket == "" { // of one that is there, nothing is told
			missing := fieldError{"X-Seckill-Ticket", "is missing"}
			ans.Field, ans.Detail = missing.Field, missing.Error()
		}
	case admission.ReplayRejected:
		ans.ExistingID = req.Record.RequestID
	default: // a plain refusal
	}
	return ans
}

// refuseField answers INVALID_ARGUMENT naming the field.
func (a *API) refuseField(c *gin.Context, call admission.Call, req *admission.Request, bad *fieldError) {
	a.decided(c, call, req, malformed, fieldAnswer(req, bad))
}

func fieldAnswer(req *admission.Request, bad *fieldError) Answer {
	return Answer{Outcome: admission.InvalidArgument, RequestID: req.RequestID, Field: bad.Field, Detail: bad.Error(), Quota: req.Quota}
}
