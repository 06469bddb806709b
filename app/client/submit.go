package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// Ticket is the right to try, for a short time.
type Ticket struct {
	Ticket    string    `json:"ticket"`
	RequestID string    `json:"request_id"` // keep it: the same on every retry
	PathID    string    `json:"path_id"`
	Nonce     string    `json:"nonce"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Purchase is what a submit wants, with the ticket that allows it.
type Purchase struct {
	ActivityID string
	SKUID      string
	Quantity   int64
	Ticket     Ticket
}

// Ticket exchanges a pass. Somebody whose turn has not come gets *Refused with QUEUE_WAITING, after a sold-out
// SECKILL_SOLD_OUT. A holder gets the old request_id again.
func (c *Client) Ticket(ctx context.Context, p Person, activityID, skuID, pass string) (Ticket, error) {
	body, err := json.Marshal(map[string]string{"sku_id": skuID, "pass": pass})
	if err != nil {
		return Ticket{}, err
	}
	x, err := c.call(ctx, p, request{call: CallTicket, method: http.MethodPost, path: "/v1/activities/" + activityID + "/tickets", body: body})
	if err != nil {
		return Ticket{}, err
	}
	var t Ticket
	if err := decode(x, &t); err != nil {
		return Ticket{}, err
	}
	if t.Ticket == "" { // WAITING and SOLD_OUT are answers with 200
		a, err := decodeAnswer(x)
		if err != nil {
			return Ticket{}, err
		}
		return Ticket{}, &Refused{CallTicket, a}
	}
	return t, nil
}

// Submit tries to buy until the result is known, and returns the answer that told it: QUEUED or the current
// result of a request that was received before, SOLD_OUT, or a refusal. The request_id never changes.
//
//   - RATE_LIMITED, OVERLOADED: the same again, after Retry-After and jitter.
//   - no answer: the same once more; after the second time the result is asked for first.
//   - DEPENDENCY_UNAVAILABLE: the result is asked for before the same is sent again.
//   - SOLD_OUT after an unknown result: believed only when the question finds nothing.
//
// An error is a *Fault, ErrGivenUp, or the context's; the result is then unknown if errors.As finds a Fault that
// may have arrived.
func (c *Client) Submit(ctx context.Context, p Person, want Purchase) (Answer, error) {
	body, err := SubmitBody(want)
	if err != nil {
		return Answer{}, err
	}
	r := Attempt{PathID: want.Ticket.PathID, SKUID: want.SKUID, Ticket: want.Ticket.Ticket, RequestID: want.Ticket.RequestID, Body: body}
	unknown, faults := false, 0
	for n := 0; ; n++ {
		x := c.attempt(ctx, p, r, n > 0)
		var (
			last error
			wait time.Duration
			ask  bool
		)
		if x.Err != nil {
			var f *Fault
			if errors.As(x.Err, &f) && f.Arrived {
				unknown = true
				faults++
				ask = faults > 1
			}
			last = x.Err
		} else if a, err := decodeAnswer(x); err != nil {
			last, unknown, ask = err, true, true
		} else {
			switch {
			case a.Code == CodeSoldOut && unknown:
				found, answer, err := c.ask(ctx, p, want)
				if err != nil || !found {
					return a, err
				}
				return answer, nil
			case a.NextAction == actionQueryThenRetry:
				unknown, ask = true, true
			case a.NextAction == actionQueryThenQueue && unknown:
				if found, answer, err := c.ask(ctx, p, want); err == nil && found {
					return answer, nil
				}
				return a, nil
			case a.NextAction != actionRetry && (a.NextAction != actionWait || !a.Retryable):
				return a, nil
			}
			last, wait = &Refused{CallSubmit, a}, a.RetryAfter()
		}
		if ctx.Err() != nil {
			return Answer{}, last
		}
		if ask {
			if found, answer, err := c.ask(ctx, p, want); err == nil && found {
				return answer, nil
			}
		}
		if err := c.again(ctx, n, wait, last); err != nil {
			return Answer{}, err
		}
	}
}

// SubmitBody is the body of a submit, exactly.
func SubmitBody(want Purchase) ([]byte, error) {
	return json.Marshal(struct {
		RequestID  string `json:"request_id"`
		ActivityID string `json:"activity_id"`
		SKUID      string `json:"sku_id"`
		Quantity   int64  `json:"quantity"`
	}{want.Ticket.RequestID, want.ActivityID, want.SKUID, max(1, want.Quantity)})
}

// Attempt is a submit taken apart, for whoever wants to send a wrong one.
type Attempt struct {
	PathID    string
	SKUID     string // of the path
	Ticket    string
	RequestID string // Idempotency-Key
	Body      []byte
}

// Attempt sends one submit, once, and returns what came.
func (c *Client) Attempt(ctx context.Context, p Person, r Attempt) Exchange {
	return c.attempt(ctx, p, r, false)
}

func (c *Client) attempt(ctx context.Context, p Person, r Attempt, retry bool) Exchange {
	return c.do(ctx, p, request{
		call: CallSubmit, method: http.MethodPost, path: "/s/" + r.PathID + "/" + r.SKUID, body: r.Body,
		header:    [][2]string{{"X-Seckill-Ticket", r.Ticket}, {"Idempotency-Key", r.RequestID}},
		requestID: r.RequestID, retry: retry,
	})
}

// ask looks whether the request came to anything.
func (c *Client) ask(ctx context.Context, p Person, want Purchase) (found bool, a Answer, err error) {
	a, err = c.Request(ctx, p, want.ActivityID, want.SKUID, want.Ticket.RequestID)
	var refused *Refused
	if errors.As(err, &refused) && refused.Answer.Code == CodeNotFound {
		return false, Answer{}, nil
	}
	return err == nil, a, err
}
