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

// drained is how an instance left that was asked to by SIGTERM while a caller held it up.
type drained struct {
	unready time.Duration // after the signal, when readiness first said that it drains
	said    string        // what it said; "": not seen
	code    int
	took    time.Duration
}

// drain ends the instance. Readiness is asked all the while, from before the signal on: the
// drain is over in seconds, and whoever begins to look then may find nobody there.
func (i *instance) drain() (d drained) {
	i.t.Helper()
	slowCaller(i.t, i.ready.Public)
	var signalled atomic.Pointer[time.Time]
	var looking sync.WaitGroup
	began := make(chan struct{})
	looking.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for first := true; ; first = false {
			status, body := i.get(i.ready.Internal, "/readyz", "")
			if first {
				close(began)
			}
			asked := signalled.Load()
			switch {
			case asked != nil && status == http.StatusServiceUnavailable && strings.Contains(string(body), "draining"):
				d.unready, d.said = time.Since(*asked), string(body)
				return
			case !i.alive():
				return
			}
			<-tick.C
		}
	})
	<-began
	asked := time.Now()
	signalled.Store(&asked)
	i.signal(syscall.SIGTERM)
	d.code = i.exit(patience)
	d.took = time.Since(asked)
	looking.Wait()
	i.t.Logf("%s: unready after %v (%s), exit %d after %v", i.name, d.unready.Round(time.Millisecond), d.said, d.code, d.took.Round(time.Millisecond))
	return d
}

// inTime reports whether it was unready at once, said why, and was gone within 5 s.
func (d drained) inTime() bool {
	return d.said != "" && d.unready <= 500*time.Millisecond && d.took <= 5*time.Second
}

// TestDrainWithin5s: SIGTERM in the middle of a crowd, with a caller that never ends its
// request. The instance is unready at once, answers what it has accepted, exits 0 within 5 s,
// and the other one sells the rest.
func TestDrainWithin5s(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady()
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
	eventually(t, patience, "the sale under way", func() bool { return f.sold(crowdRef) > 0 })
	d := leaves.drain()
	buying.Wait()
	done := f.conserved(crowdRef, stock, patience)
	if done.orders != stock || ordered.Load() != stock {
		t.Errorf("%d people were told of an order: %v", ordered.Load(), done)
	}
	stays.isReady()
	// Others may hold the machine up for a moment: a drain that is too slow by itself is so
	// each time.
	for again := 0; d.code == 0 && !d.inTime() && again < 3; again++ {
		d = f.start(leaves.name, nil).drain()
	}
	if d.code != 0 || !d.inTime() {
		t.Errorf("unready after %v with %q and exit %d after %v, want unready at once, the reason, and 0 within 5 s", d.unready, d.said, d.code, d.took)
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
	i.awaitReady()
	if i.readyIn > 2*time.Second {
		t.Logf("the start took %v: more than the 2 s of an idle machine", i.readyIn)
	}
	slowCaller(t, i.ready.Public)
	i.signal(syscall.SIGTERM)
	eventually(t, patience, "draining", func() bool { return i.logged("draining") })
	asked := time.Now()
	i.signal(syscall.SIGTERM)
	code := i.exit(patience)
	took := time.Since(asked)
	t.Logf("exit %d after %v", code, took.Round(time.Millisecond))
	if code != 1 || took > drainFor/2 { // the slow caller holds a drain up for all of it
		t.Errorf("exit %d after %v, want 1 at once", code, took)
	}
}
