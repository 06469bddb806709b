package mutexwindow_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/mutexwindow"
)

func TestCounter(t *testing.T) {
	const sec = limit.Instant(time.Second)
	c, err := mutexwindow.New(3, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []struct {
		t    limit.Instant
		n    int64
		want limit.Decision
	}{
		{sec / 2, 2, limit.Decision{OK: true, Remaining: 1}},
		{sec, 2, limit.Decision{RetryAfter: time.Second / 2, Remaining: 1}},
		{sec, 1, limit.Decision{OK: true}},
		{sec, 1, limit.Decision{RetryAfter: time.Second / 2}},
		{sec + sec/2, 3, limit.Decision{OK: true}}, // exactly when told
		{sec, 1, limit.Decision{RetryAfter: 3 * time.Second / 2}},
		{9 * sec, 4, limit.Decision{RetryAfter: limit.Never, Remaining: 3}},
		{9 * sec, -1, limit.Decision{RetryAfter: limit.Never, Remaining: 3}},
	} {
		if got := c.Allow(s.t, s.n); got != s.want {
			t.Fatalf("step %d: %+v, want %+v", i, got, s.want)
		}
	}
}

func TestCounterParallel(t *testing.T) {
	c, err := mutexwindow.New(1000, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var (
		start    = make(chan struct{})
		done     sync.WaitGroup
		admitted atomic.Int64
	)
	for range 8 {
		done.Go(func() {
			<-start
			for range 1000 {
				if c.Allow(1, 1).OK {
					admitted.Add(1)
				}
			}
		})
	}
	close(start)
	done.Wait()
	if admitted.Load() != 1000 {
		t.Errorf("admitted %d of 1000", admitted.Load())
	}
}

func TestNewRejects(t *testing.T) {
	for _, c := range []struct {
		units  int64
		window time.Duration
	}{{-1, time.Second}, {1, 0}, {1, -1}, {1, 400 * 24 * time.Hour}} {
		if _, err := mutexwindow.New(c.units, c.window); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
