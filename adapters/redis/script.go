package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"encoding/hex"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/lua"
)

// Script is one file of package lua. It is sent by its digest; NOSCRIPT (a fresh
// replica, a SCRIPT FLUSH) is answered by sending the source once, which is safe
// because the first attempt executed nothing. Nothing else is sent twice.
type Script struct {
	name   string
	source string
	digest string
}

// NewScript loads lua/<name>.lua. It panics when there is none: names are constants.
func NewScript(name string) *Script {
	source := lua.Source(name)
	sum := sha1.Sum([]byte(source)) //nolint:gosec // not a signature
	return &Script{name: name, source: source, digest: hex.EncodeToString(sum[:])}
}

// Name is the script's name, which its faults carry.
func (s *Script) Name() string { return s.name }

// Run executes the script in one round trip (two after NOSCRIPT) and returns its
// reply: an array of strings and int64, or the words of a string. Errors are Faults.
func (s *Script) Run(ctx context.Context, c goredis.UniversalClient, keys []string, args ...any) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(s.name, err)
	}
	cmd := s.call(ctx, "evalsha", s.digest, keys, args)
	err := c.Process(ctx, cmd)
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.call(ctx, "eval", s.source, keys, args)
		err = c.Process(ctx, cmd)
	}
	return s.reply(cmd, err)
}

// Call is one script execution of a pipeline.
type Call struct {
	Script *Script
	Keys   []string // of one slot
	Args   []any
}

// Reply is how one Call ended.
type Reply struct {
	Values []any
	Err    error // a Fault, nil when Values holds
}

// RunAll executes the calls in one pipeline, and those that NOSCRIPT refused in a
// second one by source. replies[i] belongs to calls[i]. The caller bounds len(calls).
func RunAll(ctx context.Context, c goredis.UniversalClient, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	if len(calls) == 0 {
		return replies
	}
	if err := ctx.Err(); err != nil {
		for i := range replies {
			replies[i].Err = notSent(calls[i].Script.name, err)
		}
		return replies
	}
	cmds := make([]*call, len(calls))
	pipe := c.Pipeline()
	for i, l := range calls {
		cmds[i] = l.Script.call(ctx, "evalsha", l.Script.digest, l.Keys, l.Args)
		_ = pipe.Process(ctx, cmds[i]) // queues only; Exec reports
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error

	again := c.Pipeline()
	for i, l := range calls {
		if goredis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = l.Script.call(ctx, "eval", l.Script.source, l.Keys, l.Args)
			_ = again.Process(ctx, cmds[i])
		}
	}
	if again.Len() > 0 {
		_, _ = again.Exec(ctx)
	}
	for i, l := range calls {
		replies[i].Values, replies[i].Err = l.Script.reply(cmds[i], cmds[i].Err())
	}
	return replies
}

func (s *Script) call(ctx context.Context, name, payload string, keys []string, args []any) *call {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, payload, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	cmd := &call{goredis.NewCmd(ctx, all...)}
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

func (s *Script) reply(cmd *call, err error) ([]any, error) {
	if err != nil {
		return nil, Classify(s.name, err)
	}
	switch v := cmd.Val().(type) {
	case []any:
		return v, nil
	case string:
		words := make([]any, 0, 6)
		for w := range strings.SplitSeq(v, "|") {
			words = append(words, word(w))
		}
		return words, nil
	default:
		return nil, wrongShape(s.name, v)
	}
}

// call is a script command that a client must not re-send after a lost reply. The
// cluster client would send it up to four times otherwise; it still follows MOVED
// and ASK, which say that nothing was executed.
type call struct{ *goredis.Cmd }

// NoRetry implements goredis.Cmder.
func (*call) NoRetry() bool { return true }

// word is a part of a reply that is one string, divided by '|': text, or a number in digits.
// In an array a number is an integer and nothing else.
type word string

// fields reads a script's reply in order and keeps the first wrong shape.
type fields struct {
	op   string
	left []any
	err  error
}

func (f *fields) next() any {
	if len(f.left) == 0 {
		if f.err == nil {
			f.err = wrongShape(f.op, nil)
		}
		return nil
	}
	v := f.left[0]
	f.left = f.left[1:]
	return v
}

func (f *fields) int() int64 {
	v := f.next()
	n, ok := v.(int64)
	if w, isWord := v.(word); isWord {
		var err error
		n, err = strconv.ParseInt(string(w), 10, 64)
		ok = err == nil
	}
	if !ok && f.err == nil {
		f.err = wrongShape(f.op, v)
	}
	return n
}

func (f *fields) string() string {
	v := f.next()
	s, ok := v.(string)
	if w, isWord := v.(word); isWord {
		s, ok = string(w), true
	}
	if !ok && f.err == nil {
		f.err = wrongShape(f.op, v)
	}
	return s
}

// end reports the first wrong shape; a longer reply than expected is one too.
func (f *fields) end() error {
	if f.err == nil && len(f.left) > 0 {
		f.err = wrongShape(f.op, f.left)
	}
	return f.err
}
