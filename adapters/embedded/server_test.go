package embedded

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func start(t *testing.T) (*Server, *goredis.Client) {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close(); s.Close() })
	return s, c
}

func TestListensOnLoopbackOnly(t *testing.T) {
	s, _ := start(t)
	if !strings.HasPrefix(s.URL(), "redis://127.0.0.1:") {
		t.Errorf("URL() = %s, want loopback", s.URL())
	}
}

func TestKeysExpireAsTimePasses(t *testing.T) {
	s, c := start(t)
	ctx := t.Context()
	if err := c.Set(ctx, "k", "v", time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	began := s.expired
	s.expire(began.Add(900 * time.Millisecond))
	if n := c.Exists(ctx, "k").Val(); n != 1 {
		t.Error("the key is gone after 0.9 s of 1 s")
	}
	s.expire(began.Add(800 * time.Millisecond)) // a step back takes nothing
	s.expire(began.Add(1001 * time.Millisecond))
	if n := c.Exists(ctx, "k").Val(); n != 0 {
		t.Error("the key is there after 1.001 s of 1 s")
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// Scripts tell one primary from another by run_id, and read the clock themselves.
func TestScriptsSeeServerAndClock(t *testing.T) {
	_, c := start(t)
	_, other := start(t)
	const script = `return {string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'), redis.call('TIME')[1]}`
	read := func(c *goredis.Client) (string, string) {
		r, err := c.Eval(t.Context(), script, nil).StringSlice()
		if err != nil || len(r) != 2 {
			t.Fatalf("script: %v, %v", r, err)
		}
		return r[0], r[1]
	}
	before := time.Now().Truncate(time.Second)
	a, now := read(c)
	after := time.Now()
	b, _ := read(other)
	if len(a) != 40 || a == b {
		t.Errorf("run_ids %q and %q, want two different ones of 40 digits", a, b)
	}
	if told := unix(t, now); told.Before(before) || told.After(after) {
		t.Errorf("TIME is %v, asked between %v and %v", told, before, after)
	}
}

func unix(t *testing.T, s string) time.Time {
	t.Helper()
	d, err := time.ParseDuration(s + "s")
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, 0).Add(d)
}
