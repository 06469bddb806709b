package limit

import (
	"encoding/binary"
	"hash/maphash"
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

// Join hashes a name of several parts, such as activity, SKU and user. Each part is
// preceded by its length, so ("a", "bc") and ("ab", "c") differ. When a part is empty
// the result is zero.
func (h Hasher) Join(parts ...string) uint64 {
	var m maphash.Hash
	m.SetSeed(h.seed)
	var length [8]byte
	for _, part := range parts {
		if part == "" {
			return 0
		}
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		m.Write(length[:])
		m.WriteString(part)
	}
	if len(parts) == 0 {
		return 0
	}
	return nonzero(m.Sum64())
}

// nonzero keeps zero for "no key".
func nonzero(h uint64) uint64 {
	if h == 0 {
		return 1
	}
	return h
}
