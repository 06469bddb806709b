package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

var lengthOfGood = fmt.Sprint("Content-Length: ", len(goodBody))

// TestH03Guard: what the guard refuses on a real connection, before a byte of the body
// is read, and that the connection ends with it.
func TestH03Guard(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	for _, c := range []struct {
		name, request string
		want          int
	}{
		{"chunked, endless", head(submitPath, "Transfer-Encoding: chunked") + "5\r\nhello\r\n", 411},
		{"chunked and a length", head(submitPath, "Transfer-Encoding: chunked", "Content-Length: 5") + "5\r\nhello\r\n", 411},
		{"no length", head(submitPath), 411},
		{"8 KiB and a byte, none of it sent", head(submitPath, "Content-Length: 8193"), 413},
		{"an exabyte", head(submitPath, "Content-Length: 1000000000000000000"), 413},
		{"gzip", head(submitPath, "Content-Encoding: gzip", "Content-Length: 100"), 415},
		{"text", head(submitPath, "Content-Type: text/plain", lengthOfGood) + goodBody, 415},
		{"Expect", head(submitPath, "Expect: 100-continue", lengthOfGood), 417},
		{"unknown path", head("/nothing", lengthOfGood), 404},
		{"wrong method", strings.Replace(head(submitPath, lengthOfGood), "POST", "PUT", 1), 405},
		{"join, chunked", head("/v1/activities/10001/queue/join", "Transfer-Encoding: chunked") + "0\r\n\r\n", 411},
		{"poll with a body", strings.Replace(head("/v1/nothing", lengthOfGood), "POST", "GET", 1), 404},
	} {
		s := dial(t, address)
		s.write("%s", c.request)
		if g := s.answer("POST"); g.HTTP != c.want || g.str("code") == "" {
			t.Errorf("%s: %d %s, want %d", c.name, g.HTTP, g.Body, c.want)
		} else if !g.Close {
			t.Errorf("%s: the connection goes on with a body that was not read", c.name)
		}
		if !s.closed() {
			t.Errorf("%s: the connection is open", c.name)
		}
	}
	if asked := b.asked(); asked != "" {
		t.Errorf("the funnel was asked %q", asked)
	}
}

// TestNotHTTP pins what the README says of requests that net/http answers by itself, since
// they never reach a handler: plain text or nothing, and the end of the connection. Neither
// a source nor the funnel hears of them.
func TestNotHTTP(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	const get = "GET /v1/activities/10001 HTTP/1.1\r\n"
	for name, c := range map[string]struct {
		request string
		want    int
		body    string
	}{
		"no request line":         {"what is this?" + strings.Repeat(" ", 20) + "\r\n\r\n", 400, "400 Bad Request"},
		"a method of symbols":     {"G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "400 Bad Request"},
		"a path that is no path":  {"GET /v1/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "400 Bad Request"},
		"no Host":                 {get + "\r\n", 400, "400 Bad Request: missing required Host header"},
		"two Hosts":               {get + "Host: x\r\nHost: y\r\n\r\n", 400, "400 Bad Request"},
		"a Host of two words":     {get + "Host: a b\r\n\r\n", 400, "400 Bad Request: malformed Host header"},
		"a header name with room": {get + "Host: x\r\nX Y: z\r\n\r\n", 400, "400 Bad Request: invalid header name"},
		"two lengths":             {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "400 Bad Request"},
		"HTTP/3.0":                {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505, "505 HTTP Version Not Supported: unsupported protocol version"},
		"a coding unknown":        {head(submitPath, "Transfer-Encoding: gzip"), 501, "Unsupported transfer encoding"},
		"an Expect unknown":       {head(submitPath, "Expect: the-unexpected", lengthOfGood) + goodBody, 417, ""},
		"the same of a GET":       {get + "Host: x\r\nExpect: the-unexpected\r\n\r\n", 417, ""},
		"a head of 24 KiB":        {get + "Host: x\r\nX-Long: " + strings.Repeat("x", 24<<10) + "\r\n\r\n", 431, "431 Request Header Fields Too Large"},
	} {
		s := dial(t, address)
		s.write("%s", c.request)
		g := s.answer("POST")
		plain := map[bool]string{true: "", false: "text/plain; charset=utf-8"}[c.body == ""]
		if g.HTTP != c.want || g.Body != c.body || g.Header.Get("Content-Type") != plain || !g.Close || !s.closed() {
			t.Errorf("%s: %d %q, %v", name, g.HTTP, g.Body, g.Header)
		}
	}
	if asked := b.asked(); asked != "" || b.charged != 0 {
		t.Errorf("asked %q, charged %d", asked, b.charged)
	}
}

// TestH03GzipBomb: 10 KiB that would be many megabytes are not unpacked.
func TestH03GzipBomb(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 8 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		s := dial(t, address)
		s.write("%s", head(submitPath, "Content-Encoding: gzip", fmt.Sprint("Content-Length: ", min(bomb.Len(), MaxBodyBytes))))
		if g := s.answer("POST"); g.HTTP != 415 {
			t.Fatalf("%d %s", g.HTTP, g.Body)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 20<<20 {
		t.Errorf("20 bombs allocated %d MiB", grown>>20)
	}
}

// TestRefusedConnectionsGoOn: a client that the chain refuses keeps its connection, gets
// its answer before its body has arrived, and may send the rest late.
func TestRefusedConnectionsGoOn(t *testing.T) {
	b := newBed(t)
	refuse := true
	var mu sync.Mutex
	b.deps.Enter = func(r *admission.Request) admission.Decision {
		mu.Lock()
		defer mu.Unlock()
		if refuse {
			return admission.Decision{Outcome: admission.RateLimited, RetryAfter: time.Second}
		}
		r.UserID = "70000001"
		return admission.Decision{}
	}
	s := dial(t, listening(t, New(b.deps), b.deps.Log))
	for range 3 { // whole, in one piece
		s.write("%s", head(submitPath, lengthOfGood)+goodBody)
		if g := s.answer("POST"); g.HTTP != 429 || g.Close {
			t.Fatalf("%d, closed %v", g.HTTP, g.Close)
		}
	}
	s.write("%s", head(submitPath, lengthOfGood)+goodBody[:10])
	if g := s.answer("POST"); g.HTTP != 429 || g.Close { // the body is not here
		t.Fatalf("%d, closed %v", g.HTTP, g.Close)
	}
	s.write("%s", goodBody[10:])
	mu.Lock()
	refuse = false
	mu.Unlock()
	s.write("%s", head(submitPath, lengthOfGood)+goodBody)
	if g := s.answer("POST"); g.HTTP != 202 || g.Close {
		t.Errorf("the next request on the connection: %d, closed %v", g.HTTP, g.Close)
	}
	if s.closed() {
		t.Error("the connection is closed")
	}
}

// TestH03SlowSockets: sockets that send a header byte, or a body byte, now and then are
// ended within their time; meanwhile others are served, and nobody behind the body is asked.
func TestH03SlowSockets(t *testing.T) {
	const each = 100
	b := newBed(t)
	b.deps.Enter = func(r *admission.Request) admission.Decision {
		if r.RequestID == "refused-00000001" {
			return admission.Decision{Outcome: admission.RateLimited}
		}
		return admission.Decision{}
	}
	address := listening(t, New(b.deps), b.deps.Log)
	before := runtime.NumGoroutine()

	heads := map[string]string{
		"header":  "POST " + submitPath + " HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":    head(submitPath, "Content-Length: 8000") + `{"request_id":`,
		"refused": head(submitPath, "Content-Length: 8000", "Idempotency-Key: refused-00000001"),
	}
	type end struct {
		kind   string
		after  time.Duration
		answer string
	}
	ends := make(chan end, 3*each)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for kind, text := range heads {
		for range each {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, _ = io.WriteString(conn, text)
			trickle, last := context.WithCancel(ctx)
			go func() { // the slow client: a byte now and then, until it is cut off
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-trickle.Done():
						return
					case <-tick.C:
						if _, err := conn.Write([]byte("a")); err != nil {
							return
						}
					}
				}
			}()
			go func() {
				answer, _ := io.ReadAll(conn)
				last()
				_ = conn.Close()
				ends <- end{kind, time.Since(began), string(answer)}
			}()
		}
	}

	// A healthy client, all the while.
	healthy := dial(t, address)
	var waited []time.Duration
	held := map[string][]time.Duration{}
	left := 3 * each
	for left > 0 {
		select {
		case e := <-ends:
			left--
			held[e.kind] = append(held[e.kind], e.after)
			want := map[string]string{"header": "", "body": "408", "refused": "429"}[e.kind]
			if want != "" && !strings.HasPrefix(e.answer, "HTTP/1.1 "+want) {
				t.Errorf("a slow %s was told %.60q, want %s", e.kind, e.answer, want)
			}
		default:
			began := time.Now()
			healthy.write("%s", head(submitPath, lengthOfGood)+goodBody)
			if g := healthy.answer("POST"); g.HTTP != 202 {
				t.Fatalf("the healthy client: %d %s", g.HTTP, g.Body)
			}
			waited = append(waited, time.Since(began))
		}
	}
	// The machine may be held up now and then: nine of ten count.
	for kind, all := range held {
		slices.Sort(all)
		if most := all[len(all)*9/10]; most > 4*time.Second {
			t.Errorf("slow %s: one of ten held its connection for %s or more", kind, most)
		}
	}
	slices.Sort(waited)
	if most := waited[len(waited)*9/10]; most > time.Second {
		t.Errorf("the healthy client waited %s or more in one of ten of its calls", most)
	}
	b.asked()
	for runtime.NumGoroutine() > before+5 && ctx.Err() == nil {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("%d goroutines are left of %d slow sockets", n-before, 3*each)
	}
}

// TestBodyStops: a body that stops is a 408 within its deadline, and its goroutine ends
// with it though the client goes on.
func TestBodyStops(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	const within, rounds = bodyDeadline + time.Second, 3 // the machine may be held up once or twice
	for round := 1; ; round++ {
		s := dial(t, address)
		began := time.Now()
		s.write("%s", head(submitPath, "Content-Length: 8192")+"{")
		g := s.answer("POST")
		took := time.Since(began)
		if g.HTTP != 408 || g.str("code") != "BODY_TIMEOUT" || !g.Close || took < bodyDeadline-100*time.Millisecond {
			t.Errorf("%d %s after %s", g.HTTP, g.Body, took)
		}
		if asked := b.asked(); asked != "enter" {
			t.Errorf("asked %q", asked)
		}
		if !s.closed() {
			t.Error("the connection is open")
		}
		if took <= within {
			return
		}
		if round == rounds {
			t.Fatalf("it took %s, and was not faster in %d rounds", took, rounds)
		}
	}
}

// TestLongHeaders: a head beyond its bound is refused, and not kept.
func TestLongHeaders(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	s := dial(t, address)
	go func() { // the server may close while this is still being written
		_, _ = io.WriteString(s.conn, head(submitPath, lengthOfGood, "X-Long: "+strings.Repeat("x", 64<<10)))
	}()
	if res, err := http.ReadResponse(s.in, nil); err == nil {
		if g := read(t, res); g.HTTP != 431 {
			t.Errorf("64 KiB: %d", g.HTTP)
		}
	}
	s = dial(t, address)
	s.write("%s", head(submitPath, lengthOfGood, "X-Request-Id: "+strings.Repeat("x", 15<<10))+goodBody)
	if g := s.answer("POST"); g.HTTP != 202 || strings.Contains(g.Body, "xxx") {
		t.Errorf("15 KiB: %d %s", g.HTTP, g.Body)
	}
}

// TestOptionsOfTheServer: "OPTIONS *" is an unknown path, charged like one.
func TestOptionsOfTheServer(t *testing.T) {
	b := newBed(t)
	s := dial(t, listening(t, New(b.deps), b.deps.Log))
	s.write("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	if g := s.answer("OPTIONS"); g.HTTP != 404 || b.charged != 1 {
		t.Errorf("%d, charged %d", g.HTTP, b.charged)
	}
	s.write("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	if g := s.answer("CONNECT"); g.HTTP != 404 {
		t.Errorf("CONNECT: %d", g.HTTP)
	}
}

// TestHTTP2: an edge may speak it by prior knowledge; a refusal does not end its connection.
func TestHTTP2(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	var dials int
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	do := func(target, body string, change func(*http.Request)) got {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = submitHeaders(body)
		r.Header.Del("Content-Length")
		change(r)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != 2 {
			t.Fatalf("spoke %s", res.Proto)
		}
		return read(t, res)
	}
	for _, c := range []struct {
		target, body string
		change       func(*http.Request)
		want         int
	}{
		{submitPath, goodBody, func(*http.Request) {}, 202},
		{submitPath, goodBody, func(r *http.Request) { r.ContentLength = -1 }, 411},
		{submitPath, strings.Repeat("x", 9<<10), func(*http.Request) {}, 413},
		{submitPath, goodBody, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{submitPath, "{}", func(*http.Request) {}, 400},
		{"/nothing", goodBody, func(*http.Request) {}, 404},
		{"/v1/activities/10001/queue/join", "", func(r *http.Request) { r.Header.Del("Content-Type") }, 200},
		{submitPath, goodBody, func(*http.Request) {}, 202},
	} {
		if g := do(c.target, c.body, c.change); g.HTTP != c.want {
			t.Errorf("%s %.20s: %d %s, want %d", c.target, c.body, g.HTTP, g.Body, c.want)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections", dials)
	}
}

// TestHTTP2BodyThatStops: a client that stops sending when it is answered, as Go's does, has
// its answer whole and soon.
func TestHTTP2BodyThatStops(t *testing.T) {
	b := newBed(t)
	address := listening(t, New(b.deps), b.deps.Log)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	for range 3 {
		body, _ := io.Pipe() // nothing is ever written into it
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/nothing", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 10
		began := time.Now()
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if g := read(t, res); g.HTTP != 404 || g.str("code") != "NOT_FOUND" || time.Since(began) >= bodyDeadline {
			t.Errorf("%d %s after %v", g.HTTP, g.Body, time.Since(began))
		}
	}
}

// TestClientLeaves: the context of a submit does not end when its client has gone, for what
// was begun is finished and no store is blamed for the cut.
func TestClientLeaves(t *testing.T) {
	b := newBed(t)
	entered, seen, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.deps.Reserve = func(ctx context.Context, _ *admission.Request) admission.Decision {
		close(entered)
		<-seen
		ended <- ctx.Err()
		return admission.Decision{Outcome: admission.DependencyUnavailable}
	}
	b.deps.Budget = func() time.Duration { return time.Hour }
	api := New(b.deps)
	connected := make(chan context.Context, 1) // it ends when net/http sees the client leave
	s := dial(t, listening(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connected <- r.Context()
		api.ServeHTTP(w, r)
	}), b.deps.Log))
	s.write("%s", head(submitPath, lengthOfGood)+goodBody)
	<-entered
	_ = s.conn.Close()
	<-(<-connected).Done()
	close(seen)
	if err := <-ended; err != nil {
		t.Errorf("ended by %v when the client left", err)
	}
}

// TestBudgetEndsASubmit, and the time to read its body does not.
func TestBudgetEndsASubmit(t *testing.T) {
	for _, budget := range []time.Duration{50 * time.Millisecond, bodyDeadline + 200*time.Millisecond} {
		b := newBed(t)
		ended := make(chan error, 1)
		b.deps.Budget = func() time.Duration { return budget }
		b.deps.Reserve = func(ctx context.Context, _ *admission.Request) admission.Decision {
			began := time.Now()
			end, _ := ctx.Deadline()
			if left := end.Sub(began); left > budget {
				t.Errorf("%s are left of %s", left, budget)
			}
			<-ctx.Done()
			if at := time.Now(); at.Before(end) {
				t.Errorf("ended %s too soon", end.Sub(at))
			}
			ended <- ctx.Err()
			return admission.Decision{Outcome: admission.DependencyUnavailable}
		}
		s := dial(t, listening(t, New(b.deps), b.deps.Log))
		s.write("%s", head(submitPath, lengthOfGood)+goodBody)
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("budget of %s: ended by %v", budget, err)
		}
		if g := s.answer("POST"); g.HTTP != 503 {
			t.Errorf("budget of %s: %d %s", budget, g.HTTP, g.Body)
		}
	}
}
