package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 123e6, time.UTC)

// bed is the public API with a funnel that lets everything through. A test replaces the
// functions it is about.
type bed struct {
	deps Deps
	act  *admission.Activity
	log  *logged

	mu      sync.Mutex
	charged int                  // guarded by mu: sources charged by the guard
	order   []string             // guarded by mu: what was asked, in order
	seen    []admission.Decision // guarded by mu
	ended   []admission.Outcome  // guarded by mu: what requests ended with
}

const (
	goodPath    = "p_0123456789"
	goodRequest = "request-00000001"
	goodDevice  = "device-0000000000000001"
	goodBody    = `{"request_id":"request-00000001","activity_id":"10001","sku_id":"90001","quantity":1}`
	submitPath  = "/s/" + goodPath + "/90001"
)

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{log: &logged{}, act: &admission.Activity{
		ID: "10001", Version: 1, PathID: goodPath, Name: "Sale <1>", OpensAt: noon.Add(-time.Minute), ClosesAt: noon.Add(time.Hour),
		SKUs:     []admission.SKU{{ID: "90001", Name: "Thing", Stock: 10, LimitPerUser: 2, Price: admission.Money{Amount: "9.90", Currency: "CNY"}}},
		Fairness: admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second}, RebuyAfterCancel: true, MaxAttempts: 3,
	}}
	pass := func(name string) admission.Decision { b.note(name); return admission.Decision{} }
	b.deps = Deps{
		Now: func() time.Time { return noon }, Mono: func() int64 { return 1 }, Jitter: func() float64 { return 0.5 },
		Log: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		ByPath: func(path string) *admission.Activity {
			if path == b.act.PathID {
				return b.act
			}
			return nil
		},
		ByID: func(id string) *admission.Activity {
			if id == b.act.ID {
				return b.act
			}
			return nil
		},
		Source:      func(*http.Request, *admission.Request) {},
		GatewayUser: func(*http.Request) string { return "" },
		Budget:      func() time.Duration { return time.Second },
		Enter: func(r *admission.Request) admission.Decision {
			r.UserID = "70000001"
			r.OnEnd(func(d admission.Decision) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.ended = append(b.ended, d.Outcome)
			})
			return pass("enter")
		},
		Reserve: func(context.Context, *admission.Request) admission.Decision { return pass("reserve") },
		Place: func(_ context.Context, r *admission.Request) admission.Decision {
			r.Record = admission.RequestRecord{ReservationID: "r_1", Outcome: admission.PollQueued}
			return pass("place")
		},
		Call: func(c admission.Call, r *admission.Request) admission.Decision {
			if c != admission.CallSession {
				r.UserID = "70000001"
			}
			return pass(c.String())
		},
		ChargeSource: func(*admission.Request) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.charged++
		},
		Decided: func(_ admission.Call, _ *admission.Request, d admission.Decision) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen = append(b.seen, d)
		},
		Served: func(Document) {},
		Room: Room{
			Join: func(context.Context, *admission.Request, string, string) (admission.Joined, admission.Decision) {
				return admission.Joined{Pass: "a.b.c", State: "OPEN", Lane: "default", JoinedAt: noon, Poll: time.Second}, pass("join")
			},
			Exchange: func(context.Context, *admission.Request, string) (admission.Exchanged, admission.Decision) {
				return admission.Exchanged{Ticket: "t.t.t", RequestID: goodRequest, PathID: goodPath, Nonce: "n_00000001", ExpiresAt: noon}, pass("exchange")
			},
			Queue:      func(*admission.Activity) ([]byte, time.Duration) { return []byte(`{"state":"OPEN"}`), time.Second },
			Commitment: func(*admission.Activity) string { return "c0ffee" },
		},
		Results: Results{
			Request: func(context.Context, string, string, admission.SKURef) (admission.RequestRecord, admission.Decision) {
				return admission.RequestRecord{ReservationID: "r_1", Outcome: admission.PollQueued}, pass("result")
			},
			Order: func(_ context.Context, _, id string) (admission.Order, admission.Decision) {
				return anOrder(id), pass("order")
			},
			Cancel: func(_ context.Context, _, id string) (admission.Order, admission.Decision) {
				return anOrder(id), pass("cancel")
			},
		},
		SignIn: func(string) (string, time.Time, error) { return "s.s.s", noon, nil },
		Page:   Page{Activity: http.HandlerFunc(staticOK), Assets: http.HandlerFunc(staticOK)},
	}
	return b
}

func staticOK(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func anOrder(id string) admission.Order {
	return admission.Order{ID: id, ReservationID: "r_1", Ref: admission.SKURef{ActivityID: "10001", SKUID: "90001"}, Quantity: 1, Status: admission.OrderCreated, CreatedAt: noon, PayBefore: noon}
}

func (b *bed) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = append(b.order, what)
}

// asked returns what the funnel was asked since the last call.
func (b *bed) asked() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.Join(b.order, " ")
	b.order = nil
	return s
}

// logged keeps log lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// got is an answer as a client reads it.
type got struct {
	HTTP   int
	Close  bool // the server said that it closes the connection
	Header http.Header
	Body   string
	JSON   map[string]any
}

func (g got) str(name string) string { s, _ := g.JSON[name].(string); return s }
func (g got) num(name string) int64  { n, _ := g.JSON[name].(float64); return int64(n) }

// send does one request in process. "Name: value" lines are headers, instead of the
// defaults of their name; a line without a value only removes one.
func (b *bed) send(t testing.TB, method, target, body string, headers ...string) got {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header = submitHeaders(body)
	for _, line := range headers {
		name, _, _ := strings.Cut(line, ": ")
		r.Header.Del(name)
	}
	for _, line := range headers {
		if name, value, _ := strings.Cut(line, ": "); value != "" {
			r.Header.Add(name, value)
		}
	}
	if method == http.MethodGet || method == http.MethodHead {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	w := httptest.NewRecorder()
	New(b.deps).ServeHTTP(w, r)
	return read(t, w.Result())
}

func submitHeaders(body string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Idempotency-Key", goodRequest)
	h.Set("X-Device-Id", goodDevice)
	h.Set("Authorization", "Bearer s.s.s")
	h.Set("X-Seckill-Ticket", "t.t.t")
	return h
}

func read(t testing.TB, res *http.Response) got {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	g := got{HTTP: res.StatusCode, Close: res.Close, Header: res.Header, Body: string(body)}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") && len(body) > 0 {
		if err := json.Unmarshal(body, &g.JSON); err != nil {
			t.Fatalf("no JSON: %v\n%s", err, body)
		}
	}
	return g
}

// listening serves a handler with the real server settings on a real socket.
func listening(t *testing.T, h http.Handler, log *slog.Logger) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h, log)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// socket is one connection that writes exactly what it is told.
type socket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, address string) *socket {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &socket{t, conn, bufio.NewReader(conn)}
}

func (s *socket) write(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.conn, format, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *socket) answer(method string) got {
	s.t.Helper()
	res, err := http.ReadResponse(s.in, &http.Request{Method: method})
	if err != nil {
		s.t.Fatal(err)
	}
	return read(s.t, res)
}

// closed reports whether the server ended the connection; else it answers one more request.
func (s *socket) closed() bool {
	s.t.Helper()
	if _, err := io.WriteString(s.conn, "GET /v1/activities/10001/queue HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return true
	}
	res, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return true
	}
	if g := read(s.t, res); g.HTTP != http.StatusOK {
		s.t.Errorf("the connection is out of step: the next request got %d %s", g.HTTP, g.Body)
	}
	return false
}

// head is the head of a good submit, with these lines instead of the defaults of the same name.
func head(target string, lines ...string) string {
	h := submitHeaders(goodBody)
	h.Del("Content-Length")
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Del(name)
		if value != "" {
			h.Set(name, value)
		}
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: x\r\n", target)
	_ = h.Write(&b)
	b.WriteString("\r\n")
	return b.String()
}
