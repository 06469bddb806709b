package redis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

func TestQueueEmbedded(t *testing.T) {
	conformance.Queues(t, func(t *testing.T) conformance.QueueBackend { return queues(embeddedURL(t)) })
}

func TestQueueRedis(t *testing.T) {
	servers.Need(t, servers.StockRedis())
	conformance.Queues(t, func(t *testing.T) conformance.QueueBackend { return queues(servers.StockRedis()) })
}

func TestQueueCluster(t *testing.T) {
	servers.Need(t, servers.ClusterRedis())
	conformance.Queues(t, func(t *testing.T) conformance.QueueBackend { return queues(servers.ClusterRedis()) })
}

func embeddedURL(t *testing.T) string {
	t.Helper()
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s.URL()
}

func queues(url string) conformance.QueueBackend {
	stream := "test_order_" + rand.Text()
	return conformance.QueueBackend{
		Open:     func(t *testing.T) admission.Queue { return openQueue(t, url, redis.QueueConfig{Stream: stream}) },
		HandOver: time.Minute, // Abandoned, and a scan: 15 s
		Settled:  time.Minute,
	}
}

func openQueue(t *testing.T, url string, c redis.QueueConfig) *redis.Queue {
	t.Helper()
	client, err := redis.Open(t.Context(), url, redis.Options{Name: "stock", Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c.Consumer, c.SendTimeout = rand.Text(), 20*time.Second
	t.Cleanup(func() {
		client.Del(context.Background(), c.Stream)
		_ = client.Close()
	})
	q, err := redis.NewQueue(client, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestQueueRefusesWhenFull(t *testing.T) {
	q := openQueue(t, embeddedURL(t), redis.QueueConfig{Stream: "full", MaxLen: 3})
	body := [][]byte{[]byte("x"), []byte("x")}
	if err := q.Send(t.Context(), []string{"r_one", "r_two"}, body); err != nil {
		t.Fatal(err)
	}
	if err := q.Send(t.Context(), []string{"r_three", "r_four"}, body); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("two more than fit: %v, want unavailable", err)
	}
	if n, err := q.Lag(t.Context()); err != nil || n != 2 {
		t.Errorf("lag %d, %v: a refused batch must leave nothing behind", n, err)
	}
}
