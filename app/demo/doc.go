// Package demo is a whole sale by simulated people, with a verdict.
//
// It publishes an activity of its own on running instances and sends a crowd: most join before the opening,
// some later, some walk away, and a hostile share forges, steals, replays, tampers and hammers. People keep the
// client rules of package client. Every answer is checked against the outcome table, and in the end the stock
// store's and the database's counts are compared with what the crowd was told.
//
//	target.go    which instances, and the rights to use them
//	crowd.go     who comes, when, from where
//	shopper.go   what honest people do        hostile.go  what the others do
//	edge.go      the cached queue document
//	contract.go  is an answer a row of the table?
//	ledger.go    what was seen                verdict.go  what is wrong with it
//	sale.go      one run from publishing to verdict
//	command.go   the command line; progress.go and report.go its output
//
// An instance that dies in the middle is no violation: its people go to another one, and the broken
// connections are counted. A 202 that comes to nothing is one.
package demo
