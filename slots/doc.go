// Package slots is the pipeline of a submit as Sentinel slot chains.
//
// chain.go lists the stages in order and is the place to start; slot.go is the one
// adapter between a stage and Sentinel; every other file is one stage. A request meets
// two chains: Enter decides from path and headers, in memory, and is over before the
// body is read; Reserve holds a seat, takes from the lease and claims the nonce, and is
// left when the order has been placed.
//
// The chains promise that nothing passes by accident: a stage that panics, a chain that
// breaks off, or a parameter that is missing refuses, and is counted. Everything that a
// request took is given back through Request.OnEnd in the function that took it.
package slots
