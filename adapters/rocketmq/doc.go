// Package rocketmq carries order messages over RocketMQ.
//
// What it promises. Send returns nil only for SEND_OK: any other status, a time-out or
// a write error may have stored the messages, and usually did. A send is never repeated
// by the client and never sees a context that can expire, which would close the
// connection that all sends share. Every message carries its key as a property of its
// own, in batches too, which have no UNIQ_KEY. A failed message comes again after about
// 1 s, not after the client's 39 s.
//
// When a broker dies, sends fail within SendTimeout. A consumer's pending pull would
// sleep for 30 s after the broker is back, so Consume watches the brokers and makes the
// consumer anew when they are well again.
//
// The client's logger and its remoting time-outs belong to the process, not to a
// client: the first Open of a process settles both.
package rocketmq
