package lease

import "sync/atomic"

// meter is a local token bucket for the share strategy: the time at which it will be
// full again, in one word, so that a rate may change between two calls.
type meter struct {
	tat atomic.Int64 // monotonic ns
}

// metered is a spent token of a meter.
type metered struct {
	m        *meter
	interval int64
}

// giveBack implements holder.
func (t metered) giveBack(Instant) { t.m.tat.Add(-t.interval) }

// take spends one token at perSecond with a capacity of burst tokens, or says for how
// many nanoseconds to wait. Rounds against the caller.
func (m *meter) take(now int64, perSecond, burst float64) (interval, wait int64, ok bool) {
	if perSecond <= 0 {
		return 0, int64(longestBlock), false
	}
	interval = int64(1e9/perSecond) + 1
	room := int64(1e9 * max(burst, 1) / perSecond)
	for {
		tat := m.tat.Load()
		next := max(tat, now) + interval
		if over := next - now - max(room, interval); over > 0 {
			return interval, over, false
		}
		if m.tat.CompareAndSwap(tat, next) {
			return interval, 0, true
		}
	}
}
