package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

func TestClockCountsFromItsMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := limit.NewClock()
		if now := clock.Now(); now != 0 {
			t.Errorf("a new clock reads %d", now)
		}
		time.Sleep(90 * time.Second) // virtual
		now := clock.Now()
		if now != 90*sec || now.Sub(30*sec) != time.Minute || now.Add(time.Minute) != 150*sec {
			t.Errorf("after 90 s: %v", time.Duration(now))
		}
	})
}

func TestClockNeverGoesBack(t *testing.T) {
	clock := limit.NewClock()
	race(4, func(int) int64 {
		last := clock.Now()
		for range 20_000 {
			now := clock.Now()
			if now < last {
				t.Errorf("%d after %d", now, last)
			}
			last = now
		}
		return 0
	})
}
