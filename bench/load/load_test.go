package load_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/bench/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchedules(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    load.Schedule
		i    int
		want time.Duration
	}{
		{"constant, first", load.Constant(200), 0, 0},
		{"constant", load.Constant(200), 300, 1500 * time.Millisecond},
		{"then, before", load.Then(10, load.Constant(10), 5*time.Second, load.Constant(1)), 9, 900 * time.Millisecond},
		{"then, at", load.Then(10, load.Constant(10), 5*time.Second, load.Constant(1)), 10, 5 * time.Second},
		{"then, after", load.Then(10, load.Constant(10), 5*time.Second, load.Constant(1)), 12, 7 * time.Second},
	} {
		if got := tc.s(tc.i); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A service that stalls for a second must be charged for everyone who wanted something in that second.
func TestNoCoordinatedOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := load.NewHistogram()
		late, err := load.Run(context.Background(), load.Config{Requests: 200, Schedule: load.Constant(100), MaxInFlight: 1}, func(_ context.Context, s load.Shot) {
			if s.I == 0 {
				time.Sleep(time.Second)
			}
			h.Record(time.Since(s.Intended))
		})
		if err != nil || late.Started != 200 {
			t.Fatalf("%+v, %v", late, err)
		}
		s := h.Summary()
		if s.Count != 200 || s.P90 < 700 || s.P90 > 900 || s.Max < 990 {
			t.Errorf("%+v: the first of two seconds was stalled, so a tenth of all waited 800 ms or more", s)
		}
		if late.Worst < 980*time.Millisecond {
			t.Errorf("worst start %v late, want a second", late.Worst)
		}
	})
}

func atOnce(int) time.Duration { return 0 }

func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, peak atomic.Int64
		_, err := load.Run(context.Background(), load.Config{Requests: 100, Schedule: atOnce, MaxInFlight: 7}, func(context.Context, load.Shot) {
			peak.Store(max(peak.Load(), now.Add(1)))
			time.Sleep(time.Millisecond)
			now.Add(-1)
		})
		if err != nil || peak.Load() != 7 {
			t.Errorf("peak %d, error %v; want 7", peak.Load(), err)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 55*time.Millisecond)
		defer cancel()
		var ended atomic.Int64
		late, err := load.Run(ctx, load.Config{Requests: 1000, Schedule: load.Constant(100), MaxInFlight: 1000}, func(ctx context.Context, _ load.Shot) {
			<-ctx.Done()
			ended.Add(1)
		})
		if err != nil || late.Started != 6 || ended.Load() != 6 {
			t.Errorf("started %d, ended %d, error %v; want 6 of each", late.Started, ended.Load(), err)
		}
	})
}

func TestRunRefusesNoBound(t *testing.T) {
	if _, err := load.Run(context.Background(), load.Config{Requests: 1, Schedule: load.Constant(1)}, nil); err == nil {
		t.Error("a run without a bound was taken")
	}
}

func TestHistogramKeepsWhatIsOutsideItsRange(t *testing.T) {
	h := load.NewHistogram()
	h.Record(-time.Second)
	h.Record(time.Hour)
	if s := h.Summary(); s.Count != 2 || s.Max < 599_000 {
		t.Errorf("%+v", s)
	}
}
