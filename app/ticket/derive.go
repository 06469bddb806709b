package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"strconv"
	"sync"

	"github.com/sluice-io/sluice/app/keys"
)

// shortLen is how much of a hash an id keeps: 16 bytes, more than any number of shoppers can collide.
const shortLen = 16

// A Deriver makes the ids that must come out the same on every instance and after every restart. It holds
// the nonce key, which stays the same for the life of an activity.
type Deriver struct {
	pool sync.Pool // of hash.Hash
}

// NewDeriver takes the nonce key, an oct key of at least 32 bytes.
func NewDeriver(nonceKey keys.Key) (*Deriver, error) {
	secret, ok := nonceKey.Secret()
	if !ok || len(secret) < keys.MinOctBytes {
		return nil, fmt.Errorf("nonce key: %v is not an oct key of %d bytes or more", nonceKey, keys.MinOctBytes)
	}
	d := &Deriver{}
	d.pool.New = func() any { return hmac.New(sha256.New, secret) }
	return d, nil
}

// Nonce is the ticket nonce of a user's attempt: "n_" and 22 characters. Ten tabs, a refresh or another
// instance get the same one. attempt counts from 0 and rises only when a cancel allows buying again.
func (d *Deriver) Nonce(userID, activityID, skuID string, activityVersion, attempt int64) string {
	return d.id("n_", userID, activityID, skuID,
		strconv.FormatInt(activityVersion, 10), strconv.FormatInt(attempt, 10))
}

// ReservationID is "r_" and 22 characters: one request_id can never hold two reservations, whatever a
// store forgets.
func (d *Deriver) ReservationID(activityID, skuID, userID, requestID string) string {
	return d.id("r_", activityID, skuID, userID, requestID)
}

// id is prefix + base64url(first 16 bytes of HMAC(key, fields)). Each field follows its length in 4 bytes,
// so no two lists of fields, of whatever number, give the same bytes.
func (d *Deriver) id(prefix string, fields ...string) string {
	mac := d.pool.Get().(hash.Hash)
	defer d.pool.Put(mac)
	mac.Reset()
	var buf [256]byte
	b := buf[:0]
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	mac.Write(b)
	var sum [sha256.Size]byte
	return shortID(prefix, mac.Sum(sum[:0]))
}

// RequestID is the request_id suggested with a nonce: "q_" and 22 characters. It is one-way, because
// request ids are logged and nonces are not.
func RequestID(nonce string) string {
	sum := sha256.Sum256([]byte("sluice request_id|" + nonce))
	return shortID("q_", sum[:])
}

func shortID(prefix string, sum []byte) string {
	return prefix + base64.RawURLEncoding.EncodeToString(sum[:shortLen])
}

// NewPathID makes an activity's dynamic path from 9 random bytes: "p_" and 12 characters. It is a filter
// against the idle, never a security boundary.
func NewPathID(random io.Reader) (string, error) {
	var b [9]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("new path_id: %w", err)
	}
	return "p_" + base64.RawURLEncoding.EncodeToString(b[:]), nil
}
