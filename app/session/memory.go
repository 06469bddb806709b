package session

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

const shards = 64 // few enough to stay small, enough that two cores seldom meet in one

// memory remembers verified sessions. Only verified ones get in, so nobody fills it without real sessions;
// when it is full the oldest goes, and a session that went is verified once more. Tokens are found by a
// seeded hash and then compared whole: a collision costs a verification, never a wrong user.
type memory struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.RWMutex
	index map[uint64]int32 // guarded by mu; hash -> slot
	slots []slot           // guarded by mu; grows to limit, then used round and round
	next  int              // guarded by mu; the slot to use next
	limit int
}

type slot struct {
	hash  uint64
	token string
	ring  *ring // the keys that verified it
	id    Identity
	until time.Time
}

func newMemory(limit int) *memory {
	m := &memory{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].index = make(map[uint64]int32)
		m.shards[i].limit = (limit + shards - 1) / shards
	}
	return m
}

// recall finds a session that these keys verified and that has not ended.
func (m *memory) recall(token string, keys *ring, now time.Time) (Identity, bool) {
	hash := maphash.String(m.seed, token)
	s := &m.shards[hash%shards]
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.index[hash]
	if !ok {
		return Identity{}, false
	}
	found := &s.slots[i]
	if found.ring != keys || !now.Before(found.until) || found.token != token {
		return Identity{}, false
	}
	return found.id, true
}

// remember keeps a session until a moment. The token is copied: a piece of a header would hold on to the
// whole of it.
func (m *memory) remember(token string, keys *ring, id Identity, until time.Time) {
	hash := maphash.String(m.seed, token)
	entry := slot{hash: hash, token: strings.Clone(token), ring: keys, id: id, until: until}
	s := &m.shards[hash%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.index[hash]; ok { // again after a key change, or a race of two first verifications
		s.slots[i] = entry
		return
	}
	i := s.next
	if i == len(s.slots) {
		s.slots = append(s.slots, entry)
	} else {
		delete(s.index, s.slots[i].hash)
		s.slots[i] = entry
	}
	s.index[hash] = int32(i)
	s.next = (i + 1) % s.limit
}
