package limit

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// tagMask are the bits of an ID that an entry keeps; the low bits choose the shard.
	// With 256 shards 56 bits tell keys apart: among a million, one pair in 150,000
	// tables shares a bucket.
	tagMask = 1<<64 - 1<<16
	// look is how many entries a new key may examine in a full shard.
	look = 8
	// minTable is the first size of a shard's table, in entries.
	minTable = 16
)

// entry is a key with its bucket: 48 bits of the key, 16 bits of the rate it was last
// charged at, and its arrival time. The rate bits of a used entry are never zero.
type entry struct {
	tag uint64 // written atomically, for warm
	tat int64
}

func (e *entry) set(tag uint64, tat int64) {
	atomic.StoreUint64(&e.tag, tag)
	e.tat = tat
}

const entrySize = int64(unsafe.Sizeof(entry{}))

func (e *entry) free() bool { return e.tag == 0 }

// adopt brings an entry that was charged at another rate to r. Rates rarely change: the
// test alone is inlined.
func (e *entry) adopt(now Instant, r Rate) {
	if uint16(e.tag) != r.scale {
		e.rescale(now, r)
	}
}

func (e *entry) rescale(now Instant, r Rate) {
	e.set(e.tag&tagMask|uint64(r.scale), r.carry(e.tat, now, fromCoarse(uint16(e.tag))))
}

// shard is a hash table with linear probing under one lock. Entries sit at or after the
// place their tag asks for; removal closes the gap, so there are no tombstones and the
// length of a probe depends on the load alone, which stays at or below 3/4.
type shard struct {
	mu       sync.Mutex
	table    []entry                 // guarded by mu
	shown    atomic.Pointer[[]entry] // table, for warm
	used     int                     // guarded by mu
	capacity int                     // most entries; constant
	hand     int                     // guarded by mu; where the next look for a full bucket begins

	// guarded by mu
	admitted, refused, overflowed, overflowRefused, replaced, dropped int64

	_ [128 - 112]byte // two cache lines a shard: neighbours do not slow each other
}

// allow charges the key's bucket. It reports false, and charges nothing, when the key is
// new and the shard is full.
func (s *shard) allow(now Instant, id uint64, n int64, r Rate) (Decision, bool) {
	i, ok := s.find(id)
	if !ok {
		if i, ok = s.insert(now, id, r); !ok {
			return Decision{}, false
		}
	}
	e := &s.table[i]
	e.adopt(now, r)
	next, d := r.spend(e.tat, now, n)
	e.tat = next
	if d.OK {
		s.admitted++
	} else {
		s.refused++
	}
	return d, true
}

// find returns the place of a key, or the free place where its probe ended.
func (s *shard) find(id uint64) (int, bool) {
	if len(s.table) == 0 {
		return 0, false
	}
	tag := id & tagMask
	for i := home(s.table, tag); ; {
		e := &s.table[i]
		switch {
		case e.free():
			return i, false
		case e.tag&tagMask == tag:
			return i, true
		}
		if i++; i == len(s.table) {
			i = 0
		}
	}
}

// home maps a tag to the place it asks for: its high bits, scaled to the table.
func home(table []entry, tag uint64) int {
	hi, _ := bits.Mul64(tag, uint64(len(table)))
	return int(hi)
}

// warm reads the place that a key asks for, without the lock and for nothing: once it has
// been read it is in the cache.
func (s *shard) warm(id uint64) {
	if table := s.shown.Load(); table != nil {
		atomic.LoadUint64(&(*table)[home(*table, id&tagMask)].tag)
	}
}

// insert adds a key with a full bucket and returns its place. In a full shard it first
// removes one whose bucket is full; without any it reports false.
func (s *shard) insert(now Instant, id uint64, r Rate) (int, bool) {
	switch {
	case s.used >= s.capacity:
		if !s.removeFull(now) {
			return 0, false
		}
		s.replaced++
	case (s.used+1)*4 > len(s.table)*3:
		s.grow()
	}
	i, _ := s.find(id)
	s.table[i].set(id&tagMask|uint64(r.scale), int64(now))
	s.used++
	return i, true
}

// removeFull looks at the next 8 entries round the table for a bucket that is full
// again: removing it changes nothing for its key.
func (s *shard) removeFull(now Instant) bool {
	for seen := 0; seen < look; {
		if s.hand++; s.hand >= len(s.table) {
			s.hand = 0
		}
		e := &s.table[s.hand]
		if e.free() {
			continue
		}
		if e.tat <= int64(now) {
			s.remove(s.hand)
			return true
		}
		seen++
	}
	return false
}

// remove empties a place and moves the entries after it back towards their homes.
func (s *shard) remove(gap int) {
	size := len(s.table)
	for i := gap; ; {
		if i++; i == size {
			i = 0
		}
		if s.table[i].free() {
			break
		}
		// The entry may move to the gap unless its home lies between the two.
		e := &s.table[i]
		home := home(s.table, e.tag&tagMask)
		if (i-home+size)%size >= (i-gap+size)%size {
			s.table[gap].set(e.tag, e.tat)
			gap = i
		}
	}
	s.table[gap].set(0, 0)
	s.used--
}

// grow makes the table half as large again, at most to what capacity needs: the last
// step leaves it exactly there. The shard is locked for some microseconds.
func (s *shard) grow() {
	full := s.capacity*4/3 + 2
	size := min(max(len(s.table)*3/2, minTable), full)
	old, next := s.table, make([]entry, size)
	s.table = next
	for _, e := range old {
		if !e.free() {
			i, _ := s.find(e.tag)
			s.table[i] = e
		}
	}
	s.shown.Store(&next)
}

// sweep drops the keys whose buckets have been full for idle nanoseconds or more. An
// empty shard gives its memory back.
func (s *shard) sweep(now Instant, idle int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.table); {
		if e := &s.table[i]; !e.free() && int64(now)-e.tat >= idle {
			s.remove(i) // another entry may have moved here: look again
			s.dropped++
			continue
		}
		i++
	}
	if s.used == 0 {
		s.table, s.hand = nil, 0
		s.shown.Store(nil)
	}
}

func (s *shard) addTo(sum *KeyedStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.Entries += s.used
	sum.Bytes += int64(len(s.table)) * entrySize
	sum.Admitted += s.admitted
	sum.Refused += s.refused
	sum.Overflowed += s.overflowed
	sum.OverflowRefused += s.overflowRefused
	sum.Replaced += s.replaced
	sum.Dropped += s.dropped
}
