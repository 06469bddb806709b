// Package ticket makes and checks what a shopper carries: the ticket of one submit and the pass of the
// waiting room. Both are compact JWS (RFC 7515) under HS256, so that any JOSE library at an edge can check
// them, in exactly one spelling of at most 1,024 bytes.
//
// It promises:
//   - nothing of a payload is believed, or even parsed, before its signature; only a ticket that we signed
//     can be called expired;
//   - every other spelling of a valid ticket is refused;
//   - checking allocates nothing, never waits, never fetches a key, and a bad ticket costs no more than a
//     good one;
//   - an answer is one word of a closed set (Reason), fit for a metric label.
//
// Everything it needs is in memory. When a key file breaks, the ring keeps its last good keys; a key that
// is not in the ring refuses its tickets (over-refuses, never admits). Derivations of nonce, request_id and
// reservation_id are in derive.go.
package ticket

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// MaxBytes bounds a ticket and a pass. The largest that Issue can make is shorter.
const MaxBytes = 1024

// DefaultSkew is how far the clocks of issuer and verifier may differ, in either direction.
const DefaultSkew = 2 * time.Second

// Claims is what a ticket says: this user, from this device, may submit for this SKU while it lasts.
type Claims struct {
	ActivityID      string // canonical decimal, 1..2^63-1; so are the two that follow
	SKUID           string
	UserID          string
	DeviceHash      string    // DeviceHash of the X-Device-Id
	ActivityVersion int64     // 1..2^53-1
	PathID          string    // [A-Za-z0-9_-]{8,64}
	Nonce           string    // [A-Za-z0-9_-]{8,64}
	NotBefore       time.Time // whole milliseconds; also the moment of issue
	ExpiresAt       time.Time // whole milliseconds, after NotBefore
}

// Expect is what the request and the live activity say, for the ticket to agree with.
type Expect struct {
	ActivityID      string
	SKUID           string
	UserID          string // of the verified session
	DeviceHash      string
	ActivityVersion int64
	PathID          string
}

// Ticket is what a checked ticket adds to what its Expect already said.
type Ticket struct {
	KeyID     string // in the ring; set as soon as it is known, also with a refusal
	Nonce     Nonce
	NotBefore time.Time
	ExpiresAt time.Time
}

// Nonce is a ticket's nonce as a value, so that checking a ticket allocates nothing.
type Nonce struct {
	n    uint8
	text [admission.MaxIDLen]byte
}

// String is the nonce as it stands in the ticket.
func (n Nonce) String() string { return string(n.text[:n.n]) }

// Issue signs a ticket with the active key. An error names the claim that is out of bounds.
func (r *Ring) Issue(c Claims) (string, error) {
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("issue ticket: %w", err)
	}
	k := r.state.Load().active
	return k.seal(typeTicket, c.append(nil, k.id)), nil
}

// Verify checks a ticket in the fixed order: length, key id, key, MAC, payload, time, activity and SKU and
// user, activity version and path, device. The nonce is for a later stage to claim.
func (r *Ring) Verify(raw string, now time.Time, want Expect) (Ticket, Reason) {
	k, reason := r.state.Load().find(typeTicket, raw)
	if reason != OK {
		return Ticket{}, reason
	}
	t := Ticket{KeyID: k.id}
	w := k.borrow()
	defer k.giveBack(w)
	payload, reason := w.open(&k.macs[typeTicket], raw)
	if reason != OK {
		return t, reason
	}
	v, agrees := parseAgreeing(payload, want.append(w.want[:0], k.start))
	if !agrees {
		var ok bool
		if v, ok = parseTicket(payload, k.start); !ok {
			return t, Payload
		}
	}
	if reason = v.checkTime(now, r.skew); reason != OK {
		return t, reason
	}
	if !agrees {
		if reason = v.checkBinding(&want); reason != OK {
			return t, reason
		}
	}
	t.Nonce.n = uint8(copy(t.Nonce.text[:], v.nonce))
	t.NotBefore, t.ExpiresAt = time.UnixMilli(v.notBeforeMs), time.UnixMilli(v.expiresAtMs)
	return t, OK
}

// ticketView is a parsed payload whose texts still lie in the decoded bytes.
type ticketView struct {
	activity, sku, user, device, path, nonce []byte
	activityVersion                          int64
	notBeforeMs, expiresAtMs                 int64
}

// ticketStart is how the payloads of one key begin.
func ticketStart(keyID string) string {
	return `{"version":1,"key_id":"` + keyID + `","activity_id":"`
}

// append writes the one spelling of a ticket's payload. parseTicket is its mirror.
func (c *Claims) append(b []byte, keyID string) []byte {
	agreed := Expect{c.ActivityID, c.SKUID, c.UserID, c.DeviceHash, c.ActivityVersion, c.PathID}
	b = agreed.append(b, ticketStart(keyID))
	b = append(b, c.Nonce...)
	b = append(b, `","not_before_ms":`...)
	b = appendNumber(b, c.NotBefore.UnixMilli())
	b = append(b, `,"expires_at_ms":`...)
	b = appendNumber(b, c.ExpiresAt.UnixMilli())
	return append(b, '}')
}

// append writes what the payloads that agree begin with, up to the nonce.
func (e *Expect) append(b []byte, start string) []byte {
	b = append(b, start...)
	b = append(b, e.ActivityID...)
	b = append(b, `","sku_id":"`...)
	b = append(b, e.SKUID...)
	b = append(b, `","user_id":"`...)
	b = append(b, e.UserID...)
	b = append(b, `","device_hash":"`...)
	b = append(b, e.DeviceHash...)
	b = append(b, `","activity_version":`...)
	b = appendNumber(b, e.ActivityVersion)
	b = append(b, `,"path_id":"`...)
	b = append(b, e.PathID...)
	return append(b, `","nonce":"`...)
}

// parseTicket reads a payload that begins with start, its ticketStart.
func parseTicket(payload []byte, start string) (ticketView, bool) {
	var v ticketView
	s := scanner{rest: payload}
	s.literal(start)
	v.activity = s.decimal()
	s.literal(`","sku_id":"`)
	v.sku = s.decimal()
	s.literal(`","user_id":"`)
	v.user = s.decimal()
	s.literal(`","device_hash":"`)
	v.device = s.deviceHash()
	s.literal(`","activity_version":`)
	v.activityVersion = s.number()
	s.literal(`,"path_id":"`)
	v.path = s.id()
	s.literal(`","nonce":"`)
	ok := v.parseRest(&s)
	return v, ok && v.activityVersion > 0
}

// parseAgreeing is parseTicket and checkBinding for the tickets of honest people: what they begin
// with is known (agreed, as Expect.append writes it), and is compared whole. It takes a third of the time; all
// that is not as wanted, parseTicket reads, and checkBinding says why.
func parseAgreeing(payload, agreed []byte) (ticketView, bool) {
	var v ticketView
	if !bytes.HasPrefix(payload, agreed) {
		return v, false
	}
	s := scanner{rest: payload[len(agreed):]}
	ok := v.parseRest(&s)
	return v, ok
}

// parseRest reads from the nonce on.
func (v *ticketView) parseRest(s *scanner) bool {
	v.nonce = s.id()
	s.literal(`","not_before_ms":`)
	v.notBeforeMs = s.number()
	s.literal(`,"expires_at_ms":`)
	v.expiresAtMs = s.number()
	s.literal(`}`)
	return s.end() && v.notBeforeMs < v.expiresAtMs
}

// checkTime is step 6 of the order.
func (v *ticketView) checkTime(now time.Time, skew time.Duration) Reason {
	nowMs, skewMs := now.UnixMilli(), skew.Milliseconds()
	switch {
	case nowMs < v.notBeforeMs-skewMs:
		return NotYet
	case nowMs >= v.expiresAtMs+skewMs:
		return Expired
	}
	return OK
}

// checkBinding is steps 7 to 9.
func (v *ticketView) checkBinding(want *Expect) Reason {
	behind := want.ActivityVersion - v.activityVersion
	switch {
	case string(v.activity) != want.ActivityID:
		return OtherActivity
	case string(v.sku) != want.SKUID:
		return OtherSKU
	case string(v.user) != want.UserID:
		return OtherUser
	// The version before the path: a new version may bring a new path, and its holder is to be told
	// "expired, ask again", not "forged".
	case behind == 1:
		return VersionBehind
	case behind > 1:
		return VersionOld
	case behind < 0:
		return VersionAhead
	case string(v.path) != want.PathID:
		return OtherPath
	case string(v.device) != want.DeviceHash:
		return OtherDevice
	}
	return OK
}

func (v *ticketView) claims() Claims {
	return Claims{
		ActivityID:      string(v.activity),
		SKUID:           string(v.sku),
		UserID:          string(v.user),
		DeviceHash:      string(v.device),
		ActivityVersion: v.activityVersion,
		PathID:          string(v.path),
		Nonce:           string(v.nonce),
		NotBefore:       time.UnixMilli(v.notBeforeMs),
		ExpiresAt:       time.UnixMilli(v.expiresAtMs),
	}
}

func (c Claims) validate() error {
	nbfMs, expMs := c.NotBefore.UnixMilli(), c.ExpiresAt.UnixMilli()
	switch {
	case !admission.ValidDecimal(c.ActivityID):
		return bad("activity_id", "a decimal in 1..2^63-1")
	case !admission.ValidDecimal(c.SKUID):
		return bad("sku_id", "a decimal in 1..2^63-1")
	case !admission.ValidDecimal(c.UserID):
		return bad("user_id", "a decimal in 1..2^63-1")
	case !validDeviceHash(c.DeviceHash):
		return bad("device_hash", "sha256: and 64 lower-case hex digits")
	case c.ActivityVersion < 1 || c.ActivityVersion > maxNumber:
		return bad("activity_version", "1..2^53-1")
	case !admission.ValidID(c.PathID):
		return bad("path_id", "8..64 of [A-Za-z0-9_-]")
	case !admission.ValidID(c.Nonce):
		return bad("nonce", "8..64 of [A-Za-z0-9_-]")
	case nbfMs < 0 || expMs > maxNumber:
		return bad("not_before_ms, expires_at_ms", "0..2^53-1")
	case nbfMs >= expMs:
		return bad("expires_at_ms", "after not_before_ms")
	}
	return nil
}

func bad(field, want string) error { return fmt.Errorf("%s: must be %s", field, want) }

func validDeviceHash(s string) bool {
	hex, ok := strings.CutPrefix(s, devicePrefix)
	return ok && len(hex) == deviceHexLen && strings.Trim(hex, "0123456789abcdef") == ""
}
