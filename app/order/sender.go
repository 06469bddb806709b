package order

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// SenderConfig are the bounds of a Sender.
type SenderConfig struct {
	Batch    int           // messages of one send; default 32: a broker's pull carries no more unless configured
	Linger   time.Duration // longest wait of a batch's first message while another send is in flight; default 2 ms
	InFlight int           // sends at once; default 4
	Waiting  int           // messages accepted and not yet sent; default 4096, more are refused at once
}

func (c SenderConfig) withDefaults() SenderConfig {
	if c.Batch == 0 {
		c.Batch = 32
	}
	if c.Linger == 0 {
		c.Linger = 2 * time.Millisecond
	}
	if c.InFlight == 0 {
		c.InFlight = 4
	}
	if c.Waiting == 0 {
		c.Waiting = 4096
	}
	return c
}

func (c SenderConfig) validate() error {
	if c.Batch < 1 || c.InFlight < 1 || c.Waiting < 1 || c.Linger < 0 {
		return fmt.Errorf("sender: batch %d, in flight %d, waiting %d, linger %s: want positive", c.Batch, c.InFlight, c.Waiting, c.Linger)
	}
	return nil
}

// Message is one reservation's message, ready to be sent.
type Message struct {
	Ref  admission.SKURef
	Key  string // reservation_id
	Body []byte
}

// Sender joins the sends of many callers into batches: a lone message goes at once;
// while sends are in flight messages gather until there are Batch of them, the first
// has waited for Linger, or nothing is in flight any more.
//
// A caller leaves after its own wait, whatever the queue does, so a dead queue costs a
// submit that wait and no more. A message whose caller left before it was sent is
// dropped: certainly unsent, and recovery's.
type Sender struct {
	queue   admission.Queue
	config  SenderConfig
	acked   func(ref admission.SKURef, reservationID string)
	metrics *Metrics

	in     chan *outgoing
	closed atomic.Bool
}

// NewSender returns a Sender that sends nothing before Run. acked is called once for
// every acknowledged message, also when its caller has left; it must not block.
func NewSender(q admission.Queue, c SenderConfig, acked func(admission.SKURef, string), m *Metrics) (*Sender, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Sender{queue: q, config: c, acked: acked, metrics: m, in: make(chan *outgoing, c.Waiting)}, nil
}

// The states of an outgoing message. Whoever moves it from waiting decides its fate.
const (
	waiting int32 = iota
	taken         // in a batch
	left          // its caller has gone
)

type outgoing struct {
	Message
	state atomic.Int32
	done  chan error // one result, buffered
}

var (
	errSenderFull   = fmt.Errorf("%w: sender is full", admission.ErrUnavailable)
	errSenderClosed = fmt.Errorf("%w: sender is closed", admission.ErrUnavailable)
	errNotTaken     = fmt.Errorf("%w: not sent in time", admission.ErrUnavailable)
	errNoResult     = fmt.Errorf("%w: send not acknowledged in time", admission.ErrUnknownResult)
)

// Send hands m over and waits for at most wait. nil: acknowledged. ErrUnavailable:
// certainly not sent, and it will not be. ErrUnknownResult: it may have been.
func (s *Sender) Send(m Message, wait time.Duration) error {
	if s.closed.Load() {
		s.metrics.send[sendUnavailable].Inc()
		return errSenderClosed
	}
	o := &outgoing{Message: m, done: make(chan error, 1)}
	select {
	case s.in <- o:
	default:
		s.metrics.send[sendFull].Inc()
		return errSenderFull
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-o.done:
		return s.ended(err)
	case <-timer.C:
	}
	if o.state.CompareAndSwap(waiting, left) {
		s.metrics.send[sendLeft].Inc()
		return errNotTaken
	}
	select {
	case err := <-o.done: // it came while the timer fired
		return s.ended(err)
	default:
		return s.ended(errNoResult)
	}
}

func (s *Sender) ended(err error) error {
	switch {
	case err == nil:
		s.metrics.send[sendAcked].Inc()
	case errors.Is(err, admission.ErrUnavailable):
		s.metrics.send[sendUnavailable].Inc()
	default:
		s.metrics.send[sendUnknown].Inc()
	}
	return err
}

// Run sends until ctx ends; then it refuses new messages, sends what it has accepted
// and returns when the last send has ended. The queue bounds each send, so the drain
// is bounded by Waiting / (Batch x InFlight) of them.
func (s *Sender) Run(ctx context.Context) error {
	sends := context.WithoutCancel(ctx) // a context that ends during a send may close a shared connection
	var (
		batch    = make([]*outgoing, 0, s.config.Batch)
		inFlight int
		finished = make(chan struct{}, s.config.InFlight)
		late     bool // the first of batch has waited for Linger
		linger   = time.NewTimer(s.config.Linger)
		stop     = ctx.Done()
	)
	defer linger.Stop()
	for {
		for len(batch) > 0 && inFlight < s.config.InFlight &&
			(len(batch) == s.config.Batch || inFlight == 0 || late) {
			if out := take(batch); len(out) > 0 {
				inFlight++
				go func() {
					s.send(sends, out)
					finished <- struct{}{}
				}()
			}
			batch, late = batch[:0], false
		}
		if s.closed.Load() && len(batch) == 0 && inFlight == 0 && len(s.in) == 0 {
			return nil
		}
		in := s.in
		if len(batch) == s.config.Batch {
			in = nil // full: wait for a send to end
		}
		select {
		case o := <-in:
			if len(batch) == 0 {
				late = false // it was of a batch that has gone
				linger.Reset(s.config.Linger)
			}
			batch = append(batch, o)
			batch = s.gather(batch)
		case <-linger.C:
			late = true
		case <-finished:
			inFlight--
		case <-stop:
			stop = nil
			s.closed.Store(true)
		}
		s.metrics.waiting.Set(float64(len(batch) + len(s.in)))
	}
}

// gather adds what is already there, without waiting.
func (s *Sender) gather(batch []*outgoing) []*outgoing {
	for len(batch) < s.config.Batch {
		select {
		case o := <-s.in:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// take claims the messages whose callers still wait.
func take(batch []*outgoing) []*outgoing {
	out := make([]*outgoing, 0, len(batch))
	for _, o := range batch {
		if o.state.CompareAndSwap(waiting, taken) {
			out = append(out, o)
		}
	}
	return out
}

func (s *Sender) send(ctx context.Context, batch []*outgoing) {
	keys, bodies := make([]string, len(batch)), make([][]byte, len(batch))
	for i, o := range batch {
		keys[i], bodies[i] = o.Key, o.Body
	}
	s.metrics.batch.Observe(float64(len(batch)))
	err := s.try(ctx, keys, bodies)
	for _, o := range batch {
		if err == nil && s.acked != nil {
			s.acked(o.Ref, o.Key)
		}
		o.done <- err
	}
}

func (s *Sender) try(ctx context.Context, keys []string, bodies [][]byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.metrics.panics.Inc()
			err = fmt.Errorf("%w: panic in send: %v", admission.ErrUnknownResult, p)
		}
	}()
	return s.queue.Send(ctx, keys, bodies)
}
