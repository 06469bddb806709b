package waitroom

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/keys"
)

// The draw is verifiable by anyone with a HMAC: before joining opens we publish Commitment(secret), when it
// has closed the join root is fixed, the public value comes from outside, and at opening the secret is
// revealed. Neither we (committed before the public value existed) nor the joined (who did not know the
// secret) could choose a rank.

// Drawn is where ranks of the draw end: those who join after it have closed follow from here by sequence.
const Drawn = uint64(1) << 52

// Secret is an activity's draw secret. It stays secret until the opening reveals it.
type Secret [sha256.Size]byte

// RankSeed orders the joined once secret, join root and public value are fixed.
type RankSeed [sha256.Size]byte

// DeriveSecret makes the secret of an activity: HMAC-SHA256(draw key, "draw-secret|" activity "|" version
// "|" published). It is derived so that nothing has to be stored before the reveal. version is the activity's
// first, whose draw all later versions keep; published is when that was published, in Unix milliseconds: an
// activity that is begun anew under the same id gets a secret that nobody has been shown. The draw key is an
// oct key of at least 32 bytes.
func DeriveSecret(drawKey keys.Key, activityID string, version int64, published time.Time) (Secret, error) {
	key, ok := drawKey.Secret()
	if !ok || len(key) < keys.MinOctBytes {
		return Secret{}, fmt.Errorf("draw key: %v is not an oct key of %d bytes or more", drawKey, keys.MinOctBytes)
	}
	return Secret(sign(key, "draw-secret|"+activityID+"|"+strconv.FormatInt(version, 10)+"|"+strconv.FormatInt(published.UnixMilli(), 10))), nil
}

// Commitment is SHA-256(secret "|" activity "|" version), over the secret's 32 raw bytes. It is published
// with the activity, before anyone can join.
func (s Secret) Commitment(activityID string, version int64) [sha256.Size]byte {
	return sha256.Sum256([]byte(string(s[:]) + "|" + activityID + "|" + strconv.FormatInt(version, 10)))
}

// Seed is HMAC-SHA256(secret, join root "|" public value). The join root is its lower-case hex text, the
// public value the text that the operator configured; "" means that the operator must be trusted.
func (s Secret) Seed(joinRoot, publicValue string) RankSeed {
	return RankSeed(sign(s[:], joinRoot+"|"+publicValue))
}

// Rank is a user's place in the draw: the first 52 bits of HMAC-SHA256(seed, activity "|" user), so below
// Drawn, and exact as a JSON number. Two of a million users share a rank in about one draw of 9,000.
func (s RankSeed) Rank(activityID, userID string) uint64 {
	sum := sign(s[:], activityID+"|"+userID)
	return binary.BigEndian.Uint64(sum[:8]) >> 12
}

// LateRank is the place of one who joined after the draw closed: behind everyone drawn, in order of joining.
// sequence is below 2^52, which at a million joins a second lasts for a century.
func LateRank(sequence int64) uint64 { return Drawn + uint64(sequence) }

func sign(key []byte, text string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return [sha256.Size]byte(mac.Sum(nil))
}
