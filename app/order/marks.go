package order

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// MarksConfig are the bounds of Marks.
type MarksConfig struct {
	Batch          int           // marks gathered for one write; default 256
	Linger         time.Duration // longest wait of a mark; default 10 ms, far below the send grace
	Buffer         int           // marks waiting; default 16384, more are dropped and sent again by recovery
	Timeout        time.Duration // of one write; default 1 s
	ReservationTTL time.Duration // from now until recovery looks at a sent reservation; default 15 s
}

func (c MarksConfig) withDefaults() MarksConfig {
	if c.Batch == 0 {
		c.Batch = 256
	}
	if c.Linger == 0 {
		c.Linger = 10 * time.Millisecond
	}
	if c.Buffer == 0 {
		c.Buffer = 16384
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.ReservationTTL == 0 {
		c.ReservationTTL = 15 * time.Second
	}
	return c
}

// Marks records, in batches and off the request's path, that messages were
// acknowledged. A lost mark costs one more send and nothing else.
type Marks struct {
	stock   admission.Stock
	config  MarksConfig
	metrics *Metrics
	log     *slog.Logger
	in      chan mark
}

type mark struct {
	ref admission.SKURef
	id  string
}

// NewMarks returns Marks that record nothing before Run.
func NewMarks(s admission.Stock, c MarksConfig, m *Metrics, log *slog.Logger) *Marks {
	c = c.withDefaults()
	return &Marks{stock: s, config: c, metrics: m, log: log, in: make(chan mark, c.Buffer)}
}

// Add notes an acknowledged message. It never blocks.
func (m *Marks) Add(ref admission.SKURef, reservationID string) {
	select {
	case m.in <- mark{ref, reservationID}:
	default:
		m.metrics.markDropped.Inc()
	}
}

// Run writes marks until ctx ends, then those that are left, and returns.
func (m *Marks) Run(ctx context.Context) error {
	writes := context.WithoutCancel(ctx)
	batch := make(map[admission.SKURef][]string)
	count := 0
	linger := time.NewTimer(m.config.Linger)
	defer linger.Stop()
	for {
		select {
		case k := <-m.in:
			if count == 0 {
				linger.Reset(m.config.Linger)
			}
			batch[k.ref] = append(batch[k.ref], k.id)
			if count++; count < m.config.Batch {
				continue
			}
		case <-linger.C:
		case <-ctx.Done():
			for len(m.in) > 0 {
				k := <-m.in
				batch[k.ref] = append(batch[k.ref], k.id)
			}
			m.write(writes, batch)
			return nil
		}
		m.write(writes, batch)
		clear(batch)
		count = 0
	}
}

func (m *Marks) write(ctx context.Context, batch map[admission.SKURef][]string) {
	for ref, ids := range batch {
		ctx, cancel := context.WithTimeout(ctx, m.config.Timeout)
		err := m.stock.MarkSent(ctx, ref, ids, time.Now().Add(m.config.ReservationTTL))
		cancel()
		if err != nil {
			m.metrics.markFailed.Add(float64(len(ids)))
			m.log.Warn("sent messages not recorded; recovery sends them again",
				"event", "mark_failed", "activity_id", ref.ActivityID, "sku_id", ref.SKUID, "count", len(ids), "error", err)
			continue
		}
		m.metrics.marked.Add(float64(len(ids)))
	}
}
