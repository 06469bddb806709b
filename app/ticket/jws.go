package ticket

import (
	"bytes"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"unsafe"
)

// tokenType is which of our two tokens a header announces. The MAC covers the header, so one can never be
// passed off as the other.
type tokenType uint8

const (
	typeTicket tokenType = iota
	typePass
	tokenTypes // how many there are
)

var typeNames = [tokenTypes]string{typeTicket: "seckill-ticket", typePass: "seckill-pass"}

const (
	signatureLen = 43 // base64url of 32 bytes
	maxKeyIDLen  = 64 // keys.MaxIDBytes

	headerStart  = `{"alg":"HS256","kid":"`
	headerMiddle = `","typ":"`
	headerEnd    = `"}`
	maxHeader    = len(headerStart) + maxKeyIDLen + len(headerMiddle) + len("seckill-ticket") + len(headerEnd)
)

var (
	encoding = base64.RawURLEncoding
	strict   = base64.RawURLEncoding.Strict() // refuses trailing bits that are not zero (RFC 4648 section 3.5)
)

// A ringKey is one key ready for use: its headers are spelled once, and hashed once.
type ringKey struct {
	id      string
	headers [tokenTypes]string // as the token starts, without the dot
	macs    [tokenTypes]begunMAC
	start   string    // of a ticket's payload
	pool    sync.Pool // of *work
}

// work is the memory of one check. It is borrowed because a hash cannot be shared.
type work struct {
	digest  digest
	sig     [signatureLen]byte
	raw     [MaxBytes]byte
	payload [MaxBytes * 3 / 4]byte
	want    [MaxBytes]byte
}

func newRingKey(id string, secret []byte) *ringKey {
	k := &ringKey{id: id, start: ticketStart(id)}
	for t := range tokenTypes {
		k.headers[t] = encoding.EncodeToString([]byte(headerStart + id + headerMiddle + typeNames[t] + headerEnd))
		k.macs[t] = beginMAC(secret, k.headers[t])
	}
	k.pool.New = func() any { return &work{digest: newDigest()} }
	return k
}

func (k *ringKey) borrow() *work    { return k.pool.Get().(*work) }
func (k *ringKey) giveBack(w *work) { k.pool.Put(w) }

// seal makes the compact form: header.payload.signature.
func (k *ringKey) seal(t tokenType, payload []byte) string {
	w := k.borrow()
	defer k.giveBack(w)
	b := append(w.raw[:0], k.headers[t]...)
	b = append(b, '.')
	b = encoding.AppendEncode(b, payload)
	sig := w.sign(&k.macs[t], b)
	b = append(b, '.')
	return string(append(b, sig...))
}

// sign returns the signature of b, which begins with the header that the MAC has begun with, as text that is
// valid until the next use of w.
func (w *work) sign(m *begunMAC, b []byte) []byte {
	encoding.Encode(w.sig[:], w.digest.finish(m, b))
	return w.sig[:]
}

// find does steps 1 to 3: the length, then the key by the exact bytes of the header. Each key has one
// header, so the header itself is the map key, and a known one need not be parsed.
func (s *ringState) find(t tokenType, raw string) (*ringKey, Reason) {
	switch {
	case raw == "":
		return nil, Missing
	case len(raw) > MaxBytes:
		return nil, TooLong
	}
	if k := s.active; k != nil && signedBy(k, t, raw) { // almost every token
		return k, OK
	}
	header, payload := split(raw)
	if payload == "" {
		return nil, Format
	}
	if k, ok := s.byHeader[t][header]; ok {
		return k, OK
	}
	var buf [maxHeader]byte
	if _, ok := headerKeyID(&buf, t, header); ok {
		return nil, UnknownKey
	}
	return nil, Format
}

// signedBy is find for one key: split and a look at the header without either.
func signedBy(k *ringKey, t tokenType, raw string) bool {
	first, last := len(k.headers[t]), len(raw)-signatureLen-1
	return last > first+1 && raw[first] == '.' && raw[last] == '.' && raw[:first] == k.headers[t]
}

// split cuts a token at its dots. The payload is empty when the form is not header.payload.signature with a
// signature of the one possible length; that it holds no further dot is left to its decoding.
func split(raw string) (header, payload string) {
	header, rest, _ := strings.Cut(raw, ".")
	dot := len(rest) - signatureLen - 1
	if dot < 0 || rest[dot] != '.' {
		return header, ""
	}
	return header, rest[:dot]
}

// headerKeyID reads the key id of a header in our spelling; anything else is not ours.
func headerKeyID(buf *[maxHeader]byte, t tokenType, header string) ([]byte, bool) {
	if len(header) > encoding.EncodedLen(maxHeader) {
		return nil, false
	}
	b, ok := decode(buf[:], []byte(header))
	s := scanner{rest: b}
	s.literal(headerStart)
	id := s.run(keyIDByte, 1, maxKeyIDLen)
	s.literal(headerMiddle)
	s.literal(typeNames[t])
	s.literal(headerEnd)
	return id, ok && s.end()
}

// open does step 4, the MAC, and decodes the payload of a token that find accepted. The signature is
// compared as text, in constant time: another spelling of the right MAC is a wrong one. The returned bytes
// are valid until w is given back.
func (w *work) open(m *begunMAC, raw string) ([]byte, Reason) {
	b := unsafe.Slice(unsafe.StringData(raw), len(raw)) // read only: a hash and a decoder want bytes, and a copy costs as much as a block of the MAC
	signed, signature := b[:len(b)-signatureLen-1], b[len(b)-signatureLen:]
	if subtle.ConstantTimeCompare(w.sign(m, signed), signature) != 1 {
		return nil, Signature
	}
	dot := bytes.IndexByte(signed, '.') // find saw it
	payload, ok := decode(w.payload[:], signed[dot+1:])
	if !ok {
		return nil, Payload
	}
	return payload, OK
}

// decode takes canonical base64url only.
func decode(dst, text []byte) ([]byte, bool) {
	n, bad := 0, uint32(0)
	// Eight characters at a time, in a third of the time of the standard decoder. The eight bytes written
	// are two more than they make; the twelve make nine.
	for len(text) >= 12 {
		c := text[:8]
		first := sextets[0][c[0]] | sextets[1][c[1]] | sextets[2][c[2]] | sextets[3][c[3]]
		second := sextets[0][c[4]] | sextets[1][c[5]] | sextets[2][c[6]] | sextets[3][c[7]]
		bad |= first | second
		binary.BigEndian.PutUint64(dst[n:], uint64(first)<<40|uint64(second)<<16)
		n, text = n+6, text[8:]
	}
	// The standard decoder skips line breaks, which shows in a length that is too short; a lone last
	// character is the one length where it would not.
	rest, err := strict.Decode(dst[n:], text)
	if err != nil || bad&notBase64 != 0 || len(text)%4 == 1 || rest != encoding.DecodedLen(len(text)) {
		return nil, false
	}
	return dst[:n+rest], true
}

// notBase64 marks the bytes that are outside the alphabet. Three bytes are below it.
const notBase64 = 1 << 31

// sextets says what a byte means in each of the four places of a group. It is never written after it is made.
var sextets = makeSextets()

func makeSextets() (t [4][256]uint32) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for place := range t {
		for b := range t[place] {
			t[place][b] = notBase64
		}
		for value, b := range []byte(alphabet) {
			t[place][b] = uint32(value) << (18 - 6*place)
		}
	}
	return t
}
