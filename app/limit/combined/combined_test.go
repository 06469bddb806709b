package combined_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/combined"
	"pgregory.net/rapid"
)

const sec = limit.Instant(time.Second)

func build(t testing.TB, c combined.Config) *combined.Limiter {
	t.Helper()
	l, err := combined.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func count(l *combined.Limiter, now limit.Instant, times int, r combined.Request) (n int) {
	for range times {
		if l.Allow(now, r, 1).OK {
			n++
		}
	}
	return n
}

func TestAllIsAsStrictAsTheStrictest(t *testing.T) {
	l := build(t, combined.Defaults(combined.All))
	if n := count(l, 0, 10, combined.Request{Source: 1, User: 2, Endpoint: "/pay"}); n != 1 {
		t.Errorf("/pay admitted %d, want its bucket of 1", n)
	}
	if n := count(l, 0, 10, combined.Request{Source: 1, User: 2, Endpoint: "/info"}); n != 3 {
		t.Errorf("/info admitted %d, want its bucket of 3", n)
	}
	// The refusals by the endpoint gave the user back: 1 of 5 is left after 1 + 3.
	v := l.Allow(0, combined.Request{Source: 1, User: 2, Endpoint: "/pay"}, 1)
	if v.OK || v.By != combined.Endpoint || v.RetryAfter != time.Second || v.Remaining != 0 {
		t.Errorf("%+v", v)
	}
	// A second later the user has 1 + 2, the endpoints 3 and 1: the user is the strictest.
	// (The few ns are those by which a third of a second rounds up.)
	if n := count(l, sec+2, 10, combined.Request{Source: 1, User: 2, Endpoint: "/info"}); n != 3 {
		t.Errorf("a second later: %d, want 3", n)
	}
	v = l.Allow(sec+2, combined.Request{Source: 1, User: 2, Endpoint: "/pay"}, 1)
	if v.OK || v.By != combined.User || v.RetryAfter != 500*time.Millisecond-2 {
		t.Errorf("%+v", v)
	}
}

func TestAnyNeedsOneDimension(t *testing.T) {
	c := combined.Defaults(combined.Any)
	c.Source = limit.Rate{} // closed
	l := build(t, c)
	if n := count(l, 0, 20, combined.Request{Source: 1, User: 2, Endpoint: "/info"}); n != 5+3 {
		t.Errorf("admitted %d, want 8: the user's 5, then the endpoint's 3", n)
	}
	v := l.Allow(0, combined.Request{Source: 1, User: 2, Endpoint: "/info"}, 1)
	if v.By != combined.Endpoint || v.RetryAfter > 334*time.Millisecond {
		t.Errorf("the soonest wait is the endpoint's: %+v", v)
	}
}

func TestNestedCountsUsersPerSource(t *testing.T) {
	l := build(t, combined.Defaults(combined.Nested))
	for source := range uint64(3) {
		if n := count(l, 0, 10, combined.Request{Source: source + 1, User: 9, Endpoint: "/info"}); n != 3 {
			t.Errorf("source %d: %d", source, n)
		}
	}
}

func TestUnknownIsRefused(t *testing.T) {
	for _, mode := range []combined.Mode{combined.All, combined.Nested} {
		l := build(t, combined.Defaults(mode))
		for _, r := range []combined.Request{
			{Source: 0, User: 2, Endpoint: "/pay"},
			{Source: 1, User: 0, Endpoint: "/pay"},
			{Source: 1, User: 2, Endpoint: "/admin"},
			{},
		} {
			if v := l.Allow(0, r, 1); v.OK || v.RetryAfter != limit.Never || v.By == combined.Nothing {
				t.Errorf("mode %d, %+v: %+v", mode, r, v)
			}
		}
	}
}

// A refusal charges nobody, and waiting as told is enough for every dimension.
func TestRefusalIsFreeAndWaitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]combined.Mode{combined.All, combined.Nested, combined.Any}).Draw(t, "mode")
		l, err := combined.New(combined.Defaults(mode))
		if err != nil {
			t.Fatal(err)
		}
		now := limit.Instant(0)
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(sec)).Draw(t, "step")))
			r := combined.Request{
				Source:   rapid.Uint64Range(1, 2).Draw(t, "source"),
				User:     rapid.Uint64Range(1, 3).Draw(t, "user"),
				Endpoint: rapid.SampledFrom([]string{"/pay", "/info"}).Draw(t, "endpoint"),
			}
			v := l.Allow(now, r, 1)
			if v.OK {
				continue
			}
			if same := l.Allow(now, r, 1); same != v {
				t.Fatalf("a refusal changed the next one: %+v, %+v", v, same)
			}
			now = now.Add(v.RetryAfter)
			if again := l.Allow(now, r, 1); !again.OK {
				t.Fatalf("after %v still %+v", v.RetryAfter, again)
			}
		}
	})
}

func TestNewRejects(t *testing.T) {
	for _, c := range []combined.Config{
		{Mode: 7},
		{Endpoints: map[string]limit.Rate{"": {}}},
		{Table: limit.KeyedConfig{Shards: 3}},
	} {
		if _, err := combined.New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
