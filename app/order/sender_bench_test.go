package order_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/rocketmq"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// BenchmarkSend compares single sends with group commit, 256 callers at once.
func BenchmarkSend(b *testing.B) {
	servers.Need(b, servers.RocketMQ())
	topic := "bench_order"
	if err := rocketmqadmin.CreateTopic(servers.RocketMQ(), topic, 4); err != nil {
		b.Fatal(err)
	}
	if err := rocketmqadmin.CreateGroup(servers.RocketMQ(), topic+"_consumer"); err != nil {
		b.Fatal(err)
	}
	q, err := rocketmq.Open(rocketmq.Config{
		NameServers: []string{servers.RocketMQ()}, Topic: topic, Group: topic + "_consumer", SendTimeout: time.Second,
	}, discard())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	if err := q.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 400)
	var n atomic.Int64
	key := func() string { return fmt.Sprintf("r_bench_%012d", n.Add(1)) }

	b.Run("single", func(b *testing.B) {
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := q.Send(b.Context(), []string{key()}, [][]byte{body}); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	})
	b.Run("group commit", func(b *testing.B) {
		s, err := order.NewSender(q, order.SenderConfig{}, func(admission.SKURef, string) {}, order.NewMetrics(nil))
		if err != nil {
			b.Fatal(err)
		}
		defer background(b, s.Run)()
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.Send(order.Message{Key: key(), Body: body}, time.Second); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	})
}
