// Package slots is the pipeline of a submit as Sentinel slot chains.
//
// chain.go lists the stages in order and is the place to start; build.go and slot.go are
// the one adapter between stages and Sentinel; every other file is one stage. A request meets
// two chains: Enter decides from path and headers, in memory, and is over before the
// body is read; Reserve holds a seat, takes from the lease and claims the nonce, and is
// left when the order has been placed.
//
// The chains promise that nothing passes by accident: a stage that panics, a chain that
// breaks off, or a parameter that is missing refuses, and is counted. Everything that a
// request took is given back through Request.AtEnd in the function that took it.
package slots
