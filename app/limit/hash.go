package limit

import (
	"hash/maphash"
	"math/bits"
)

// Hasher turns the names of callers into keys with a seed of this process, so that
// nobody outside can choose names that collide, and a memory dump holds no names.
// The values mean nothing in another process: never store or send them.
type Hasher struct{ seed maphash.Seed }

// NewHasher draws a seed.
func NewHasher() Hasher { return Hasher{seed: maphash.MakeSeed()} }

// String hashes one name. The empty name hashes to zero, the key that every limiter
// refuses.
func (h Hasher) String(name string) uint64 {
	if name == "" {
		return 0
	}
	return nonzero(maphash.String(h.seed, name))
}

// Bytes hashes one binary name, as [Hasher.String] does.
func (h Hasher) Bytes(name []byte) uint64 {
	if len(name) == 0 {
		return 0
	}
	return nonzero(maphash.Bytes(h.seed, name))
}

// Join hashes a name of several parts, such as activity, SKU and user; ("a", "bc") and
// ("ab", "c") differ. When a part is empty, or there is none, the result is zero.
func (h Hasher) Join(parts ...string) uint64 {
	if len(parts) == 0 {
		return 0
	}
	key := uint64(joinBegin)
	for _, part := range parts {
		key = h.Extend(key, part)
	}
	return key
}

// Extend hashes the name of key with one part more: Extend(Join(a, b), c) is Join(a, b, c).
// Who asks for many names with the same beginning hashes that once.
func (h Hasher) Extend(key uint64, part string) uint64 {
	return Nest(key, h.String(part))
}

// Nest is the key of inner within outer, both of one [Hasher], or outer a small number that
// sets a kind of keys apart. Zero, nobody, stays zero.
func Nest(outer, inner uint64) uint64 {
	if outer == 0 || inner == 0 {
		return 0
	}
	// Folded by a product of 128 bits (as wyhash does), which does not commute: the two
	// factors are salted differently.
	hi, lo := bits.Mul64(outer^joinKey, inner^joinPart)
	return nonzero(hi ^ lo)
}

// Odd, with as many ones as zeros, and unlike each other; nothing more.
const (
	joinBegin = 0x9e3779b97f4a7c15
	joinKey   = 0xa0761d6478bd642f
	joinPart  = 0xe7037ed1a0b428db
)

// nonzero keeps zero for "no key".
func nonzero(h uint64) uint64 {
	if h == 0 {
		return 1
	}
	return h
}
