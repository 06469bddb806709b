package rows

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/bench/pairs"
)

const (
	jsonParse  = "encoding/json"
	jsonAnswer = "encoding/json answer"
)

// Wire returns the rows of what every submit reads and writes.
func Wire() []pairs.Row {
	return []pairs.Row{
		{Name: "strict submit parse", Against: jsonParse, Gate: 0.2, Goal: 0.12, MaxAllocs: 1, Subject: parse, Baseline: unmarshal},
		{Name: "answer, refused", Against: jsonAnswer, Goal: 0.5, Subject: answer(admission.RateLimited), Baseline: marshal(admission.RateLimited)},
		{Name: "answer, accepted", Against: jsonAnswer, Goal: 0.5, Subject: answer(admission.Queued), Baseline: marshal(admission.Queued)},
	}
}

var submit = []byte(`{"request_id":"req_01J9ZQ4T8M6W2K7X5C3V1B0N","activity_id":"10001","sku_id":"90001","quantity":1}`)

func parse() pairs.Op {
	return func(n int) {
		for range n {
			if err := httpapi.CheckSubmit(submit); err != nil {
				panic(err)
			}
		}
	}
}

// unmarshal is what a handler without rules of its own would do. It is not strict.
func unmarshal() pairs.Op {
	return func(n int) {
		for range n {
			var in struct {
				RequestID  string `json:"request_id"`
				ActivityID string `json:"activity_id"`
				SKUID      string `json:"sku_id"`
				Quantity   int64  `json:"quantity"`
			}
			if err := json.Unmarshal(submit, &in); err != nil {
				panic(err)
			}
		}
	}
}

// sink takes an answer as net/http would, without a connection.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func answer(o admission.Outcome) func() pairs.Op {
	return func() pairs.Op {
		render := httpapi.NewRenderer(time.Now, rand.Float64)
		w, r := &sink{http.Header{}}, httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		a := httpapi.Answer{
			Outcome: o, RequestID: "req_01J9ZQ4T8M6W2K7X5C3V1B0N", ReservationID: "r_01J9ZQ4T8M6W2K7X5C3V1B0N", PollAfter: 500 * time.Millisecond,
			Quota: admission.Quota{Limit: 3, Window: 6 * time.Second, Remaining: 1, Reset: time.Second},
		}
		return func(n int) {
			for range n {
				clear(w.header)
				render.Write(w, r, a)
			}
		}
	}
}

// marshal is the same answer through a struct, with the same headers.
func marshal(o admission.Outcome) func() pairs.Op {
	type body struct {
		RequestID     string               `json:"request_id,omitempty"`
		ReservationID string               `json:"reservation_id,omitempty"`
		Status        admission.Status     `json:"status"`
		Code          string               `json:"code"`
		Message       string               `json:"message"`
		Retryable     bool                 `json:"retryable"`
		NextAction    admission.NextAction `json:"next_action"`
		PollMS        int64                `json:"next_poll_after_ms"`
		RetryMS       int64                `json:"retry_after_ms"`
		ServerTime    time.Time            `json:"server_time"`
	}
	return func() pairs.Op {
		w, row := &sink{http.Header{}}, o.Row()
		return func(n int) {
			for range n {
				clear(w.header)
				h := w.Header()
				h.Set("Content-Type", "application/json; charset=utf-8")
				h.Set("Cache-Control", "no-store")
				h.Set("Retry-After", "1")
				h.Set("RateLimit-Policy", `"user";q=`+strconv.Itoa(3)+`;w=`+strconv.Itoa(6))
				h.Set("RateLimit", `"user";r=`+strconv.Itoa(1)+`;t=`+strconv.Itoa(1))
				b, err := json.Marshal(body{
					RequestID: "req_01J9ZQ4T8M6W2K7X5C3V1B0N", ReservationID: "r_01J9ZQ4T8M6W2K7X5C3V1B0N", Status: row.Status, Code: row.Code, Message: row.English,
					Retryable: row.Retryable, NextAction: row.NextAction, PollMS: 500, ServerTime: time.Now().UTC(),
				})
				if err != nil {
					panic(err)
				}
				h.Set("Content-Length", strconv.Itoa(len(b)))
				w.WriteHeader(row.HTTP)
				_, _ = w.Write(b)
			}
		}
	}
}
