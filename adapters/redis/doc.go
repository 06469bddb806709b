// Package redis keeps the stock store, the limiter store and the broadcast
// channel in Redis: single, Sentinel or Cluster.
//
// What it promises. A script that writes is sent once: go-redis re-sends nothing
// on its own, here not even on Cluster (see Script), so a lost reply is reported
// as a lost reply. Every fault is wrapped in admission.ErrUnavailable (certainly
// not done) or admission.ErrUnknownResult (it may have happened) and carries a
// Kind from a closed set, fit for a metric label. A call never outlives its
// context, and the wait for a connection is bounded.
//
// When Redis dies every method fails within the caller's deadline; nothing is
// answered from memory and nothing is admitted.
package redis
