package slots

import (
	"sync"
	"sync/atomic"
)

// claimMemory remembers recent claims of this process, so that an obvious replay (the
// same nonce under another request_id) costs no round trip. It is a saving only: what
// it forgot, the limiter store knows.
//
// A key is the seeded hash of user and nonce, and its user has one place: whoever comes there
// next is remembered instead. 1.5 MB and the request_ids. Two claims of 64 equal bits, which
// would refuse the second, are not expected in the life of a process.
type claimMemory struct{ shards [claimShards]claimShard }

type claimShard struct {
	mu     sync.Mutex
	places [claimsPerShard]claimed // guarded by mu
}

type claimed struct {
	key       uint64 // written atomically, for who looks without the lock
	requestID string
}

const (
	claimShards    = 64
	claimsPerShard = 1024
)

func newClaimMemory() *claimMemory { return &claimMemory{} }

// warm brings a user's place into the cache; see [limit.Keyed.Warm].
func (m *claimMemory) warm(user uint64) {
	s, at := m.place(user)
	atomic.LoadUint64(&s.places[at].key)
}

// get tells the first request_id of a claim.
func (m *claimMemory) get(user, key uint64) (requestID string, ok bool) {
	s, at := m.place(user)
	if atomic.LoadUint64(&s.places[at].key) != key { // most claims are first ones: no need for the lock
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := &s.places[at]; key != 0 && c.key == key {
		return c.requestID, true
	}
	return "", false
}

// put remembers it. What it keeps of the request is the text of its id.
func (m *claimMemory) put(user, key uint64, requestID string) {
	s, at := m.place(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	atomic.StoreUint64(&s.places[at].key, key)
	s.places[at].requestID = requestID
}

func (m *claimMemory) place(user uint64) (s *claimShard, at uint64) {
	return &m.shards[user%claimShards], user / claimShards % claimsPerShard
}
