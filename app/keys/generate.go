package keys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
)

// NewOct makes an HS256 key of 32 bytes from the system's secure randomness.
func NewOct(id string) (Key, error) {
	secret := make([]byte, MinOctBytes)
	rand.Read(secret) // never fails: the runtime ends the program instead
	return newKey(id, HS256, secret, nil)
}

// NewEC makes an ES256 key on P-256.
func NewEC(id string) (Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return newKey(id, ES256, private, err)
}

// NewEd25519 makes an EdDSA key on Ed25519.
func NewEd25519(id string) (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return newKey(id, EdDSA, private, err)
}

// NewRSA makes an RS256 key of 2,048 bits; it takes a good part of a second.
func NewRSA(id string) (Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, MinRSABits)
	return newKey(id, RS256, private, err)
}

func newKey(id string, alg Alg, value any, err error) (Key, error) {
	if err != nil {
		return Key{}, fmt.Errorf("new %s key: %w", alg, err)
	}
	if !validID(id) {
		return Key{}, fmt.Errorf("kid: 1..%d of [A-Za-z0-9._-]", MaxIDBytes)
	}
	return Key{id: id, alg: alg, material: func() any { return value }}, nil
}
