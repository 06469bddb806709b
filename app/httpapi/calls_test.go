package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// The calls of the public listener, as a good client makes them.
var calls = []struct {
	name, method, target, body string
	code                       string // "" : a document
	personal                   bool
}{
	{"activity", "GET", "/v1/activities/10001", "", "", false},
	{"queue", "GET", "/v1/activities/10001/queue", "", "", false},
	{"session", "POST", "/v1/session", `{"user_id":"70000001"}`, "", true},
	{"join", "POST", "/v1/activities/10001/queue/join", `{"challenge":"s:1"}`, "", true},
	{"tickets", "POST", "/v1/activities/10001/tickets", `{"sku_id":"90001","pass":"a.b.c"}`, "", true},
	{"submit", "POST", submitPath, goodBody, "SECKILL_QUEUED", true},
	{"request", "GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=90001", "", "SECKILL_QUEUED", true},
	{"order", "GET", "/v1/orders/5", "", "", true},
	{"cancel", "POST", "/v1/orders/5/cancel", "", "", true},
}

func TestDocuments(t *testing.T) {
	want := map[string]string{
		"session": `{"session":"s.s.s","user_id":"70000001","expires_at":"2026-11-11T12:00:00.123Z"}`,
		"activity": `{"activity_id":"10001","activity_version":1,"path_id":"p_0123456789","name":"Sale \u003c1\u003e","opens_at":"2026-11-11T11:59:00.123Z","closes_at":"2026-11-11T13:00:00.123Z",` +
			`"fairness":{"mode":"random","draw_commitment":"c0ffee","draw_closes_at":"2026-11-11T11:58:55.123Z"},` +
			`"skus":[{"sku_id":"90001","name":"Thing","price":{"amount":"9.90","currency":"CNY"},"limit_per_user":2}],"rebuy_after_cancel":true,"max_attempts":3,"server_time":"2026-11-11T12:00:00.123Z"}`,
		"queue":   `{"state":"OPEN"}`,
		"join":    `{"pass":"a.b.c","state":"OPEN","lane":"default","joined_ms":1794398400123,"next_poll_after_ms":1000}`,
		"tickets": `{"ticket":"t.t.t","request_id":"request-00000001","path_id":"p_0123456789","nonce":"n_00000001","expires_at":"2026-11-11T12:00:00.123Z"}`,
		"order": `{"order_id":"5","reservation_id":"r_1","activity_id":"10001","sku_id":"90001","quantity":1,"status":"CREATED",` +
			`"created_at":"2026-11-11T12:00:00.123Z","pay_before":"2026-11-11T12:00:00.123Z","server_time":"2026-11-11T12:00:00.123Z"}`,
	}
	want["cancel"] = want["order"]
	for _, c := range calls {
		g := newBed(t).send(t, c.method, c.target, c.body)
		if g.str("code") != c.code || c.code == "" && g.Body != want[c.name] {
			t.Errorf("%s: %d %s", c.name, g.HTTP, g.Body)
		}
	}
}

// TestW02NoStore: everything with a user in it is private, refusals and faults included;
// what is public names nobody.
func TestW02NoStore(t *testing.T) {
	fault := admission.Decision{Outcome: admission.DependencyUnavailable}
	for _, c := range calls {
		for _, failing := range []bool{false, true} {
			b := newBed(t)
			if failing {
				b.deps.Call = func(admission.Call, *admission.Request) admission.Decision { return fault }
				b.deps.Enter = func(*admission.Request) admission.Decision { return fault }
				b.deps.ByID = func(string) *admission.Activity {
					if !c.personal {
						return nil
					}
					return b.act
				}
			}
			g := b.send(t, c.method, c.target, c.body)
			cache := g.Header.Get("Cache-Control")
			if c.personal || failing {
				if cache != "no-store" {
					t.Errorf("%s, failing %v: Cache-Control %q", c.name, failing, cache)
				}
				continue
			}
			if !strings.HasPrefix(cache, "public, max-age=") || g.Header.Get("Vary") != "Accept-Encoding, Accept-Language" {
				t.Errorf("%s: Cache-Control %q, Vary %q", c.name, cache, g.Header.Get("Vary"))
			}
			if g.Header.Get("Set-Cookie") != "" || strings.Contains(g.Body, "70000001") {
				t.Errorf("%s is personal: %s", c.name, g.Body)
			}
		}
	}
}

func TestCacheTable(t *testing.T) {
	b := newBed(t)
	a := b.send(t, "GET", "/v1/activities/10001", "")
	if cc := a.Header.Get("Cache-Control"); cc != "public, max-age=5, stale-while-revalidate=30" {
		t.Errorf("activity: %s", cc)
	}
	if cc := b.send(t, "GET", "/v1/activities/10001/queue", "").Header.Get("Cache-Control"); cc != "public, max-age=1, s-maxage=1" {
		t.Errorf("queue: %s", cc)
	}
	etag := a.Header.Get("Etag")
	for _, given := range []string{etag, strings.TrimPrefix(etag, "W/"), `"x", ` + etag, "*"} {
		g := b.send(t, "GET", "/v1/activities/10001", "", "If-None-Match: "+given)
		if g.HTTP != http.StatusNotModified || g.Body != "" || g.Header.Get("Etag") != etag || g.Header.Get("Cache-Control") == "" {
			t.Errorf("If-None-Match %s: %d %q", given, g.HTTP, g.Body)
		}
	}
	if g := b.send(t, "GET", "/v1/activities/10001", "", `If-None-Match: "other"`); g.HTTP != 200 {
		t.Errorf("another tag: %d", g.HTTP)
	}
	b.deps.Now = func() time.Time { return noon.Add(time.Second) }
	if later := b.send(t, "GET", "/v1/activities/10001", "").Header.Get("Etag"); later != etag {
		t.Error("the tag moves with server_time")
	}
	b.act.Version = 2
	if next := b.send(t, "GET", "/v1/activities/10001", "").Header.Get("Etag"); next == etag {
		t.Error("a new version has the old tag")
	}
}

// TestOrderOfRefusals: each request has the fault of its row and of every row after it,
// and is told of its row's.
func TestOrderOfRefusals(t *testing.T) {
	refusing := func(b *bed) {
		b.deps.Enter = func(*admission.Request) admission.Decision {
			return admission.Decision{Outcome: admission.OverloadedClosed}
		}
		b.deps.Call = func(admission.Call, *admission.Request) admission.Decision {
			return admission.Decision{Outcome: admission.RateLimited}
		}
	}
	const badBody = `{"x":1}`
	steps := []struct {
		code    string
		target  string
		headers []string
	}{
		{"EXPECTATION_FAILED", "/s/unknown-path/1", []string{"Expect: 100-continue", "Content-Type: text/plain", "X-Device-Id", "Idempotency-Key"}},
		{"UNSUPPORTED_MEDIA_TYPE", "/s/unknown-path/1", []string{"Content-Type: text/plain", "X-Device-Id", "Idempotency-Key"}},
		{"NOT_FOUND", "/s/unknown-path/1", []string{"X-Device-Id", "Idempotency-Key"}},
		{"NOT_FOUND", "/s/" + goodPath + "/90002", []string{"X-Device-Id", "Idempotency-Key"}},
		{"INVALID_ARGUMENT", submitPath, []string{"X-Device-Id", "Idempotency-Key"}},
		{"INVALID_ARGUMENT", submitPath, []string{"X-Device-Id"}},
		{"SYSTEM_OVERLOADED", submitPath, nil},
	}
	for _, s := range steps {
		b := newBed(t)
		refusing(b)
		if g := b.send(t, "POST", s.target, badBody, s.headers...); g.str("code") != s.code {
			t.Errorf("submit %s %v: %s, want %s", s.target, s.headers, g.Body, s.code)
		}
		if charged := s.code != "SYSTEM_OVERLOADED"; (b.charged == 1) != charged {
			t.Errorf("%s charged the source %d times", s.code, b.charged)
		}
	}
	for _, s := range []struct{ code, target, headers string }{
		{"UNSUPPORTED_MEDIA_TYPE", "/v1/activities/10009/tickets", "Content-Type: text/plain|X-Device-Id"},
		{"NOT_FOUND", "/v1/activities/10009/tickets", "X-Device-Id"},
		{"INVALID_ARGUMENT", "/v1/activities/10001/tickets", "X-Device-Id"},
		{"RATE_LIMITED", "/v1/activities/10001/tickets", "X-None"},
	} {
		b := newBed(t)
		refusing(b)
		if g := b.send(t, "POST", s.target, badBody, strings.Split(s.headers, "|")...); g.str("code") != s.code {
			t.Errorf("tickets %s %s: %s, want %s", s.target, s.headers, g.Body, s.code)
		}
	}
}

// TestRefusalsGoBack: "we are full" ends every call, so that its charges go back.
func TestRefusalsGoBack(t *testing.T) {
	for _, c := range calls {
		if c.name == "activity" || c.name == "queue" || c.name == "submit" {
			continue
		}
		b := newBed(t)
		var ended []admission.Outcome
		b.deps.Call = func(_ admission.Call, r *admission.Request) admission.Decision {
			r.OnEnd(func(d admission.Decision) { ended = append(ended, d.Outcome) })
			return admission.Decision{Outcome: admission.DependencyUnavailable}
		}
		if g := b.send(t, c.method, c.target, c.body); g.HTTP != 503 || !slices.Equal(ended, []admission.Outcome{admission.DependencyUnavailable}) {
			t.Errorf("%s: %d, ended %v", c.name, g.HTTP, ended)
		}
	}
}

// TestGuard: what the request guard refuses, on every call that has a body.
func TestGuard(t *testing.T) {
	long := `{"sku_id":"` + strings.Repeat("9", MaxBodyBytes) + `"}`
	for _, c := range calls {
		if c.method != "POST" {
			continue
		}
		optional := c.name == "join" || c.name == "cancel"
		for _, g := range []struct {
			name, body string
			headers    []string
			want       int
		}{
			{"Expect", c.body, []string{"Expect: 100-continue"}, 417},
			{"too long", long, nil, 413},
			{"no type", "{}", []string{"Content-Type"}, 415},
			{"text", "{}", []string{"Content-Type: text/plain"}, 415},
			{"form", "{}", []string{"Content-Type: application/x-www-form-urlencoded"}, 415},
			{"JSON of another charset", "{}", []string{"Content-Type: application/json; charset=latin1"}, 415},
			{"JSON patch", "{}", []string{"Content-Type: application/json-patch+json"}, 415},
			{"gzip", "{}", []string{"Content-Encoding: gzip"}, 415},
			{"identity, gzip", "{}", []string{"Content-Encoding: identity, gzip"}, 415},
			{"identity twice", "{}", []string{"Content-Encoding: identity", "Content-Encoding: identity"}, 415},
			{"identity, then gzip", "{}", []string{"Content-Encoding: identity", "Content-Encoding: gzip"}, 415},
			{"no length", "", []string{"Content-Length", "Content-Type"}, 411},
			{"no type, no body", "", []string{"Content-Type"}, map[bool]int{true: 200, false: 415}[optional]},
			{"charset", c.body, []string{`Content-Type: Application/JSON; charset="UTF-8"`}, map[string]int{"submit": 202}[c.name]},
			{"identity", c.body, []string{"Content-Encoding: identity"}, map[string]int{"submit": 202}[c.name]},
		} {
			want := g.want
			if want == 0 {
				want = 200
			}
			b := newBed(t)
			got := b.send(t, c.method, c.target, g.body, g.headers...)
			if got.HTTP != want {
				t.Errorf("%s, %s: %d %s, want %d", c.name, g.name, got.HTTP, got.Body, want)
			}
			if want >= 400 && (b.charged != 1 || b.asked() != "" || got.str("status") != "REJECTED") {
				t.Errorf("%s, %s: charged %d times, asked %q, %s", c.name, g.name, b.charged, b.asked(), got.Body)
			}
		}
	}
}

// TestH04PathsAndMethods: one answer for every way to miss a route, charged to the
// source, under one metric label; never a redirect.
func TestH04PathsAndMethods(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{"POST", submitPath + "/", 404},
		{"POST", "/" + submitPath, 404},
		{"POST", "/s//" + goodPath + "/90001", 404},
		{"POST", "/s/" + goodPath + "//90001", 404},
		{"POST", "/s//90001", 404},
		{"POST", "/S/" + goodPath + "/90001", 404},
		{"POST", submitPath + "%2f", 404},
		{"POST", "/s/" + goodPath + "%2f90001", 404},
		{"POST", "/s/" + goodPath + "/%39" + "0001", 404},
		{"POST", "/s/" + goodPath + "/90001%00", 404},
		{"POST", "/s/" + strings.ToUpper(goodPath) + "/90001", 404},
		{"POST", "/s/../s/" + goodPath + "/90001", 404},
		{"POST", "/s/" + goodPath, 404},
		{"POST", "/v1/activities//queue/join", 404},
		{"POST", "/v1/activities/10001/queue/join/", 404},
		{"GET", "/v1/activities/10001/", 404},
		{"GET", "/v1/activities/", 404},
		{"GET", "/v1/activities/010001", 404},
		{"GET", "/v1/activities/10001%2fqueue", 404},
		{"GET", "/v1/orders//cancel", 404},
		{"GET", "/", 404},
		{"GET", "/metrics", 404},
		{"GET", "/admin/v1/rules", 404},
		{"GET", "/internal/v1/orders/5/payments", 404},
		{"OPTIONS", "*", 404},
		{"FOO1", "/nothing", 404},
		{"GET", submitPath, 405},
		{"HEAD", submitPath, 405},
		{"OPTIONS", submitPath, 405},
		{"PUT", submitPath, 405},
		{"FOO1", submitPath, 405},
		{"post", submitPath, 405},
		{"HEAD", "/v1/orders/5", 405},
		{"OPTIONS", "/v1/activities/10001", 405},
		{"POST", "/v1/activities/10001", 405},
		{"GET", "/v1/session", 405},
		{"DELETE", "/a/10001", 405},
	} {
		before := b.charged
		g := b.send(t, c.method, c.target, "")
		if g.HTTP != c.want || g.Header.Get("Location") != "" {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.target, g.HTTP, g.Body, c.want)
		}
		if b.charged != before+1 || b.asked() != "" {
			t.Errorf("%s %s: charged %d times, asked %q", c.method, c.target, b.charged-before, b.asked())
		}
		if last := b.seen[len(b.seen)-1]; last.Stage != admission.StageGuard || last.Reason != admission.ReasonGuard {
			t.Errorf("%s %s: counted as %+v", c.method, c.target, last)
		}
		if c.want == 405 && g.Header.Get("Allow") == "" {
			t.Errorf("%s %s: 405 without Allow", c.method, c.target)
		}
	}
	for _, target := range []string{"/v1/activities/10001", "/v1/activities/10001/queue", "/a/10001", "/assets/x.js"} {
		if g := b.send(t, "HEAD", target, ""); g.HTTP != 200 {
			t.Errorf("HEAD %s: %d", target, g.HTTP)
		}
	}
}

// TestH04Queries: a key given twice is a 400 wherever it is given.
func TestH04Queries(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=90001&activity_id=10001", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=90001&request_id=a&request_id=b", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&activity%5Fid=10002&sku_id=90001", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=%zz", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001;sku_id=90001", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001", 400},
		{"GET", "/v1/requests/" + goodRequest, 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=010001&sku_id=90001", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=9223372036854775808", 400},
		{"GET", "/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=90001&_=1", 200},
		{"GET", "/v1/activities/10001?a=1&a=2", 400},
		{"POST", submitPath + "?request_id=a&request_id=b", 400},
		{"POST", submitPath + "?utm=1", 202},
		{"GET", "/nothing?a=1&a=2", 404},
	} {
		body := ""
		if c.method == "POST" {
			body = goodBody
		}
		if g := b.send(t, c.method, c.target, body); g.HTTP != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.target, g.HTTP, g.Body, c.want)
		}
	}
}

// TestK04Ids: ids have one spelling, and what is none is never echoed.
func TestK04Ids(t *testing.T) {
	long := strings.Repeat("a", 10<<10)
	for _, id := range []string{"", " req10001", "req10001 ", "req10001\u200b", "caf\u00e9-0001", "cafe\u0301-0001", "short", long, strings.Repeat("a", 65), "a,b,c,d,e,f", "req/../0001", `req"0001x`, "{req10001}"} {
		b := newBed(t)
		h := submitHeaders(goodBody)
		h["Idempotency-Key"] = []string{id}
		g := sendWith(t, b, h)
		if g.HTTP != 400 || g.str("field") != "Idempotency-Key" || g.JSON["request_id"] != nil {
			t.Errorf("Idempotency-Key %.40q: %d %s", id, g.HTTP, g.Body)
		}
		if b.asked() != "" || b.charged != 1 {
			t.Errorf("Idempotency-Key %.40q went on", id)
		}
	}
	for _, id := range []string{"12345678", strings.Repeat("Z", 64), "a_b-c_d-e"} {
		b := newBed(t)
		h := submitHeaders(goodBody)
		h.Set("Idempotency-Key", id)
		body := strings.Replace(goodBody, goodRequest, id, 1)
		if g := b.send(t, "POST", submitPath, body, "Idempotency-Key: "+id); g.HTTP != 202 || g.str("request_id") != id {
			t.Errorf("Idempotency-Key %s: %s", id, g.Body)
		}
	}
	for _, device := range [][]string{nil, {""}, {"short"}, {strings.Repeat("d", 129)}, {"device-0000000000 01"}, {"d\u00e9vice-00000000001"}, {goodDevice, goodDevice}} {
		b := newBed(t)
		h := submitHeaders(goodBody)
		h["X-Device-Id"] = device
		if g := sendWith(t, b, h); g.HTTP != 400 || g.str("field") != "X-Device-Id" || g.str("request_id") != goodRequest {
			t.Errorf("X-Device-Id %.40q: %d %s", device, g.HTTP, g.Body)
		}
	}
	b := newBed(t)
	h := submitHeaders(goodBody)
	h["Idempotency-Key"] = []string{goodRequest, goodRequest}
	if g := sendWith(t, b, h); g.HTTP != 400 {
		t.Errorf("Idempotency-Key twice: %s", g.Body)
	}
	for _, id := range []string{"short", strings.Repeat("a", 65), "req10001%20", "req1%2e0001"} {
		if g := newBed(t).send(t, "GET", "/v1/requests/"+id+"?activity_id=10001&sku_id=90001", ""); g.HTTP != 400 || g.str("field") != "request_id" || g.JSON["request_id"] != nil {
			t.Errorf("request_id %.20s: %d %s", id, g.HTTP, g.Body)
		}
	}
	for _, id := range []string{"0", "05", "-5", "9223372036854775808", "5x", strings.Repeat("5", 300)} {
		if g := newBed(t).send(t, "GET", "/v1/orders/"+id, ""); g.HTTP != 400 || g.str("field") != "order_id" {
			t.Errorf("order_id %.20s: %d %s", id, g.HTTP, g.Body)
		}
	}
}

func sendWith(t *testing.T, b *bed, h http.Header) got {
	t.Helper()
	lines := []string{}
	r := h.Clone()
	old := b.deps.Source
	b.deps.Source = func(in *http.Request, req *admission.Request) { // the first to see the request
		in.Header = r
		old(in, req)
	}
	return b.send(t, "POST", submitPath, goodBody, lines...)
}

// TestHeadersAsTheChainSeesThem: tickets and sessions that cannot be any are told to the
// stages as such, never cut to something else.
func TestHeadersAsTheChainSeesThem(t *testing.T) {
	for _, c := range []struct {
		name           string
		change         func(http.Header)
		ticket, bearer string
	}{
		{"good", func(http.Header) {}, "t.t.t", "s.s.s"},
		{"no ticket", func(h http.Header) { h.Del("X-Seckill-Ticket") }, "", "s.s.s"},
		{"two tickets", func(h http.Header) { h.Add("X-Seckill-Ticket", "u.u.u") }, "?", "s.s.s"},
		{"a long ticket", func(h http.Header) { h.Set("X-Seckill-Ticket", strings.Repeat(".", 1025)) }, "?", "s.s.s"},
		{"no session", func(h http.Header) { h.Del("Authorization") }, "t.t.t", ""},
		{"two sessions", func(h http.Header) { h.Add("Authorization", "Bearer x") }, "t.t.t", ""},
		{"lower case", func(h http.Header) { h.Set("Authorization", "bearer x") }, "t.t.t", "x"},
		{"basic", func(h http.Header) { h.Set("Authorization", "Basic eDp5") }, "t.t.t", ""},
		{"scheme alone", func(h http.Header) { h.Set("Authorization", "Bearer ") }, "t.t.t", ""},
		{"a long session", func(h http.Header) { h.Set("Authorization", "Bearer "+strings.Repeat("x", 4096)) }, "t.t.t", ""},
	} {
		b := newBed(t)
		var seen *admission.Request
		b.deps.Enter = func(r *admission.Request) admission.Decision {
			seen = r
			return admission.Decision{Outcome: admission.Unauthenticated}
		}
		h := submitHeaders(goodBody)
		c.change(h)
		if sendWith(t, b, h); seen == nil || seen.Ticket != c.ticket || seen.Bearer != c.bearer {
			t.Errorf("%s: the chain saw %+v", c.name, seen)
		}
	}
}

// TestSubmitAnswers: which facts come with which outcome.
func TestSubmitAnswers(t *testing.T) {
	record := admission.RequestRecord{RequestID: "request-00000009", ReservationID: "r_9", OrderID: "77", Outcome: admission.PollOrderCreated}
	for _, c := range []struct {
		outcome admission.Outcome
		record  admission.RequestRecord
		want    string
	}{
		{admission.Replayed, record, `{"request_id":"request-00000001","reservation_id":"r_9","order_id":"77","status":"ORDER_CREATED","code":"REQUEST_REPLAYED"`},
		{admission.Replayed, admission.RequestRecord{ReservationID: "r_9", Outcome: admission.PollQueued}, `{"request_id":"request-00000001","reservation_id":"r_9","status":"QUEUED","code":"REQUEST_REPLAYED"`},
		{admission.Replayed, admission.RequestRecord{ReservationID: "r_9"}, `{"request_id":"request-00000001","reservation_id":"r_9","status":"QUEUED","code":"REQUEST_REPLAYED"`},
		{admission.AlreadyPurchased, record, `{"request_id":"request-00000001","existing_request_id":"request-00000009","reservation_id":"r_9","order_id":"77","status":"REJECTED","code":"ALREADY_PURCHASED"`},
		{admission.ReplayRejected, admission.RequestRecord{RequestID: "request-00000009"}, `{"request_id":"request-00000001","existing_request_id":"request-00000009","status":"REJECTED","code":"REPLAY_REJECTED"`},
		{admission.SoldOut, record, `{"request_id":"request-00000001","status":"SOLD_OUT","code":"SECKILL_SOLD_OUT"`},
		{admission.RequestIDConflict, record, `{"request_id":"request-00000001","status":"REJECTED","code":"REQUEST_ID_CONFLICT"`},
	} {
		b := newBed(t)
		b.deps.Place = func(_ context.Context, r *admission.Request) admission.Decision {
			r.Record = c.record
			return admission.Decision{Outcome: c.outcome}
		}
		g := b.send(t, "POST", submitPath, goodBody)
		if !strings.HasPrefix(g.Body, c.want) {
			t.Errorf("%s: %s, want %s…", c.outcome, g.Body, c.want)
		}
		if polled := g.str("status") == "QUEUED"; (g.num("next_poll_after_ms") > 0) != polled {
			t.Errorf("%s: next_poll_after_ms %d", c.outcome, g.num("next_poll_after_ms"))
		}
	}
}

// TestHolders: after a sold-out mark a holder is answered from memory.
func TestHolders(t *testing.T) {
	hash := admission.BodyHash("10001", "90001", "70000001", 1)
	for _, c := range []struct {
		holder admission.Holder
		want   string
	}{
		{admission.Holder{RequestID: goodRequest, BodyHash: hash, ReservationID: "r_1", Outcome: admission.PollOrderPaid}, "REQUEST_REPLAYED PAID"},
		{admission.Holder{RequestID: goodRequest, BodyHash: "other", ReservationID: "r_1", Outcome: admission.PollQueued}, "REQUEST_ID_CONFLICT REJECTED"},
		{admission.Holder{RequestID: "request-00000009", BodyHash: hash, ReservationID: "r_1", Outcome: admission.PollQueued}, "ALREADY_PURCHASED REJECTED"},
	} {
		b := newBed(t)
		b.deps.Enter = func(r *admission.Request) admission.Decision {
			r.UserID, r.Holder = "70000001", c.holder
			return admission.Decision{}
		}
		if g := b.send(t, "POST", submitPath, goodBody); g.str("code")+" "+g.str("status") != c.want || b.asked() != "" {
			t.Errorf("%+v: %s, want %s", c.holder, g.Body, c.want)
		}
	}
}

// TestQuota: RateLimit headers describe the user's bucket, on refusals and accepted submits.
func TestQuota(t *testing.T) {
	b := newBed(t)
	quota := admission.Quota{Limit: 3, Window: 6 * time.Second, Remaining: 0, Reset: 1200 * time.Millisecond}
	b.deps.Enter = func(r *admission.Request) admission.Decision {
		r.Quota = quota
		return admission.Decision{Outcome: admission.RateLimited, RetryAfter: time.Second}
	}
	g := b.send(t, "POST", submitPath, goodBody)
	if p, l := g.Header.Get("RateLimit-Policy"), g.Header.Get("RateLimit"); p != `"user";q=3;w=6` || l != `"user";r=0;t=2` {
		t.Errorf("refused: policy %s, limit %s", p, l)
	}
	b.deps.Enter = func(r *admission.Request) admission.Decision {
		r.Quota = admission.Quota{Limit: 3, Window: 6 * time.Second, Remaining: 2}
		return admission.Decision{}
	}
	g = b.send(t, "POST", submitPath, goodBody)
	if l := g.Header.Get("RateLimit"); g.HTTP != 202 || l != `"user";r=2` {
		t.Errorf("accepted: %d %s", g.HTTP, l)
	}
	b.deps.Enter = func(r *admission.Request) admission.Decision {
		r.Quota = admission.Quota{Limit: 1, Window: 1<<63 - 1, Remaining: -1, Reset: 1<<63 - 1}
		return admission.Decision{}
	}
	if l := b.send(t, "POST", submitPath, goodBody).Header.Get("RateLimit"); l != `"user";r=0;t=9223372037` {
		t.Errorf("a bucket that never fills: %s", l)
	}
}

// TestQuotaOfDocuments: whoever was charged for a document is told what is left, in the
// figures of that very decision; the sign-in charges no user, and what caches give to
// everybody says nothing of anybody.
func TestQuotaOfDocuments(t *testing.T) {
	for _, c := range calls {
		b := newBed(t)
		pass := b.deps.Call
		b.deps.Call = func(call admission.Call, r *admission.Request) admission.Decision {
			if call != admission.CallSession {
				r.Quota = admission.Quota{Limit: 10, Window: 2500 * time.Millisecond, Remaining: 7, Reset: 700 * time.Millisecond}
			}
			return pass(call, r)
		}
		policy, limit := `"user";q=10;w=3`, `"user";r=7;t=1`
		if c.name == "submit" || c.name == "session" || !c.personal {
			policy, limit = "", "" // a submit's is in TestQuota
		}
		g := b.send(t, c.method, c.target, c.body)
		if p, l := g.Header.Get("RateLimit-Policy"), g.Header.Get("RateLimit"); g.HTTP >= 300 || p != policy || l != limit {
			t.Errorf("%s: %d, policy %s, limit %s; want %s, %s", c.name, g.HTTP, p, l, policy, limit)
		}
	}
	for _, target := range []string{"/a/10001", "/assets/x.js"} {
		if g := newBed(t).send(t, "GET", target, ""); g.Header["Ratelimit"] != nil || g.Header["Ratelimit-Policy"] != nil {
			t.Errorf("%s: %v", target, g.Header)
		}
	}
}

// TestExpectWithoutBody: calls without a body have no use for an Expect; an unknown path
// stays one.
func TestExpectWithoutBody(t *testing.T) {
	for target, want := range map[string]int{
		"/v1/activities/10001": 417, "/v1/activities/10001/queue": 417, "/v1/orders/5": 417, "/a/10001": 417, "/assets/x.js": 417, "/nothing": 404,
		"/v1/requests/" + goodRequest + "?activity_id=10001&sku_id=90001": 417,
	} {
		b := newBed(t)
		if g := b.send(t, "GET", target, "", "Expect: 100-continue"); g.HTTP != want || b.charged != 1 || b.asked() != "" {
			t.Errorf("%s: %d %s, charged %d", target, g.HTTP, g.Body, b.charged)
		}
	}
}

// TestBodiesOfOtherCalls: strict as a submit's.
func TestBodiesOfOtherCalls(t *testing.T) {
	for _, c := range []struct{ call, body, field string }{
		{"session", `{}`, "user_id"},
		{"session", `{"user_id":70000001}`, "user_id"},
		{"session", `{"user_id":null}`, "user_id"},
		{"session", `{"user_id":"070000001"}`, "user_id"},
		{"session", `{"user_id":"9223372036854775808"}`, "user_id"},
		{"session", `{"USER_ID":"70000001"}`, ""},
		{"session", `{"user_id":"1","user_id":"2"}`, "user_id"},
		{"session", `{"user_id":"1"}{}`, ""},
		{"session", `{"user_id":"1"} x`, ""},
		{"session", "\xef\xbb\xbf" + `{"user_id":"1"}`, ""},
		{"session", `{"user_id":"1` + "\xff" + `"}`, ""},
		{"session", `null`, ""},
		{"session", `[]`, ""},
		{"session", ``, ""},
		{"session", `{"user_id":"1"`, ""},
		{"join", `{"challenge":1}`, "challenge"},
		{"join", `{"challenge":"` + strings.Repeat("x", 257) + `"}`, "challenge"},
		{"join", `{"lane":"vip"}`, ""},
		{"tickets", `{}`, "sku_id"},
		{"tickets", `{"sku_id":"90001"}`, "pass"},
		{"tickets", `{"sku_id":90001,"pass":"p"}`, "sku_id"},
		{"tickets", `{"sku_id":"x","pass":"p"}`, "sku_id"},
		{"cancel", `{"reason":"x"}`, ""},
		{"cancel", `null`, ""},
	} {
		i := slices.IndexFunc(calls, func(k struct {
			name, method, target, body string
			code                       string
			personal                   bool
		}) bool {
			return k.name == c.call
		})
		g := newBed(t).send(t, "POST", calls[i].target, c.body)
		if g.HTTP != 400 || g.str("code") != "INVALID_ARGUMENT" || g.str("field") != c.field {
			t.Errorf("%s %.60q: %d %s, want 400 for %q", c.call, c.body, g.HTTP, g.Body, c.field)
		}
	}
	b := newBed(t)
	if g := b.send(t, "POST", "/v1/activities/10001/tickets", `{"sku_id":"90002","pass":"p"}`); g.HTTP != 404 {
		t.Errorf("unknown SKU: %d", g.HTTP)
	}
	for _, body := range []string{"", "{}"} {
		if g := b.send(t, "POST", "/v1/orders/5/cancel", body); g.HTTP != 200 {
			t.Errorf("cancel with body %q: %s", body, g.Body)
		}
	}
	var pass string
	b.deps.Room.Exchange = func(_ context.Context, _ *admission.Request, p string) (admission.Exchanged, admission.Decision) {
		pass = p
		return admission.Exchanged{Standing: admission.Standing{Drawn: true, Rank: 7, WaitHigh: time.Second}, Poll: 2 * time.Second}, admission.Decision{Outcome: admission.QueueWaiting}
	}
	g := b.send(t, "POST", "/v1/activities/10001/tickets", fmt.Sprintf(`{"sku_id":"90001","pass":%q}`, strings.Repeat("x", 1025)))
	if pass != "" {
		t.Error("a pass longer than any is looked at")
	}
	if g.HTTP != 200 || g.str("code") != "QUEUE_WAITING" || g.num("rank") != 7 || g.num("next_poll_after_ms") != 2000 || g.Header.Get("Retry-After") != "" {
		t.Errorf("waiting: %s", g.Body)
	}
	b.deps.Room.Join = func(context.Context, *admission.Request, string, string) (admission.Joined, admission.Decision) {
		return admission.Joined{Need: &admission.Challenge{Kind: "pow", Seed: "s1", Difficulty: 20, ExpiresAt: noon}}, admission.Decision{Outcome: admission.ChallengeRequired}
	}
	g = b.send(t, "POST", "/v1/activities/10001/queue/join", "")
	if want := `"challenge":{"kind":"pow","seed":"s1","difficulty":20,"expires_at":"2026-11-11T12:00:00.123Z"}`; g.HTTP != 403 || !strings.Contains(g.Body, want) {
		t.Errorf("challenge: %s", g.Body)
	}
}

// TestPanics: a handler that dies has one answer in the one shape, and says nothing of itself.
func TestPanics(t *testing.T) {
	b := newBed(t)
	b.deps.Place = func(context.Context, *admission.Request) admission.Decision { panic("secret detail") }
	g := b.send(t, "POST", submitPath, goodBody)
	if g.str("code") != "DEPENDENCY_UNAVAILABLE" || strings.Contains(g.Body, "secret") {
		t.Errorf("%d %s", g.HTTP, g.Body)
	}
	if len(b.ended) != 1 {
		t.Errorf("ended %v: what the request held was not given back once", b.ended)
	}
	if last := b.seen[len(b.seen)-1]; last.Reason != admission.ReasonPanic {
		t.Errorf("counted as %+v", last)
	}

	// What is no submit is not counted as one.
	for target, want := range map[string]admission.Call{submitPath: admission.CallSubmit, "/v1/orders/5/cancel": admission.Calls} {
		b := newBed(t)
		var counted admission.Call
		b.deps.Source = func(*http.Request, *admission.Request) { panic("secret detail") }
		b.deps.Decided = func(c admission.Call, _ *admission.Request, _ admission.Decision) { counted = c }
		if b.send(t, "POST", target, goodBody); counted != want {
			t.Errorf("%s: counted as %v", target, counted)
		}
	}
}

// TestAbsent: a process without the gateway role.
func TestAbsent(t *testing.T) {
	b := newBed(t)
	s := dial(t, listening(t, Absent(b.deps.Now, b.deps.Jitter), b.deps.Log))
	s.write("%s", head(submitPath, "Content-Length: "+fmt.Sprint(len(goodBody)))+goodBody)
	if g := s.answer("POST"); g.HTTP != 404 || g.str("code") != "NOT_FOUND" || !g.Close {
		t.Errorf("%d %s", g.HTTP, g.Body)
	}
}

// TestUnreadActivitiesAreNoNotFound: an instance that has just started and has not read the
// activities sends nobody home; once it has, what is unknown is not found.
func TestUnreadActivitiesAreNoNotFound(t *testing.T) {
	b := newBed(t)
	read := false
	b.deps.Read = func() bool { return read }
	h := New(b.deps)
	ask := func(method, target string) int {
		body := ""
		if method == http.MethodPost {
			body = goodBody
		}
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
		for _, c := range [][2]string{
			{http.MethodPost, "/s/path-unknown/90001"}, {http.MethodGet, "/v1/activities/999"},
			{http.MethodGet, "/v1/activities/999/queue"}, {http.MethodPost, "/v1/activities/999/queue/join"},
		} {
			if got := ask(c[0], c[1]); got != want {
				t.Errorf("%s %s: %d, want %d (activities read: %v)", c[0], c[1], got, want, read)
			}
		}
		read = true
	}
}
