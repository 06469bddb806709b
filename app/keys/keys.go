// Package keys reads, makes and follows key files: JSON Web Key Sets (RFC 7517, RFC 7518) in which every
// key carries a name (kid) and pins exactly one algorithm (alg).
//
// It promises:
//   - a set is whole or refused: one bad key refuses the file, and the error names file, index and field;
//   - a key without alg, or shorter than its algorithm demands, is never returned;
//   - key material never appears in an error, in fmt output or in a log record.
//
// When a watched file is missing, broken or half written, the set in force stays in force, the failure is
// counted and its error is kept for whoever reports health (Watched).
package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"log/slog"
	"slices"
)

// Alg is a signature algorithm by its JOSE name (RFC 7518 section 3.1, RFC 8037 section 3.1).
type Alg string

// The algorithms a key may pin. "none" is not one of them and never will be.
const (
	HS256 Alg = "HS256"
	HS384 Alg = "HS384"
	HS512 Alg = "HS512"
	ES256 Alg = "ES256"
	ES384 Alg = "ES384"
	ES512 Alg = "ES512"
	EdDSA Alg = "EdDSA"
	RS256 Alg = "RS256"
	RS384 Alg = "RS384"
	RS512 Alg = "RS512"
	PS256 Alg = "PS256"
	PS384 Alg = "PS384"
	PS512 Alg = "PS512"
)

// Bounds of a set and its parts. They keep a hostile or mistaken file from costing memory, and a key id
// short enough to be a metric label and to fit a ticket of 1,024 bytes.
const (
	MaxFileBytes  = 256 << 10
	MaxKeys       = 64
	MaxIDBytes    = 64
	MinOctBytes   = 32 // RFC 7518 section 3.2: as long as the hash; HS384 and HS512 ask for 48 and 64
	MinRSABits    = 2048
	MaxRSABits    = 8192 // a larger modulus only makes verification slow
	MaxOctetBytes = 1024
)

// A Key is a named key that serves one algorithm. The zero Key is not usable; keys come from Parse or New….
type Key struct {
	id  string
	alg Alg

	// material returns what alg needs: []byte, *ecdsa.PrivateKey, *ecdsa.PublicKey, ed25519.PrivateKey,
	// ed25519.PublicKey, *rsa.PrivateKey or *rsa.PublicKey. It is a function because fmt looks through
	// every struct and pointer that holds a Key, past the methods below, but not into a function.
	material func() any
}

func (k Key) value() any {
	if k.material == nil {
		return nil
	}
	return k.material()
}

// ID is the key's name (kid), 1..64 of [A-Za-z0-9._-].
func (k Key) ID() string { return k.id }

// Alg is the one algorithm the key may be used with.
func (k Key) Alg() Alg { return k.alg }

// Secret returns a copy of an oct key's bytes, and false for any other kind of key.
func (k Key) Secret() ([]byte, bool) {
	secret, ok := k.value().([]byte)
	return slices.Clone(secret), ok
}

// VerifyingKey is what checks a signature: []byte, *ecdsa.PublicKey, ed25519.PublicKey or *rsa.PublicKey.
func (k Key) VerifyingKey() any {
	if signer, ok := k.value().(crypto.Signer); ok {
		return signer.Public()
	}
	if secret, ok := k.Secret(); ok {
		return secret
	}
	return k.value()
}

// SigningKey is what makes a signature: []byte, *ecdsa.PrivateKey, ed25519.PrivateKey or *rsa.PrivateKey.
// It is nil and false when only the public half is known.
func (k Key) SigningKey() (any, bool) {
	switch m := k.value().(type) {
	case []byte:
		return slices.Clone(m), true
	case *ecdsa.PrivateKey, ed25519.PrivateKey, *rsa.PrivateKey:
		return m, true
	default:
		return nil, false
	}
}

// Format keeps every fmt verb, %#v and %x included, from reaching the material.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "key %q (%s)", k.id, k.alg) }

// LogValue keeps the material out of log records.
func (k Key) LogValue() slog.Value {
	return slog.GroupValue(slog.String("kid", k.id), slog.String("alg", string(k.alg)))
}

// A Set is an ordered list of keys with distinct names, immutable once made. By convention the first key
// of a file signs unless another is chosen by name.
type Set struct {
	keys []Key
}

// NewSet makes a set of 1..64 keys; a zero Key or a repeated name is an error.
func NewSet(list ...Key) (Set, error) {
	if len(list) == 0 || len(list) > MaxKeys {
		return Set{}, fmt.Errorf("a key set has 1..%d keys, not %d", MaxKeys, len(list))
	}
	for i, k := range list {
		if k.material == nil {
			return Set{}, fmt.Errorf("keys[%d]: empty key", i)
		}
		if j := slices.IndexFunc(list[:i], func(o Key) bool { return o.id == k.id }); j >= 0 {
			return Set{}, fmt.Errorf("keys[%d].kid: %q is already the name of keys[%d]", i, k.id, j)
		}
	}
	return Set{keys: slices.Clone(list)}, nil
}

// Len is the number of keys.
func (s Set) Len() int { return len(s.keys) }

// Keys returns the keys in file order.
func (s Set) Keys() []Key { return slices.Clone(s.keys) }

// First is the key that signs by convention, and the only one of a nonce or draw key file. It is the zero
// Key for the zero Set.
func (s Set) First() Key {
	if len(s.keys) == 0 {
		return Key{}
	}
	return s.keys[0]
}

// Lookup finds a key by name.
func (s Set) Lookup(id string) (Key, bool) {
	for _, k := range s.keys {
		if k.id == id {
			return k, true
		}
	}
	return Key{}, false
}

// Add returns the set with one more key at its end.
func (s Set) Add(k Key) (Set, error) { return NewSet(append(s.Keys(), k)...) }

// validID reports whether id may name a key. Dots and slashes of a path, spaces and quotes are not in the
// alphabet that leads anywhere: a key id is only ever a map key and a label.
func validID(id string) bool {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
