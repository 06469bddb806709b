package ticket

import (
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// MaxLaneLen bounds the name of a waiting room lane, in bytes.
const MaxLaneLen = 32

// Pass is a place in the waiting room: who joined, where and when. It has no end of its own: it is worth
// something only while its activity has ranks to release.
type Pass struct {
	ActivityID string // canonical decimal, 1..2^63-1
	UserID     string // canonical decimal, 1..2^63-1
	DeviceHash string
	Lane       string    // 1..32 of [A-Za-z0-9._:-]
	JoinedAt   time.Time // whole milliseconds, by the store's clock
	Sequence   int64     // 1..2^53-1, of the activity
}

// PassExpect is what the request says, for the pass to agree with.
type PassExpect struct {
	ActivityID string
	UserID     string // of the verified session
	DeviceHash string
}

// IssuePass signs a pass with the active key. The same place gives the same pass under the same key.
func (r *Ring) IssuePass(p Pass) (string, error) {
	if err := p.validate(); err != nil {
		return "", fmt.Errorf("issue pass: %w", err)
	}
	k := r.state.Load().active
	return k.seal(typePass, p.append(nil, k.id)), nil
}

// VerifyPass checks a pass in the order of Verify: length, key, MAC, payload, binding.
func (r *Ring) VerifyPass(raw string, want PassExpect) (Pass, Reason) {
	k, reason := r.state.Load().find(typePass, raw)
	if reason != OK {
		return Pass{}, reason
	}
	w := k.borrow()
	defer k.giveBack(w)
	payload, reason := w.open(&k.macs[typePass], raw)
	if reason != OK {
		return Pass{}, reason
	}
	p, ok := parsePass(payload, k.id)
	switch {
	case !ok:
		return Pass{}, Payload
	case p.ActivityID != want.ActivityID:
		return Pass{}, OtherActivity
	case p.UserID != want.UserID:
		return Pass{}, OtherUser
	case p.DeviceHash != want.DeviceHash:
		return Pass{}, OtherDevice
	}
	return p, OK
}

// append writes the one spelling of a pass's payload. parsePass is its mirror.
func (p Pass) append(b []byte, keyID string) []byte {
	b = append(b, `{"version":1,"key_id":"`...)
	b = append(b, keyID...)
	b = append(b, `","activity_id":"`...)
	b = append(b, p.ActivityID...)
	b = append(b, `","user_id":"`...)
	b = append(b, p.UserID...)
	b = append(b, `","device_hash":"`...)
	b = append(b, p.DeviceHash...)
	b = append(b, `","lane":"`...)
	b = append(b, p.Lane...)
	b = append(b, `","joined_ms":`...)
	b = appendNumber(b, p.JoinedAt.UnixMilli())
	b = append(b, `,"sequence":`...)
	b = appendNumber(b, p.Sequence)
	return append(b, '}')
}

func parsePass(payload []byte, keyID string) (Pass, bool) {
	var p Pass
	s := scanner{rest: payload}
	s.literal(`{"version":1,"key_id":"`)
	s.literal(keyID)
	s.literal(`","activity_id":"`)
	p.ActivityID = string(s.decimal())
	s.literal(`","user_id":"`)
	p.UserID = string(s.decimal())
	s.literal(`","device_hash":"`)
	p.DeviceHash = string(s.deviceHash())
	s.literal(`","lane":"`)
	p.Lane = string(s.lane())
	s.literal(`","joined_ms":`)
	p.JoinedAt = time.UnixMilli(s.number())
	s.literal(`,"sequence":`)
	p.Sequence = s.number()
	s.literal(`}`)
	return p, s.end() && p.Sequence > 0
}

func (p Pass) validate() error {
	joinedMs := p.JoinedAt.UnixMilli()
	switch {
	case !admission.ValidDecimal(p.ActivityID):
		return bad("activity_id", "a decimal in 1..2^63-1")
	case !admission.ValidDecimal(p.UserID):
		return bad("user_id", "a decimal in 1..2^63-1")
	case !validDeviceHash(p.DeviceHash):
		return bad("device_hash", "sha256: and 64 lower-case hex digits")
	case !ValidLane(p.Lane):
		return bad("lane", "1..32 of [A-Za-z0-9._:-]")
	case joinedMs < 0 || joinedMs > maxNumber:
		return bad("joined_ms", "0..2^53-1")
	case p.Sequence < 1 || p.Sequence > maxNumber:
		return bad("sequence", "1..2^53-1")
	}
	return nil
}
