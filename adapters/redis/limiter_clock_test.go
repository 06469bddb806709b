package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
)

// virtual is a store whose clock moves only when a test says so.
type virtual struct {
	redis    *miniredis.Miniredis
	limiters *Limiters
	now      time.Time
	gone     time.Duration // all that ever passed forwards: what a limiter may credit
}

func openVirtual(t *testing.T) *virtual {
	t.Helper()
	m := miniredis.RunT(t)
	c := goredis.NewClient(&goredis.Options{Addr: m.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	v := &virtual{redis: m, limiters: NewLimiters(c), now: time.UnixMilli(1782388800000)}
	m.SetTime(v.now)
	return v
}

// pass moves the clock. Keys expire only as it goes forward.
func (v *virtual) pass(d time.Duration) {
	v.now = v.now.Add(d)
	v.redis.SetTime(v.now)
	if d > 0 {
		v.gone += d
		v.redis.FastForward(d)
	}
}

func (v *virtual) take(t *testing.T, take admission.Take) admission.Taken {
	t.Helper()
	taken, err := v.limiters.Take(t.Context(), []admission.Take{take})
	if err != nil {
		t.Fatalf("take %+v: %v", take, err)
	}
	return taken[0]
}

// TestL03SlowBucketOutlivesItsTTL: 0.01/s, capacity 10, drained and left alone for 61 s.
func TestL03SlowBucketOutlivesItsTTL(t *testing.T) {
	for _, a := range []admission.Algorithm{admission.TokenBucket, admission.LeakyBucket} {
		v := openVirtual(t)
		take := admission.Take{Key: "rl:x", Algorithm: a, Tokens: 1, Period: 100 * time.Second, Capacity: 10, Cost: 1}
		for range 10 {
			v.take(t, take)
		}
		for _, idle := range []time.Duration{61 * time.Second, 38*time.Second + 999*time.Millisecond} {
			v.pass(idle)
			if got := v.take(t, take); got.OK {
				t.Errorf("algorithm %d after %v: got %+v, want floor(0.61) = 0 tokens", a, idle, got)
			}
		}
		v.pass(time.Millisecond)
		if got := v.take(t, take); !got.OK {
			t.Errorf("algorithm %d after 100 s: got %+v, want the token", a, got)
		}
	}
}

// TestBucketsAreExact asks at every millisecond: in a thousand periods exactly so many
// tokens come back, whatever the fraction of a millisecond that one takes.
func TestBucketsAreExact(t *testing.T) {
	for _, a := range []admission.Algorithm{admission.TokenBucket, admission.LeakyBucket} {
		for _, c := range []struct{ tokens, periodMS int64 }{{7, 60}, {1, 3}, {3, 10}, {11, 13}} {
			v := openVirtual(t)
			take := admission.Take{Key: "rl:x", Algorithm: a, Tokens: c.tokens, Period: time.Duration(c.periodMS) * time.Millisecond, Capacity: 1, Cost: 1}
			if c.tokens > c.periodMS {
				t.Fatal("more than a token a ms cannot be seen with a capacity of 1")
			}
			v.take(t, take)
			const periods = 20
			got := int64(0)
			for range periods * c.periodMS {
				v.pass(time.Millisecond)
				if v.take(t, take).OK {
					got++
				}
			}
			// a bucket of one token loses what comes in while it is full: less than a ms a token
			least := periods * c.periodMS / ((c.periodMS + c.tokens - 1) / c.tokens)
			if got > periods*c.tokens || got < least {
				t.Errorf("algorithm %d, %d in %d ms: %d tokens in %d periods, want %d..%d", a, c.tokens, c.periodMS, got, periods, least, periods*c.tokens)
			}

			wide := take
			wide.Key, wide.Capacity, wide.Cost = "rl:wide", 1000, 1000
			v.take(t, wide) // drained
			start := v.now.UnixMilli()
			wide.Cost = 1
			got = 0
			for range periods * c.periodMS / 7 {
				v.pass(7 * time.Millisecond)
				for v.take(t, wide).OK {
					got++
				}
			}
			passed := periods * c.periodMS / 7 * 7
			if a == admission.TokenBucket { // to the last fraction of a thousandth, up to the last write
				field := func(name string) (n int64) {
					_, _ = fmt.Sscan(v.redis.HGet("rl:wide", name), &n)
					return n
				}
				earned := (field("ts_ms") - start) * c.tokens * 1000 // in 1/period of a thousandth
				if held := field("tokens_milli")*c.periodMS + field("rest"); held != earned-got*1000*c.periodMS {
					t.Errorf("%d in %d ms: holds %d parts, want %d", c.tokens, c.periodMS, held, earned-got*1000*c.periodMS)
				}
			}
			if want := passed * c.tokens / c.periodMS; got != want {
				t.Errorf("algorithm %d, %d in %d ms: %d tokens in %d ms, want exactly %d", a, c.tokens, c.periodMS, got, passed, want)
			}
		}
	}
}

// TestLimitersNeverAdmitMore: in every interval, admitted <= burst + rate x length, while
// the server's clock jumps both ways (a jump ahead counts as length, a jump back does
// not); and retry_after is never short.
func TestLimitersNeverAdmitMore(t *testing.T) {
	for _, a := range []admission.Algorithm{admission.TokenBucket, admission.LeakyBucket, admission.SlidingCounter, admission.SlidingLog} {
		t.Run(fmt.Sprint(a), func(t *testing.T) {
			v, cases := openVirtual(t), 0
			rapid.Check(t, func(rt *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
				cases++
				take := admission.Take{
					Key: fmt.Sprint("rl:", cases), Algorithm: a, Tokens: 1 + r.Int64N(20), Period: time.Duration(1+r.IntN(500)) * time.Millisecond,
					Capacity: 1 + r.Int64N(20),
				}
				if a == admission.SlidingCounter || a == admission.SlidingLog {
					take.Capacity = take.Tokens
				}
				type admitted struct {
					at   time.Duration
					cost int64
				}
				var all []admitted
				for range 40 {
					take.Cost = 1 + r.Int64N(min(3, take.Capacity))
					got := v.take(t, take)
					if got.OK {
						all = append(all, admitted{v.gone, take.Cost})
					} else if r.IntN(3) == 0 {
						v.pass(got.RetryAfter)
						if again := v.take(t, take); !again.OK {
							rt.Fatalf("cost %d: after exactly %v: %+v", take.Cost, got.RetryAfter, again)
						}
						all = append(all, admitted{v.gone, take.Cost})
					}
					switch r.IntN(10) {
					case 0:
						v.pass(-time.Duration(r.IntN(2000)) * time.Millisecond)
					case 1:
						v.pass(time.Duration(r.IntN(2000)) * time.Millisecond)
					default:
						v.pass(time.Duration(r.IntN(60)) * time.Millisecond)
					}
				}
				for i := range all {
					sum := int64(0)
					for j := i; j < len(all); j++ {
						sum += all[j].cost
						length := all[j].at - all[i].at
						most := float64(take.Capacity) + float64(take.Tokens)*float64(length)/float64(take.Period)
						if float64(sum) > most+1e-6 {
							rt.Fatalf("%+v: %d admitted within %v, want at most %.2f", take, sum, length, most)
						}
						if a == admission.SlidingLog && length < take.Period && sum > take.Tokens {
							rt.Fatalf("%+v: %d admitted within %v", take, sum, length)
						}
					}
				}
			})
		})
	}
}

// TestTokenBucketContract is the script as others may call it: fields, reply, codes.
func TestTokenBucketContract(t *testing.T) {
	v := openVirtual(t)
	script := NewScript("token_bucket")
	run := func(args ...any) []any {
		t.Helper()
		reply, err := script.Run(t.Context(), v.limiters.client, []string{"rl:x"}, args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	ms := v.now.UnixMilli()
	for _, c := range []struct {
		what string
		args []any
		want []any
	}{
		{"allow", []any{10, 1000, 20, 3}, []any{int64(1), int64(17000), int64(0), ms}},
		{"limited", []any{10, 1000, 20, 20}, []any{int64(0), int64(17000), int64(300), ms}},
		{"cost > capacity", []any{10, 1000, 20, 21}, []any{int64(-2), int64(0), int64(-1), ms}},
		{"cost 0", []any{10, 1000, 20, 0}, []any{int64(-1), int64(0), int64(0), int64(0)}},
		{"a fraction", []any{10, 1000, 20, "1.5"}, []any{int64(-1), int64(0), int64(0), int64(0)}},
		{"NaN", []any{"nan", 1000, 20, 1}, []any{int64(-1), int64(0), int64(0), int64(0)}},
		{"one argument too few", []any{10, 1000, 20}, []any{int64(-1), int64(0), int64(0), int64(0)}},
		{"capacity x 1000 just below 2^53", []any{1, 1000, int64(1 << 53 / 1000), 1}, []any{int64(0), int64(17000), int64(0), ms}},
		{"capacity x 1000 above 2^53", []any{1, 1000, int64(1<<53/1000 + 1), 1}, []any{int64(-1), int64(0), int64(0), int64(0)}},
	} {
		if c.what == "capacity x 1000 just below 2^53" {
			if got := run(c.args...); got[0] != int64(1) {
				t.Errorf("%s: got %v", c.what, got)
			}
			continue
		}
		if got := run(c.args...); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", c.what, got, c.want)
		}
	}
	if v.redis.HGet("rl:x", "tokens_milli") != "16000" || v.redis.HGet("rl:x", "ts_ms") != fmt.Sprint(ms) {
		t.Errorf("stored %s at %s", v.redis.HGet("rl:x", "tokens_milli"), v.redis.HGet("rl:x", "ts_ms"))
	}
	run(10, 1000, 20, 1)
	if ttl := v.redis.TTL("rl:x"); ttl < 4*time.Second {
		t.Errorf("TTL %v, want at least twice the 2 s to refill", ttl)
	}
}

// TestHugeCapacityCountsExactly: near 2^53 nothing is rounded.
func TestHugeCapacityCountsExactly(t *testing.T) {
	v := openVirtual(t)
	const capacity = 1 << 53 / 1000
	take := admission.Take{Key: "rl:x", Tokens: 1_000_000_000, Period: time.Second, Capacity: capacity, Cost: capacity - 1}
	if got := v.take(t, take); !got.OK || got.Remaining != 1 {
		t.Fatalf("got %+v", got)
	}
	take.Cost = 1
	if got := v.take(t, take); !got.OK || got.Remaining != 0 {
		t.Errorf("got %+v", got)
	}
	if got := v.take(t, take); got.OK {
		t.Errorf("got %+v", got)
	}
	v.pass(3 * time.Millisecond)
	take.Cost = 3_000_000
	if got := v.take(t, take); !got.OK || got.Remaining != 0 {
		t.Errorf("after 3 ms at 1e9/s: got %+v", got)
	}
}
