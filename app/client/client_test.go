package client_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/waitroom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is an instance that says what the test scripts, and remembers what it was sent.
type wire struct {
	mu     sync.Mutex
	script map[string][]reply // by "METHOD path", query left out; the last reply repeats
	seen   []seen
}

type reply struct {
	code   int
	header string // Retry-After
	body   string
	err    error
}

type seen struct {
	what, host, requestID, body string
	header                      http.Header
}

var (
	errCut  = errors.New("connection reset by peer")
	errDial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
)

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	what := r.Method + " " + r.URL.Path
	w.seen = append(w.seen, seen{what, r.URL.Host, r.Header.Get("Idempotency-Key"), string(body), r.Header})
	replies := w.script[what]
	if len(replies) == 0 {
		replies = w.script[r.URL.Host]
	}
	if len(replies) == 0 {
		return nil, fmt.Errorf("nothing scripted for %s", what)
	}
	next := replies[0]
	if len(replies) > 1 {
		w.script[what] = replies[1:]
	}
	if next.err != nil {
		return nil, next.err
	}
	h := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if next.header != "" {
		h.Set("Retry-After", next.header)
	}
	return &http.Response{StatusCode: next.code, Header: h, Body: io.NopCloser(bytes.NewBufferString(next.body)), Request: r}, nil
}

// sent is what was asked for, in order, without the hosts.
func (w *wire) sent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, s := range w.seen {
		out = append(out, s.what)
	}
	return strings.Join(out, "\n")
}

// clock passes only by sleeping.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	naps  []time.Duration
	limit int
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC), limit: 10_000}
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.naps = append(c.naps, d); len(c.naps) > c.limit {
		return errors.New("slept too often")
	}
	c.now = c.now.Add(d)
	return ctx.Err()
}

func open(t *testing.T, w *wire, change func(*client.Config)) (*client.Client, *clock) {
	t.Helper()
	ck := newClock()
	cfg := client.Config{
		Bases: []string{"http://a"}, HTTP: &http.Client{Transport: w}, Now: ck.Now, Sleep: ck.Sleep,
		Rand: func() float64 { return 0.5 },
	}
	if change != nil {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, ck
}

const (
	submitCall = "POST /s/p_7vKh2Pxx/90001"
	askCall    = "GET /v1/requests/req-00000001"
	queued     = `{"request_id":"req-00000001","reservation_id":"r_1","status":"QUEUED","code":"SECKILL_QUEUED","next_action":"POLL","next_poll_after_ms":500}`
	replayed   = `{"request_id":"req-00000001","reservation_id":"r_1","status":"QUEUED","code":"REQUEST_REPLAYED","next_action":"FOLLOW_RESULT"}`
	ordered    = `{"request_id":"req-00000001","reservation_id":"r_1","order_id":"9","status":"ORDER_CREATED","code":"ORDER_CREATED","next_action":"PAY"}`
	soldOut    = `{"status":"SOLD_OUT","code":"SECKILL_SOLD_OUT","next_action":"STOP"}`
	limited    = `{"status":"RATE_LIMITED","code":"RATE_LIMITED","next_action":"RETRY_SAME_ID","retryable":true,"retry_after_ms":1700}`
	unsure     = `{"status":"UNKNOWN","code":"DEPENDENCY_UNAVAILABLE","next_action":"QUERY_THEN_RETRY_SAME_ID","retryable":true,"retry_after_ms":1000}`
	notFound   = `{"status":"REJECTED","code":"NOT_FOUND","next_action":"STOP"}`
	expired    = `{"status":"REJECTED","code":"TOKEN_EXPIRED","next_action":"QUERY_THEN_REQUEUE"}`
)

var (
	who  = client.Person{UserID: "9007199254740993", Device: "device-0123456789", Session: "s", Address: "100.64.0.7"}
	want = client.Purchase{ActivityID: "10001", SKUID: "90001", Quantity: 1, Ticket: client.Ticket{
		Ticket: "t", RequestID: "req-00000001", PathID: "p_7vKh2Pxx",
	}}
)

func TestSubmit(t *testing.T) {
	lines := func(s ...string) string { return strings.Join(s, "\n") }
	for name, tc := range map[string]struct {
		script map[string][]reply
		code   string
		sent   string
	}{
		"queued at once": {
			map[string][]reply{submitCall: {{202, "", queued, nil}}},
			client.CodeQueued, submitCall,
		},
		"too fast, then queued": {
			map[string][]reply{submitCall: {{429, "2", limited, nil}, {202, "", queued, nil}}},
			client.CodeQueued, lines(submitCall, submitCall),
		},
		"one answer lost: the same again, no question": {
			map[string][]reply{submitCall: {{err: errCut}, {200, "", replayed, nil}}},
			client.CodeReplayed, lines(submitCall, submitCall),
		},
		"two answers lost: asked before the third": {
			map[string][]reply{submitCall: {{err: errCut}, {err: errCut}}, askCall: {{200, "", ordered, nil}}},
			"ORDER_CREATED", lines(submitCall, submitCall, askCall),
		},
		"two lost and nothing found: the same again": {
			map[string][]reply{submitCall: {{err: errCut}, {err: errCut}, {202, "", queued, nil}}, askCall: {{404, "", notFound, nil}}},
			client.CodeQueued, lines(submitCall, submitCall, askCall, submitCall),
		},
		"never sent: no question": {
			map[string][]reply{submitCall: {{err: errDial}, {err: errDial}, {202, "", queued, nil}}},
			client.CodeQueued, lines(submitCall, submitCall, submitCall),
		},
		"unknown result: asked first": {
			map[string][]reply{submitCall: {{503, "1", unsure, nil}}, askCall: {{200, "", ordered, nil}}},
			"ORDER_CREATED", lines(submitCall, askCall),
		},
		"sold out after a lost answer is not believed": {
			map[string][]reply{submitCall: {{err: errCut}, {200, "", soldOut, nil}}, askCall: {{200, "", ordered, nil}}},
			"ORDER_CREATED", lines(submitCall, submitCall, askCall),
		},
		"sold out after a lost answer, and nothing found": {
			map[string][]reply{submitCall: {{err: errCut}, {200, "", soldOut, nil}}, askCall: {{404, "", notFound, nil}}},
			client.CodeSoldOut, lines(submitCall, submitCall, askCall),
		},
		"sold out is believed when nothing is unknown": {
			map[string][]reply{submitCall: {{429, "1", limited, nil}, {200, "", soldOut, nil}}},
			client.CodeSoldOut, lines(submitCall, submitCall),
		},
		"a proxy's error page is an unknown result": {
			map[string][]reply{submitCall: {{502, "", "<html>", nil}}, askCall: {{200, "", ordered, nil}}},
			"ORDER_CREATED", lines(submitCall, askCall),
		},
		"expired after a lost answer: asked": {
			map[string][]reply{submitCall: {{err: errCut}, {403, "", expired, nil}}, askCall: {{200, "", ordered, nil}}},
			"ORDER_CREATED", lines(submitCall, submitCall, askCall),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{script: tc.script}
			c, _ := open(t, w, nil)
			a, err := c.Submit(context.Background(), who, want)
			if err != nil || a.Code != tc.code {
				t.Fatalf("answer %+v, error %v; want %s", a, err, tc.code)
			}
			if w.sent() != tc.sent {
				t.Errorf("sent\n%s\nwant\n%s", w.sent(), tc.sent)
			}
			for _, s := range w.seen {
				if strings.HasPrefix(s.what, "POST") && (s.requestID != "req-00000001" || s.body != `{"request_id":"req-00000001","activity_id":"10001","sku_id":"90001","quantity":1}`) {
					t.Errorf("a retry changed the request: %+v", s)
				}
			}
		})
	}
}

func TestHonoursRetryAfterAndJitters(t *testing.T) {
	w := &wire{script: map[string][]reply{submitCall: {{429, "2", limited, nil}, {202, "", queued, nil}}}}
	c, ck := open(t, w, nil)
	if _, err := c.Submit(context.Background(), who, want); err != nil {
		t.Fatal(err)
	}
	if want := 1700*time.Millisecond + 100*time.Millisecond; len(ck.naps) != 1 || ck.naps[0] != want {
		t.Errorf("slept %v, want retry_after_ms and half of the first backoff, %v", ck.naps, want)
	}
}

func TestBackoffIsFullJitter(t *testing.T) {
	b := client.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	for _, tc := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{0, 0, 0}, {0, 0.5, 50 * time.Millisecond}, {3, 0.5, 400 * time.Millisecond},
		{6, 0.5, 2500 * time.Millisecond}, {40, 0.5, 2500 * time.Millisecond}, {1 << 20, 0, 0},
	} {
		if got := b.Wait(tc.n, tc.random); got != tc.want {
			t.Errorf("wait %d of %v: %v, want %v", tc.n, tc.random, got, tc.want)
		}
	}
}

func TestRetriesAreATenthOfRequests(t *testing.T) {
	w := &wire{script: map[string][]reply{submitCall: {{429, "1", limited, nil}}}}
	budget := client.NewBudget(0.1, 1)
	c, _ := open(t, w, func(c *client.Config) { c.Budget = budget })
	const people = 200
	for range people {
		if _, err := c.Submit(context.Background(), who, want); !errors.Is(err, client.ErrGivenUp) {
			t.Fatalf("error %v, want given up", err)
		}
	}
	if n := len(w.seen); n > people+people/10+1 || n < people+people/10-1 {
		t.Errorf("%d requests for %d people, want a tenth more", n, people)
	}
	if a := budget.Amplification(); a > 1.11 {
		t.Errorf("amplification %v", a)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	w := &wire{script: map[string][]reply{submitCall: {{err: errDial}}}}
	c, _ := open(t, w, func(c *client.Config) { c.Attempts = 4; c.Budget = client.NewBudget(1, 100) })
	_, err := c.Submit(context.Background(), who, want)
	var f *client.Fault
	if !errors.Is(err, client.ErrGivenUp) || !errors.As(err, &f) || f.Arrived || len(w.seen) != 4 {
		t.Errorf("%d requests, error %v; want 4 and a fault that did not arrive", len(w.seen), err)
	}
}

func TestMovesToAnotherInstance(t *testing.T) {
	w := &wire{script: map[string][]reply{"a": {{err: errDial}}, "b": {{202, "", queued, nil}}}}
	c, ck := open(t, w, func(c *client.Config) {
		c.Bases = []string{"http://a", "http://b"}
		c.Backoff = client.Backoff{Base: time.Millisecond, Cap: time.Millisecond}
	})
	hosts := map[string]int{}
	for i := range 20 {
		p := who
		p.UserID = fmt.Sprint(1000 + i)
		if _, err := c.Submit(context.Background(), p, want); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range w.seen {
		hosts[s.host]++
	}
	if hosts["a"] > 2 || hosts["b"] != 20 {
		t.Errorf("requests %v, want 20 to the living one and next to none to the dead one within its second", hosts)
	}
	_ = ck.Sleep(context.Background(), 2*time.Second)
	w.script["a"] = []reply{{202, "", queued, nil}}
	for i := range 20 {
		p := who
		p.UserID = fmt.Sprint(1000 + i)
		if _, err := c.Submit(context.Background(), p, want); err != nil {
			t.Fatal(err)
		}
	}
	before := hosts["a"]
	for _, s := range w.seen[22:] {
		hosts[s.host]++
	}
	if hosts["a"] == before {
		t.Error("nobody went back to the instance that came back")
	}
}

func TestPersonIsInTheHeadersOnly(t *testing.T) {
	w := &wire{script: map[string][]reply{submitCall: {{202, "", queued, nil}}}}
	c, _ := open(t, w, nil)
	if _, err := c.Submit(context.Background(), who, want); err != nil {
		t.Fatal(err)
	}
	h := w.seen[0].header
	for name, want := range map[string]string{
		"Authorization": "Bearer s", "X-Device-Id": who.Device, "X-Seckill-Ticket": "t",
		"Idempotency-Key": "req-00000001", "X-Forwarded-For": "100.64.0.7", "Content-Type": "application/json",
	} {
		if h.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, h.Get(name), want)
		}
	}
}

const (
	joinCall   = "POST /v1/activities/10001/queue/join"
	queueCall  = "GET /v1/activities/10001/queue"
	ticketCall = "POST /v1/activities/10001/tickets"
	ticketBody = `{"ticket":"t","request_id":"req-00000001","path_id":"p_7vKh2Pxx","nonce":"n_1","expires_at":"2026-11-11T00:01:00Z"}`
)

// sale is an activity whose draw the test knows.
func sale(t *testing.T) (a client.Activity, rank uint64, document func(state string, watermark uint64, revealed bool) string) {
	t.Helper()
	key, err := keys.NewOct("draw")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := waitroom.DeriveSecret(key, "10001", 1, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	seed := secret.Seed("ab12", "beacon")
	rank = seed.Rank("10001", who.UserID)
	a.ID = "10001"
	a.Fairness.Mode = "random"
	document = func(state string, watermark uint64, revealed bool) string {
		draw := map[string]any{"commitment": "c", "join_root": "ab12", "public_value": "beacon", "drawn": 3}
		if revealed {
			draw["secret"] = hex.EncodeToString(secret[:])
		}
		b, _ := json.Marshal(map[string]any{
			"activity_id": "10001", "state": state, "opens_at": "2026-11-11T00:00:10Z", "server_time": "2026-11-11T00:00:10Z",
			"draw_closes_at": "2026-11-11T00:00:09Z", "poll_after_ms": map[string]int{"low": 500, "high": 1500},
			"lanes": []any{map[string]any{"lane": "default", "watermark": watermark}}, "draw": draw,
		})
		return string(b)
	}
	return a, rank, document
}

func TestWaitForTurnComputesItsRank(t *testing.T) {
	a, rank, document := sale(t)
	w := &wire{script: map[string][]reply{queueCall: {
		{200, "", document("DRAWN", 0, false), nil},
		{200, "", document("OPEN", rank, true), nil}, // rank < watermark, not <=
		{503, "1", unsure, nil},
		{200, "", document("OPEN", rank+1, true), nil},
	}}}
	c, ck := open(t, w, nil)
	joined := time.Date(2026, 11, 11, 0, 0, 1, 0, time.UTC).UnixMilli()
	place, err := c.WaitForTurn(context.Background(), who, a, client.Place{Pass: "p", Lane: "default", JoinedMS: joined})
	if err != nil || place.Rank == nil || *place.Rank != rank {
		t.Fatalf("place %+v, error %v; want rank %d", place, err, rank)
	}
	if got := w.sent(); got != strings.Join([]string{queueCall, queueCall, queueCall, queueCall}, "\n") {
		t.Errorf("sent\n%s\nwant four documents and nothing personal", got)
	}
	if ck.naps[0] != time.Second {
		t.Errorf("slept %v, want the middle of the hint", ck.naps[0])
	}
}

func TestWaitForTurnSleepsUntilTheOpening(t *testing.T) {
	a, _, document := sale(t)
	before := strings.Replace(document("PREQUEUE", 0, false), `"server_time":"2026-11-11T00:00:10Z"`, `"server_time":"2026-11-10T23:59:55Z"`, 1)
	w := &wire{script: map[string][]reply{queueCall: {{200, "", before, nil}, {200, "", document("SOLD_OUT", 0, true), nil}}}}
	c, ck := open(t, w, nil)
	if _, err := c.WaitForTurn(context.Background(), who, a, client.Place{}); !errors.Is(err, client.ErrSoldOut) {
		t.Fatalf("error %v, want sold out", err)
	}
	if len(ck.naps) != 1 || ck.naps[0] != 15*time.Second+750*time.Millisecond {
		t.Errorf("slept %v, want 15 s and jitter", ck.naps)
	}
}

func TestWaitForTurnAsksWhenItCannotCompute(t *testing.T) {
	a, _, document := sale(t)
	late := time.Date(2026, 11, 11, 0, 0, 20, 0, time.UTC).UnixMilli()
	w := &wire{script: map[string][]reply{
		queueCall: {{200, "", document("OPEN", 1<<52+8, true), nil}},
		joinCall:  {{200, "", `{"pass":"p","state":"OPEN","lane":"default","joined_ms":1,"rank":4503599627370503,"place":3}`, nil}},
	}}
	c, _ := open(t, w, nil)
	place, err := c.WaitForTurn(context.Background(), who, a, client.Place{Pass: "p", Lane: "default", JoinedMS: late})
	if err != nil || place.Rank == nil || *place.Rank != 1<<52+7 {
		t.Fatalf("place %+v, error %v", place, err)
	}
}

func TestBuy(t *testing.T) {
	a, rank, document := sale(t)
	joined := fmt.Sprintf(`{"pass":"p","state":"OPEN","lane":"default","joined_ms":%d}`, time.Date(2026, 11, 11, 0, 0, 1, 0, time.UTC).UnixMilli())
	waiting := fmt.Sprintf(`{"status":"WAITING","code":"QUEUE_WAITING","next_action":"WAIT","retryable":true,"rank":%d}`, rank)
	for name, tc := range map[string]struct {
		change map[string][]reply
		ending client.Ending
		marks  string
	}{
		"an order": {nil, client.Ordered, "joined released ticketed reserved finished"},
		"an instance that has not heard of the wave": {
			map[string][]reply{ticketCall: {{200, "", waiting, nil}, {200, "", ticketBody, nil}}},
			client.Ordered, "joined released released ticketed reserved finished",
		},
		"a ticket out of time": {
			map[string][]reply{submitCall: {{403, "", expired, nil}, {202, "", queued, nil}}},
			client.Ordered, "joined released ticketed released ticketed reserved finished",
		},
		"bought before": {
			map[string][]reply{submitCall: {{409, "", `{"status":"REJECTED","code":"ALREADY_PURCHASED","next_action":"QUERY","existing_request_id":"req-00000001","reservation_id":"r_1"}`, nil}}},
			client.Ordered, "joined released ticketed reserved finished",
		},
		"no capacity": {
			map[string][]reply{askCall: {{200, "", `{"status":"FAILED","code":"NO_CAPACITY","next_action":"STOP","reservation_id":"r_1"}`, nil}}},
			client.Failed, "joined released ticketed reserved finished",
		},
		"sold out at the ticket": {
			map[string][]reply{ticketCall: {{200, "", soldOut, nil}}},
			client.SoldOut, "joined released",
		},
		"pressed again after giving up": {
			map[string][]reply{submitCall: slices.Concat(slices.Repeat([]reply{{429, "1", limited, nil}}, 12), []reply{{202, "", queued, nil}})},
			client.Ordered, "joined released ticketed released ticketed reserved finished",
		},
		"sold out in the line after an unknown result: the unit is found": {
			map[string][]reply{
				submitCall: {{503, "1", unsure, nil}}, askCall: slices.Concat(slices.Repeat([]reply{{404, "", notFound, nil}}, 12), []reply{{200, "", ordered, nil}}),
				queueCall: {{200, "", document("OPEN", rank+1, true), nil}, {200, "", document("SOLD_OUT", 0, true), nil}},
			},
			client.Ordered, "joined released ticketed reserved finished",
		},
		"sold out in the line after an unknown result: nothing found": {
			map[string][]reply{
				submitCall: {{503, "1", unsure, nil}}, askCall: {{404, "", notFound, nil}},
				queueCall: {{200, "", document("OPEN", rank+1, true), nil}, {200, "", document("SOLD_OUT", 0, true), nil}},
			},
			client.SoldOut, "joined released ticketed",
		},
		"sold out in the line": {
			map[string][]reply{queueCall: {{200, "", document("SOLD_OUT", 0, true), nil}}},
			client.SoldOut, "joined",
		},
		"a reservation that nobody knows": {
			map[string][]reply{askCall: {{404, "", notFound, nil}}},
			client.Denied, "joined released ticketed reserved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{script: map[string][]reply{
				joinCall: {{200, "", joined, nil}}, queueCall: {{200, "", document("OPEN", rank+1, true), nil}},
				ticketCall: {{200, "", ticketBody, nil}}, submitCall: {{202, "", queued, nil}},
				askCall: {{200, "", strings.Replace(ordered, "ORDER_CREATED", "QUEUED", 2), nil}, {200, "", ordered, nil}},
			}}
			for what, replies := range tc.change {
				w.script[what] = replies
			}
			c, _ := open(t, w, func(c *client.Config) { c.Budget = client.NewBudget(0.1, 20) })
			var marks []string
			r, err := c.Buy(context.Background(), who, a, "90001", client.Place{}, func(m client.Milestone) bool { marks = append(marks, string(m)); return true })
			if err != nil || r.Ending != tc.ending || strings.Join(marks, " ") != tc.marks {
				t.Errorf("ending %q by %q, error %v; want %q by %q", r.Ending, marks, err, tc.ending, tc.marks)
			}
		})
	}
}

func TestBuyEndsWhenThePersonLeaves(t *testing.T) {
	a, rank, document := sale(t)
	w := &wire{script: map[string][]reply{
		joinCall: {{200, "", `{"pass":"p","lane":"default","joined_ms":1}`, nil}}, queueCall: {{200, "", document("OPEN", rank+1, true), nil}},
	}}
	c, _ := open(t, w, nil)
	r, err := c.Buy(context.Background(), who, a, "90001", client.Place{}, func(m client.Milestone) bool { return m != client.Released })
	if err != nil || r.Ending != client.Left || strings.Contains(w.sent(), "tickets") {
		t.Errorf("ending %v, error %v, sent %s", r.Ending, err, w.sent())
	}
}

func TestJoinSolvesAChallenge(t *testing.T) {
	w := &wire{script: map[string][]reply{joinCall: {
		{403, "", `{"status":"REJECTED","code":"CHALLENGE_REQUIRED","next_action":"SOLVE_CHALLENGE","retryable":true,"challenge":{"kind":"pow","seed":"s1","difficulty":8}}`, nil},
		{200, "", `{"pass":"p"}`, nil},
	}}}
	c, _ := open(t, w, nil)
	place, err := c.Join(context.Background(), who, "10001")
	if err != nil || place.Pass != "p" {
		t.Fatalf("place %+v, error %v", place, err)
	}
	if body := w.seen[1].body; !strings.HasPrefix(body, `{"challenge":"s1:`) {
		t.Errorf("sent %s", body)
	}
}

func TestRefusesABadBase(t *testing.T) {
	for _, bases := range [][]string{nil, {"127.0.0.1:8080"}, {"http://a", "ftp://b"}} {
		if _, err := client.New(client.Config{Bases: bases}); err == nil {
			t.Errorf("%v was taken", bases)
		}
	}
}
