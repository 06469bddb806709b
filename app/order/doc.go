// Package order turns an admitted request into a reservation, the reservation into
// a message, and the message into SQL's verdict.
//
//	Placer      reserve -> send -> record; what a submit waits for
//	Sender      group commit of sends; each caller leaves after its own wait
//	Marks       tells the stock, off the path, which messages were acknowledged
//	Consumer    the order group: decide in SQL, then carry the verdicts into the stock
//	Recovery    what the leader does about reservations that nobody finished
//	Reconciler  compares the stock with SQL, and moves it towards SQL on request
//	Results     what a request came to
//	Service     read, cancel and pay an order
//
// What it promises. A reservation is never released because something was slow:
// only a verdict of SQL frees a unit. A message may be sent, delivered and decided
// any number of times and makes one order. Whoever dies between two steps leaves
// something that Recovery finds: a due reservation, or a verdict with its effect due.
//
// When a dependency dies. Stock away: a new request is DEPENDENCY_UNAVAILABLE, never
// sold out. Queue away: the reservation holds and Recovery sends it again. SQL away:
// reservations wait. Nothing here is answered from memory.
package order
