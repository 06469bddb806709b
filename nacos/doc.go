// Package nacos is the rules source for a Nacos 2.x server.
//
// The SDK (nacos-sdk-go v2) is used for one thing, its push: a callback says that something
// changed, and nothing more is believed of it, for callbacks run in unordered goroutines,
// never fire when the server was down or the password wrong at the start, and stay silent
// for hours after the server's token secret was rotated. What the key holds is always read
// by ourselves, over HTTP, with a deadline and our own login: after every callback, and
// every [Config.PollEvery] as a back-up for lost pushes. So there is one order of documents,
// the order of reads, and no file of the SDK's is ever read.
//
// When the server dies, every look is an Update with Err and the rules stay; the log says so
// when it begins, each half minute, and when it is over. When it comes
// back, the poll sees it within PollEvery. A deleted key is reported as absent, after a
// second look (a read just after a publish may be 404 once). A 403 logs in again and makes
// the SDK's client anew.
package nacos
