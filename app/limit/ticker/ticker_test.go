package ticker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/ticker"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In the fake time of synctest: burst at once, then one a tick, never more than burst.
func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := ticker.New(100*time.Millisecond, 3)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Run(ctx)
		}()
		for _, c := range []struct {
			wait time.Duration
			n    int64
			want limit.Decision
		}{
			{0, 2, limit.Decision{OK: true, Remaining: 1}},
			{0, 2, limit.Decision{RetryAfter: 100 * time.Millisecond, Remaining: 1}}, // takes none
			{0, 1, limit.Decision{OK: true}},
			{100 * time.Millisecond, 1, limit.Decision{OK: true}},
			{time.Minute, 3, limit.Decision{OK: true}},
			{0, 1, limit.Decision{RetryAfter: 100 * time.Millisecond}},
			{0, 4, limit.Decision{RetryAfter: limit.Never}},
			{0, 0, limit.Decision{RetryAfter: limit.Never}},
		} {
			time.Sleep(c.wait)
			synctest.Wait()
			if got := b.Allow(0, c.n); got != c.want {
				t.Errorf("%d after %v: %+v, want %+v", c.n, c.wait, got, c.want)
			}
		}
		stop()
		<-done
	})
}

func TestNewRejects(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		burst    int
	}{{0, 1}, {time.Microsecond, 1}, {time.Second, 0}, {time.Second, -1}, {time.Second, 1 << 21}} {
		if _, err := ticker.New(c.interval, c.burst); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
