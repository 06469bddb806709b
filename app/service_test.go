package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/ticket"
)

// sale is a running embedded service whose handlers the test calls in process, so that
// a request's own context can be counted.
type sale struct {
	t      *testing.T
	s      *service
	path   string
	public string // address
}

// openSale starts an embedded service and waits until its demonstration is open.
func openSale(t *testing.T, flags map[string]string) *sale {
	t.Helper()
	return openSaleLogging(t, flags, io.Discard)
}

// openSaleLogging is openSale with a reader of the log.
func openSaleLogging(t *testing.T, flags map[string]string, log io.Writer) *sale {
	t.Helper()
	given := map[string]string{"data.dir": t.TempDir(), "listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "demo.opens_in": "2s", "rules.file": rulesWith(t)}
	for k, v := range flags {
		given[k] = v
	}
	c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }, Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var made *service
	go func() {
		err := serveWith(ctx, c, in, log, func(s *service) { made = s })
		in.CloseWithError(io.EOF)
		done <- err
	}()
	ended := sync.OnceValue(func() error { stop(); return <-done }) // whoever asks first
	t.Cleanup(func() {
		if err := ended(); err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	var line readyLine
	if err := json.NewDecoder(out).Decode(&line); err != nil {
		t.Fatalf("no ready line: %v (serve: %v)", err, ended())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	sl := &sale{t: t, s: made, public: line.Public}
	sl.path = made.directory.ByID(demoActivity).PathID
	return sl
}

// until polls f, on the service's own clocks, for as long as the demonstration needs at the most.
func (s *sale) until(what string, f func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline.C:
			s.t.Fatalf("%s did not happen within %v", what, patience)
		case <-tick.C:
		}
	}
}

type answer struct {
	HTTP        int
	Header      http.Header
	Raw         string
	Code        string `json:"code"`
	Status      string `json:"status"`
	Field       string `json:"field"`
	RequestID   string `json:"request_id"`
	ExistingID  string `json:"existing_request_id"`
	Reservation string `json:"reservation_id"`
	Order       string `json:"order_id"`
	Session     string `json:"session"`
	Pass        string `json:"pass"`
	Ticket      string `json:"ticket"`
	RetryAfter  int64  `json:"retry_after_ms"`
}

// do sends one request through the public handler.
func (s *sale) do(ctx context.Context, method, path, body string, header map[string]string) answer {
	s.t.Helper()
	var r *http.Request
	if body == "" && method == http.MethodGet {
		r = httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
	} else {
		r = httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.s.public.ServeHTTP(w, r)
	a := answer{HTTP: w.Code, Header: w.Header(), Raw: w.Body.String()}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			s.t.Fatalf("%s %s answered no JSON: %v\n%s", method, path, err, w.Body)
		}
	}
	return a
}

// person is one simulated shopper.
type person struct {
	user, device, session, pass string
	ticket                      answer
}

func (p *person) headers() map[string]string {
	// Each person has an address of their own, or they would share one source's bucket.
	return map[string]string{"Authorization": "Bearer " + p.session, "X-Device-Id": p.device}
}

func (s *sale) person(n int) *person {
	s.t.Helper()
	p := &person{user: fmt.Sprint(7_300_000_000_000_000_000 + n), device: fmt.Sprintf("device-%016d", n)}
	p.session = s.do(s.t.Context(), http.MethodPost, "/v1/session", fmt.Sprintf(`{"user_id":%q}`, p.user), nil).Session
	joined := s.do(s.t.Context(), http.MethodPost, "/v1/activities/"+demoActivity+"/queue/join", "", p.headers())
	if joined.Pass == "" {
		s.t.Fatalf("join: %s", joined.Raw)
	}
	p.pass = joined.Pass
	return p
}

// turn waits for the person's ticket.
func (s *sale) turn(p *person) {
	s.t.Helper()
	tick := time.NewTicker(600 * time.Millisecond) // two ticket calls a second are allowed
	defer tick.Stop()
	for range 100 {
		p.ticket = s.do(s.t.Context(), http.MethodPost, "/v1/activities/"+demoActivity+"/tickets", fmt.Sprintf(`{"sku_id":%q,"pass":%q}`, demoSKU, p.pass), p.headers())
		if p.ticket.Ticket != "" {
			return
		}
		<-tick.C
	}
	s.t.Fatalf("no ticket: %s", p.ticket.Raw)
}

func (s *sale) submit(ctx context.Context, p *person, change func(h map[string]string, body *string)) answer {
	h := p.headers()
	h["X-Seckill-Ticket"] = p.ticket.Ticket
	h["Idempotency-Key"] = p.ticket.RequestID
	body := fmt.Sprintf(`{"request_id":%q,"activity_id":%q,"sku_id":%q,"quantity":1}`, p.ticket.RequestID, demoActivity, demoSKU)
	if change != nil {
		change(h, &body)
	}
	return s.do(ctx, http.MethodPost, "/s/"+s.path+"/"+demoSKU, body, h)
}

// TestRedisCommandsOfASubmit counts, on the request's own context, what a submit costs at
// Redis: nothing when it is refused here, two round trips when it is admitted, and one
// ask of the lease before them when this instance has no token.
func TestRedisCommandsOfASubmit(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "2"})
	first, second, third := s.person(1), s.person(2), s.person(3)
	s.turn(first)
	s.turn(second)

	count := func(p *person, change func(map[string]string, *string)) (answer, *redis.Count) {
		ctx, n := redis.CountCommands(t.Context())
		return s.submit(ctx, p, change), n
	}
	forged, n := count(first, func(h map[string]string, _ *string) { h["X-Seckill-Ticket"] += "A" })
	if forged.Code != "TOKEN_INVALID" || n.Commands() != 0 {
		t.Errorf("forged ticket: %s with %d commands, want TOKEN_INVALID with 0", forged.Code, n.Commands())
	}
	malformed, n := count(first, func(_ map[string]string, b *string) { *b += "x" })
	if malformed.Code != "INVALID_ARGUMENT" || n.Commands() != 0 {
		t.Errorf("malformed body: %s with %d commands, want INVALID_ARGUMENT with 0", malformed.Code, n.Commands())
	}
	asksBefore := s.metric("seckill_global_lease_asks_total")
	got, n := count(first, nil)
	asks := s.metric("seckill_global_lease_asks_total") - asksBefore
	if got.Code != "SECKILL_QUEUED" || n.Trips() != 2 || n.Commands() != 2 {
		t.Errorf("admitted: %s with %d trips and %d commands, want SECKILL_QUEUED with 2 and 2", got.Code, n.Trips(), n.Commands())
	}
	if asks < 1 || asks > 4 { // one trip asks two buckets; a refill may follow
		t.Errorf("an empty lease cost %v asks, want one trip of two", asks)
	}
	second.ticket.Code = ""
	if got, n := count(second, nil); got.Code != "SECKILL_QUEUED" || n.Trips() != 2 {
		t.Errorf("second: %s with %d trips, want SECKILL_QUEUED with 2", got.Code, n.Trips())
	}

	// Everything is sold: the mark answers whoever holds nothing without a command.
	ref := admission.SKURef{ActivityID: demoActivity, SKUID: demoSKU}
	s.until("the sold-out mark", func() bool { return s.s.board.SoldOut(ref) && s.s.board.CaughtUp(ref) })
	ctx, n := redis.CountCommands(t.Context())
	none := s.do(ctx, http.MethodPost, "/v1/activities/"+demoActivity+"/tickets", fmt.Sprintf(`{"sku_id":%q,"pass":%q}`, demoSKU, third.pass), third.headers())
	if none.Code != "SECKILL_SOLD_OUT" || n.Commands() != 0 {
		t.Errorf("ticket after sold out: %s with %d commands, want SECKILL_SOLD_OUT with 0", none.Code, n.Commands())
	}
	// A stranger with a good ticket, signed by this instance's own ring.
	act, now := s.s.directory.ByID(demoActivity), time.Now().UTC().Truncate(time.Millisecond)
	signed, err := s.s.ring.Issue(ticket.Claims{
		ActivityID: demoActivity, SKUID: demoSKU, UserID: third.user, DeviceHash: admission.DeviceHash(third.device),
		ActivityVersion: act.Version, PathID: act.PathID, Nonce: "n_of_the_third", NotBefore: now, ExpiresAt: now.Add(30 * time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	third.ticket = answer{Ticket: signed, RequestID: "request-of-the-third"}
	if sold, n := count(third, nil); sold.Code != "SECKILL_SOLD_OUT" || n.Commands() != 0 {
		t.Errorf("a stranger's submit after sold out: %s with %d commands, want SECKILL_SOLD_OUT with 0", sold.Raw, n.Commands())
	}
	if again, n := count(first, nil); again.Code != "REQUEST_REPLAYED" || n.Commands() != 0 {
		t.Errorf("a holder's retry after sold out: %s with %d commands, want REQUEST_REPLAYED with 0", again.Raw, n.Commands())
	}
}

// TestS04OneUserManyRequests: twenty submits of one user at once hold one unit.
func TestS04OneUserManyRequests(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "10"})
	p := s.person(1)
	s.turn(p)
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for i := range 20 {
		wg.Go(func() {
			a := s.submit(t.Context(), p, func(h map[string]string, body *string) {
				id := fmt.Sprintf("request-%08d", i)
				h["Idempotency-Key"] = id
				*body = strings.Replace(*body, p.ticket.RequestID, id, 1)
			})
			mu.Lock()
			codes[a.Code]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if codes["SECKILL_QUEUED"] != 1 {
		t.Errorf("codes %v, want exactly one SECKILL_QUEUED", codes)
	}
	for code := range codes {
		switch code {
		case "SECKILL_QUEUED", "REPLAY_REJECTED", "ALREADY_PURCHASED", "RATE_LIMITED":
		default:
			t.Errorf("unexpected code %s", code)
		}
	}
	tally, _, err := s.s.tally(t.Context(), admission.SKURef{ActivityID: demoActivity, SKUID: demoSKU})
	if err != nil || tally.Remaining != 9 || !tally.Conserved() {
		t.Errorf("tally %+v, err %v; want 9 remaining and conserved", tally, err)
	}
}

// TestS11RequestIDs: another user's request is not shown, another body conflicts, twins
// are one reservation.
func TestS11RequestIDs(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "10"})
	a, b := s.person(1), s.person(2)
	s.turn(a)
	s.turn(b)
	twins := make(chan answer, 2)
	for range 2 {
		go func() { twins <- s.submit(t.Context(), a, nil) }()
	}
	x, y := <-twins, <-twins
	if x.Reservation == "" || x.Reservation != y.Reservation {
		t.Errorf("twins got %s and %s, want one reservation", x.Raw, y.Raw)
	}
	if codes := x.Code + " " + y.Code; codes != "SECKILL_QUEUED REQUEST_REPLAYED" && codes != "REQUEST_REPLAYED SECKILL_QUEUED" {
		t.Errorf("twins got %s, want one SECKILL_QUEUED and one REQUEST_REPLAYED", codes)
	}
	poll := "/v1/requests/" + a.ticket.RequestID + "?activity_id=" + demoActivity + "&sku_id=" + demoSKU
	if got := s.do(t.Context(), http.MethodGet, poll, "", b.headers()); got.HTTP != http.StatusNotFound || got.Code != "NOT_FOUND" {
		t.Errorf("somebody else's poll: %s, want 404 NOT_FOUND", got.Raw)
	}
	s.until("the order", func() bool {
		got := s.do(t.Context(), http.MethodGet, poll, "", a.headers())
		return got.Code == "ORDER_CREATED" || got.Code == "RATE_LIMITED" && false
	})
	stolen := s.submit(t.Context(), b, func(h map[string]string, body *string) {
		*body = strings.Replace(*body, b.ticket.RequestID, a.ticket.RequestID, 1)
		h["Idempotency-Key"] = a.ticket.RequestID
	})
	if stolen.Reservation == x.Reservation || stolen.Code != "SECKILL_QUEUED" {
		t.Errorf("another user with the same request_id: %s, want a reservation of their own", stolen.Raw)
	}
}

// TestEvictingStoreClosesSubmits: while a store says that it may evict keys nothing new is
// sold, and the instance is not ready.
func TestEvictingStoreClosesSubmits(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "10"})
	p := s.person(1)
	s.turn(p)
	s.s.evicting.Store(true)
	if got := s.submit(t.Context(), p, nil); got.Code != "SYSTEM_OVERLOADED" || got.HTTP != http.StatusServiceUnavailable {
		t.Errorf("submit: %s, want 503 SYSTEM_OVERLOADED", got.Raw)
	}
	if reasons := strings.Join(s.s.unready(), "; "); !strings.Contains(reasons, "evict") {
		t.Errorf("not ready because of %q, want the eviction named", reasons)
	}
	if err := s.s.checkPolicies(t.Context()); err != nil || s.s.evicting.Load() {
		t.Errorf("the embedded store never evicts: %v, still closed %v", err, s.s.evicting.Load())
	}
	if got := s.submit(t.Context(), p, nil); got.Code != "SECKILL_QUEUED" {
		t.Errorf("submit afterwards: %s", got.Raw)
	}
}

// TestHolderGetsTheSameRequestAgain: whoever holds something gets its nonce and
// request_id again from the ticket call, on another device too.
func TestHolderGetsTheSameRequestAgain(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "10"})
	p := s.person(1)
	s.turn(p)
	if got := s.submit(t.Context(), p, nil); got.Code != "SECKILL_QUEUED" {
		t.Fatalf("submit: %s", got.Raw)
	}
	ref := admission.SKURef{ActivityID: demoActivity, SKUID: demoSKU}
	s.until("the followed log", func() bool { _, holds := s.s.board.Holder(ref, p.user); return holds })
	first := p.ticket.RequestID
	p.device = "another-device-000001"
	p.pass = s.do(t.Context(), http.MethodPost, "/v1/activities/"+demoActivity+"/queue/join", "", p.headers()).Pass
	s.turn(p)
	if p.ticket.RequestID != first {
		t.Errorf("request_id %s after the reservation, %s before", p.ticket.RequestID, first)
	}
}

// metric sums a counter over its labels.
func (s *sale) metric(name string) float64 {
	families, err := s.s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestServeRefusesAUsedDataDir: a second process on one data directory is wrong use.
func TestServeRefusesAUsedDataDir(t *testing.T) {
	dir := t.TempDir()
	held, err := lockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.unlock()
	_, err = lockDataDir(dir)
	var coded interface{ ExitCode() int }
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("--data.dir")) {
		t.Fatalf("second lock: %v, want an error that names --data.dir", err)
	}
	if coded, _ = err.(interface{ ExitCode() int }); coded == nil || coded.ExitCode() != 2 {
		t.Fatalf("second lock: %v, want exit code 2", err)
	}
}
