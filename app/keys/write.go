package keys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
)

// Encode writes the set as a JSON Web Key Set that Parse reads back, private halves included: whoever
// calls it says where secrets go.
func (s Set) Encode() ([]byte, error) {
	members := make([]map[string]string, len(s.keys))
	for i, k := range s.keys {
		m, err := k.encode()
		if err != nil {
			return nil, err
		}
		members[i] = m
	}
	content, err := json.MarshalIndent(map[string]any{"keys": members}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode key set: %w", err)
	}
	return append(content, '\n'), nil
}

// WriteFile puts the set into a file with mode 0600: into a temporary neighbour first, flushed, then
// renamed, so that a reader finds the old set or the new one and never half of one.
func (s Set) WriteFile(path string) (err error) {
	content, err := s.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write key file: %w", err)
			_ = f.Close()           // already closed on the late errors; the first error is the one to tell
			_ = os.Remove(f.Name()) // best effort: the name is never read
		}
	}()
	if _, err = f.Write(content); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// LoadOrCreate loads the set at path, or, when there is no such file, writes one holding the key that
// create makes. Two processes must not call it for one path at once; the lock on data.dir sees to that.
func LoadOrCreate(path string, create func() (Key, error)) (Set, error) {
	set, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return set, err
	}
	k, err := create()
	if err != nil {
		return Set{}, err
	}
	if set, err = NewSet(k); err != nil {
		return Set{}, err
	}
	return set, set.WriteFile(path)
}

func (k Key) encode() (map[string]string, error) {
	m := map[string]string{"kid": k.id, "alg": string(k.alg), "use": "sig"}
	put := func(field string, b []byte) { m[field] = base64.RawURLEncoding.EncodeToString(b) }
	putEC := func(public *ecdsa.PublicKey) error {
		point, err := public.Bytes() // 4 | x | y, both of the curve's size
		if err != nil {
			return fmt.Errorf("encode %v: %w", k, err)
		}
		m["kty"], m["crv"] = "EC", public.Params().Name
		half := (len(point) - 1) / 2
		put("x", point[1:1+half])
		put("y", point[1+half:])
		return nil
	}
	putRSA := func(public *rsa.PublicKey) {
		m["kty"] = "RSA"
		put("n", public.N.Bytes())
		put("e", big.NewInt(int64(public.E)).Bytes())
	}
	switch key := k.value().(type) {
	case []byte:
		m["kty"] = "oct"
		put("k", key)
	case *ecdsa.PublicKey:
		return m, putEC(key)
	case *ecdsa.PrivateKey:
		d, err := key.Bytes()
		if err != nil {
			return nil, fmt.Errorf("encode %v: %w", k, err)
		}
		put("d", d)
		return m, putEC(&key.PublicKey)
	case ed25519.PublicKey:
		m["kty"], m["crv"] = "OKP", "Ed25519"
		put("x", key)
	case ed25519.PrivateKey:
		m["kty"], m["crv"] = "OKP", "Ed25519"
		put("x", key[ed25519.SeedSize:])
		put("d", key.Seed())
	case *rsa.PublicKey:
		putRSA(key)
	case *rsa.PrivateKey:
		putRSA(&key.PublicKey)
		put("d", key.D.Bytes())
		put("p", key.Primes[0].Bytes())
		put("q", key.Primes[1].Bytes())
		// RFC 7518 section 6.3.2: a writer that gives p and q gives these too.
		put("dp", key.Precomputed.Dp.Bytes())
		put("dq", key.Precomputed.Dq.Bytes())
		put("qi", key.Precomputed.Qinv.Bytes())
	default:
		return nil, fmt.Errorf("encode %v: empty key", k)
	}
	return m, nil
}
