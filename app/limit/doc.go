// Package limit decides, in memory and at once, whether a caller may go on.
//
// It promises three things of every limiter in it:
//
//   - A decision never waits, never allocates and never fails. It is a value.
//   - What is refused costs nothing: a refused call leaves no trace that would
//     delay a later one.
//   - RetryAfter is never short: whoever waits exactly that long, alone, is admitted.
//
// Time is an argument ([Instant], read once per request from a [Clock]), so a test
// is a table and a simulation of an hour takes milliseconds. When a clock reading is
// older than one already seen, which only happens between goroutines and by
// nanoseconds, a limiter over-refuses; it never admits more than its bound.
//
// # Which one
//
//	Bucket          rate and burst; one atomic word; the default choice
//	LeakyBucket     the same verdicts told as a water level; for reading
//	FixedWindow     N a window, cheapest, twice N across a boundary
//	SlidingCounter  N a window, two counters, approximate at the boundary
//	SlidingLog      N in any window, exact, remembers N instants
//	SlottedWindow   N in any window, exact bound, 64 slots, no lock
//	Seats           N at once, given back
//	Keyed           one bucket for each of up to millions of keys, bounded
//	Stripes         a fixed number of buckets shared by hash
//
// # When memory runs out
//
// Everything here is bounded when it is built. A full [Keyed] table serves new keys
// from shared overflow stripes, which refuse more than a key's own bucket would; a full
// [Penalties] table forgets offenders, whom their own bucket still holds. Nothing here
// depends on anything outside the process.
package limit
