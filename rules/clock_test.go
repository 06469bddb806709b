package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/util"
)

// A step of the wall clock cannot reach Sentinel: its clock counts from a monotonic reading
// taken at start, never goes back, and stands between ticks.
func TestHazardClockNeverGoesBack(t *testing.T) {
	c := newForwardClock()
	if !strings.Contains(c.start.String(), " m=") {
		t.Errorf("%v has no monotonic reading: the clock would follow the wall", c.start)
	}
	c.start = c.start.Add(-time.Hour)
	c.tick()
	ahead := c.CurrentTimeMillis()
	c.start = c.start.Add(2 * time.Hour) // as if an hour had been taken back
	c.tick()
	if got := c.CurrentTimeMillis(); got != ahead {
		t.Errorf("the clock went from %d to %d", ahead, got)
	}
	if ms, ns, now := c.CurrentTimeMillis(), c.CurrentTimeNano(), c.Now(); ns != ms*1e6 || now.UnixMilli() != int64(ms) {
		t.Errorf("%d ms, %d ns and %v are three clocks", ms, ns, now)
	}
	TickSentinel() // TestMain initialised it
	wall, sentinel := time.Now().UnixMilli(), int64(util.CurrentTimeMillis())
	if d := wall - sentinel; d > 60_000 || d < -60_000 {
		t.Errorf("Sentinel's clock is %d ms off", d)
	}
}

// Another clock's reading moves Sentinel's clock on, never back, and no further than a
// reading of our own would, where it jumps.
func TestHazardClockByAnotherClock(t *testing.T) {
	c := newForwardClock()
	before := c.CurrentTimeMillis()
	c.tickTo(int64(40 * time.Millisecond))
	if got := c.CurrentTimeMillis(); got != before+40 {
		t.Errorf("40 ms moved the clock by %d ms", got-before)
	}
	c.tickTo(int64(20 * time.Millisecond))
	c.tickTo(-int64(time.Hour))
	if got := c.CurrentTimeMillis(); got != before+40 {
		t.Errorf("the clock went back to %d ms", got-before)
	}
	c.tickTo(int64(time.Hour))
	if got := c.CurrentTimeMillis(); got >= before+60_000 {
		t.Errorf("an hour that has not passed moved the clock by %d ms", got-before)
	}
	SentinelTicks(0)(0)
	if d := time.Now().UnixMilli() - int64(util.CurrentTimeMillis()); d > 60_000 || d < -60_000 {
		t.Errorf("Sentinel's clock is %d ms off", d)
	}
}
