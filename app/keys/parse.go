package keys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
)

// Load reads a JSON Web Key Set from a file of at most 256 KiB.
func Load(path string) (Set, error) {
	set, _, err := load(path)
	return set, err
}

func load(path string) (Set, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return Set{}, nil, fmt.Errorf("key file: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return Set{}, nil, fmt.Errorf("key file: %w", err)
	}
	set, err := Parse(path, content)
	return set, content, err
}

// Parse reads a JSON Web Key Set (RFC 7517 section 5). All faults are reported at once, each as
// "<name>: keys[<index>].<field>: <what is wrong>"; name is usually the file's. Members that the RFC does
// not define are ignored, as it demands. No error quotes key material.
func Parse(name string, content []byte) (Set, error) {
	if len(content) > MaxFileBytes {
		return Set{}, fmt.Errorf("%s: larger than %d bytes", name, MaxFileBytes)
	}
	var doc map[string]json.RawMessage // a map, because struct fields would also match "KEYS" and "Kid"
	if err := json.Unmarshal(content, &doc); err != nil {
		return Set{}, fmt.Errorf("%s: not a JSON object: %w", name, position(err))
	}
	var members []jwk
	if err := json.Unmarshal(doc["keys"], &members); err != nil {
		return Set{}, fmt.Errorf("%s: keys: must be an array of JSON objects", name)
	}
	if len(members) == 0 || len(members) > MaxKeys {
		return Set{}, fmt.Errorf("%s: keys: 1..%d keys, not %d", name, MaxKeys, len(members))
	}
	list := make([]Key, len(members))
	var faults []error
	for i, m := range members {
		k, err := m.key()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: keys[%d].%w", name, i, err))
		}
		list[i] = k
	}
	if len(faults) > 0 {
		return Set{}, errors.Join(faults...)
	}
	set, err := NewSet(list...)
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// position reduces a JSON error to where it happened: its text may quote the file.
func position(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("syntax error at byte %d", syntax.Offset)
	}
	return errors.New("wrong type")
}

// A jwk is one key as it stands in the file.
type jwk map[string]json.RawMessage

// key turns a file's key into a Key; the error starts with the field's name.
func (m jwk) key() (Key, error) {
	kid, err := m.text("kid")
	if err != nil {
		return Key{}, err
	}
	if !validID(kid) {
		return Key{}, fmt.Errorf("kid: 1..%d of [A-Za-z0-9._-]", MaxIDBytes)
	}
	alg, err := m.text("alg")
	if err != nil {
		return Key{}, err
	}
	kty, err := m.text("kty")
	if err != nil {
		return Key{}, err
	}
	if _, given := m["use"]; given {
		if use, err := m.text("use"); err != nil || use != "sig" {
			return Key{}, errors.New(`use: must be "sig" when given`)
		}
	}
	var value any
	switch Alg(alg) {
	case HS256:
		value, err = m.oct(kty, 32)
	case HS384:
		value, err = m.oct(kty, 48)
	case HS512:
		value, err = m.oct(kty, 64)
	case ES256:
		value, err = m.ec(kty, "P-256", elliptic.P256())
	case ES384:
		value, err = m.ec(kty, "P-384", elliptic.P384())
	case ES512:
		value, err = m.ec(kty, "P-521", elliptic.P521())
	case EdDSA:
		value, err = m.okp(kty)
	case RS256, RS384, RS512, PS256, PS384, PS512:
		value, err = m.rsa(kty)
	default:
		err = fmt.Errorf("alg: %.20q is not a supported signature algorithm", alg)
	}
	if err != nil {
		return Key{}, err
	}
	return Key{id: kid, alg: Alg(alg), material: func() any { return value }}, nil
}

func (m jwk) oct(kty string, minBytes int) (any, error) {
	if kty != "oct" {
		return nil, wrongType(kty, "oct")
	}
	k, err := m.bytes("k", MaxOctetBytes)
	if err != nil {
		return nil, err
	}
	if len(k) < minBytes {
		return nil, fmt.Errorf("k: %d bytes, needs at least %d", len(k), minBytes)
	}
	return k, nil
}

func (m jwk) ec(kty, name string, curve elliptic.Curve) (any, error) {
	if kty != "EC" {
		return nil, wrongType(kty, "EC")
	}
	if err := m.curve(name); err != nil {
		return nil, err
	}
	size := (curve.Params().BitSize + 7) / 8 // RFC 7518 section 6.2.1.2: coordinates keep their leading zeros
	x, err := m.fixed("x", size)
	if err != nil {
		return nil, err
	}
	y, err := m.fixed("y", size)
	if err != nil {
		return nil, err
	}
	point := append(append([]byte{4}, x...), y...) // SEC 1 section 2.3.3, uncompressed
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, errors.New("x: (x, y) is not a point of " + name)
	}
	if _, private := m["d"]; !private {
		return public, nil
	}
	d, err := m.fixed("d", size)
	if err != nil {
		return nil, err
	}
	private, err := ecdsa.ParseRawPrivateKey(curve, d)
	if err != nil || !private.PublicKey.Equal(public) {
		return nil, errors.New("d: does not belong to (x, y)")
	}
	return private, nil
}

func (m jwk) okp(kty string) (any, error) {
	if kty != "OKP" {
		return nil, wrongType(kty, "OKP")
	}
	if err := m.curve("Ed25519"); err != nil {
		return nil, err
	}
	x, err := m.fixed("x", ed25519.PublicKeySize)
	if err != nil {
		return nil, err
	}
	public := ed25519.PublicKey(x)
	if _, private := m["d"]; !private {
		return public, nil
	}
	d, err := m.fixed("d", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(d)
	if !public.Equal(private.Public()) {
		return nil, errors.New("d: does not belong to x")
	}
	return private, nil
}

func (m jwk) rsa(kty string) (any, error) {
	if kty != "RSA" {
		return nil, wrongType(kty, "RSA")
	}
	n, err := m.integer("n")
	if err != nil {
		return nil, err
	}
	if n.BitLen() < MinRSABits || n.BitLen() > MaxRSABits {
		return nil, fmt.Errorf("n: %d bits, needs %d..%d", n.BitLen(), MinRSABits, MaxRSABits)
	}
	e, err := m.integer("e")
	if err != nil {
		return nil, err
	}
	if e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil, errors.New("e: must be odd, 3..2^31-1")
	}
	public := rsa.PublicKey{N: n, E: int(e.Int64())}
	if _, private := m["d"]; !private {
		return &public, nil
	}
	d, err := m.integer("d")
	if err != nil {
		return nil, err
	}
	p, err := m.integer("p")
	if err != nil {
		return nil, err
	}
	q, err := m.integer("q")
	if err != nil {
		return nil, err
	}
	private := &rsa.PrivateKey{PublicKey: public, D: d, Primes: []*big.Int{p, q}}
	if err := private.Validate(); err != nil {
		return nil, errors.New("d: does not belong to (n, e, p, q)")
	}
	private.Precompute()
	return private, nil
}

func (m jwk) curve(want string) error {
	crv, err := m.text("crv")
	if err != nil {
		return err
	}
	if crv != want {
		return fmt.Errorf("crv: %.20q does not serve this alg, want %q", crv, want)
	}
	return nil
}

func (m jwk) text(field string) (string, error) {
	raw, ok := m[field]
	if !ok {
		return "", fmt.Errorf("%s: missing", field)
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", fmt.Errorf("%s: must be a string", field)
	}
	return *s, nil
}

// bytes decodes canonical unpadded base64url (RFC 7515 section 2).
func (m jwk) bytes(field string, maxBytes int) ([]byte, error) {
	s, err := m.text(field)
	if err != nil {
		return nil, err
	}
	if len(s) > base64.RawURLEncoding.EncodedLen(maxBytes) {
		return nil, fmt.Errorf("%s: more than %d bytes", field, maxBytes)
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || base64.RawURLEncoding.EncodeToString(b) != s || len(b) == 0 {
		return nil, fmt.Errorf("%s: must be base64url without padding", field)
	}
	return b, nil
}

func (m jwk) fixed(field string, size int) ([]byte, error) {
	b, err := m.bytes(field, MaxOctetBytes)
	if err == nil && len(b) != size {
		err = fmt.Errorf("%s: %d bytes, needs %d", field, len(b), size)
	}
	return b, err
}

func (m jwk) integer(field string) (*big.Int, error) {
	b, err := m.bytes(field, MaxRSABits/8)
	return new(big.Int).SetBytes(b), err
}

func wrongType(kty, want string) error {
	return fmt.Errorf("kty: %.20q does not serve this alg, want %q", kty, want)
}
