package limit

import (
	"fmt"
	"math/bits"
	"time"
)

// Key names a bucket of a [Keyed] table. Both hashes come from one [Hasher].
type Key struct {
	// ID is the hash of the caller: activity, SKU and user, or an address. Zero is no
	// caller and is refused.
	ID uint64
	// Prefix is the hash of the caller's coarse source prefix (/24, /48). It chooses the
	// overflow stripe when the table is full. Callers without one share a stripe.
	Prefix uint64
}

// KeyedConfig sizes a [Keyed] table. The zero value of a field takes its default.
type KeyedConfig struct {
	Shards      int           // locks; a power of two up to 65,536; default 256
	MaxEntries  int           // keys remembered at once, at least one a shard; default 500,000
	IdleTTL     time.Duration // how long a full bucket is kept before it is dropped; default 2 min
	SweepEvery  time.Duration // pause between two steps of the janitor; default 250 ms
	SweepShards int           // shards looked at in a step; default 8

	OverflowStripes int  // buckets for new keys when full; a power of two; default 1,024
	Overflow        Rate // rate of each of them; default 100/s, burst 200
}

func (c KeyedConfig) withDefaults() KeyedConfig {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Shards, 256)
	set(&c.MaxEntries, 500_000)
	set(&c.SweepShards, min(8, c.Shards))
	set(&c.OverflowStripes, 1024)
	if c.IdleTTL == 0 {
		c.IdleTTL = 2 * time.Minute
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = 250 * time.Millisecond
	}
	if c.Overflow == (Rate{}) {
		c.Overflow, _ = NewRate(100, 200) // constants that NewRate accepts
	}
	return c
}

func (c KeyedConfig) validate() error {
	switch {
	case c.Shards < 1 || c.Shards > 1<<16 || bits.OnesCount(uint(c.Shards)) != 1:
		return &FieldError{"shards", fmt.Sprintf("%d is not a power of two in 1..65536", c.Shards)}
	case c.MaxEntries < c.Shards || c.MaxEntries > 1<<30:
		return &FieldError{"max_entries", fmt.Sprintf("%d is not in %d (one a shard)..2^30", c.MaxEntries, c.Shards)}
	case c.IdleTTL < 0:
		return &FieldError{"idle_ttl", fmt.Sprintf("%v is negative", c.IdleTTL)}
	case c.SweepEvery < 0:
		return &FieldError{"sweep_every", fmt.Sprintf("%v is negative", c.SweepEvery)}
	case c.SweepShards < 1 || c.SweepShards > c.Shards:
		return &FieldError{"sweep_shards", fmt.Sprintf("%d is not in 1..%d", c.SweepShards, c.Shards)}
	}
	return nil
}

// Keyed is a token bucket for each of many keys: users, devices, sources. It is a
// bounded, sharded table of two words a key, without pointers for the garbage collector
// to follow.
//
// A tracked key is admitted at most burst + rate x t times in any time t. A full bucket
// and an absent one are the same thing, so dropping idle keys gives nobody anything.
//
// When a shard is full, a new key takes the place of one whose bucket is full again, if
// one of 8 entries looked at is. Otherwise it shares the overflow stripe of its source
// prefix: it is then bounded by the stripe (100/s), not by its own rate, and an attacker
// who invents keys starves those of his own prefix, not the others.
//
// Only an admitted call keeps a key in the table.
//
// The rate is an argument of each call: one table serves many rules and rules that
// change. A bucket whose rate has changed since its last call is as full as it was, in
// proportion (to one part in a thousand, rounded towards empty).
type Keyed struct {
	config   KeyedConfig
	overflow *Stripes
	shards   []shard
	mask     uint64
	hand     sweepHand
}

// NewKeyed returns an empty table. It grows as keys come, to at most 32 bytes a key.
func NewKeyed(config KeyedConfig) (*Keyed, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	overflow, err := NewStripes(config.OverflowStripes, config.Overflow)
	if err != nil {
		return nil, err
	}
	k := &Keyed{
		config:   config,
		overflow: overflow,
		shards:   make([]shard, config.Shards),
		mask:     uint64(config.Shards - 1),
	}
	for i := range k.shards {
		k.shards[i].capacity = config.MaxEntries / config.Shards
	}
	return k, nil
}

// Allow charges n units at rate r to the key's bucket at now, or refuses them whole.
func (k *Keyed) Allow(now Instant, key Key, n int64, r Rate) Decision {
	now = now.clamp()
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if key.ID == 0 || !r.serves(n) {
		s.refused++
		return refuseForever(0)
	}
	if d, tracked := s.allow(now, key.ID, n, r); tracked {
		return d
	}
	d := k.overflow.Allow(now, key.Prefix, n)
	d.Remaining = 0 // the stripe's units are not this caller's to count on
	if d.OK {
		s.overflowed++
	} else {
		s.overflowRefused++
	}
	return d
}

// Warm begins to bring the key's bucket into the cache, and changes nothing. In a table of
// many keys the bucket is in no cache, and Allow would wait for memory with its shard locked.
// Whoever knows early which buckets a caller will meet, in however many tables, warms them
// all and waits for memory once.
func (k *Keyed) Warm(key Key) { k.shard(key).warm(key.ID) }

// Refund gives the key's bucket back what has not come back by itself of n units that were
// charged at charged, at rate r: the bound of a key holds for the calls that were not
// refunded. A key that is not in the table has nothing to get back; what it took from a
// stripe stays taken.
func (k *Keyed) Refund(now, charged Instant, key Key, n int64, r Rate) {
	now = now.clamp()
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(key.ID); ok && !r.Closed() {
		e := &s.table[i]
		e.adopt(now, r)
		e.tat = r.refund(e.tat, now, charged.clamp(), n)
	}
}

// KeyView is what the table knows of a key.
type KeyView struct {
	Tracked   bool          // false: absent, which is as good as full
	Remaining int64         // units it could take now at the rate asked about
	FullIn    time.Duration // time until its bucket is full
}

// Inspect returns the state of a key's bucket as seen at rate r. It changes nothing.
func (k *Keyed) Inspect(now Instant, key Key, r Rate) KeyView {
	now = now.clamp()
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.find(key.ID)
	if !ok {
		return KeyView{Remaining: r.burst}
	}
	e := s.table[i] // a copy
	if !r.Closed() {
		e.adopt(now, r)
	}
	debt := max(e.tat-int64(now), 0)
	return KeyView{Tracked: true, Remaining: r.left(debt), FullIn: time.Duration(debt)}
}

// Reset forgets a key, which gives it one fresh burst: an operator's act. It reports
// whether the key was there.
func (k *Keyed) Reset(key Key) bool {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.find(key.ID)
	if ok {
		s.remove(i)
	}
	return ok
}

// KeyedStats are counts since the table was made, and its present size.
type KeyedStats struct {
	Entries         int   // keys in the table
	Bytes           int64 // memory of the table
	Admitted        int64 // by a key's own bucket
	Refused         int64 // by a key's own bucket, or for an impossible cost
	Overflowed      int64 // new keys admitted by a stripe because the table was full
	OverflowRefused int64 // new keys refused by a stripe; alarm on either
	Replaced        int64 // full buckets that made room for a new key
	Dropped         int64 // idle keys dropped by the janitor
}

// Stats sums the shards, each locked for some nanoseconds in turn.
func (k *Keyed) Stats() KeyedStats {
	var sum KeyedStats
	for i := range k.shards {
		k.shards[i].addTo(&sum)
	}
	return sum
}

func (k *Keyed) shard(key Key) *shard { return &k.shards[key.ID&k.mask] }
