package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

// TestChurnAttack: an attacker invents keys, 1,000,000 a second from one /24 and one /48,
// against a table of 10,000, and keeps a table's worth of them warm. Honest shoppers come
// for the first time, each from his own prefix. In virtual time.
//
// At least half of the honest must get through, and no key of the attacker's more than its
// own bound.
func TestChurnAttack(t *testing.T) {
	const (
		length    = 500 * time.Millisecond
		perMicro  = 1      // attacker's calls a microsecond
		honestGap = 250    // microseconds between two honest first attempts
		warmKeys  = 12_000 // kept alive by every other call
	)
	k := must(limit.NewKeyed(limit.KeyedConfig{MaxEntries: 10_000}))
	h := limit.NewHasher()
	prefixes := []uint64{h.String("203.0.113.0/24"), h.String("2001:db8::/48")}
	random := rand.New(rand.NewPCG(7, 11))

	warm := make([]uint64, warmKeys)
	for i := range warm {
		warm[i] = random.Uint64()
	}
	admitted := map[uint64]int{}
	honest, served := 0, 0
	for us := range limit.Instant(length / time.Microsecond) {
		now := us * limit.Instant(time.Microsecond)
		for i := range perMicro {
			id := random.Uint64()
			if (int(us)+i)%2 == 0 {
				id = warm[int(us/2)%warmKeys]
			}
			if k.Allow(now, limit.Key{ID: id, Prefix: prefixes[us%4/2]}, 1, user).OK {
				admitted[id]++
			}
		}
		if us%honestGap == 0 {
			honest++
			if k.Allow(now, limit.Key{ID: random.Uint64(), Prefix: random.Uint64()}, 1, user).OK {
				served++
			}
		}
		if us%250_000 == 0 {
			k.Sweep(now)
		}
	}

	if served*2 < honest {
		t.Errorf("%d of %d honest first attempts served", served, honest)
	}
	most := int(float64(user.Burst()) + user.PerSecond()*length.Seconds())
	for id, n := range admitted {
		if n > most {
			t.Errorf("attacker's key %x admitted %d times, bound %d", id, n, most)
		}
	}
	s := k.Stats()
	if s.Entries > 10_000 {
		t.Errorf("%d entries of 10,000", s.Entries)
	}
	t.Logf("honest %d of %d; %+v", served, honest, s)
}

// Warm keys hold their places only as long as they spend: once the attack pauses for the
// time of a full bucket, every place is open to newcomers.
func TestWarmKeysDoNotStarveNewOnes(t *testing.T) {
	k := must(limit.NewKeyed(limit.KeyedConfig{MaxEntries: 10_000}))
	random := rand.New(rand.NewPCG(3, 5))
	for range 30_000 {
		k.Allow(0, limit.Key{ID: random.Uint64(), Prefix: 1}, 1, user)
	}
	for range 2_500 { // refused calls do not keep a key warm: its bucket fills all the same
		at := limit.Key{ID: random.Uint64(), Prefix: 2}
		if !k.Allow(2*sec, at, 1, user).OK || !k.Inspect(2*sec, at, user).Tracked {
			t.Fatal("a newcomer did not get a place of his own")
		}
	}
}
