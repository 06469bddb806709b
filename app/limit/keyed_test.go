package limit_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/limit"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(id uint64) limit.Key { return limit.Key{ID: id<<32 | id, Prefix: 7} }

// small is a table of one shard, so that a test decides what fills it.
func small(entries int) *limit.Keyed {
	return must(limit.NewKeyed(limit.KeyedConfig{
		Shards: 1, MaxEntries: entries, OverflowStripes: 1, Overflow: must(limit.NewRate(1, 2)),
	}))
}

var user = must(limit.NewRate(0.5, 3)) // the default of user rules; constant

func TestKeyedKeepsKeysApart(t *testing.T) {
	k := small(10)
	for id := range uint64(5) {
		for want := range int64(4) {
			d := k.Allow(0, key(id+1), 1, user)
			if d.OK != (want < 3) || d.OK && d.Remaining != 2-want {
				t.Fatalf("key %d, call %d: %+v", id, want, d)
			}
		}
	}
	if s := k.Stats(); s.Entries != 5 || s.Admitted != 15 || s.Refused != 5 {
		t.Errorf("%+v", s)
	}
}

func TestKeyedRefusesNobody(t *testing.T) {
	k := small(10)
	for _, c := range []struct {
		id uint64
		n  int64
		r  limit.Rate
	}{{0, 1, user}, {1, 0, user}, {1, -1, user}, {1, 4, user}, {1, 1, limit.Rate{}}} {
		if d := k.Allow(0, limit.Key{ID: c.id}, c.n, c.r); d.OK || d.RetryAfter != limit.Never {
			t.Errorf("%+v: %+v", c, d)
		}
	}
	if s := k.Stats(); s.Entries != 0 {
		t.Errorf("%d entries after impossible calls", s.Entries)
	}
}

func TestKeyedRefundInspectReset(t *testing.T) {
	k := small(10)
	if v := k.Inspect(0, key(1), user); v.Tracked || v.Remaining != 3 {
		t.Errorf("unknown key: %+v", v)
	}
	k.Allow(0, key(1), 3, user)
	k.Refund(0, 0, key(1), 1, user)
	if v := k.Inspect(0, key(1), user); !v.Tracked || v.Remaining != 1 || v.FullIn != 4*time.Second {
		t.Errorf("after 3 - 1: %+v", v)
	}
	k.Refund(0, 0, key(1), 100, user)
	if v := k.Inspect(0, key(1), user); v.Remaining != 3 {
		t.Errorf("refund above full: %+v", v)
	}
	k.Refund(0, 0, key(2), 1, user) // unknown: nothing to give
	k.Allow(0, key(1), 3, user)
	if !k.Reset(key(1)) || k.Reset(key(1)) {
		t.Error("Reset should find the key once")
	}
	if d := k.Allow(0, key(1), 3, user); !d.OK {
		t.Errorf("after Reset: %+v", d)
	}
}

// A full table serves new keys from the stripe of their prefix, and its own keys as before.
func TestKeyedOverflow(t *testing.T) {
	k := small(2)
	k.Allow(0, key(1), 1, user)
	k.Allow(0, key(2), 1, user)
	for i, want := range []bool{true, true, false} { // stripe: 1/s, burst 2
		if d := k.Allow(0, key(uint64(10+i)), 1, user); d.OK != want || d.Remaining != 0 {
			t.Fatalf("new key %d: %+v", i, d)
		}
	}
	if d := k.Allow(0, key(20), 1, user); d.RetryAfter != time.Second {
		t.Errorf("the stripe tells its own wait: %+v", d)
	}
	if d := k.Allow(0, key(1), 1, user); !d.OK {
		t.Errorf("a tracked key suffers from the overflow: %+v", d)
	}
	if s := k.Stats(); s.Overflowed != 2 || s.OverflowRefused != 2 || s.Entries != 2 {
		t.Errorf("%+v", s)
	}
}

// A key whose bucket is full again makes room for a new one, and loses nothing by it.
func TestKeyedReplacesFullBuckets(t *testing.T) {
	k := small(2)
	k.Allow(0, key(1), 1, user)       // full again at 2 s
	k.Allow(0, key(2), 3, user)       // full again at 6 s
	k.Allow(2*sec-1, key(9), 1, user) // too soon: overflow
	k.Allow(2*sec, key(3), 3, user)   // takes the place of 1
	k.Allow(2*sec, key(1), 1, user)   // nobody else is full: overflow
	if s := k.Stats(); s.Replaced != 1 || s.Overflowed != 2 || s.Entries != 2 {
		t.Fatalf("%+v", s)
	}
	if v := k.Inspect(2*sec, key(2), user); !v.Tracked || v.Remaining != 1 {
		t.Errorf("the warm key: %+v", v)
	}
}

// What is idle is dropped, not sooner than max(IdleTTL, time to a full bucket), and being
// refused does not keep a key.
func TestKeyedSweep(t *testing.T) {
	for _, c := range []struct {
		name string
		rate limit.Rate
		kept limit.Instant // still there
		gone limit.Instant
	}{
		{"short window", user, 2*60*sec + 5*sec, 2*60*sec + 6*sec},
		{"long window", must(limit.NewRate(0.01, 3)), 300*sec + 119*sec, 300*sec + 120*sec},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := small(10)
			k.Allow(0, key(1), 3, c.rate)
			for at := limit.Instant(0); at < sec; at += 100 * ms {
				k.Allow(at, key(1), 3, c.rate) // refused
			}
			k.Sweep(c.kept)
			if s := k.Stats(); s.Entries != 1 {
				t.Fatalf("dropped too soon: %+v", s)
			}
			k.Sweep(c.gone)
			if s := k.Stats(); s.Entries != 0 || s.Dropped != 1 || s.Bytes != 0 {
				t.Errorf("not dropped: %+v", s)
			}
		})
	}
}

// TestL03IdleIsNoFreshBurst: case L03b, a rate so slow that the bucket refills longer
// than the idle time.
func TestL03IdleIsNoFreshBurst(t *testing.T) {
	k := must(limit.NewKeyed(limit.KeyedConfig{Shards: 1, MaxEntries: 10, IdleTTL: time.Minute}))
	slow := must(limit.NewRate(0.01, 10))
	drain := func(now limit.Instant) (n int) {
		for k.Allow(now, key(1), 1, slow).OK {
			n++
		}
		return n
	}
	if n := drain(0); n != 10 {
		t.Fatalf("first drain: %d", n)
	}
	for at := range limit.Instant(61) {
		k.Sweep(at * sec)
	}
	if n := drain(61 * sec); n != 0 {
		t.Errorf("second drain after 61 s at 0.01/s: %d, want floor(0.61) = 0", n)
	}
}

// TestL03KeyedPolicyChange: case L03c for a table that serves a changed rule.
func TestL03KeyedPolicyChange(t *testing.T) {
	k := small(10)
	perSecond, slow := must(limit.NewRate(10, 10)), must(limit.NewRate(0.2, 10))
	k.Allow(0, key(1), 10, perSecond)
	for range 100 {
		if d := k.Allow(0, key(1), 1, slow); d.OK || d.RetryAfter != 5*time.Second {
			t.Fatalf("pushed a slow rule onto an empty bucket: %+v", d)
		}
		if d := k.Allow(0, key(1), 1, perSecond); d.OK {
			t.Fatalf("and back: %+v", d)
		}
	}
	k.Allow(0, key(2), 5, perSecond)
	wide := must(limit.NewRate(10, 100))
	if v := k.Inspect(0, key(2), wide); v.Remaining < 49 || v.Remaining > 50 {
		t.Errorf("half full stays half full: %+v", v)
	}
}

// Whatever the rule is changed to and how often, a key spends no more than one full
// bucket and what came back, counted in fractions of the bucket of the moment.
func TestKeyedBoundAcrossPolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := make([]limit.Rate, rapid.IntRange(1, 4).Draw(t, "rules"))
		for i := range rates {
			rates[i] = must(limit.NewRate(
				float64(rapid.Int64Range(1, 100).Draw(t, "tokens"))/float64(rapid.Int64Range(1, 60).Draw(t, "per")),
				rapid.Int64Range(1, 50).Draw(t, "burst")))
		}
		k := small(4)
		spent, back, now := 0.0, 1.0, limit.Instant(0)
		rate := rates[0]
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			step := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "step"))
			back += float64(step) / float64(rate.FillTime())
			now = now.Add(step)
			if rapid.IntRange(0, 3).Draw(t, "push") == 0 {
				k.Inspect(now, key(1), rate)
				rate = rapid.SampledFrom(rates).Draw(t, "rate")
				k.Allow(now, key(1), rate.Burst()+1, rate) // impossible: changes nothing
				k.Refund(now, now, key(1), 0, rate)        // the change takes effect at this call
			}
			n := rapid.Int64Range(1, rate.Burst()).Draw(t, "n")
			if k.Allow(now, key(1), n, rate).OK {
				spent += float64(n) / float64(rate.Burst())
			}
			if spent > back+1e-6 {
				t.Fatalf("spent %.4f buckets of %.4f", spent, back)
			}
		}
	})
}

// The table agrees with a plain map of buckets as long as it is not full, through growth,
// sweeps, resets and refunds.
func TestKeyedAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 200
		k := must(limit.NewKeyed(limit.KeyedConfig{Shards: 2, MaxEntries: 2 * keys, SweepShards: 2, IdleTTL: time.Second}))
		model := map[uint64]*limit.Stripes{}
		now := limit.Instant(0)
		for range rapid.IntRange(1, 400).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, "step")))
			// Few distinct high bits: homes side by side, at the end of the table, so that
			// probes are long, run into each other and wrap round.
			id := rapid.Uint64Range(1, keys).Draw(t, "id")
			at := limit.Key{ID: ^uint64(0) - id%5<<57 - id<<16 - id%2}
			b := model[id]
			if b == nil {
				b = must(limit.NewStripes(1, user))
				model[id] = b
			}
			switch rapid.IntRange(0, 9).Draw(t, "act") {
			case 0:
				k.Sweep(now)
			case 1:
				k.Reset(at)
				delete(model, id)
			case 2:
				k.Refund(now, now, at, 1, user)
				b.Refund(now, now, 0, 1, user)
			default:
				n := rapid.Int64Range(1, 3).Draw(t, "n")
				if got, want := k.Allow(now, at, n, user), b.Allow(now, 0, n); got != want {
					t.Fatalf("key %d at %v: %+v, want %+v", id, time.Duration(now), got, want)
				}
			}
		}
		if s := k.Stats(); s.Overflowed+s.OverflowRefused+s.Replaced != 0 || s.Entries > len(model) {
			t.Fatalf("%+v with %d keys", s, len(model))
		}
	})
}

// However the keys come, the table stays within its bound, and a key within its own for as
// long as it is tracked.
func TestKeyedParallel(t *testing.T) {
	const workers, keys, entries = 8, 2000, 512
	k := must(limit.NewKeyed(limit.KeyedConfig{
		Shards: 8, MaxEntries: entries, OverflowStripes: 16, Overflow: must(limit.NewRate(1, 10)),
	}))
	race(workers, func(worker int) int64 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		for i := range 20_000 {
			now := limit.Instant(i) * ms
			at := limit.Key{ID: random.Uint64N(keys)*0x9e3779b97f4a7c15 + 1, Prefix: random.Uint64()}
			switch k.Allow(now, at, 1, user); i % 64 {
			case 0:
				k.Sweep(now)
			case 1:
				k.Refund(now, now, at, 1, user)
			case 2:
				k.Reset(at)
			case 3:
				if n := k.Stats().Entries; n > entries {
					t.Errorf("%d entries of %d", n, entries)
				}
			}
		}
		return 0
	})
}

// The janitor visits every shard in turn and leaves when its context ends.
func TestKeyedJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := must(limit.NewKeyed(limit.KeyedConfig{Shards: 32, MaxEntries: 3200}))
		clock := limit.NewClock()
		for id := range uint64(320) {
			k.Allow(clock.Now(), key(id+1), 1, user)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx, clock.Now)
		}()
		time.Sleep(2*time.Minute + 2*time.Second) // idle since the last bucket filled
		synctest.Wait()
		if n := k.Stats().Entries; n == 0 {
			t.Error("all shards swept in one step: not in small batches")
		}
		time.Sleep(time.Second) // 32 shards, 8 each 250 ms
		synctest.Wait()
		if s := k.Stats(); s.Entries != 0 || s.Dropped != 320 {
			t.Errorf("after one round: %+v", s)
		}
		stop()
		<-done
	})
}

func TestKeyedConfigRejects(t *testing.T) {
	for _, c := range []struct {
		config limit.KeyedConfig
		field  string
	}{
		{limit.KeyedConfig{}, ""},
		{limit.KeyedConfig{Shards: 3}, "shards"},
		{limit.KeyedConfig{Shards: -1}, "shards"},
		{limit.KeyedConfig{Shards: 1 << 17, MaxEntries: 1 << 20}, "shards"},
		{limit.KeyedConfig{MaxEntries: 100}, "max_entries"},
		{limit.KeyedConfig{MaxEntries: -1}, "max_entries"},
		{limit.KeyedConfig{IdleTTL: -1}, "idle_ttl"},
		{limit.KeyedConfig{SweepEvery: -1}, "sweep_every"},
		{limit.KeyedConfig{SweepShards: 257}, "sweep_shards"},
		{limit.KeyedConfig{OverflowStripes: 1000}, "stripes"},
	} {
		_, err := limit.NewKeyed(c.config)
		wantField(t, err, c.field)
	}
}
