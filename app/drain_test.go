package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/order"
)

// slowSocket is a listener whose Accept returns only after the test lets it, closed or not.
type slowSocket struct{ let chan struct{} }

func newSlowSocket() slowSocket { return slowSocket{make(chan struct{})} }

func (s slowSocket) Accept() (net.Conn, error) { <-s.let; return nil, net.ErrClosed }
func (slowSocket) Close() error                { return nil }
func (slowSocket) Addr() net.Addr              { return &net.TCPAddr{} }

// TestDrainWaitsForTheServers: when a drain has returned, no goroutine serves any more.
func TestDrainWaitsForTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public, internal, admin := newSlowSocket(), newSlowSocket(), newSlowSocket()
		l := &listeners{public, internal, admin}
		failed := make(chan error, 1)
		s := l.serve(&service{log: slog.New(slog.DiscardHandler)}, failed)
		synctest.Wait()
		drained := false
		go func() { s.drain(0); drained = true }()
		for serving, socket := range []slowSocket{public, admin, internal} { // the internal one goes last
			time.Sleep(2 * drainFor)
			synctest.Wait()
			if drained {
				t.Errorf("drained while %d goroutines serve", 3-serving)
			}
			close(socket.let)
		}
		synctest.Wait()
		if !drained {
			t.Error("not drained although nobody serves")
		}
		select {
		case err := <-failed:
			t.Errorf("a drain is no failure: %v", err)
		default:
		}
	})
}

// TestAProcessIsGoneWithin5s: whatever holds a service at its end, nobody waits for it
// longer than exitWithin after the signal; before the signal as long as it likes.
func TestAProcessIsGoneWithin5s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		began := time.Now()
		hold := make(chan struct{})
		err, ended := untilCut(ctx, exitWithin, func() error { <-hold; return nil })
		if took := time.Since(began) - time.Hour; err != nil || ended || took > 5*time.Second || took < drainFor {
			t.Errorf("%v, ended %v, %v after the signal", err, ended, took)
		}
		close(hold)
		if err, ended := untilCut(t.Context(), exitWithin, func() error { return io.EOF }); !errors.Is(err, io.EOF) || !ended {
			t.Errorf("%v, ended %v", err, ended)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err, ended := untilCut(gone, exitWithin, func() error { time.Sleep(time.Second); return io.EOF }); !errors.Is(err, io.EOF) || !ended {
			t.Errorf("one that ends in time: %v, ended %v", err, ended)
		}
	})
}

// heldQueue takes a message and acknowledges it when it is let.
type heldQueue struct {
	admission.Queue
	sending, let chan struct{}
}

func (q heldQueue) Send(context.Context, []string, [][]byte) error {
	q.sending <- struct{}{}
	<-q.let
	return nil
}

// markedStock remembers what was marked as sent.
type markedStock struct {
	admission.Stock
	mu     sync.Mutex
	marked []string // guarded by mu
}

func (s *markedStock) MarkSent(_ context.Context, _ admission.SKURef, ids []string, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = append(s.marked, ids...)
	return nil
}

// TestMarksEndAfterTheSender: what is acknowledged while the loops end is still marked, or
// recovery would send it again.
func TestMarksEndAfterTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, stock, metrics := heldQueue{sending: make(chan struct{}), let: make(chan struct{})}, &markedStock{}, order.NewMetrics(prometheus.NewRegistry())
		s := &service{log: slog.New(slog.DiscardHandler)}
		s.marks = order.NewMarks(stock, order.MarksConfig{}, metrics, s.log)
		var err error
		if s.sender, err = order.NewSender(queue, order.SenderConfig{}, s.marks.Add, metrics); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.sendAndMark(ctx) }()
		go func() { _ = s.sender.Send(order.Message{Key: "r_last"}, 25*time.Millisecond) }()
		<-queue.sending
		stop()
		time.Sleep(time.Second) // the end has begun, and the caller has left
		synctest.Wait()
		close(queue.let)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(stock.marked) != 1 || stock.marked[0] != "r_last" {
			t.Errorf("marked %q, want the message that was acknowledged last", stock.marked)
		}
	})
}

// serving is an embedded service on real sockets, which the test stops.
type serving struct {
	line  readyLine
	s     *service
	stop  context.CancelFunc
	ended chan error
}

func startServing(t *testing.T, flags map[string]string) *serving {
	t.Helper()
	given := map[string]string{"data.dir": filepath.Join(t.TempDir(), "data"), "listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "demo.opens_in": "2s"}
	for k, v := range flags {
		given[k] = v
	}
	c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }, Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	v := &serving{stop: stop, ended: make(chan error, 1)}
	go func() {
		err := serveWith(ctx, c, in, io.Discard, func(s *service) { v.s = s })
		in.CloseWithError(io.EOF)
		v.ended <- err
	}()
	t.Cleanup(stop)
	if err := json.NewDecoder(out).Decode(&v.line); err != nil {
		stop()
		t.Fatalf("no ready line: %v (serve: %v)", err, <-v.ended)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return v
}

// TestDrainNotice: for drain.notice after the signal readiness says "draining", and whoever
// still comes is served: a submit is answered, its message sent and marked, and only then
// are connections refused.
func TestDrainNotice(t *testing.T) {
	v := startServing(t, map[string]string{"drain.notice": "2s", "demo.stock": "5"})
	s := &sale{t: t, s: v.s, public: v.line.Public, path: v.s.directory.ByID(demoActivity).PathID}
	p := s.person(1)
	s.turn(p)
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	ready := func() (int, string) {
		res, err := fresh.Get("http://" + v.line.Internal + "/readyz")
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, body := ready(); status != http.StatusOK {
		t.Fatalf("before: %d %s", status, body)
	}
	kept := &http.Client{Timeout: 5 * time.Second}
	closes := func() bool { // a client that keeps its connection
		res, err := kept.Get("http://" + v.line.Public + "/v1/activities/" + demoActivity)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.Close
	}
	if closes() {
		t.Error("before: the connection is closed")
	}
	v.stop()
	asked := time.Now()
	s.until("unready", func() bool {
		status, body := ready()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	})
	if !closes() {
		t.Error("draining: the connection is kept, and would end under a request")
	}
	h := p.headers()
	h["X-Seckill-Ticket"], h["Idempotency-Key"], h["Content-Type"] = p.ticket.Ticket, p.ticket.RequestID, "application/json"
	body := fmt.Sprintf(`{"request_id":%q,"activity_id":%q,"sku_id":%q,"quantity":1}`, p.ticket.RequestID, demoActivity, demoSKU)
	submit := func() (got answer, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+v.line.Public+"/s/"+s.path+"/"+demoSKU, strings.NewReader(body))
		if err != nil {
			return got, err
		}
		for k, value := range h {
			req.Header.Set(k, value)
		}
		res, err := fresh.Do(req)
		if err != nil {
			return got, err
		}
		defer res.Body.Close()
		return got, json.NewDecoder(res.Body).Decode(&got)
	}
	got, err := submit()
	for err == nil && got.Code == "DEPENDENCY_UNAVAILABLE" && time.Since(asked) < 1500*time.Millisecond { // a busy machine: come again
		got, err = submit()
	}
	if err != nil || got.Code != "SECKILL_QUEUED" && got.Code != "REQUEST_REPLAYED" {
		t.Errorf("a submit until %v after the signal: %s, %v", time.Since(asked), got.Code, err)
	}
	if err := <-v.ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(asked); took < 2*time.Second || took > 5*time.Second {
		t.Errorf("gone %v after the signal, want the notice of 2 s and at most 5 s", took)
	}
	if sent, marked := s.metric("seckill_order_marked_sent_total"), s.metric("seckill_order_mark_failed_total"); sent != 1 || marked != 0 {
		t.Errorf("%v marked, %v failed: the last submit's message is not recorded as sent", sent, marked)
	}
	if status, _ := ready(); status != 0 {
		t.Errorf("readiness answers %d after the end", status)
	}
}

// TestStoppedBeforeReady: whoever is stopped before it was ready never says that it was, is
// no failure, and gives no notice to balancers that it has not.
func TestStoppedBeforeReady(t *testing.T) {
	rules, internal := filepath.Join(t.TempDir(), "rules.json"), nobody(t)
	if err := os.WriteFile(rules, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }, Flags: map[string]string{
		"data.dir": filepath.Join(t.TempDir(), "data"), "listen.public": "127.0.0.1:0", "listen.internal": internal, "listen.admin": "127.0.0.1:0",
		"drain.notice": "2s", "rules.file": rules,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before it begins", "while it waits"} {
		ctx, stop := context.WithCancel(context.Background())
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			ended <- serveWith(ctx, c, &out, io.Discard, func(*service) {
				if when == "before it begins" {
					stop()
				}
			})
		}()
		if when == "while it waits" {
			eventually(t, 10*time.Second, "an answer", func() bool {
				res, err := http.Get("http://" + internal + "/readyz")
				if err != nil {
					return false
				}
				defer res.Body.Close()
				return res.StatusCode == http.StatusServiceUnavailable
			})
			stop()
		}
		asked := time.Now()
		if err := <-ended; err != nil || out.Len() > 0 || time.Since(asked) > 2*time.Second {
			t.Errorf("%s: %v after %v, and said %q", when, err, time.Since(asked), out.String())
		}
		stop()
	}
}

// TestWhatAStartWaitsForIsSaid: after two seconds, and then every thirty; an embedded
// service, for which nobody will come back, ends with exit code 3.
func TestWhatAStartWaitsForIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&text, nil))
		began := time.Now()
		missing := func() []string {
			if time.Since(began) > 70*time.Second {
				return nil
			}
			return []string{"queue: away"}
		}
		if err := awaitReady(t.Context(), missing, false, nil, log); err != nil {
			t.Error(err)
		}
		if n := strings.Count(text.String(), `"reasons":["queue: away"]`); n != 3 {
			t.Errorf("said %d times in 70 s, want at 2, 32 and 62:\n%s", n, text.String())
		}
		began = time.Now()
		err := awaitReady(t.Context(), missing, true, nil, log)
		if took := time.Since(began); exit.Of(err) != exit.Away || !strings.Contains(err.Error(), "queue: away") || took != unreadyAgain {
			t.Errorf("embedded: %v after %v", err, took)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := awaitReady(ctx, func() []string { return []string{"x"} }, false, nil, log); !errors.Is(err, errStopped) {
			t.Errorf("stopped: %v", err)
		}
	})
	if got := notStarted(exit.Code(exit.Away, errors.New("limiter.redis: away"))); exit.Of(got) != exit.Away || !strings.Contains(got.Error(), "exit code 3") {
		t.Errorf("%v does not say what the service does", got)
	}
}
