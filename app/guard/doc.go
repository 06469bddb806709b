// Package guard stands between a submit and the stores it needs: one breaker a dependency,
// on failsafe-go.
//
// A breaker that is open refuses at memory speed with [admission.ErrUnavailable], which a
// caller hears as DEPENDENCY_UNAVAILABLE with the same request_id to retry: a store that is
// ill is not asked by everybody at once, and nobody waits for its timeout. It opens by the
// share of failures among enough calls, probes after a second, twice as long after each
// failed probe, and closes after a few successes. A call that the caller gave up says
// nothing about the dependency. Stage timeouts are not set here: whoever calls has them.
//
// Package handbook holds the combination of timeout, limiter and breaker that handbooks
// show, under their numbers.
package guard
