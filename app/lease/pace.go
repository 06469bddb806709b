package lease

import "time"

const (
	askEvery  = 0.85 // of a lease: the next tokens arrive before the last ones die
	askJitter = 0.12 // each way, so that instances drift apart
	askSaved  = 4    // asks that a quiet bucket keeps for requests in hand
)

// pace spaces the asks of one bucket: one per 0.85 lease, +-12 %; a request in hand may
// use up to four that were not made. Arithmetic only; instants are monotonic nanoseconds.
// The zero value allows an ask at once.
type pace struct {
	last     int64   // when the last ask was made
	interval int64   // from then to the next one; 0 before the first
	saved    float64 // asks not made, 0..askSaved, as of last
	blocked  int64   // nobody asks before
}

// asked charges one ask at now. jitter is in [-1, 1].
func (p *pace) asked(now int64, lease time.Duration, jitter float64) {
	if p.interval == 0 {
		p.saved = askSaved
	} else {
		since := float64(now-p.last) / float64(p.interval)
		p.saved = min(max(p.saved+since-1, 0), askSaved)
	}
	p.last = now
	p.interval = int64(askEvery * float64(lease) * (1 + askJitter*jitter))
}

// block forbids every ask before until: an empty bucket is not hammered.
func (p *pace) block(until int64) { p.blocked = max(p.blocked, until) }

// background is when the next ask without a request in hand may be made.
func (p *pace) background() int64 { return max(p.last+p.interval, p.blocked) }

// inHand is when the next ask for a waiting request may be made.
func (p *pace) inHand() int64 {
	return max(p.last+int64(max(1-p.saved, 0)*float64(p.interval)), p.blocked)
}

// early is when an ask may go along with another bucket's: half an interval before its
// time at most, so that two buckets which are spent together stay together.
func (p *pace) early() int64 { return max(p.last+p.interval/2, p.blocked) }
