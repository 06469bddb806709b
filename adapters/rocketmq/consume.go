package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// retryLevel is the broker's first delay level: 1 s. The client's default begins at 10 s.
	retryLevel = 1
	// pullBatch is asked for; a broker gives at most 32 unless it is configured.
	pullBatch = 256
	// consumeTimeout is after how long the client gives a message up; its clean-up
	// goroutine outlives a consumer by as much.
	consumeTimeout = time.Minute
	// drainTimeout bounds the wait for handlers when a consumer is closed. What is not
	// done by then is delivered again.
	drainTimeout = 15 * time.Second
	// quiesce is how long a suspended consumer is left alone before it is closed: the
	// client closes a channel that a pull which has just returned may still write to.
	quiesce = 100 * time.Millisecond
)

// Consume implements admission.Queue.
func (q *Queue) Consume(ctx context.Context, batch int, linger time.Duration, f func(context.Context, []admission.Delivery) []error) error {
	if batch < 1 {
		return fmt.Errorf("topic %s: batches of %d", q.config.Topic, batch)
	}
	g := &gatherer{
		queue: q, batch: batch, linger: linger, handle: f,
		in: make(chan *arrival), seats: make(chan struct{}, q.config.Handlers), ended: make(chan struct{}),
	}
	gathering, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { g.run(gathering) })
	out := &outage{log: q.log, queue: q.config}
	for ctx.Err() == nil {
		if err := q.consumeOnce(ctx, g, out); err != nil && ctx.Err() == nil {
			out.away(time.Now(), err)
			pause(ctx, q.config.Probe)
		}
	}
	close(g.ended)
	stop()
	running.Wait()
	return nil
}

// consumeOnce runs one consumer until ctx ends or another one would do better.
func (q *Queue) consumeOnce(ctx context.Context, g *gatherer, out *outage) error {
	// The client starts happily beside a broker that is not there, then waits 30 s.
	r, err := q.wire.route(ctx, q.config.Topic)
	if err != nil {
		return err
	}
	if err := q.healthy(ctx, r); err != nil {
		return err
	}
	retries := q.hasRetryTopic(ctx)
	c, err := q.start(g)
	if err != nil {
		return err
	}
	out.back(time.Now())
	why := q.watch(ctx, c, retries, out)
	if ctx.Err() == nil {
		q.log.Info("consumer is made anew", "event", "consumer_recreated", "topic", q.config.Topic, "reason", why)
	}
	c.Suspend()
	pause(context.WithoutCancel(ctx), quiesce)
	g.drain(context.WithoutCancel(ctx))
	if err := c.Shutdown(); err != nil {
		q.log.Warn("consumer not closed cleanly", "event", "consumer_close_failed", "topic", q.config.Topic, "error", err)
	}
	return nil
}

func (q *Queue) hasRetryTopic(ctx context.Context) bool {
	_, err := q.wire.route(ctx, q.config.retryTopic())
	return err == nil
}

// pushConsumer is what we use of the client's consumer.
type pushConsumer interface {
	Start() error
	Subscribe(string, consumer.MessageSelector, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)) error
	Suspend()
	Shutdown() error
	PersistConsumerOffset() error
}

func (q *Queue) start(g *gatherer) (pushConsumer, error) {
	c, err := consumer.NewPushConsumer(
		consumer.WithNsResolver(resolver(q.config.NameServers)),
		consumer.WithGroupName(q.config.Group),
		// a new name each time: the client gives a name's connections to whoever has it
		consumer.WithInstance(fmt.Sprintf("%s-consumer-%d", q.config.Instance, q.consumer.Add(1))),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(false),
		// one message a call, so that each is acknowledged by itself; batches are gathered here
		consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithConsumeGoroutineNums(g.batch*(q.config.Handlers+1)),
		consumer.WithPullBatchSize(pullBatch),
		consumer.WithConsumeTimeout(consumeTimeout),
		consumer.WithMaxReconsumeTimes(int32(q.config.MaxAttempts-1)), //nolint:gosec // small
		consumer.WithCredentials(primitive.Credentials{AccessKey: q.config.AccessKey, SecretKey: q.config.SecretKey}),
	)
	if err != nil {
		return nil, fmt.Errorf("rocketmq consumer: %w", err)
	}
	if err := c.Subscribe(q.config.Topic, consumer.MessageSelector{}, g.arrive); err != nil {
		return nil, fmt.Errorf("rocketmq consumer: %w", err)
	}
	if err := c.Start(); err != nil {
		_ = c.Shutdown()
		return nil, fmt.Errorf("rocketmq consumer: %w", err)
	}
	return c, nil
}

// watch returns when the consumer should be closed, and why: ctx ended, the brokers
// are well again after a fault, or the retry topic, which the broker makes for a new
// group, has appeared (the client itself would find it after 39 s).
func (q *Queue) watch(ctx context.Context, c pushConsumer, retries bool, out *outage) string {
	ill := false
	for {
		pause(ctx, q.config.Probe)
		if ctx.Err() != nil {
			return "the end"
		}
		r, err := q.wire.route(ctx, q.config.Topic)
		if err == nil {
			err = q.healthy(ctx, r)
		}
		switch {
		case ctx.Err() != nil:
			return "the end"
		case err != nil:
			out.away(time.Now(), err)
			ill = true
		case ill:
			return "the broker is back"
		case !retries && q.hasRetryTopic(ctx):
			return "the retry topic is there"
		default:
			// the client does it every 5 s; Consumed and Lag should not wait for that
			if err := c.PersistConsumerOffset(); err != nil {
				q.log.Debug("offsets not stored", "event", "offset_failed", "topic", q.config.Topic, "error", err)
			}
		}
	}
}

// gatherer makes batches of messages that the client hands over one by one.
type gatherer struct {
	queue   *Queue
	batch   int
	linger  time.Duration
	handle  func(context.Context, []admission.Delivery) []error
	in      chan *arrival
	seats   chan struct{} // handlers at once
	ended   chan struct{} // closed when nothing is gathered any more
	pending atomic.Int64  // messages between arrive's beginning and end
}

type arrival struct {
	admission.Delivery
	done chan error // one result, buffered
}

// arrive is called by the client, by many goroutines at once, with one message.
func (g *gatherer) arrive(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	g.pending.Add(1)
	defer g.pending.Add(-1)
	for _, m := range messages {
		if err := g.deliver(m); err != nil {
			if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				c.DelayLevelWhenNextConsume = retryLevel
			}
			return consumer.ConsumeRetryLater, nil
		}
	}
	return consumer.ConsumeSuccess, nil
}

var errEnded = errors.New("consumer has ended")

func (g *gatherer) deliver(m *primitive.MessageExt) error {
	if m.GetProperty(propertyWarm) != "" {
		return nil
	}
	a := &arrival{
		Delivery: admission.Delivery{Body: m.Body, Key: m.GetKeys(), Attempts: int(m.ReconsumeTimes) + 1},
		done:     make(chan error, 1),
	}
	select {
	case g.in <- a:
	case <-g.ended:
		return errEnded
	}
	return <-a.done
}

// run gathers and hands over until ctx ends, then waits for the handlers.
func (g *gatherer) run(ctx context.Context) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for {
		var batch []*arrival
		select {
		case <-ctx.Done():
			return
		case a := <-g.in:
			batch = append(batch, a)
		}
		batch = g.gather(ctx, batch)
		g.seats <- struct{}{}
		handlers.Go(func() {
			defer func() { <-g.seats }()
			g.hand(ctx, batch)
		})
	}
}

func (g *gatherer) gather(ctx context.Context, batch []*arrival) []*arrival {
	timer := time.NewTimer(g.linger)
	defer timer.Stop()
	for len(batch) < g.batch {
		select {
		case a := <-g.in:
			batch = append(batch, a)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

func (g *gatherer) hand(ctx context.Context, batch []*arrival) {
	deliveries := make([]admission.Delivery, len(batch))
	for i, a := range batch {
		deliveries[i] = a.Delivery
	}
	errs, err := g.call(context.WithoutCancel(ctx), deliveries)
	for i, a := range batch {
		if err != nil {
			a.done <- err
		} else {
			a.done <- errs[i]
		}
	}
}

// call contains a panic of the handler, which would stall its messages for minutes:
// they come again.
func (g *gatherer) call(ctx context.Context, deliveries []admission.Delivery) (errs []error, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("queue handler panicked: %v", p)
			g.queue.log.Error("queue handler panicked", "event", "queue_panic", "topic", g.queue.config.Topic, "panic", fmt.Sprint(p))
		}
	}()
	errs = g.handle(ctx, deliveries)
	if len(errs) != len(deliveries) {
		return nil, fmt.Errorf("%d results for %d messages", len(errs), len(deliveries))
	}
	return errs, nil
}

// drain waits until the client has its answer to every message that it has handed over.
func (g *gatherer) drain(ctx context.Context) {
	for end := time.Now().Add(drainTimeout); g.pending.Load() > 0 && time.Now().Before(end); {
		pause(ctx, 5*time.Millisecond)
	}
}
