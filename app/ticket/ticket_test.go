package ticket_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

// opening is when the tickets of these tests are issued.
var opening = time.UnixMilli(1782388800000)

const (
	keyV1 = `{"kty":"oct","kid":"ticket-key-202606","alg":"HS256","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}`
	keyV2 = `{"kty":"oct","kid":"ticket-key-202607","alg":"HS256","k":"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8"}`
)

func keySet(t testing.TB, members ...string) keys.Set {
	t.Helper()
	set, err := keys.Parse("test", []byte(`{"keys":[`+strings.Join(members, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newRing(t testing.TB, members ...string) *ticket.Ring {
	t.Helper()
	ring, err := ticket.NewRing(keySet(t, members...), ticket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func sampleClaims() ticket.Claims {
	return ticket.Claims{
		ActivityID:      "10001",
		SKUID:           "90001",
		UserID:          "70000001",
		DeviceHash:      admission.DeviceHash("device-0123456789"),
		ActivityVersion: 8,
		PathID:          "p_7vKh2P",
		Nonce:           "n_01JZZZZZZZZZ",
		NotBefore:       opening,
		ExpiresAt:       opening.Add(30 * time.Second),
	}
}

func agreeing(c ticket.Claims) ticket.Expect {
	return ticket.Expect{
		ActivityID:      c.ActivityID,
		SKUID:           c.SKUID,
		UserID:          c.UserID,
		DeviceHash:      c.DeviceHash,
		ActivityVersion: c.ActivityVersion,
		PathID:          c.PathID,
	}
}

func issue(t testing.TB, ring *ticket.Ring, c ticket.Claims) string {
	t.Helper()
	raw, err := ring.Issue(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// signed is a token by somebody who holds the key but not our encoder.
func signed(t testing.TB, set keys.Set, header, payload string) string {
	t.Helper()
	return signedText(t, set, b64(header)+"."+b64(payload))
}

func signedText(t testing.TB, set keys.Set, text string) string {
	t.Helper()
	secret, _ := set.First().Secret()
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unb64(t testing.TB, s string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	goldenHeader  = `{"alg":"HS256","kid":"ticket-key-202606","typ":"seckill-ticket"}`
	goldenPayload = `{"version":1,"key_id":"ticket-key-202606","activity_id":"10001","sku_id":"90001","user_id":"70000001",` +
		`"device_hash":"sha256:38eda0de00f907c392ea935d15db5d7dd638fa990c67d2fafa5e3616dbcbe7c7",` +
		`"activity_version":8,"path_id":"p_7vKh2P","nonce":"n_01JZZZZZZZZZ","not_before_ms":1782388800000,"expires_at_ms":1782388830000}`
)

// The format is a contract with verifiers at an edge: these bytes may change only together with "version".
func TestGoldenVector(t *testing.T) {
	set := keySet(t, keyV1)
	ring := newRing(t, keyV1)
	raw := issue(t, ring, sampleClaims())
	if want := signed(t, set, goldenHeader, goldenPayload); raw != want {
		t.Fatalf("got  %s\nwant %s", raw, want)
	}

	secret, _ := set.First().Secret()
	parsed, err := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithStrictDecoding()).
		Parse(raw, func(*jwt.Token) (any, error) { return secret, nil })
	if err != nil || !parsed.Valid {
		t.Fatalf("golang-jwt refuses our ticket: %v", err)
	}
	got, err := json.Marshal(parsed.Header)
	if err != nil || string(got) != goldenHeader {
		t.Errorf("header %s, want %s", got, goldenHeader)
	}
	if claims := parsed.Claims.(jwt.MapClaims); claims["user_id"] != "70000001" || claims["key_id"] != parsed.Header["kid"] {
		t.Errorf("claims %v", claims)
	}
}

func TestVerifyReturnsWhatTheRequestDidNotSay(t *testing.T) {
	ring := newRing(t, keyV1)
	c := sampleClaims()
	got, reason := ring.Verify(issue(t, ring, c), opening, agreeing(c))
	if reason != ticket.OK {
		t.Fatal(reason)
	}
	if got.KeyID != "ticket-key-202606" || got.Nonce.String() != c.Nonce ||
		!got.NotBefore.Equal(c.NotBefore) || !got.ExpiresAt.Equal(c.ExpiresAt) {
		t.Errorf("got %+v", got)
	}
}

// The order of the refusals is part of the promise: each case here is wrong in its own way and in every
// later way as well, and the earlier reason must win.
func TestEveryReason(t *testing.T) {
	set, ring := keySet(t, keyV1), newRing(t, keyV1)
	c := sampleClaims()
	good := issue(t, ring, c)
	wrong := ticket.Expect{
		ActivityID: "2", SKUID: "2", UserID: "2", DeviceHash: "x", ActivityVersion: 90, PathID: "p_other_1",
	}
	fix := func(edits ...func(*ticket.Expect)) ticket.Expect { // corrects wrong step by step
		e := wrong
		for _, edit := range edits {
			edit(&e)
		}
		return e
	}
	activity := func(e *ticket.Expect) { e.ActivityID = c.ActivityID }
	sku := func(e *ticket.Expect) { e.SKUID = c.SKUID }
	user := func(e *ticket.Expect) { e.UserID = c.UserID }
	version := func(v int64) func(*ticket.Expect) { return func(e *ticket.Expect) { e.ActivityVersion = v } }
	path := func(e *ticket.Expect) { e.PathID = c.PathID }
	device := func(e *ticket.Expect) { e.DeviceHash = c.DeviceHash }
	late := c.ExpiresAt.Add(time.Hour)
	now := opening.Add(time.Second)

	cases := []struct {
		want ticket.Reason
		raw  string
		now  time.Time
		e    ticket.Expect
	}{
		{ticket.Missing, "", late, wrong},
		{ticket.TooLong, strings.Repeat(".", ticket.MaxBytes+1), late, wrong},
		{ticket.Format, "a.b.c", late, wrong},
		{ticket.UnknownKey, signed(t, set, strings.Replace(goldenHeader, "202606", "202605", 1), "{}"), late, wrong},
		{ticket.Signature, good[:len(good)-43] + strings.Repeat("A", 43), late, wrong},
		{ticket.Payload, signed(t, set, goldenHeader, "{}"), late, wrong},
		{ticket.NotYet, good, opening.Add(-ticket.DefaultSkew - time.Millisecond), wrong},
		{ticket.Expired, good, late, wrong},
		{ticket.OtherActivity, good, now, wrong},
		{ticket.OtherSKU, good, now, fix(activity)},
		{ticket.OtherUser, good, now, fix(activity, sku)},
		{ticket.VersionOld, good, now, fix(activity, sku, user, version(10))},
		{ticket.VersionBehind, good, now, fix(activity, sku, user, version(9))},
		{ticket.VersionAhead, good, now, fix(activity, sku, user, version(7))},
		{ticket.OtherPath, good, now, fix(activity, sku, user, version(8))},
		{ticket.OtherDevice, good, now, fix(activity, sku, user, version(8), path)},
		{ticket.OK, good, now, fix(activity, sku, user, version(8), path, device)},
	}
	seen := map[ticket.Reason]bool{}
	labels := map[string]bool{}
	for _, tc := range cases {
		got, reason := ring.Verify(tc.raw, tc.now, tc.e)
		if reason != tc.want {
			t.Errorf("got %v, want %v", reason, tc.want)
		}
		if reason > ticket.UnknownKey && got.KeyID == "" {
			t.Errorf("%v: the key was known and is not named", reason)
		}
		if reason != ticket.OK && got.Nonce.String() != "" {
			t.Errorf("%v: a refusal gave away a nonce", reason)
		}
		if reason <= ticket.Signature && reason != ticket.OK && reason.Outcome() != admission.TokenInvalid {
			t.Errorf("%v: only a valid signature may yield anything but TOKEN_INVALID", reason)
		}
		seen[reason], labels[reason.String()] = true, true
	}
	if len(seen) != int(ticket.Reasons) || len(labels) != int(ticket.Reasons) {
		t.Errorf("%d reasons and %d labels seen, want %d", len(seen), len(labels), ticket.Reasons)
	}
	if ticket.Reasons.Outcome() != admission.TokenInvalid {
		t.Error("an unknown reason must refuse")
	}
}

func TestSkewAllowanceEndsToTheMillisecond(t *testing.T) {
	ring := newRing(t, keyV1)
	c := sampleClaims()
	raw := issue(t, ring, c)
	const ms = time.Millisecond
	for _, tc := range []struct {
		now  time.Time
		want ticket.Reason
	}{
		{c.NotBefore.Add(-2001 * ms), ticket.NotYet},
		{c.NotBefore.Add(-2000 * ms), ticket.OK},
		{c.ExpiresAt.Add(1999 * ms), ticket.OK},
		{c.ExpiresAt.Add(2000 * ms), ticket.Expired},
	} {
		if _, reason := ring.Verify(raw, tc.now, agreeing(c)); reason != tc.want {
			t.Errorf("%v after issue: got %v, want %v", tc.now.Sub(opening), reason, tc.want)
		}
	}
}

func TestIssueNamesTheClaimOutOfBounds(t *testing.T) {
	ring := newRing(t, keyV1)
	for field, edit := range map[string]func(*ticket.Claims){
		"activity_id":      func(c *ticket.Claims) { c.ActivityID = "007" },
		"sku_id":           func(c *ticket.Claims) { c.SKUID = "9223372036854775808" },
		"user_id":          func(c *ticket.Claims) { c.UserID = `1","sku_id":"2` },
		"device_hash":      func(c *ticket.Claims) { c.DeviceHash = "sha256:" + strings.Repeat("A", 64) },
		"activity_version": func(c *ticket.Claims) { c.ActivityVersion = 1 << 53 },
		"path_id":          func(c *ticket.Claims) { c.PathID = "short" },
		"nonce":            func(c *ticket.Claims) { c.Nonce = strings.Repeat("n", 65) },
		"not_before_ms":    func(c *ticket.Claims) { c.NotBefore = time.UnixMilli(-1) },
		"expires_at_ms":    func(c *ticket.Claims) { c.ExpiresAt = c.NotBefore },
	} {
		c := sampleClaims()
		edit(&c)
		if _, err := ring.Issue(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got error %v", field, err)
		}
	}
}

// The bound of 1,024 bytes needs no check in Issue because the largest ticket and pass stay below it.
func TestTheLargestTicketFits(t *testing.T) {
	kid := strings.Repeat("k", keys.MaxIDBytes)
	ring := newRing(t, strings.Replace(keyV1, "ticket-key-202606", kid, 1))
	const largest = "9223372036854775807"
	c := ticket.Claims{
		ActivityID: largest, SKUID: largest, UserID: largest,
		DeviceHash:      admission.DeviceHash("d"),
		ActivityVersion: 1<<53 - 1,
		PathID:          strings.Repeat("p", admission.MaxIDLen),
		Nonce:           strings.Repeat("n", admission.MaxIDLen),
		NotBefore:       time.UnixMilli(1<<53 - 2),
		ExpiresAt:       time.UnixMilli(1<<53 - 1),
	}
	raw := issue(t, ring, c)
	if len(raw) > ticket.MaxBytes {
		t.Fatalf("%d bytes", len(raw))
	}
	if _, reason := ring.Verify(raw, c.NotBefore, agreeing(c)); reason != ticket.OK {
		t.Error(reason)
	}
	pass, err := ring.IssuePass(ticket.Pass{
		ActivityID: largest, UserID: largest, DeviceHash: c.DeviceHash,
		Lane: strings.Repeat("l", ticket.MaxLaneLen), JoinedAt: c.ExpiresAt, Sequence: 1<<53 - 1,
	})
	if err != nil || len(pass) > ticket.MaxBytes {
		t.Errorf("pass of %d bytes, %v", len(pass), err)
	}
}
