package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// Kind is why a call failed: a word of a closed set, fit for a metric label.
type Kind string

// The kinds that say: certainly not done.
const (
	KindDial        Kind = "dial"        // no connection was made
	KindPool        Kind = "pool"        // no free connection within PoolTimeout
	KindClosed      Kind = "closed"      // the client was closed
	KindExpired     Kind = "expired"     // the context had ended before the call
	KindLoading     Kind = "loading"     // the server is reading its data set
	KindReadOnly    Kind = "readonly"    // a replica answered
	KindOOM         Kind = "oom"         // maxmemory reached, noeviction
	KindAuth        Kind = "noauth"      // NOAUTH, WRONGPASS, NOPERM
	KindWrongType   Kind = "wrongtype"   // a key holds something else; checked before the first write
	KindBusy        Kind = "busy"        // a script runs for too long
	KindTryAgain    Kind = "tryagain"    // the slot is half moved
	KindClusterDown Kind = "clusterdown" // the slot has no primary
	KindMasterDown  Kind = "masterdown"  // a stale replica answered
	KindNoReplicas  Kind = "noreplicas"  // min-replicas-to-write not met
	KindMisconf     Kind = "misconf"     // the disk refuses the append-only file
	KindMaxClients  Kind = "maxclients"  // too many connections
	KindRedirect    Kind = "redirect"    // MOVED or ASK more often than maxRedirects
	KindCrossSlot   Kind = "crossslot"   // keys of two slots in one script: a programming fault
	KindNoScript    Kind = "noscript"    // answered by one EVAL, never returned by Script
	KindArguments   Kind = "arguments"   // our script refused its arguments
	KindMissing     Kind = "missing"     // the stock key is gone: restore it, it is not sold out
)

// The kinds that say: it may have happened.
const (
	KindTimeout    Kind = "timeout"    // no reply in time
	KindCanceled   Kind = "canceled"   // the caller went away during the call
	KindConnection Kind = "connection" // EOF, reset, broken pipe
	KindShape      Kind = "shape"      // a reply that the script cannot have given
	KindReply      Kind = "reply"      // an error reply that is none of the above
	KindOther      Kind = "other"
)

// Fault is a failed call. It unwraps to its sentinel of package admission and to
// the driver's error.
type Fault struct {
	Op       string // what was wanted, for people
	Kind     Kind
	Sentinel error // admission.ErrUnavailable, ErrUnknownResult or ErrNotFound
	Err      error
}

func (f *Fault) Error() string {
	return fmt.Sprintf("redis: %s: %v (%s): %v", f.Op, f.Sentinel, f.Kind, f.Err)
}

// Unwrap makes errors.Is find the sentinel and the cause.
func (f *Fault) Unwrap() []error { return []error{f.Sentinel, f.Err} }

// KindOf returns the kind of a fault that this package reported, KindOther for
// every other error and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var f *Fault
	if errors.As(err, &f) {
		return f.Kind
	}
	return KindOther
}

// Classify wraps the driver's error. What it does not know is an unknown result:
// that over-refuses, and never admits. nil stays nil, a Fault stays what it is, and
// an absent value (goredis.Nil) becomes admission.ErrNotFound.
func Classify(op string, err error) error {
	var f *Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return err
	case errors.Is(err, goredis.Nil):
		return &Fault{Op: op, Kind: "", Sentinel: admission.ErrNotFound, Err: err}
	}
	kind, done := kindOf(err)
	return &Fault{Op: op, Kind: kind, Sentinel: done, Err: err}
}

// replyKinds are the error replies that Redis gives before it executes anything,
// or, in a script, at its first write.
var replyKinds = map[string]Kind{
	"LOADING": KindLoading, "READONLY": KindReadOnly, "OOM": KindOOM,
	"NOAUTH": KindAuth, "WRONGPASS": KindAuth, "NOPERM": KindAuth,
	"WRONGTYPE": KindWrongType, "BUSY": KindBusy, "TRYAGAIN": KindTryAgain,
	"CLUSTERDOWN": KindClusterDown, "MASTERDOWN": KindMasterDown, "NOREPLICAS": KindNoReplicas,
	"MISCONF": KindMisconf, "MOVED": KindRedirect, "ASK": KindRedirect, "CROSSSLOT": KindCrossSlot,
	"NOSCRIPT": KindNoScript, "BADARGS": KindArguments,
}

func kindOf(err error) (Kind, error) {
	var reply goredis.Error
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return KindPool, admission.ErrUnavailable
	case errors.Is(err, goredis.ErrClosed):
		return KindClosed, admission.ErrUnavailable
	case errors.As(err, &op) && op.Op == "dial":
		return KindDial, admission.ErrUnavailable
	case errors.Is(err, context.Canceled):
		return KindCanceled, admission.ErrUnknownResult
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return KindTimeout, admission.ErrUnknownResult
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), op != nil:
		return KindConnection, admission.ErrUnknownResult
	case errors.As(err, &reply):
		return replyKind(reply.Error())
	default:
		return KindOther, admission.ErrUnknownResult
	}
}

func replyKind(message string) (Kind, error) {
	if strings.HasPrefix(message, "ERR max number of clients reached") {
		return KindMaxClients, admission.ErrUnavailable
	}
	word, _, _ := strings.Cut(message, " ")
	if kind, ok := replyKinds[word]; ok {
		return kind, admission.ErrUnavailable
	}
	if strings.Contains(message, "WRONGTYPE ") {
		// Older servers put the script's own words first. Our scripts read, and so check,
		// every key before they write.
		return KindWrongType, admission.ErrUnavailable
	}
	return KindReply, admission.ErrUnknownResult
}

// wrongShape reports a reply that op's script cannot have given: whatever answered
// may have done anything.
func wrongShape(op string, reply any) error {
	return &Fault{
		Op: op, Kind: KindShape, Sentinel: admission.ErrUnknownResult,
		Err: fmt.Errorf("unexpected reply of type %T", reply),
	}
}

// notSent reports a call whose context had ended before anything was sent.
func notSent(op string, err error) error {
	return &Fault{Op: op, Kind: KindExpired, Sentinel: admission.ErrUnavailable, Err: err}
}
