package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// QueueConfig names a queue and its bounds.
type QueueConfig struct {
	Stream      string        // default "seckill_order"
	Group       string        // default "seckill_order_consumer"
	Consumer    string        // this process; unique, random per boot
	MaxLen      int64         // messages not acknowledged; default 2^20, more are refused
	SendTimeout time.Duration // of one send; default 100 ms
	RetryAfter  time.Duration // until a failed message comes again; default 1 s
	Abandoned   time.Duration // after which a message of a consumer that died is taken over; default 5 s. A handler that takes longer sees its messages delivered twice
	Workers     int           // handlers at once; default 4
}

func (c QueueConfig) withDefaults() QueueConfig {
	if c.Stream == "" {
		c.Stream = "seckill_order"
	}
	if c.Group == "" {
		c.Group = "seckill_order_consumer"
	}
	if c.MaxLen == 0 {
		c.MaxLen = 1 << 20
	}
	if c.SendTimeout == 0 {
		c.SendTimeout = 100 * time.Millisecond
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	if c.Abandoned == 0 {
		c.Abandoned = 5 * time.Second
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	return c
}

const (
	// maxSend bounds one batch; queue_send.lua holds the same number.
	maxSend = 256
	// readBlock bounds how long a read waits in the server, and so how long a consumer
	// takes to notice that it shall end: a blocked command hears of no cancelled context.
	readBlock = 200 * time.Millisecond
	// readPause is the wait after a fault of the server.
	readPause = 250 * time.Millisecond
	// maxFailed bounds the messages that wait for their next delivery here; above it no
	// new ones are read.
	maxFailed = 8192
)

// Queue implements admission.Queue on a Redis Stream with a consumer group.
//
// An acknowledged message is deleted with its acknowledgement, in one transaction, so
// the stream holds exactly what is not acknowledged. Its length is bounded by refusing
// sends, never by trimming. A failed message stays with its consumer and comes again
// after RetryAfter; those of a consumer that died are taken over after Abandoned.
//
// When Redis dies sends fail within SendTimeout and consumers wait for it; a stream
// lost with it is made anew, and recovery sends the reservations again.
type Queue struct {
	client   goredis.UniversalClient
	config   QueueConfig
	log      *slog.Logger
	send     *Script
	consumed *Script
}

// NewQueue returns the queue; nothing is created before Ready or Consume. The caller
// closes the client.
func NewQueue(c goredis.UniversalClient, config QueueConfig, log *slog.Logger) (*Queue, error) {
	config = config.withDefaults()
	if config.Consumer == "" {
		return nil, errors.New("redis queue: no consumer name")
	}
	return &Queue{
		client: c, config: config, log: log,
		send: NewScript("queue_send"), consumed: NewScript("queue_consumed"),
	}, nil
}

// Send implements admission.Queue.
func (q *Queue) Send(ctx context.Context, keys []string, bodies [][]byte) error {
	if err := admission.CheckBatch(keys, bodies); err != nil {
		return fmt.Errorf("queue %s: %w", q.config.Stream, err)
	}
	if len(keys) > maxSend {
		return fmt.Errorf("%w: queue %s: %d messages in one send, at most %d", admission.ErrUnavailable, q.config.Stream, len(keys), maxSend)
	}
	if len(keys) == 0 {
		return nil
	}
	args := make([]any, 1, 1+2*len(keys))
	args[0] = q.config.MaxLen
	for i := range keys {
		args = append(args, keys[i], bodies[i])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.config.SendTimeout)
	defer cancel()
	values, err := q.send.Run(ctx, q.client, []string{q.config.Stream}, args...)
	if err != nil {
		return err
	}
	f := fields{op: q.send.Name(), left: values}
	appended, length := f.int(), f.int()
	if err := f.end(); err != nil {
		return err
	}
	if appended != 1 {
		return fmt.Errorf("%w: queue %s is full: %d messages are not acknowledged", admission.ErrUnavailable, q.config.Stream, length)
	}
	return nil
}

// Consumed implements admission.Queue.
func (q *Queue) Consumed(ctx context.Context, at time.Time) (bool, error) {
	ago := max(time.Since(at).Milliseconds(), 0)
	values, err := q.consumed.Run(ctx, q.client, []string{q.config.Stream}, ago)
	if err != nil {
		return false, err
	}
	f := fields{op: q.consumed.Name(), left: values}
	done := f.int() == 1
	return done, f.end()
}

// Lag is how many messages are not acknowledged.
func (q *Queue) Lag(ctx context.Context) (int64, error) {
	n, err := q.client.XLen(ctx, q.config.Stream).Result()
	return n, Classify("queue length", err)
}

// Ready implements admission.Queue: it creates the stream and the group when absent.
func (q *Queue) Ready(ctx context.Context) error {
	err := q.client.XGroupCreateMkStream(ctx, q.config.Stream, q.config.Group, "0").Err()
	if err != nil && !goredis.HasErrorPrefix(err, "BUSYGROUP") {
		return Classify("create group", err)
	}
	return nil
}

// Close implements admission.Queue; the client belongs to the caller.
func (q *Queue) Close() error { return nil }

// Consume implements admission.Queue.
func (q *Queue) Consume(ctx context.Context, batch int, linger time.Duration, f func(context.Context, []admission.Delivery) []error) error {
	if batch < 1 {
		return fmt.Errorf("queue %s: batches of %d", q.config.Stream, batch)
	}
	c := &streamConsumer{
		Queue: q, batch: batch, linger: linger, handle: f,
		seats:    make(chan struct{}, q.config.Workers),
		inFlight: make(map[string]struct{}), failed: make(map[string]time.Time),
	}
	return c.run(ctx)
}

// streamConsumer is one call of Consume.
type streamConsumer struct {
	*Queue
	batch   int
	linger  time.Duration
	handle  func(context.Context, []admission.Delivery) []error
	seats   chan struct{} // handlers at once
	workers sync.WaitGroup

	mu       sync.Mutex
	inFlight map[string]struct{}  // entries that a handler has; guarded by mu
	failed   map[string]time.Time // entry -> when it comes again; guarded by mu
}

// run reads until ctx ends, then waits for the handlers. One goroutine reads new
// messages, one redelivers.
func (c *streamConsumer) run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { c.loop(ctx, c.readNew) })
	loops.Go(func() { c.loop(ctx, c.redeliver) })
	loops.Wait()
	c.workers.Wait()
	c.retire(context.WithoutCancel(ctx))
	return nil
}

// loop repeats step until ctx ends. A fault pauses it and makes the group anew, which
// a lost stream needs.
func (c *streamConsumer) loop(ctx context.Context, step func(context.Context) error) {
	err := c.Ready(ctx)
	for ctx.Err() == nil {
		if err == nil {
			err = step(ctx)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		c.log.Warn("queue is away", "event", "queue_away", "queue", c.config.Stream, "error", err)
		pause(ctx, readPause)
		err = c.Ready(ctx)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// readNew gathers one batch of messages that nobody has had.
func (c *streamConsumer) readNew(ctx context.Context) error {
	if c.waiting() >= maxFailed {
		pause(ctx, readPause)
		return nil
	}
	entries, err := c.read(ctx, c.batch, readBlock)
	if err != nil || len(entries) == 0 {
		return err
	}
	for deadline := time.Now().Add(c.linger); len(entries) < c.batch && ctx.Err() == nil; {
		left := time.Until(deadline).Truncate(time.Millisecond) // BLOCK 0 would wait for ever
		if left <= 0 {
			break
		}
		more, err := c.read(ctx, c.batch-len(entries), min(left, readBlock))
		if err != nil {
			c.log.Warn("queue is away", "event", "queue_away", "queue", c.config.Stream, "error", err)
			break // what was read is handled
		}
		entries = append(entries, more...)
	}
	c.dispatch(ctx, entries, nil)
	return nil
}

func (c *streamConsumer) read(ctx context.Context, count int, block time.Duration) ([]goredis.XMessage, error) {
	streams, err := c.client.XReadGroup(context.WithoutCancel(ctx), &goredis.XReadGroupArgs{
		Group: c.config.Group, Consumer: c.config.Consumer, Streams: []string{c.config.Stream, ">"},
		Count: int64(count), Block: block,
	}).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, Classify("read queue", err)
	}
	if len(streams) == 0 {
		return nil, nil
	}
	return streams[0].Messages, nil
}

// redeliver brings back failed messages that are due, then those of consumers that died.
func (c *streamConsumer) redeliver(ctx context.Context) error {
	pause(ctx, c.config.RetryAfter/4)
	for ctx.Err() == nil {
		ids := c.due(time.Now())
		if len(ids) == 0 {
			break
		}
		entries, err := c.client.XClaim(ctx, &goredis.XClaimArgs{
			Stream: c.config.Stream, Group: c.config.Group, Consumer: c.config.Consumer,
			MinIdle:  c.config.RetryAfter / 2, // somebody who took it over meanwhile keeps it
			Messages: ids,
		}).Result()
		if err != nil {
			c.again(ids, time.Now())
			return Classify("claim failed messages", err)
		}
		if err := c.deliverAgain(ctx, entries); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		entries, _, err := c.client.XAutoClaim(ctx, &goredis.XAutoClaimArgs{
			Stream: c.config.Stream, Group: c.config.Group, Consumer: c.config.Consumer,
			MinIdle: c.config.Abandoned, Start: "0-0", Count: int64(c.batch),
		}).Result()
		if err != nil {
			return Classify("claim abandoned messages", err)
		}
		if err := c.deliverAgain(ctx, c.unknown(entries)); err != nil {
			return err
		}
		if len(entries) < c.batch {
			break
		}
	}
	return nil
}

func (c *streamConsumer) deliverAgain(ctx context.Context, entries []goredis.XMessage) error {
	if len(entries) == 0 {
		return nil
	}
	attempts, err := c.attempts(ctx, entries)
	if err != nil {
		c.again(ids(entries), time.Now().Add(c.config.RetryAfter))
		return err
	}
	c.dispatch(ctx, entries, attempts)
	return nil
}

// attempts reads how often each entry was delivered.
func (c *streamConsumer) attempts(ctx context.Context, entries []goredis.XMessage) (map[string]int, error) {
	pipe := c.client.Pipeline()
	cmds := make([]*goredis.XPendingExtCmd, len(entries))
	for i, e := range entries {
		cmds[i] = pipe.XPendingExt(ctx, &goredis.XPendingExtArgs{
			Stream: c.config.Stream, Group: c.config.Group, Start: e.ID, End: e.ID, Count: 1,
		})
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, goredis.Nil) {
		return nil, Classify("delivery counts", err)
	}
	counts := make(map[string]int, len(entries))
	for _, cmd := range cmds {
		for _, p := range cmd.Val() {
			counts[p.ID] = int(p.RetryCount)
		}
	}
	return counts, nil
}

// dispatch hands entries to a handler, waiting for a seat: that is the back pressure.
func (c *streamConsumer) dispatch(ctx context.Context, entries []goredis.XMessage, attempts map[string]int) {
	c.mu.Lock()
	for _, e := range entries {
		c.inFlight[e.ID] = struct{}{}
		delete(c.failed, e.ID)
	}
	c.mu.Unlock()
	c.seats <- struct{}{}
	c.workers.Go(func() {
		defer func() { <-c.seats }()
		deliveries := make([]admission.Delivery, len(entries))
		for i, e := range entries {
			key, _ := e.Values["k"].(string)
			body, _ := e.Values["b"].(string)
			deliveries[i] = admission.Delivery{Key: key, Body: []byte(body), Attempts: max(attempts[e.ID], 1)}
		}
		c.settle(context.WithoutCancel(ctx), entries, c.call(ctx, deliveries))
	})
}

// call contains a panic of the handler: its messages come again.
func (c *streamConsumer) call(ctx context.Context, deliveries []admission.Delivery) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("queue handler panicked", "event", "queue_panic", "queue", c.config.Stream, "panic", fmt.Sprint(p))
			errs = nil
		}
	}()
	return c.handle(ctx, deliveries)
}

// settle acknowledges and deletes what was handled; the rest comes again.
func (c *streamConsumer) settle(ctx context.Context, entries []goredis.XMessage, errs []error) {
	var done, again []string
	for i, e := range entries {
		if len(errs) == len(entries) && errs[i] == nil {
			done = append(done, e.ID)
		} else {
			again = append(again, e.ID)
		}
	}
	if len(done) > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.XAck(ctx, c.config.Stream, c.config.Group, done...)
			p.XDel(ctx, c.config.Stream, done...)
			return nil
		})
		if err != nil { // handled, not acknowledged: at least once
			c.log.Warn("messages not acknowledged; they come again", "event", "queue_ack_failed",
				"queue", c.config.Stream, "count", len(done), "error", err)
			again = append(again, done...)
		}
	}
	c.mu.Lock()
	for _, e := range entries {
		delete(c.inFlight, e.ID)
	}
	c.mu.Unlock()
	c.again(again, time.Now().Add(c.config.RetryAfter))
}

func (c *streamConsumer) again(ids []string, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.failed[id] = due
	}
}

func (c *streamConsumer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failed)
}

// due takes at most a batch of failed entries whose time has come.
func (c *streamConsumer) due(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, at := range c.failed {
		if !at.After(now) && len(ids) < c.batch {
			ids = append(ids, id)
			delete(c.failed, id)
		}
	}
	return ids
}

// unknown leaves out entries that this consumer has: a slow handler is no dead one.
func (c *streamConsumer) unknown(entries []goredis.XMessage) []goredis.XMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []goredis.XMessage
	for _, e := range entries {
		_, busy := c.inFlight[e.ID]
		_, due := c.failed[e.ID]
		if !busy && !due {
			out = append(out, e)
		}
	}
	return out
}

// retire removes this consumer's name from the group when nothing of it is left, or
// names would pile up. Nobody reads under the name any more, so nothing can be lost.
func (c *streamConsumer) retire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	left, err := c.client.XPendingExt(ctx, &goredis.XPendingExtArgs{
		Stream: c.config.Stream, Group: c.config.Group, Start: "-", End: "+", Count: 1, Consumer: c.config.Consumer,
	}).Result()
	if err == nil && len(left) == 0 {
		c.client.XGroupDelConsumer(ctx, c.config.Stream, c.config.Group, c.config.Consumer)
	}
}

func ids(entries []goredis.XMessage) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.ID
	}
	return out
}
