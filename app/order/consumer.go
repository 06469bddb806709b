package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// ConsumerConfig are the bounds of a Consumer.
type ConsumerConfig struct {
	Batch   int           // messages of one transaction; default 200
	Linger  time.Duration // longest wait of a batch's first message; default 20 ms
	Timeout time.Duration // of deciding and applying one batch; default 10 s
	// PoisonAfter deliveries a message that SQL refuses for a reason of its own (never
	// because SQL is away) is a dead letter, and one that SQL has decided but the stock
	// does not take is left to recovery; default 10.
	PoisonAfter int
	Now         func() time.Time // wall clock; nil: time.Now
	// Verdict is told every verdict after its commit, repeats included; it must not
	// block. nil is allowed.
	Verdict func(admission.Verdict)
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.Linger == 0 {
		c.Linger = 20 * time.Millisecond
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.PoisonAfter == 0 {
		c.PoisonAfter = 10
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Verdict == nil {
		c.Verdict = func(admission.Verdict) {}
	}
	return c
}

// Consumer decides order messages in SQL and carries the verdicts into the stock. A
// message is acknowledged once its verdict is in both, once it is a dead letter, or
// once it has come PoisonAfter times with its verdict in SQL only; until then it comes
// again, and repeats change nothing.
type Consumer struct {
	decider decider
	stock   admission.Stock
	config  ConsumerConfig
	metrics *Metrics
	log     *slog.Logger
}

// NewConsumer returns a Consumer.
func NewConsumer(o admission.Orders, s admission.Stock, c ConsumerConfig, m *Metrics, log *slog.Logger) *Consumer {
	return &Consumer{decider: decider{o, m}, stock: s, config: c.withDefaults(), metrics: m, log: log}
}

// Run consumes from q until ctx ends.
func (c *Consumer) Run(ctx context.Context, q admission.Queue) error {
	return q.Consume(ctx, c.config.Batch, c.config.Linger, c.Handle)
}

// Handle decides one batch; errs[i] belongs to deliveries[i], nil acknowledges. It
// finishes what it began when ctx ends: an interrupted transaction would only be
// repeated.
func (c *Consumer) Handle(ctx context.Context, deliveries []admission.Delivery) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
	defer cancel()

	errs := make([]error, len(deliveries))
	messages := make([]admission.OrderMessage, 0, len(deliveries))
	from := make([]int, 0, len(deliveries)) // messages[i] is deliveries[from[i]]
	for i, d := range deliveries {
		m, err := Decode(d.Key, d.Body)
		if err != nil {
			errs[i] = c.bury(ctx, d, err)
			continue
		}
		messages, from = append(messages, m), append(from, i)
	}

	verdicts, failed := c.decider.decide(ctx, c.config.Now(), messages)
	decided := make([]admission.Verdict, 0, len(verdicts))
	for i, err := range failed {
		d := deliveries[from[i]]
		switch {
		case err == nil:
			decided = append(decided, verdicts[i])
		case errors.Is(err, errPoison), !away(err) && d.Attempts >= c.config.PoisonAfter:
			errs[from[i]] = c.bury(ctx, d, err)
		default:
			errs[from[i]] = fmt.Errorf("decide %s: %w", messages[i].ReservationID, err)
		}
	}

	if err := c.apply(ctx, decided); err != nil {
		c.metrics.applyFailed[byConsumer].Inc()
		c.log.Warn("verdicts did not reach the stock; their messages come again",
			"event", "effect_failed", "count", len(decided), "error", err)
		for i := range failed {
			if failed[i] == nil && deliveries[from[i]].Attempts < c.config.PoisonAfter {
				errs[from[i]] = fmt.Errorf("apply %s: %w", messages[i].ReservationID, err)
			}
		}
	}
	return errs
}

// apply runs after the commit; SQL has decided whatever happens here.
func (c *Consumer) apply(ctx context.Context, verdicts []admission.Verdict) (err error) {
	if len(verdicts) == 0 {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			c.metrics.panics.Inc()
			err = fmt.Errorf("panic while applying: %v", p)
		}
	}()
	for _, v := range verdicts {
		c.config.Verdict(v)
	}
	return c.stock.Apply(ctx, verdicts)
}

// bury keeps a message that can never be decided. When even that fails it comes again.
func (c *Consumer) bury(ctx context.Context, d admission.Delivery, cause error) error {
	c.log.Error("order message is a dead letter", "event", "dead_letter", "attempts", d.Attempts, "error", cause)
	if err := c.decider.orders.DeadLetter(ctx, d.Body, cause.Error(), c.config.Now()); err != nil {
		return fmt.Errorf("dead letter: %w", err)
	}
	c.metrics.deadLetters.Inc()
	return nil
}
