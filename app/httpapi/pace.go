package httpapi

import (
	"sync/atomic"
	"time"
)

// Bounds of how soon somebody with a reservation is told to ask again.
const (
	firstPoll   = 500 * time.Millisecond
	longestPoll = 5 * time.Second
	// pollsPerSecond is how many polls of results one instance invites; above it they are
	// spread out. It is a small part of what an instance answers: the rest is for submits.
	pollsPerSecond = 2_000
)

// pace makes the poll hint grow with the number of pollers, so that their polls together
// stay near pollsPerSecond. The zero value is ready.
type pace struct {
	second atomic.Int64 // Unix, that is counted
	polls  atomic.Int64 // of that second
	hint   atomic.Int64 // ns, of that second
}

// next counts a poll and says when its caller should ask again, before jitter.
func (p *pace) next(now time.Time) time.Duration {
	hint := p.current()
	if second, before := now.Unix(), p.second.Load(); second != before && p.second.CompareAndSwap(before, second) {
		polls := p.polls.Swap(0)
		if second != before+1 {
			polls = 0 // nobody asked for a second, or the clock was set
		}
		hint = paced(hint, polls)
		p.hint.Store(int64(hint))
	}
	return max(hint, paced(firstPoll, p.polls.Add(1))) // a burst is spread before its second is over
}

// current is the hint for somebody who has not polled yet.
func (p *pace) current() time.Duration { return max(time.Duration(p.hint.Load()), firstPoll) }

// paced is the hint after a second in which it brought this many polls.
func paced(hint time.Duration, polls int64) time.Duration {
	return min(max(time.Duration(float64(hint)*float64(polls)/pollsPerSecond), firstPoll), longestPoll)
}
