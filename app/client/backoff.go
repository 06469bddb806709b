package client

import "time"

// Backoff is exponential with Full Jitter: the n-th wait is uniform in 0..min(Cap, Base*2^n), which spreads
// a crowd that was refused together better than any fixed or half-random wait.
type Backoff struct {
	Base, Cap time.Duration
}

// Wait is the wait before retry n, from 0, for a random number in [0,1).
func (b Backoff) Wait(n int, random float64) time.Duration {
	ceiling := b.Cap
	if n < 32 && b.Base < b.Cap>>n { // Base*2^n < Cap, without overflow
		ceiling = b.Base << n
	}
	return time.Duration(random * float64(ceiling))
}
