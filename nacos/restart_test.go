package nacos_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"net/http"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
)

// N01: the server goes away and comes back; a document published 2 s later is applied within
// 10 s. The server is a proxy before the real one, so that nobody else loses theirs.
func TestN01ServerRestart(t *testing.T) {
	servers.Need(t, servers.Nacos())
	gate := newGate(t, servers.Nacos())
	key := dataID()
	src, err := nacos.New(nacos.Config{Servers: []string{gate.address}, DataID: key})
	if err != nil {
		t.Fatal(err)
	}
	publishes := 0
	took := conformance.PushToEffect(t, conformance.SourceBackend{Source: src, Write: func(t *testing.T, doc []byte) {
		if publishes++; publishes == 2 {
			time.Sleep(6 * time.Second) // the SDK's listener is registered by now
			gate.close()
			time.Sleep(5 * time.Second)
			gate.open(t)
			time.Sleep(2 * time.Second)
		}
		publish(t, key, doc)
	}}, 3)
	t.Cleanup(func() { request(t, http.MethodDelete, url.Values{"dataId": {key}, "group": {"DEFAULT_GROUP"}}) })
	t.Logf("after the restart, and then: %v", took)
	if most := took[len(took)-1]; most > 10*time.Second {
		t.Errorf("took %v", most)
	}
}

// gate is a TCP proxy on two ports, HTTP and gRPC 1000 above, that can be shut.
type gate struct {
	address string
	host    string
	ports   map[int]string // ours -> the server's

	mu        sync.Mutex
	listeners []net.Listener // guarded by mu
	conns     map[net.Conn]bool
	wg        sync.WaitGroup
}

func newGate(t *testing.T, target string) *gate {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	at := servers.ReserveWith(t, 1000) // ours also while the gate is shut
	free := int(at.Port())
	g := &gate{host: host, address: at.String(), conns: map[net.Conn]bool{},
		ports: map[int]string{free: port, free + 1000: strconv.Itoa(n + 1000)}}
	g.open(t)
	t.Cleanup(func() {
		g.close()
		g.wg.Wait()
	})
	return g
}

func (g *gate) open(t *testing.T) {
	t.Helper()
	for ours, theirs := range g.ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ours)))
		if err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		g.listeners = append(g.listeners, l)
		g.mu.Unlock()
		g.wg.Go(func() { g.serve(l, net.JoinHostPort(g.host, theirs)) })
	}
}

func (g *gate) serve(l net.Listener, target string) {
	for {
		in, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				panic(err)
			}
			return
		}
		out, err := net.Dial("tcp", target)
		if err != nil {
			in.Close()
			continue
		}
		g.mu.Lock()
		g.conns[in], g.conns[out] = true, true
		g.mu.Unlock()
		g.wg.Go(func() { _, _ = io.Copy(out, in); in.Close(); out.Close() })
		g.wg.Go(func() { _, _ = io.Copy(in, out); in.Close(); out.Close() })
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.listeners {
		l.Close()
	}
	g.listeners = nil
	for c := range g.conns {
		c.Close()
		delete(g.conns, c)
	}
}

// While the server is away the log has a line of it, and one when it is back; the SDK, which
// says two a second, adds one at most.
func TestAnOutageDoesNotFloodTheLog(t *testing.T) {
	servers.Need(t, servers.Nacos())
	gate := newGate(t, servers.Nacos())
	log := &keptLog{}
	src, err := nacos.New(nacos.Config{Servers: []string{gate.address}, DataID: dataID(), PollEvery: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- src.Run(ctx, func(rules.Update) {}) }()
	time.Sleep(6 * time.Second) // the SDK's listener is registered by now
	gate.close()
	time.Sleep(8 * time.Second)
	gate.open(t)
	const connected = "success to connect a server" // again; before that the SDK cannot be ended
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "rules_source_back") || !strings.Contains(log.String(), connected); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody says that it is back:\n%s", log)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	sdk, told := 0, 0
	for line := range strings.Lines(log.String()) {
		switch {
		case strings.Contains(line, "level=WARN") && strings.Contains(line, "component=nacos-sdk"):
			sdk++
		case strings.Contains(line, "event=rules_source_away"):
			told++
		}
	}
	if sdk > 1 || told < 1 || told > 4 { // a cause may change: refused, reset, timed out
		t.Errorf("the SDK warns %d times, and the outage is told %d times:\n%s", sdk, told, log)
	}
}
