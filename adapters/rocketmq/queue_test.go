package rocketmq_test

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/rocketmq"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
	"github.com/sluice-io/sluice/app/admission"
)

func TestQueue(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	conformance.Queues(t, func(t *testing.T) conformance.QueueBackend {
		c := fresh(t)
		return conformance.QueueBackend{
			Open:     func(t *testing.T) admission.Queue { return open(t, c) },
			HandOver: time.Minute,
			Settled:  time.Minute,
		}
	})
}

// fresh makes a topic and a group that no other test uses.
func fresh(t *testing.T) rocketmq.Config {
	t.Helper()
	id := rand.Text()
	c := rocketmq.Config{
		NameServers: strings.Split(servers.RocketMQ(), ","),
		Topic:       "test_order_" + id, Group: "test_order_consumer_" + id,
		SendTimeout: 20 * time.Second, // not what is tested here, and the machine may be busy
	}
	if err := rocketmqadmin.CreateTopic(servers.RocketMQ(), c.Topic, 4); err != nil {
		t.Fatal(err)
	}
	if err := rocketmqadmin.CreateGroup(servers.RocketMQ(), c.Group); err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, c rocketmq.Config) *rocketmq.Queue {
	t.Helper()
	q, err := rocketmq.Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func TestReadyWarmsTheRoute(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	q := open(t, fresh(t))
	for range 2 { // a warm route is left alone
		if err := q.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "the one message of the warm-up", func() bool {
			n, err := q.Lag(t.Context())
			return err == nil && n == 1
		})
	}
	start := time.Now()
	if err := q.Send(t.Context(), []string{"r_first_"}, [][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	t.Logf("first send on a warm route: %s", time.Since(start))
}

func TestNameServersByName(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	c := fresh(t)
	_, port, _ := strings.Cut(c.NameServers[0], ":")
	c.NameServers = []string{"localhost:" + port}
	if err := open(t, c).Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// within polls: what is waited for happens in a server, which has no clock of ours.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, d)
		}
	}
}

func TestMissingTopicIsUnavailableAndNotCreated(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	c := fresh(t)
	c.Topic = "test_missing_" + rand.Text()
	q := open(t, c)
	for range 2 {
		if err := q.Send(t.Context(), []string{"r_nowhere"}, [][]byte{[]byte("x")}); !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("send: %v, want unavailable", err)
		}
		if err := q.Ready(t.Context()); !errors.Is(err, admission.ErrNotFound) {
			t.Errorf("ready: %v, want not found", err)
		}
	}
}
