package caller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestMain is also the child that Start starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSend(t *testing.T) {
	var mu sync.Mutex
	got, conns := map[string]int{}, map[string]bool{}
	serve := func(status int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(status, r.URL.Path)]++
			conns[r.RemoteAddr] = true
			w.WriteHeader(status)
			_, _ = w.Write([]byte("some body"))
		}))
		t.Cleanup(s.Close)
		return s
	}
	plan := Plan{}
	for i := range 3 {
		plan.Requests = append(plan.Requests, fmt.Appendf(nil, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i))
	}
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		plan.Targets = append(plan.Targets, Target{Address: serve(status).Listener.Addr().String(), Status: status})
	}
	plan.Targets = append(plan.Targets, Target{Address: plan.Targets[0].Address, Status: http.StatusAccepted})
	c, err := Start(plan)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, run := range []order{{0, 0, 3}, {1, 2, 2}, {0, 1, 30}} {
		if err := c.Send(run.Target, run.From, run.N); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"200/0": 11, "200/1": 11, "200/2": 11, "429/2": 1, "429/0": 1}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(conns) > 2*connections {
		t.Errorf("%d connections: they are not kept", len(conns))
	}
	mu.Unlock()
	err = c.Send(2, 0, 1)
	mu.Lock()
	if err == nil || !strings.Contains(err.Error(), "want HTTP/1.1 202") {
		t.Errorf("an answer of another status: %v", err)
	}
}
