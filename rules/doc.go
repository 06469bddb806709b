// Package rules turns one document, the bundle, into one immutable value, the Snapshot,
// that the hot path reads through an atomic pointer.
//
// What it promises:
//
//   - A bundle is taken whole or not at all. Decoding is strict, every fault of a document
//     is reported at once with its JSON path, and until the last step succeeded the
//     snapshot before it stays in force, whole.
//   - What can survive an edit survives it: a rule that did not change keeps its counters in
//     Sentinel, and an open breaker stays open.
//   - Time never runs backwards: an older version is refused, at boot too, where the floor
//     is the greater of the last good bundle and the cluster's high-water mark.
//
// When the source of rules dies, the snapshot stays and its age grows from the last contact
// that showed our version as current; [Applier.Age] is what the overload machine watches.
// When the source is away at boot, the last good bundle on disk is used if it is younger
// than overload.max_stale_ms; else there are no rules and the instance is not ready.
//
// Only this package and package slots touch Sentinel's globals: see [InitSentinel].
package rules
