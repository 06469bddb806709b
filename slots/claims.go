package slots

import "sync"

// claimMemory remembers recent claims of this process, so that an obvious replay (the
// same nonce under another request_id) costs no round trip. It is a saving only: what
// it forgot, the limiter store knows.
//
// Two generations of at most claimsPerGeneration each; when the young one is full it
// becomes the old one. About 20 MB at the most.
type claimMemory struct {
	mu         sync.RWMutex
	young, old map[claimKey]string // to request_id; guarded by mu
}

type claimKey struct{ user, nonce string }

const claimsPerGeneration = 32_768

func newClaimMemory() *claimMemory { return &claimMemory{young: map[claimKey]string{}} }

func (m *claimMemory) get(k claimKey) (requestID string, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if requestID, ok = m.young[k]; !ok {
		requestID, ok = m.old[k]
	}
	return requestID, ok
}

func (m *claimMemory) put(k claimKey, requestID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.young) >= claimsPerGeneration {
		m.old, m.young = m.young, make(map[claimKey]string, claimsPerGeneration)
	}
	m.young[k] = requestID
}
