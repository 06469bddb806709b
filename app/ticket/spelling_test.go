package ticket_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/ticket"
)

const base64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// nextSpelling changes the bits of the last character that a lenient decoder ignores.
func nextSpelling(part string) string {
	last := strings.IndexByte(base64URL, part[len(part)-1])
	return part[:len(part)-1] + base64URL[last+1:last+2]
}

// Every other spelling of a valid ticket is refused. All but the signature's own are signed with the right
// key, so that only the spelling can be what is refused.
func TestOtherSpellingsAreRefused(t *testing.T) {
	set, ring := keySet(t, keyV1), newRing(t, keyV1)
	c := sampleClaims()
	good := issue(t, ring, c)
	part := strings.Split(good, ".")
	header, payload := unb64(t, part[0]), unb64(t, part[1])
	swap := func(in, old, with string) string {
		if !strings.Contains(in, old) {
			t.Fatalf("%s is not in %s", old, in)
		}
		return strings.Replace(in, old, with, 1)
	}
	head := func(h string) string { return signed(t, set, h, payload) }
	body := func(p string) string { return signed(t, set, header, p) }
	text := func(h, p string) string { return signedText(t, set, h+"."+p) }
	if body(payload) != good {
		t.Fatal("the other signer does not agree with ours")
	}

	for name, raw := range map[string]string{
		"signature padded":             good + "=",
		"signature with line break":    good[:len(good)-4] + "\n" + good[len(good)-4:],
		"signature trailing bits":      nextSpelling(good),
		"signature in plain alphabet":  part[0] + "." + part[1] + "." + strings.NewReplacer("-", "+", "_", "/").Replace(part[2]+"-"),
		"space before":                 " " + good,
		"newline after":                good + "\n",
		"fourth part":                  good + ".",
		"empty first part":             "." + good,
		"header padded":                text(part[0]+"=", part[1]),
		"header trailing bits":         text(nextSpelling(base64.RawURLEncoding.EncodeToString([]byte(header+" "))), part[1]),
		"header key order":             head(swap(swap(header, `"alg":"HS256",`, ``), `,"typ"`, `,"alg":"HS256","typ"`)),
		"header with space":            head(swap(header, `,`, `, `)),
		"header with member":           head(swap(header, `}`, `,"crit":[]}`)),
		"header duplicate":             head(swap(header, `}`, `,"typ":"seckill-ticket"}`)),
		"header escaped":               head(swap(header, `"HS256"`, `"\u00485256"`)),
		"header typ case":              head(swap(header, `seckill-ticket`, `SECKILL-TICKET`)),
		"payload padded":               text(part[0], base64.URLEncoding.EncodeToString([]byte(payload))+"="),
		"payload with line break":      text(part[0], part[1][:40]+"\n"+part[1][40:]),
		"payload with four of them":    text(part[0], part[1][:40]+"\r\n\r\n"+part[1][40:]),
		"payload trailing bits":        text(part[0], nextSpelling(b64(payload+"x"))),
		"payload with lone character":  text(part[0], part[1]+"A"),
		"payload in plain alphabet":    text(part[0], part[1]+"+/"),
		"no payload":                   text(part[0], ""),
		"space after colon":            body(swap(payload, `:`, `: `)),
		"space at the end":             body(payload + " "),
		"BOM":                          body("\ufeff" + payload),
		"trailing object":              body(payload + "{}"),
		"key order":                    body(swap(swap(payload, `"sku_id":"90001",`, ``), `"path_id"`, `"sku_id":"90001","path_id"`)),
		"duplicate":                    body(swap(payload, `"sku_id":"90001",`, `"sku_id":"90001","sku_id":"90001",`)),
		"duplicate at the end":         body(swap(payload, `}`, `,"version":1}`)),
		"unknown member":               body(swap(payload, `}`, `,"admin":true}`)),
		"missing member":               body(swap(payload, `"path_id":"p_7vKh2P",`, ``)),
		"case-folded key":              body(swap(payload, `"sku_id"`, `"SKU_id"`)),
		"escaped key":                  body(swap(payload, `"sku_id"`, `"\u0073ku_id"`)),
		"escaped value":                body(swap(payload, `"90001"`, `"\u00390001"`)),
		"escaped slash":                body(swap(payload, `p_7vKh2P`, `p_7vKh2P\/`)),
		"id as number":                 body(swap(payload, `"90001"`, `90001`)),
		"number as id":                 body(swap(payload, `:8,`, `:"8",`)),
		"leading zero":                 body(swap(payload, `"90001"`, `"090001"`)),
		"zero id":                      body(swap(payload, `"90001"`, `"0"`)),
		"id over 2^63-1":               body(swap(payload, `"90001"`, `"9223372036854775808"`)),
		"id with sign":                 body(swap(payload, `"90001"`, `"+90001"`)),
		"wide digits":                  body(swap(payload, `"90001"`, `"９0001"`)),
		"number with leading zero":     body(swap(payload, `:8,`, `:08,`)),
		"number with exponent":         body(swap(payload, `:8,`, `:8e0,`)),
		"number with fraction":         body(swap(payload, `:8,`, `:8.0,`)),
		"negative number":              body(swap(payload, `:8,`, `:-8,`)),
		"version zero":                 body(swap(payload, `"activity_version":8`, `"activity_version":0`)),
		"number over 2^53":             body(swap(payload, `1782388830000`, `9007199254740992`)),
		"other format version":         body(swap(payload, `"version":1`, `"version":2`)),
		"other key id":                 body(swap(payload, `ticket-key-202606`, `ticket-key-202607`)),
		"never valid":                  body(swap(payload, `1782388830000`, `1782388800000`)),
		"device hash in upper case":    body(swap(payload, c.DeviceHash[7:], strings.ToUpper(c.DeviceHash[7:]))),
		"device hash of other length":  body(swap(payload, c.DeviceHash, c.DeviceHash+"0")),
		"device hash without its name": body(swap(payload, "sha256:", "")),
		"path with a space":            body(swap(payload, "p_7vKh2P", "p_7vKh2P ")),
		"nonce with a null byte":       body(swap(payload, c.Nonce, c.Nonce+"\x00")),
		"nonce too short":              body(swap(payload, c.Nonce, "n_12345")),
	} {
		if got, reason := ring.Verify(raw, opening, agreeing(c)); reason == ticket.OK || reason == ticket.Expired {
			t.Errorf("%s: %v, %+v", name, reason, got)
		}
	}
}

// A pass is never a ticket, nor the other way round, although the same key signs both.
func TestTypesAreNotInterchangeable(t *testing.T) {
	set, ring := keySet(t, keyV1), newRing(t, keyV1)
	c, p := sampleClaims(), samplePass()
	pass, err := ring.IssuePass(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, reason := ring.Verify(pass, opening, agreeing(c)); reason != ticket.Format {
		t.Errorf("pass as ticket: %v", reason)
	}
	want := ticket.PassExpect{ActivityID: p.ActivityID, UserID: p.UserID, DeviceHash: p.DeviceHash}
	raw := issue(t, ring, c)
	if _, reason := ring.VerifyPass(raw, want); reason != ticket.Format {
		t.Errorf("ticket as pass: %v", reason)
	}
	relabelled := signed(t, set, strings.Replace(goldenHeader, "seckill-ticket", "seckill-pass", 1), unb64(t, strings.Split(raw, ".")[1]))
	if _, reason := ring.VerifyPass(relabelled, want); reason != ticket.Payload {
		t.Errorf("ticket's payload under a pass's header: %v", reason)
	}
}

func drawClaims(t *rapid.T) ticket.Claims {
	decimal := rapid.Map(rapid.Uint64Range(1, 1<<63-1), func(n uint64) string { return formatUint(n) })
	id := rapid.StringMatching(`[A-Za-z0-9_-]{8,64}`)
	notBeforeMs := rapid.Int64Range(0, 1<<53-2).Draw(t, "not_before_ms")
	return ticket.Claims{
		ActivityID:      decimal.Draw(t, "activity_id"),
		SKUID:           decimal.Draw(t, "sku_id"),
		UserID:          decimal.Draw(t, "user_id"),
		DeviceHash:      admission.DeviceHash(rapid.StringMatching(`[A-Za-z0-9._:-]{16,128}`).Draw(t, "device")),
		ActivityVersion: rapid.Int64Range(1, 1<<53-1).Draw(t, "activity_version"),
		PathID:          id.Draw(t, "path_id"),
		Nonce:           id.Draw(t, "nonce"),
		NotBefore:       time.UnixMilli(notBeforeMs),
		ExpiresAt:       time.UnixMilli(rapid.Int64Range(notBeforeMs+1, 1<<53-1).Draw(t, "expires_at_ms")),
	}
}

// Whatever can be issued is accepted as it was issued, and one changed byte of it is not.
func TestRoundTripAndOneChangedByte(t *testing.T) {
	ring := newRing(t, keyV1)
	rapid.Check(t, func(t *rapid.T) {
		c := drawClaims(t)
		raw, err := ring.Issue(c)
		if err != nil {
			t.Fatal(err)
		}
		got, reason := ring.Verify(raw, c.NotBefore, agreeing(c))
		if reason != ticket.OK || got.Nonce.String() != c.Nonce || !got.ExpiresAt.Equal(c.ExpiresAt) {
			t.Fatalf("%v, %+v", reason, got)
		}
		u, err := ticket.Inspect(raw)
		if err != nil || u.Ticket == nil || *u.Ticket != c {
			t.Fatalf("inspect: %+v, %v", u.Ticket, err)
		}
		at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
		with := rapid.Byte().Filter(func(b byte) bool { return b != raw[at] }).Draw(t, "with")
		if _, reason := ring.Verify(raw[:at]+string([]byte{with})+raw[at+1:], c.NotBefore, agreeing(c)); reason == ticket.OK {
			t.Fatalf("byte %d changed to %q and accepted", at, with)
		}
	})
}

// FuzzPayload signs whatever it is given with the right key: what the decoder accepts must be exactly what
// the encoder writes.
func FuzzPayload(f *testing.F) {
	f.Add(goldenPayload)
	f.Add(strings.Replace(goldenPayload, ":8,", ":08,", 1))
	f.Add(goldenPayload + goldenPayload)
	f.Add(goldenPayload[:len(goldenPayload)/2])
	f.Add(`{"version":1,"key_id":"`)
	f.Add("")
	f.Fuzz(func(t *testing.T, payload string) {
		raw := signed(t, keySet(t, keyV1), goldenHeader, payload)
		u, err := ticket.Inspect(raw)
		if err != nil {
			return
		}
		ring := newRing(t, keyV1)
		again, err := ring.Issue(*u.Ticket)
		if err != nil || again != raw {
			t.Fatalf("a second spelling was read: %q, %v", payload, err)
		}
	})
}

// FuzzRaw looks for a panic, and for a token that is accepted without having been issued.
func FuzzRaw(f *testing.F) {
	ring := newRing(f, keyV1)
	c := sampleClaims()
	good := issue(f, ring, c)
	for _, seed := range []string{"", ".", "..", good, good + ".", good[:len(good)-1], strings.Repeat(".", 1024), goldenHeader} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if _, reason := ring.Verify(raw, opening, agreeing(c)); reason == ticket.OK && raw != good {
			t.Fatalf("accepted %q", raw)
		}
		if _, reason := ring.VerifyPass(raw, ticket.PassExpect{}); reason == ticket.OK {
			t.Fatalf("accepted as a pass: %q", raw)
		}
		_, _ = ticket.Inspect(raw)
	})
}
