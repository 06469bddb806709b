package lease

import (
	"math"
	"time"
)

// demand estimates how many tokens one lease period needs, from the tries between asks.
type demand struct {
	perLease float64
}

const (
	// shortest part of a lease that counts as a sample: two asks a moment apart see
	// hardly anything, and scaling that up would ask for the world.
	shortestSample = 1.0 / 16
	// kept is how much of the old estimate stays after a sample that may be chance.
	kept = 0.5
)

// next takes in tries seen since the last ask and returns the size of the next one.
func (d *demand) next(tries int64, since, lease time.Duration) int64 {
	sample := float64(tries) * float64(lease) / math.Max(float64(since), shortestSample*float64(lease))
	if sample > d.perLease+1+2*math.Sqrt(d.perLease) { // arrivals scatter by the root of their number
		d.perLease = sample // more than chance: asking for too little refuses people
	} else {
		d.perLease = kept*d.perLease + (1-kept)*sample
	}
	return int64(math.Ceil(d.perLease))
}
