package ticket

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/keys"
)

// maxSkew bounds the skew allowance: more would be a second lifetime, not a tolerance of clocks.
const maxSkew = time.Minute

// Config is how a Ring judges. The zero Config has the defaults.
type Config struct {
	Skew        time.Duration // clock difference allowed on either side; 0 means DefaultSkew, at most 1 min
	ActiveKeyID string        // the key that signs; "" means the set's first
}

// Ring holds the named HS256 keys of tickets and passes: one signs, all verify. It is safe for concurrent
// use; a change is one atomic swap, so a check sees the keys of before or after and never a mixture.
//
// Rotation: add the new key to every instance's file, then make it active, then remove the old one when
// its last ticket has expired. The same order holds for passes, which are re-issued by joining again.
type Ring struct {
	skew  time.Duration
	state atomic.Pointer[ringState]

	mu     sync.Mutex // orders the writers
	set    keys.Set   // guarded by mu
	chosen string     // guarded by mu; "" means the set's first
}

// ringState is immutable once published.
type ringState struct {
	byHeader [tokenTypes]map[string]*ringKey
	byID     map[string]*ringKey
	active   *ringKey
}

// NewRing makes a ring of a set's keys, all of which must be HS256.
func NewRing(set keys.Set, cfg Config) (*Ring, error) {
	if cfg.Skew == 0 {
		cfg.Skew = DefaultSkew
	}
	if cfg.Skew < 0 || cfg.Skew > maxSkew {
		return nil, fmt.Errorf("ticket ring: skew %v is outside 0..%v", cfg.Skew, maxSkew)
	}
	r := &Ring{skew: cfg.Skew}
	if err := r.change(set, cfg.ActiveKeyID); err != nil {
		return nil, err
	}
	return r, nil
}

// Swap takes a new set of keys. It refuses, and changes nothing, when a key is not HS256 or when the key
// chosen by SetActive is gone: signing silently with another key could outrun its distribution.
func (r *Ring) Swap(set keys.Set) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change(set, r.chosen)
}

// SetActive chooses the key that signs, by name; "" goes back to the set's first. A name that is not in
// the ring is an error and changes nothing.
func (r *Ring) SetActive(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change(r.set, id)
}

// change builds and publishes a state. The caller holds mu, or is the only one to know r.
func (r *Ring) change(set keys.Set, chosen string) error {
	s := &ringState{byID: make(map[string]*ringKey, set.Len())}
	for t := range tokenTypes {
		s.byHeader[t] = make(map[string]*ringKey, set.Len())
	}
	for _, k := range set.Keys() {
		secret, ok := k.Secret()
		if !ok || k.Alg() != keys.HS256 {
			return fmt.Errorf("ticket ring: %v: only HS256 keys sign tickets", k)
		}
		rk := newRingKey(k.ID(), secret)
		s.byID[rk.id] = rk
		for t := range tokenTypes {
			s.byHeader[t][rk.headers[t]] = rk
		}
	}
	active := chosen
	if active == "" {
		active = set.First().ID()
	}
	if s.active = s.byID[active]; s.active == nil {
		return fmt.Errorf("ticket ring: active key %.64q is not in the key set", active)
	}
	r.set, r.chosen = set, chosen
	r.state.Store(s)
	return nil
}

// ActiveKeyID names the key that signs.
func (r *Ring) ActiveKeyID() string { return r.state.Load().active.id }

// Has reports whether a key is in the ring, and so fit to be a metric label.
func (r *Ring) Has(keyID string) bool { return r.state.Load().byID[keyID] != nil }

// Skew is the clock difference allowed. A ticket is accepted until its ExpiresAt plus Skew; the memory of
// its nonce must last at least as long.
func (r *Ring) Skew() time.Duration { return r.skew }
