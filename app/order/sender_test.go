package order

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// slowQueue takes a time for every send and notes the batches. Only time is tested
// with it; every other test runs on real adapters.
type slowQueue struct {
	takes time.Duration
	fail  error

	mu      sync.Mutex
	batches [][]string
	at      []time.Duration // since the start of the test
	now     int             // sends in flight
	most    int
	start   time.Time
}

func (q *slowQueue) Send(_ context.Context, keys []string, _ [][]byte) error {
	q.mu.Lock()
	q.batches = append(q.batches, keys)
	q.at = append(q.at, time.Since(q.start))
	q.now++
	q.most = max(q.most, q.now)
	q.mu.Unlock()
	time.Sleep(q.takes)
	q.mu.Lock()
	q.now--
	q.mu.Unlock()
	return q.fail
}

func (*slowQueue) Consume(context.Context, int, time.Duration, func(context.Context, []admission.Delivery) []error) error {
	panic("not consumed here")
}
func (*slowQueue) Consumed(context.Context, time.Time) (bool, error) { return true, nil }
func (*slowQueue) Ready(context.Context) error                       { return nil }
func (*slowQueue) Close() error                                      { return nil }

// run starts a Sender over q in the test's bubble and returns how to end it.
func run(t *testing.T, q *slowQueue, c SenderConfig, acked func(admission.SKURef, string)) (*Sender, func()) {
	t.Helper()
	q.start = time.Now()
	s, err := NewSender(q, c, acked, NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func message(i int) Message { return Message{Key: fmt.Sprintf("r_%d", i), Body: []byte("{}")} }

func TestSender(t *testing.T) {
	const wait = 25 * time.Millisecond

	t.Run("one alone goes at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: time.Millisecond}
			s, stop := run(t, q, SenderConfig{}, nil)
			for i := range 3 {
				if err := s.Send(message(i), wait); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			if got := time.Since(q.start); got != 3*time.Millisecond {
				t.Errorf("three lone sends of 1 ms took %s", got)
			}
			if len(q.batches) != 3 {
				t.Errorf("batches %v: want three of one", q.batches)
			}
		})
	})

	t.Run("messages gather while a send is in flight, for at most the linger", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: 10 * time.Millisecond}
			s, stop := run(t, q, SenderConfig{}, nil)
			var all sync.WaitGroup
			send := func(i int) {
				all.Go(func() {
					if err := s.Send(message(i), wait); err != nil {
						t.Error(err)
					}
				})
			}
			send(0)
			synctest.Wait()
			for i := 1; i <= 4; i++ { // within the linger of the first of them
				send(i)
				time.Sleep(400 * time.Microsecond)
			}
			all.Wait()
			stop()
			if len(q.batches) != 2 || len(q.batches[1]) != 4 {
				t.Fatalf("batches %v: want one and four", q.batches)
			}
			if q.at[1] != 2*time.Millisecond {
				t.Errorf("the second batch went after %s: want the linger of 2 ms", q.at[1])
			}
		})
	})

	t.Run("a batch goes when nothing is in flight any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: time.Millisecond}
			s, stop := run(t, q, SenderConfig{Linger: time.Second}, nil)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() { _ = s.Send(message(i), wait) })
				synctest.Wait()
			}
			all.Wait()
			stop()
			if len(q.batches) != 2 || q.at[1] != time.Millisecond {
				t.Errorf("batches %v at %v: want the second after 1 ms", q.batches, q.at)
			}
		})
	})

	t.Run("full batches, no more than four in flight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: 5 * time.Millisecond}
			s, stop := run(t, q, SenderConfig{}, nil)
			var all sync.WaitGroup
			for i := range 1 + 32*6 {
				all.Go(func() {
					if err := s.Send(message(i), time.Second); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			stop()
			if q.most != 4 {
				t.Errorf("%d sends in flight at most: want 4", q.most)
			}
			sent := 0
			for _, b := range q.batches {
				sent += len(b)
				if len(b) > 32 {
					t.Errorf("a batch of %d", len(b))
				}
			}
			if sent != 1+32*6 || len(q.batches) > 9 {
				t.Errorf("%d messages in %d batches", sent, len(q.batches))
			}
		})
	})

	t.Run("a dead queue costs a caller its wait and no more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: time.Hour, fail: admission.ErrUnknownResult}
			s, stop := run(t, q, SenderConfig{Batch: 2, InFlight: 1}, nil)
			var all sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				all.Go(func() { errs[i] = s.Send(message(i), wait) })
				synctest.Wait() // the first is sent alone
			}
			all.Wait()
			if got := time.Since(q.start); got != wait {
				t.Errorf("the callers left after %s: want %s", got, wait)
			}
			if !errors.Is(errs[0], admission.ErrUnknownResult) {
				t.Errorf("the one that was sent: %v, want unknown", errs[0])
			}
			for i, err := range errs[1:] {
				if !errors.Is(err, admission.ErrUnavailable) {
					t.Errorf("message %d was never sent: %v, want unavailable", i+1, err)
				}
			}
			stop() // a send of one hour ends in fake time
			if len(q.batches) != 1 {
				t.Errorf("%d sends: messages whose callers left must not be sent", len(q.batches))
			}
		})
	})

	t.Run("a late acknowledgement is recorded though its caller left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var acked []string
			q := &slowQueue{takes: 40 * time.Millisecond}
			s, stop := run(t, q, SenderConfig{}, func(_ admission.SKURef, id string) { acked = append(acked, id) })
			if err := s.Send(message(7), wait); !errors.Is(err, admission.ErrUnknownResult) {
				t.Errorf("got %v: want unknown", err)
			}
			stop()
			if len(acked) != 1 || acked[0] != "r_7" {
				t.Errorf("acknowledged %v", acked)
			}
		})
	})

	t.Run("a full buffer refuses at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, err := NewSender(&slowQueue{}, SenderConfig{Waiting: 1}, nil, NewMetrics(nil)) // not running
			if err != nil {
				t.Fatal(err)
			}
			var first sync.WaitGroup
			first.Go(func() { _ = s.Send(message(1), time.Second) })
			defer first.Wait()
			synctest.Wait()
			start := time.Now()
			if err := s.Send(message(2), time.Second); !errors.Is(err, admission.ErrUnavailable) {
				t.Errorf("got %v: want unavailable", err)
			}
			if time.Since(start) != 0 {
				t.Errorf("waited %s", time.Since(start))
			}
		})
	})

	t.Run("shutdown sends what was accepted and refuses the rest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &slowQueue{takes: 3 * time.Millisecond}
			s, stop := run(t, q, SenderConfig{Batch: 4, InFlight: 1, Linger: time.Hour}, nil)
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					if err := s.Send(message(i), wait); err != nil {
						t.Errorf("message %d: %v", i, err)
					}
				})
			}
			synctest.Wait()
			stop()
			all.Wait()
			if err := s.Send(message(11), wait); !errors.Is(err, admission.ErrUnavailable) {
				t.Errorf("after the end: %v, want unavailable", err)
			}
		})
	})

	t.Run("a panic of the queue is an unknown result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, err := NewSender(panicQueue{}, SenderConfig{}, nil, NewMetrics(nil))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = s.Run(ctx) }()
			if err := s.Send(message(1), wait); !errors.Is(err, admission.ErrUnknownResult) {
				t.Errorf("got %v: want unknown", err)
			}
			cancel()
			synctest.Wait()
		})
	})
}

type panicQueue struct{ *slowQueue }

func (panicQueue) Send(context.Context, []string, [][]byte) error { panic("broken client") }
