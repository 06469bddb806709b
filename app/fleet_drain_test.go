package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/client"
)

// slowCaller begins a request and never ends it: it holds a drain up until it is cut.
// When slowCaller returns the server has the connection: connections are accepted in the
// order they come, and a later one has had its answer.
func slowCaller(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: sluice\r\n")); err != nil {
		t.Fatal(err)
	}
	later := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := later.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
}

// TestDrainWithin5s: SIGTERM in the middle of a crowd, with a caller that never ends its
// request. The instance is unready at once, answers what it has accepted, exits 0 within 5 s,
// and the other one sells the rest.
func TestDrainWithin5s(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady(45 * time.Second)
	}
	const stock, people = 60, 80
	leaves, stays := pair[0], pair[1]
	f.sell(stock, leaves)
	c, crowd := f.crowd(people, pair...)
	var buying sync.WaitGroup
	var ordered atomic.Int64
	activity, err := c.Activity(t.Context(), crowdActivity)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range crowd {
		buying.Go(func() {
			r, err := c.Buy(t.Context(), p, activity, crowdSKU, client.Place{}, nil)
			switch r.Ending {
			case client.Ordered:
				ordered.Add(1)
			case client.SoldOut:
			default:
				t.Errorf("user %s: %s, %+v, %v", p.UserID, r.Ending, r.Answer, err)
			}
		})
	}
	eventually(t, 30*time.Second, "the sale under way", func() bool { return f.sold(crowdRef) > 0 })
	slowCaller(t, leaves.ready.Public)
	leaves.signal(syscall.SIGTERM)
	asked := time.Now()
	var said string
	unready := eventually(t, 2*time.Second, "unready", func() bool {
		status, body := leaves.get(leaves.ready.Internal, "/readyz", "")
		said = string(body)
		return status != http.StatusOK
	})
	code := leaves.exit(10 * time.Second)
	took := time.Since(asked)
	t.Logf("unready after %v (%s), exit %d after %v", unready.Round(time.Millisecond), said, code, took.Round(time.Millisecond))
	if unready > 500*time.Millisecond || !strings.Contains(said, "draining") {
		t.Errorf("unready after %v with %q, want at once, and the reason", unready, said)
	}
	if code != 0 || took > 5*time.Second {
		t.Errorf("exit %d after %v, want 0 within 5 s", code, took)
	}
	buying.Wait()
	done := f.conserved(crowdRef, stock, 20*time.Second)
	if done.orders != stock || ordered.Load() != stock {
		t.Errorf("%d people were told of an order: %v", ordered.Load(), done)
	}
	if status, _ := stays.get(stays.ready.Internal, "/readyz", ""); status != http.StatusOK {
		t.Errorf("%s, which stays: HTTP %d", stays.name, status)
	}
}

// TestSecondSignalExitsAtOnce, on an embedded service, whose start is measured too.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary: left out by -short")
	}
	t.Parallel()
	dir := t.TempDir()
	i := launch(t, dir, "embedded", environment(map[string]string{
		"listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "data.dir": filepath.Join(dir, "embedded"),
	}))
	i.awaitReady(20 * time.Second)
	if i.readyIn > 2*time.Second {
		t.Logf("the start took %v: more than the 2 s of an idle machine", i.readyIn)
	}
	slowCaller(t, i.ready.Public)
	i.signal(syscall.SIGTERM)
	eventually(t, 2*time.Second, "draining", func() bool { return i.logged("draining") })
	asked := time.Now()
	i.signal(syscall.SIGTERM)
	code := i.exit(5 * time.Second)
	t.Logf("exit %d after %v", code, time.Since(asked).Round(time.Millisecond))
	if took := time.Since(asked); code != 1 || took > time.Second {
		t.Errorf("exit %d after %v, want 1 at once", code, took)
	}
}
