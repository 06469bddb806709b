package ticket

import (
	"crypto/sha256"
	stdencoding "encoding"
	"hash"
)

// begunMAC is an HMAC-SHA256 (RFC 2104) of a key that has taken the beginning of its message. All tokens of
// a key and type begin with one header, of 64 characters at the least, and the hash of a key's block and of
// the header's whole blocks is the same for all: every token starts from there, a block of nine further on.
// crypto/hmac, which knows the key's block alone, could not.
type begunMAC struct {
	inner, outer []byte // states of SHA-256
	taken        int    // bytes of the message that inner has seen
}

func beginMAC(key []byte, header string) begunMAC {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	begin := func(pad byte, more string) []byte {
		h := newDigest()
		var block [sha256.BlockSize]byte
		copy(block[:], key)
		for i := range block {
			block[i] ^= pad
		}
		h.sha.Write(block[:])
		h.sha.Write([]byte(more))
		state, err := h.sha.(stdencoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			panic(err) // crypto/sha256 documents that it can
		}
		return state
	}
	taken := len(header) / sha256.BlockSize * sha256.BlockSize
	return begunMAC{inner: begin(0x36, header[:taken]), outer: begin(0x5c, ""), taken: taken}
}

// digest is SHA-256 that can be set to a state.
type digest struct {
	sha sha
	sum *[sha256.Size]byte
}

type sha interface {
	hash.Hash
	stdencoding.BinaryUnmarshaler
}

func newDigest() digest { return digest{sha: sha256.New().(sha), sum: new([sha256.Size]byte)} }

// finish is the MAC of a message that begins as m has, valid until the next use of h.
func (h *digest) finish(m *begunMAC, message []byte) []byte {
	h.begin(m.inner)
	h.sha.Write(message[m.taken:])
	inner := h.sha.Sum(h.sum[:0])
	h.begin(m.outer)
	h.sha.Write(inner)
	return h.sha.Sum(h.sum[:0])
}

func (h *digest) begin(state []byte) {
	if err := h.sha.UnmarshalBinary(state); err != nil {
		panic(err) // one of its own
	}
}
