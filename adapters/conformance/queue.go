package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// QueueBackend is one empty queue: a topic and a group of its own.
type QueueBackend struct {
	// Open opens another client of the same topic and group, as another process would.
	Open func(t *testing.T) admission.Queue
	// HandOver bounds how long a message of a consumer that ended waits for another one.
	HandOver time.Duration
	// Settled bounds how long Consumed takes to become true after the last acknowledgement.
	Settled time.Duration
}

const (
	queueBatch  = 50
	queueLinger = 20 * time.Millisecond
	queueArrive = time.Minute // generous: the machine may be busy
)

// Queues is what every admission.Queue promises. Its cases run in parallel: most wait
// for a redelivery.
func Queues(t *testing.T, open func(*testing.T) QueueBackend) {
	t.Run("everything sent arrives once, whole, with its key", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 100, 32)
		c := consume(t, q, nil)
		c.waitFor(t, sent, queueArrive)
		for _, d := range c.deliveries() {
			if want := queueBody(d.Key); !bytes.Equal(d.Body, want) {
				t.Errorf("key %s: body %q, want %q", d.Key, d.Body, want)
			}
			if d.Attempts != 1 {
				t.Errorf("key %s: attempt %d on the first delivery", d.Key, d.Attempts)
			}
		}
		if n := len(c.deliveries()); n != len(sent) {
			t.Errorf("%d deliveries of %d messages, and nothing failed", n, len(sent))
		}
	})

	t.Run("a consumer that is already there gets what is sent later", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		c := consume(t, q, nil)
		c.waitFor(t, send(t, q, 0, 1, 1), queueArrive)
		fastest := queueArrive // of several: others may hold the machine up
		for i := 1; i < 6 && fastest > 2*time.Second; i++ {
			began := time.Now()
			c.waitFor(t, send(t, q, i, i+1, 1), queueArrive)
			fastest = min(fastest, time.Since(began))
		}
		if fastest > 2*time.Second {
			t.Errorf("a message took %s or more to a consumer that waits for it", fastest)
		}
	})

	t.Run("batches are gathered and no larger than asked", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 400, 32)
		c := consume(t, q, nil)
		c.waitFor(t, sent, queueArrive)
		largest := c.largestBatch()
		if largest > queueBatch || largest < 2 {
			t.Errorf("largest batch of 400 waiting messages: %d, want 2 to %d", largest, queueBatch)
		}
	})

	t.Run("of a batch only what failed comes again, after about a second", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 20, 20)
		bad := map[string]bool{sent[3]: true, sent[7]: true, sent[11]: true, sent[13]: true}
		var mu sync.Mutex
		first, second := map[string]time.Time{}, map[string]time.Time{}
		c := consume(t, q, func(d admission.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if !bad[d.Key] {
				return nil
			}
			if d.Attempts == 1 {
				first[d.Key] = time.Now()
				return errors.New("not yet")
			}
			second[d.Key] = time.Now()
			return nil
		})
		c.waitFor(t, sent, queueArrive)
		soonest := queueArrive // the others may have met a busy machine
		for key := range bad {
			mu.Lock()
			wait := second[key].Sub(first[key])
			mu.Unlock()
			if soonest = min(soonest, wait); wait < 500*time.Millisecond {
				t.Errorf("%s came again after %s: want about 1 s", key, wait)
			}
		}
		if soonest > 6*time.Second {
			t.Errorf("none came again before %s: want about 1 s", soonest)
		}
		for key, n := range c.counts() {
			if want := 1 + btoi(bad[key]); n != want {
				t.Errorf("%s was delivered %d times, want %d", key, n, want)
			}
		}
	})

	t.Run("attempts rise", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 1, 1)
		c := consume(t, q, func(d admission.Delivery) error {
			if d.Attempts < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		c.waitFor(t, sent, queueArrive)
		for i, d := range c.deliveries() {
			if d.Attempts != i+1 {
				t.Errorf("delivery %d says attempt %d", i+1, d.Attempts)
			}
		}
	})

	t.Run("a panic of the handler is contained and its messages come again", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 5, 5)
		var once sync.Map
		c := consume(t, q, func(d admission.Delivery) error {
			if _, again := once.LoadOrStore(d.Key, true); !again {
				panic("a broken handler")
			}
			return nil
		})
		c.waitFor(t, sent, queueArrive)
	})

	t.Run("bodies of 8 KiB arrive, larger ones and broken batches are refused", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		whole := bytes.Repeat([]byte("x"), admission.MaxMessageLen)
		if err := q.Send(t.Context(), []string{"r_whole_body"}, [][]byte{whole}); err != nil {
			t.Fatalf("8 KiB: %v", err)
		}
		for name, err := range map[string]error{
			"8 KiB and a byte": q.Send(t.Context(), []string{"r_too_large_"}, [][]byte{append(whole, 'x')}),
			"no key":           q.Send(t.Context(), []string{""}, [][]byte{[]byte("x")}),
			"no body":          q.Send(t.Context(), []string{"r_no_body___"}, [][]byte{nil}),
			"keys and bodies":  q.Send(t.Context(), []string{"r_a_key_____", "r_another___"}, [][]byte{[]byte("x")}),
		} {
			if !errors.Is(err, admission.ErrUnavailable) {
				t.Errorf("%s: %v, want unavailable", name, err)
			}
		}
		c := consume(t, q, nil)
		c.waitFor(t, []string{"r_whole_body"}, queueArrive)
		if d := c.deliveries(); len(d) != 1 || !bytes.Equal(d[0].Body, whole) {
			t.Errorf("%d deliveries, the first of %d bytes", len(d), len(d[0].Body))
		}
	})

	t.Run("a cancelled context does not stop a send under way", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Send(ctx, []string{"r_cancelled_"}, [][]byte{[]byte("x")}); err != nil {
			t.Fatalf("a send whose caller has gone: %v", err)
		}
		c := consume(t, q, nil)
		c.waitFor(t, []string{"r_cancelled_"}, queueArrive)
	})

	t.Run("consumed is false until everything sent before is acknowledged", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 40, 32)
		at := time.Now()
		consumed(t, q, at, false)
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		defer release()
		c := consume(t, q, func(d admission.Delivery) error {
			if d.Key == sent[7] {
				<-hold
			}
			return nil
		})
		eventually(t, queueArrive, "delivery of the held message", func() bool { return c.counts()[sent[7]] > 0 })
		for range 5 {
			consumed(t, q, at, false)
		}
		release()
		c.waitFor(t, sent, queueArrive)
		eventually(t, b.Settled, "consumed", func() bool {
			done, err := q.Consumed(t.Context(), at)
			return err == nil && done
		})
		if done, err := b.Open(t).Consumed(t.Context(), at); err != nil {
			t.Errorf("asked by another process: %t, %v", done, err)
		}
	})

	t.Run("consumed is false while a failed message waits for its next delivery", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		q := b.Open(t)
		sent := send(t, q, 0, 3, 3)
		at := time.Now()
		var fail sync.Map
		fail.Store(sent[1], true)
		c := consume(t, q, func(d admission.Delivery) error {
			if _, bad := fail.Load(d.Key); bad {
				return errors.New("SQL is away")
			}
			return nil
		})
		c.waitFor(t, []string{sent[0], sent[2]}, queueArrive)
		eventually(t, queueArrive, "three failures", func() bool { return c.counts()[sent[1]] >= 3 })
		consumed(t, q, at, false)
		fail.Delete(sent[1])
		eventually(t, b.Settled, "consumed", func() bool {
			done, err := q.Consumed(t.Context(), at)
			if done && !c.has(sent[1]) {
				t.Fatal("consumed before the failed message was acknowledged")
			}
			return err == nil && done
		})
	})

	t.Run("a consumer that ends hands its messages over", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		qa, qb := b.Open(t), b.Open(t)
		sent := send(t, qa, 0, 60, 32)
		a := consume(t, qa, func(admission.Delivery) error { return errors.New("dying") })
		eventually(t, queueArrive, "a delivery to the first", func() bool { return len(a.deliveries()) > 0 })
		a.stop(t)
		before := len(a.deliveries())
		c := consume(t, qb, nil)
		c.waitFor(t, sent, b.HandOver)
		if after := len(a.deliveries()); after != before {
			t.Errorf("%d deliveries to a consumer that had ended", after-before)
		}
	})

	t.Run("two consumers share, and nothing is lost", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		qa, qb := b.Open(t), b.Open(t)
		got := newReceived()
		a := got.consume(t, qa, nil)
		got.consume(t, qb, nil)
		sent := send(t, qa, 0, 300, 32)
		eventually(t, queueArrive, "half of the messages", func() bool { return got.acked() > 150 })
		a()
		sent = append(sent, send(t, qb, 300, 400, 32)...)
		got.waitFor(t, sent, queueArrive+b.HandOver)
	})
}

func queueKey(i int) string { return fmt.Sprintf("r_message_%05d", i) }

func queueBody(key string) []byte {
	return []byte(`{"reservation_id":"` + key + `","note":"` + "\u00fc\u0000 binary \xff\xfe" + `"}`)
}

// send sends messages from..to-1 in batches and returns their keys. A result may be
// unknown; a queue that is there does not refuse.
func send(t *testing.T, q admission.Queue, from, to, batch int) []string {
	t.Helper()
	var keys []string
	for i := from; i < to; i += batch {
		var k []string
		var bodies [][]byte
		for j := i; j < min(i+batch, to); j++ {
			k = append(k, queueKey(j))
			bodies = append(bodies, queueBody(queueKey(j)))
		}
		if err := q.Send(t.Context(), k, bodies); err != nil {
			t.Fatalf("send %d messages: %v", len(k), err)
		}
		keys = append(keys, k...)
	}
	return keys
}

func consumed(t *testing.T, q admission.Queue, at time.Time, want bool) {
	t.Helper()
	if got, err := q.Consumed(t.Context(), at); err != nil || got != want {
		t.Fatalf("consumed: %t, %v; want %t", got, err, want)
	}
}

// received is what handlers were given and acknowledged.
type received struct {
	mu      sync.Mutex
	all     []admission.Delivery
	done    map[string]int
	largest int
	end     func()
}

func newReceived() *received { return &received{done: make(map[string]int)} }

// consume starts one consumer that answers with f (nil: acknowledge) until the test ends.
func consume(t *testing.T, q admission.Queue, f func(admission.Delivery) error) *received {
	t.Helper()
	r := newReceived()
	r.end = r.consume(t, q, f)
	return r
}

func (r *received) consume(t *testing.T, q admission.Queue, f func(admission.Delivery) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, queueBatch, queueLinger, func(_ context.Context, batch []admission.Delivery) []error {
			r.mu.Lock()
			r.all = append(r.all, batch...)
			r.largest = max(r.largest, len(batch))
			r.mu.Unlock()
			errs := make([]error, len(batch))
			for i, d := range batch {
				if f != nil {
					errs[i] = f(d)
				}
				if errs[i] == nil {
					r.mu.Lock()
					r.done[d.Key]++
					r.mu.Unlock()
				}
			}
			return errs
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Consume: %v", err)
			}
		case <-time.After(queueArrive):
			t.Error("Consume does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (r *received) stop(t *testing.T) { t.Helper(); r.end() }

func (r *received) waitFor(t *testing.T, keys []string, within time.Duration) {
	t.Helper()
	eventually(t, within, fmt.Sprintf("%d messages", len(keys)), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range keys {
			if r.done[k] == 0 {
				return false
			}
		}
		return true
	})
}

func (r *received) deliveries() []admission.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]admission.Delivery(nil), r.all...)
}

func (r *received) counts() map[string]int {
	counts := make(map[string]int)
	for _, d := range r.deliveries() {
		counts[d.Key]++
	}
	return counts
}

func (r *received) largestBatch() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.largest
}

func (r *received) acked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.done)
}

func (r *received) has(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[key] > 0
}

// eventually polls: what is waited for happens in a server, which has no clock of ours.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, within)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
