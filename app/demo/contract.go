package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/client"
)

// wireAnswer is an answer with what is missing told from what is empty.
type wireAnswer struct {
	RequestID         string  `json:"request_id"`
	ExistingRequestID string  `json:"existing_request_id"`
	ReservationID     string  `json:"reservation_id"`
	OrderID           string  `json:"order_id"`
	Status            *string `json:"status"`
	Code              *string `json:"code"`
	Message           *string `json:"message"`
	Retryable         *bool   `json:"retryable"`
	NextAction        *string `json:"next_action"`
	NextPollAfterMS   *int64  `json:"next_poll_after_ms"`
	RetryAfterMS      *int64  `json:"retry_after_ms"`
	ServerTime        *string `json:"server_time"`
}

// contract checks answers against the outcome table of 10-http-api.
type contract struct {
	rows []admission.Outcome
}

func newContract() contract {
	var c contract
	for o := admission.Pass + 1; o < admission.Outcomes; o++ {
		c.rows = append(c.rows, o)
	}
	return c
}

// documents are the calls whose good answer is a document, with the members that it must have.
var documents = map[client.Call][]string{
	client.CallSession:  {"session", "user_id", "expires_at"},
	client.CallActivity: {"activity_id", "activity_version", "path_id", "name", "opens_at", "closes_at", "server_time", "fairness", "skus"},
	client.CallQueue:    {"activity_id", "activity_version", "state", "opens_at", "server_time", "lanes", "poll_after_ms", "draw_closes_at", "draw"},
	client.CallJoin:     {"pass", "state", "lane", "joined_ms", "next_poll_after_ms"},
	client.CallTicket:   {"ticket", "request_id", "path_id", "nonce", "expires_at"},
	client.CallOrder:    {"order_id", "reservation_id", "activity_id", "sku_id", "quantity", "status", "created_at", "pay_before"},
	client.CallCancel:   {"order_id", "reservation_id", "activity_id", "sku_id", "quantity", "status", "created_at", "pay_before"},
}

// check says what is wrong with an exchange that got an answer, "" when nothing is, and the row that it is.
func (c contract) check(x client.Exchange) (row admission.Outcome, wrong string) {
	public := x.Call == client.CallActivity || x.Call == client.CallQueue
	if ct := x.Header.Get("Content-Type"); ct != "application/json; charset=utf-8" {
		return 0, fmt.Sprintf("Content-Type %q", ct)
	}
	if cc := x.Header.Get("Cache-Control"); cc != "no-store" && (!public || x.HTTP != 200) {
		return 0, fmt.Sprintf("Cache-Control %q on an answer that belongs to one person", cc)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(x.Body, &members); err != nil {
		return 0, "a body that is no JSON object"
	}
	if want, ok := documents[x.Call]; ok && x.HTTP == 200 && members["code"] == nil {
		for _, name := range want {
			if members[name] == nil {
				return 0, fmt.Sprintf("a document without %q", name)
			}
		}
		return 0, ""
	}
	return c.answer(x)
}

func (c contract) answer(x client.Exchange) (admission.Outcome, string) {
	var a wireAnswer
	if err := json.Unmarshal(x.Body, &a); err != nil {
		return 0, "an answer with a member of the wrong type: " + err.Error()
	}
	if a.Status == nil || a.Code == nil || a.Retryable == nil || a.NextAction == nil || a.RetryAfterMS == nil || a.NextPollAfterMS == nil {
		return 0, "an answer without status, code, retryable, next_action, retry_after_ms or next_poll_after_ms"
	}
	if a.Message == nil || *a.Message == "" {
		return 0, "an answer without a message"
	}
	if a.ServerTime == nil {
		return 0, "an answer without server_time"
	}
	if _, err := time.Parse(time.RFC3339, *a.ServerTime); err != nil {
		return 0, "server_time is no RFC 3339 time"
	}
	i := slices.IndexFunc(c.rows, func(o admission.Outcome) bool { return c.is(o, x, a) })
	if i < 0 {
		return 0, fmt.Sprintf("no row of the table: %d %s %s %s retryable=%v on %s", x.HTTP, *a.Code, *a.Status, *a.NextAction, *a.Retryable, x.Call)
	}
	o := c.rows[i]
	if wrong := facts(o, x, a); wrong != "" {
		return o, wrong
	}
	return o, retryAfter(x, *a.RetryAfterMS)
}

// is reports whether the answer is the outcome's row, on a call that may answer so.
func (c contract) is(o admission.Outcome, x client.Exchange, a wireAnswer) bool {
	r := o.Row()
	if r.HTTP != x.HTTP || r.Code != *a.Code || string(r.NextAction) != *a.NextAction || r.Retryable != *a.Retryable {
		return false
	}
	if o == admission.Replayed {
		return x.Call == client.CallSubmit && slices.ContainsFunc(c.rows, func(p admission.Outcome) bool { return poll(p) && string(p.Row().Status) == *a.Status })
	}
	if string(r.Status) != *a.Status {
		return false
	}
	switch {
	case r.HTTP >= 400:
		return true
	case poll(o):
		return x.Call == client.CallRequest
	case o == admission.QueueWaiting:
		return x.Call == client.CallTicket
	case o == admission.SoldOut:
		return x.Call == client.CallSubmit || x.Call == client.CallTicket
	default:
		return x.Call == client.CallSubmit
	}
}

// poll reports whether the outcome is a poll row.
func poll(o admission.Outcome) bool { return o >= admission.PollQueued }

// facts checks the ids that an outcome must carry.
func facts(o admission.Outcome, x client.Exchange, a wireAnswer) string {
	if a.RequestID != "" && x.RequestID != "" && a.RequestID != x.RequestID {
		return "request_id is not the caller's"
	}
	switch o {
	case admission.Queued, admission.Replayed, admission.PollQueued, admission.PollNoCapacity, admission.PollDuplicate,
		admission.PollOrderCreated, admission.PollOrderPaid, admission.PollOrderCancelled:
		if a.RequestID == "" || a.ReservationID == "" {
			return o.String() + " without request_id or reservation_id"
		}
	case admission.AlreadyPurchased:
		if a.ExistingRequestID == "" || a.ReservationID == "" {
			return "ALREADY_PURCHASED without existing_request_id or reservation_id"
		}
	case admission.ReplayRejected:
		if a.ExistingRequestID == "" {
			return "REPLAY_REJECTED without existing_request_id"
		}
	default: // no other answer must name anything
	}
	if (o == admission.PollOrderCreated || o == admission.PollOrderPaid || o == admission.PollOrderCancelled) && a.OrderID == "" {
		return o.String() + " without order_id"
	}
	return ""
}

// retryAfter checks that header and body agree, and that a refusal which asks for patience says how much.
func retryAfter(x client.Exchange, bodyMS int64) string {
	header := x.Header.Get("Retry-After")
	if header == "" {
		if bodyMS > 0 || x.HTTP == 429 || x.HTTP == 503 {
			return "no Retry-After header"
		}
		return ""
	}
	seconds, err := strconv.ParseInt(header, 10, 64)
	if err != nil || seconds < 1 {
		return fmt.Sprintf("Retry-After %q is no whole number of 1 or more", header)
	}
	if bodyMS < 1 || seconds*1000 < bodyMS {
		return fmt.Sprintf("Retry-After %d s and retry_after_ms %d disagree", seconds, bodyMS)
	}
	return ""
}
