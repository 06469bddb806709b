package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/util"
)

// A step of the wall clock cannot reach Sentinel: its clock counts from a monotonic reading
// taken at start, and every reading of it is that of one clock.
func TestHazardClockNeverGoesBack(t *testing.T) {
	c := newForwardClock()
	if !strings.Contains(c.start.String(), " m=") {
		t.Errorf("%v has no monotonic reading: the clock would follow the wall", c.start)
	}
	stepped := forwardClock{start: c.start.Add(-24 * time.Hour)} // as if the wall had been set back a day since the start
	before := stepped.CurrentTimeNano()
	for range 1000 {
		now := stepped.CurrentTimeNano()
		if now < before {
			t.Fatalf("%d after %d", now, before)
		}
		before = now
	}
	if ms, ns := c.CurrentTimeMillis(), c.CurrentTimeNano(); ns/1e6-ms > 1000 {
		t.Errorf("%d ms and %d ns are two clocks", ms, ns)
	}
	wall, sentinel := time.Now().UnixMilli(), int64(util.CurrentTimeMillis()) // TestMain initialised it
	if d := wall - sentinel; d > 60_000 || d < -60_000 {
		t.Errorf("Sentinel's clock is %d ms off", d)
	}
}
