package redis

import (
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/app/admission"
)

// fiveNodes are five servers that do not know of one another; close takes one down.
func fiveNodes(t *testing.T) (clients []goredis.UniversalClient, servers []*embedded.Server) {
	t.Helper()
	for range 5 {
		s, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		servers = append(servers, s)
		clients = append(clients, openStore(t, s.URL()))
	}
	return clients, servers
}

func TestLeadershipWithTwoOfFiveDown(t *testing.T) {
	clients, servers := fiveNodes(t)
	servers[0].Close()
	servers[3].Close()
	l := NewLeadership(clients...)
	held, err := l.Acquire(t.Context(), "control", 3*time.Second)
	if err != nil {
		t.Fatalf("three of five are up: %v", err)
	}
	if _, err := NewLeadership(clients...).Acquire(t.Context(), "control", 3*time.Second); !errors.Is(err, admission.ErrConflict) && !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("a rival: got %v, want it to fail", err)
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

func TestLeadershipWithThreeOfFiveDown(t *testing.T) {
	clients, servers := fiveNodes(t)
	for _, s := range servers[:3] {
		s.Close()
	}
	start := time.Now()
	_, err := NewLeadership(clients...).Acquire(t.Context(), "control", 3*time.Second)
	if !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrConflict) {
		t.Errorf("two of five are up: got %v, want ErrUnavailable", err)
	}
	if d := time.Since(start); d < 2*leaderDelay || d > busy {
		t.Errorf("gave up after %v, want three tries 200 ms apart", d)
	}
	for i, c := range clients[3:] {
		if n := c.Exists(t.Context(), leaderKey("control")).Val(); n != 0 {
			t.Errorf("node %d is still locked: what was taken must be given back", i+3)
		}
	}
}

func TestLeadershipIsLostWithTheMajority(t *testing.T) {
	clients, servers := fiveNodes(t)
	held, err := NewLeadership(clients...).Acquire(t.Context(), "control", 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	until := held.Until()
	for _, s := range servers[:3] {
		s.Close()
	}
	if err := held.Extend(t.Context()); err == nil {
		t.Error("extended without a majority")
	}
	if !held.Until().Equal(until) {
		t.Error("a failed renewal stretched the trust")
	}
}

func TestLeadershipNeedsNodesAndTime(t *testing.T) {
	if _, err := NewLeadership().Acquire(t.Context(), "control", time.Second); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("no nodes: got %v", err)
	}
	if _, err := NewLeadership(openEmbedded(t)).Acquire(t.Context(), "control", 200*time.Millisecond); err == nil {
		t.Error("a ttl that the drift eats: want an error")
	}
}
