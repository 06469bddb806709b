// Package conformance holds what every implementation of a port must do: one exported
// suite a port, with named cases, run by the tests of each backend. A fixed bug leaves a
// named case here.
//
// Cases make ids of their own, so that suites run side by side on one shared server.
package conformance
