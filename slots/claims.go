package slots

import "sync"

// claimMemory remembers recent claims of this process, so that an obvious replay (the
// same nonce under another request_id) costs no round trip. It is a saving only: what
// it forgot, the limiter store knows.
//
// A key is the seeded hash of user and nonce, and has one place: whoever comes there next
// is remembered instead. 1.5 MB and the request_ids. Two claims of 64 equal bits, which
// would refuse the second, are not expected in the life of a process.
type claimMemory struct{ shards [claimShards]claimShard }

type claimShard struct {
	mu     sync.Mutex
	places [claimsPerShard]claimed // guarded by mu
}

type claimed struct {
	key       uint64
	requestID string
}

const (
	claimShards    = 64
	claimsPerShard = 1024
)

func newClaimMemory() *claimMemory { return &claimMemory{} }

// get tells the first request_id of a claim.
func (m *claimMemory) get(key uint64) (requestID string, ok bool) {
	s, at := m.place(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := &s.places[at]; key != 0 && c.key == key {
		return c.requestID, true
	}
	return "", false
}

// put remembers it. What it keeps of the request is the text of its id.
func (m *claimMemory) put(key uint64, requestID string) {
	s, at := m.place(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[at] = claimed{key, requestID}
}

func (m *claimMemory) place(key uint64) (s *claimShard, at uint64) {
	return &m.shards[key%claimShards], key / claimShards % claimsPerShard
}
