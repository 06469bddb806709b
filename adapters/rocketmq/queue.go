package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/sluice-io/sluice/app/admission"
)

// propertyWarm marks a message that only opens the way to a broker; consumers
// acknowledge it and nobody sees it. Its value is the broker's name.
const propertyWarm = "sluice_warm"

// Queue implements admission.Queue on one topic and one consumer group. Topic and
// group must exist; a missing retry topic is waited for.
type Queue struct {
	config   Config
	log      *slog.Logger
	producer sdk.Producer
	wire     *wire
	warm     atomic.Bool // the last warm-up succeeded and no send has failed since
	warming  sync.Mutex  // one warm-up at a time
	moments  moments
	consumer atomic.Int64 // numbers the consumers of this process
}

// Open starts the producer. It asks no server anything: Ready tells whether they are there.
func Open(c Config, log *slog.Logger) (*Queue, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	settle(c, log)
	p, err := sdk.NewProducer(
		producer.WithNsResolver(resolver(c.NameServers)),
		producer.WithGroupName(c.Group+"_producer"),
		producer.WithInstanceName(c.Instance+"-producer"),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(c.SendTimeout),
		producer.WithCreateTopicKey(""), // a missing topic is an error, not a wish
		producer.WithQueueSelector(&selector{}),
		producer.WithCredentials(primitive.Credentials{AccessKey: c.AccessKey, SecretKey: c.SecretKey}),
	)
	if err != nil {
		return nil, fmt.Errorf("rocketmq producer: %w", err)
	}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("rocketmq producer: %w", err)
	}
	return &Queue{config: c, log: log, producer: p, wire: newWire(c)}, nil
}

// Send implements admission.Queue.
func (q *Queue) Send(ctx context.Context, keys []string, bodies [][]byte) error {
	if err := admission.CheckBatch(keys, bodies); err != nil {
		return fmt.Errorf("topic %s: %w", q.config.Topic, err)
	}
	if len(keys) == 0 {
		return nil
	}
	messages := make([]*primitive.Message, len(keys))
	for i := range keys {
		messages[i] = primitive.NewMessage(q.config.Topic, bodies[i]).WithKeys([]string{keys[i]})
	}
	return q.send(ctx, messages)
}

func (q *Queue) send(ctx context.Context, messages []*primitive.Message) error {
	// a context that can expire would close the connection under everybody's sends
	result, err := q.producer.SendSync(context.WithoutCancel(ctx), messages...)
	if err == nil && result.Status == primitive.SendOK {
		return nil
	}
	q.warm.Store(false)
	if err == nil {
		return fmt.Errorf("%w: send to %s: status %d", admission.ErrUnknownResult, q.config.Topic, result.Status)
	}
	return fmt.Errorf("%w: send to %s: %w", certainty(err), q.config.Topic, err)
}

// certainty tells a send that cannot have left this process from one that may have
// arrived. What it does not know may have.
func certainty(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return admission.ErrUnavailable
	}
	for _, unsent := range [...]string{"route info not found", "producer not started", "service close is not running"} {
		if strings.Contains(err.Error(), unsent) {
			return admission.ErrUnavailable
		}
	}
	return admission.ErrUnknownResult
}

// Ready implements admission.Queue: the topic and the group's retry topic have routes,
// every broker of the topic answers, and a message has gone to each since the last
// send that failed, so that the next one finds its connection open.
func (q *Queue) Ready(ctx context.Context) error {
	r, err := q.wire.route(ctx, q.config.Topic)
	if err != nil {
		return err
	}
	if err := q.healthy(ctx, r); err != nil {
		return err
	}
	if _, err := q.wire.route(ctx, q.config.retryTopic()); err != nil {
		return fmt.Errorf("rocketmq.group %s: %w", q.config.Group, err)
	}
	return q.warmUp(ctx, r)
}

// healthy reports whether every broker of the topic answers.
func (q *Queue) healthy(ctx context.Context, r route) error {
	seen := make(map[string]bool, len(r.brokers))
	for _, id := range r.queues {
		if seen[id.broker] {
			continue
		}
		seen[id.broker] = true
		if _, err := q.wire.maxOffset(ctx, q.config.Topic, id); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) warmUp(ctx context.Context, r route) error {
	q.warming.Lock()
	defer q.warming.Unlock()
	if q.warm.Load() {
		return nil
	}
	for name := range r.brokers {
		m := primitive.NewMessage(q.config.Topic, []byte("warm"))
		m.WithProperty(propertyWarm, name)
		if err := q.send(ctx, []*primitive.Message{m}); err != nil {
			return fmt.Errorf("warm broker %s: %w", name, err)
		}
	}
	q.warm.Store(true)
	return nil
}

// Close implements admission.Queue. Consume must have returned.
func (q *Queue) Close() error {
	q.wire.close()
	if err := q.producer.Shutdown(); err != nil {
		return fmt.Errorf("rocketmq producer: %w", err)
	}
	return nil
}

// selector takes the queues in turn; a warm-up goes to the broker it is meant for.
type selector struct{ next atomic.Uint64 }

// Select implements producer.QueueSelector.
func (s *selector) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	if name := m.GetProperty(propertyWarm); name != "" {
		for _, q := range queues {
			if q.BrokerName == name {
				return q
			}
		}
	}
	return queues[s.next.Add(1)%uint64(len(queues))]
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
