// Package lease spends the cluster-wide budget of an activity and of its SKUs from this
// process's memory.
//
// An instance asks the limiter store for tokens before it spends them: one ask for a
// lease period's demand, paid from the bucket's level at once, spent here without locks
// and without a round trip. What is not spent within lease_ms of the moment the ask was
// sent is dead, by the monotonic or by the wall clock, whichever says so first, and is
// wasted: nothing is ever offered back.
//
// # What it promises
//
// For every interval of length T beginning at t,
//
//	spent in [t, t+T]  <=  integral of R over [t - lease_ms, t+T]  +  burst
//
// per granting primary of the limiter store, plus one burst for each forward step of its
// clock: a token that is spent was granted at most lease_ms before, and what is granted
// was in the bucket. Crashes, lost replies, restarts and steps back only lessen it. A
// replicated limiter store needs min-replicas-to-write 1; the time in which two primaries
// both grant is added.
//
// # When the limiter store dies
//
// What is alive may be spent. Then every request is refused from memory, as
// DEPENDENCY_UNAVAILABLE, while one ask per 0.85 lease_ms probes the store.
package lease
