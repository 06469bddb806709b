package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// TestMetrics: each decision once, by our own words alone.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMetrics(reg)
	req := &admission.Request{Activity: &admission.Activity{ID: "10001"}, SKU: &admission.SKU{ID: "90001"}}
	m.Decided(admission.CallSubmit, req, admission.Decision{Outcome: admission.Queued})
	for range 2 {
		m.Decided(admission.CallSubmit, &admission.Request{}, admission.Decision{Outcome: admission.RateLimited, Stage: admission.StageUser, Reason: admission.ReasonUserRate})
	}
	m.Decided(admission.CallJoin, req, admission.Decision{})
	m.Served(DocumentQueue)
	want := `
# HELP seckill_admitted_requests_total Submits that hold a reservation.
# TYPE seckill_admitted_requests_total counter
seckill_admitted_requests_total{activity_id="10001",sku_id="90001"} 1
# HELP seckill_ingress_requests_total Calls by resource, deciding stage (none: it passed all), decision (the outcome's code, PASS) and reason.
# TYPE seckill_ingress_requests_total counter
seckill_ingress_requests_total{call="seckill.join",decision="PASS",reason="",stage="none"} 1
seckill_ingress_requests_total{call="seckill.submit",decision="RATE_LIMITED",reason="user_rate",stage="user"} 2
seckill_ingress_requests_total{call="seckill.submit",decision="SECKILL_QUEUED",reason="",stage="none"} 1
# HELP seckill_origin_requests_total Requests for public documents that no cache in front answered, by document.
# TYPE seckill_origin_requests_total counter
seckill_origin_requests_total{document="activity"} 0
seckill_origin_requests_total{document="asset"} 0
seckill_origin_requests_total{document="page"} 0
seckill_origin_requests_total{document="queue"} 1
# HELP seckill_rejected_requests_total Submits refused, by stage and reason.
# TYPE seckill_rejected_requests_total counter
seckill_rejected_requests_total{reason="",stage="none"} 0
seckill_rejected_requests_total{reason="user_rate",stage="user"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// lines reads a log as JSON objects; a line that is none fails the test.
func lines(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if line == "" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("not one event a line: %q", line)
		}
		out = append(out, m)
	}
	return out
}

// TestLog: what a decision's line says, and how many there may be.
func TestLog(t *testing.T) {
	var out logged
	now := noon
	l := NewLog(slog.New(slog.NewJSONHandler(&out, nil)), func() time.Time { return now.Add(7 * time.Millisecond) }, func(id string) string { return "hash-of-" + id[:1] })
	req := &admission.Request{
		Now: noon, RequestID: goodRequest, UserID: "70000001", TicketKeyID: "k1", Ticket: "SECRET-TICKET", Bearer: "SECRET-SESSION", DeviceHash: "sha256:SECRET",
		Activity: &admission.Activity{ID: "10001", Version: 3}, SKU: &admission.SKU{ID: "90001"},
	}
	fault := admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageNonce, Reason: admission.ReasonLimiterResultUnknown, RetryAfter: time.Second, Cause: errors.New("a\nb\x1b[31m\"")}
	l.Decided(admission.CallSubmit, req, fault)
	l.Decided(admission.CallSubmit, req, admission.Decision{Outcome: admission.RateLimited, Stage: admission.StageUser, Reason: admission.ReasonUserRate}) // plain: not at info
	got := lines(t, out.String())
	if len(got) != 1 {
		t.Fatalf("%d lines: %s", len(got), out.String())
	}
	for name, want := range map[string]any{
		"level": "WARN", "event": "decision", "call": "seckill.submit", "request_id": goodRequest, "activity_id": "10001", "sku_id": "90001", "user_id_hash": "hash-of-7",
		"ticket_key_id": "k1", "activity_version": 3.0, "admission_stage": "nonce", "decision": "DEPENDENCY_UNAVAILABLE", "reason": "LIMITER_RESULT_UNKNOWN",
		"retry_after_ms": 1000.0, "latency_ms": 7.0, "error": "a\nb\x1b[31m\"",
	} {
		if got[0][name] != want {
			t.Errorf("%s is %v, want %v", name, got[0][name], want)
		}
	}
	if s := out.String(); strings.Contains(s, "SECRET") || strings.Contains(s, "70000001") || strings.ContainsRune(s, '\x1b') {
		t.Errorf("the log tells too much: %s", s)
	}

	for range 100 {
		l.Decided(admission.CallSubmit, req, fault)
	}
	other := fault
	other.Reason = admission.ReasonBudgetExhausted // another reason has lines of its own
	l.Decided(admission.CallSubmit, req, other)
	if n := len(lines(t, out.String())); n != linesPerSecond+1 {
		t.Errorf("%d lines of one second, want %d of one reason and 1 of another", n, linesPerSecond)
	}
	req.Now = noon.Add(time.Second)
	l.Decided(admission.CallSubmit, req, fault)
	all := lines(t, out.String())
	if last := all[len(all)-1]; last["not_logged"] != 96.0 {
		t.Errorf("not_logged %v, want 96", last["not_logged"])
	}
}

// TestServerLogNamesNoAddress: net/http's own lines are kept, without their clients.
func TestServerLogNamesNoAddress(t *testing.T) {
	for in, want := range map[string]string{
		"http: TLS handshake error from 192.0.2.7:4711: EOF":             "http: TLS handshake error from (address): EOF",
		"http: panic serving [2001:db8::1%eth0]:4711: boom":              "http: panic serving (address): boom",
		"http: Accept error: too many open files; retrying in 5ms":       "http: Accept error: too many open files; retrying in 5ms",
		"http2: server: error reading preface from client 10.0.0.1:1: x": "http2: server: error reading preface from client (address): x",
	} {
		var out logged
		server := NewServer(nil, slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		server.ErrorLog.Print(in)
		got := lines(t, out.String())
		if len(got) != 1 || got[0]["msg"] != want || got[0]["event"] != "http_server" {
			t.Errorf("%s: %s", in, out.String())
		}
	}
}

// TestO04HostileHeaders: nothing that a client invents reaches answer or log but ids that
// are ids.
func TestO04HostileHeaders(t *testing.T) {
	b := newBed(t)
	l := NewLog(b.deps.Log, b.deps.Now, func(string) string { return "hash" })
	b.deps.Decided = l.Decided
	address := listening(t, New(b.deps), b.deps.Log)
	evil := `x","level":"ERROR` + "\x1b[31m" + strings.Repeat("evil", 1000)
	for i, h := range []string{"X-Request-Id", "User-Agent", "Referer", "X-Forwarded-For", "Cookie", "Idempotency-Key", "X-Device-Id"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, strings.Replace(head(submitPath, lengthOfGood, "Connection: close", h), "\r\n\r\n", fmt.Sprintf("\r\n%s: %s\r\n\r\n", h, evil), 1)+goodBody)
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if strings.Contains(string(answer), "evil") {
			t.Errorf("%d %s is in the answer: %.300s", i, h, answer)
		}
	}
	text := b.log.String()
	if strings.Contains(text, "evil") || strings.Contains(text, "s.s.s") || strings.Contains(text, "t.t.t") || strings.Contains(text, goodDevice) || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the log has what a client wrote: %s", text)
	}
	for _, line := range lines(t, text) {
		if line["event"] == nil {
			t.Errorf("a line without an event: %v", line)
		}
	}
}
