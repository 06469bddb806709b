// Package admission is the vocabulary of Sluice: what a request is, what a
// stage may decide, how a decision meets HTTP, and the ports through which the
// algorithms reach a store, a queue or a database.
//
// It imports the standard library alone and does no I/O. Everything that does
// stands in an adapter, behind one of the ports declared here beside the types
// that it returns:
//
//	Stock, Events, Mirror    the stock store         adapters/redis
//	Nonces, Leases, Room,    the limiter store       adapters/redis
//	Fleet
//	Queue                    the order messages      adapters/rocketmq, adapters/redis
//	Orders                   the verdicts            adapters/postgres, adapters/sqlite
//
// A verdict is a value (Decision), a fault is an error. An adapter wraps every
// fault in one of ErrUnavailable, ErrUnknownResult and ErrConflict; anything
// else is treated as unknown, and an unknown result never admits.
package admission
