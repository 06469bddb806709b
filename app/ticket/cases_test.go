package ticket_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

// K02: alg none, key confusion, a kid that is a path, a kid of a megabyte, a megabyte of dots.
func TestK02_ForgedHeadersAndHugeTokens(t *testing.T) {
	set, ring := keySet(t, keyV1), newRing(t, keyV1)
	c := sampleClaims()
	part := strings.Split(issue(t, ring, c), ".")
	payload := unb64(t, part[1])
	alg := func(to string) string { return strings.Replace(goldenHeader, `"HS256"`, to, 1) }
	kid := func(to string) string { return strings.Replace(goldenHeader, `ticket-key-202606`, to, 1) }

	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := x509.MarshalPKCS1PublicKey(&private.PublicKey)
	confused := part[0] + "." + part[1] // HS256 with the public key as its secret
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(confused))
	confused += "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	rs256 := b64(alg(`"RS256"`)) + "." + part[1]
	digest := sha256.Sum256([]byte(rs256))
	signature, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}

	megabyte := strings.Repeat(".", 1<<20)
	for name, tc := range map[string]struct {
		raw  string
		want ticket.Reason
	}{
		"none, no signature":     {b64(alg(`"none"`)) + "." + part[1] + ".", ticket.Format},
		"none, our signature":    {signed(t, set, alg(`"none"`), payload), ticket.Format},
		"None":                   {signed(t, set, alg(`"None"`), payload), ticket.Format},
		"alg missing":            {signed(t, set, strings.Replace(goldenHeader, `"alg":"HS256",`, ``, 1), payload), ticket.Format},
		"HS256 under public key": {confused, ticket.Signature},
		"RS256":                  {rs256 + "." + base64.RawURLEncoding.EncodeToString(signature), ticket.Format},
		"kid is a path":          {signed(t, set, kid("../../dev/null"), payload), ticket.Format},
		"kid is SQL":             {signed(t, set, kid("' OR 1=1 --"), payload), ticket.Format},
		"kid of a megabyte":      {signed(t, set, kid(strings.Repeat("k", 1<<20)), payload), ticket.TooLong},
		"a megabyte of dots":     {megabyte, ticket.TooLong},
		"dots up to the bound":   {megabyte[:ticket.MaxBytes], ticket.Format},
	} {
		got, reason := ring.Verify(tc.raw, opening, agreeing(c))
		if reason != tc.want || reason.Outcome() != admission.TokenInvalid {
			t.Errorf("%s: got %v, want %v", name, reason, tc.want)
		}
		if reason < ticket.Signature && got.KeyID != "" {
			t.Errorf("%s: a key id from outside the ring would become a label: %q", name, got.KeyID)
		}
	}
	for name, raw := range map[string]string{"megabyte": megabyte, "bound": megabyte[:ticket.MaxBytes]} {
		if n := testing.AllocsPerRun(10, func() { ring.Verify(raw, opening, agreeing(c)) }); n != 0 {
			t.Errorf("%s of dots: %v allocations", name, n)
		}
	}
}

// K03: rotation with overlap, clock skew on both sides, leeway against the memory of nonces, a flood of
// unknown kids.
func TestK03_RotationSkewAndUnknownKeys(t *testing.T) {
	ring := newRing(t, keyV1)
	c := sampleClaims()

	ahead := c // (a) the issuer's clock is 800 ms ahead
	ahead.NotBefore, ahead.ExpiresAt = opening.Add(800*time.Millisecond), opening.Add(30*time.Second)
	if _, reason := ring.Verify(issue(t, ring, ahead), opening, agreeing(ahead)); reason != ticket.OK {
		t.Errorf("(a) %v", reason)
	}

	// (b) the old key's tickets last to their end, through every step of a rotation
	old := issue(t, ring, c)
	steps := []func() error{
		func() error { return ring.Swap(keySet(t, keyV1, keyV2)) },
		func() error { return ring.SetActive("ticket-key-202607") },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		got, reason := ring.Verify(old, c.ExpiresAt.Add(-time.Millisecond), agreeing(c))
		if reason != ticket.OK || got.KeyID != "ticket-key-202606" {
			t.Errorf("(b) after step %d: %v, key %q", i, reason, got.KeyID)
		}
	}
	next := issue(t, ring, c)
	if err := ring.Swap(keySet(t, keyV2)); err != nil {
		t.Fatal(err)
	}
	if got, reason := ring.Verify(next, opening, agreeing(c)); reason != ticket.OK || got.KeyID != "ticket-key-202607" {
		t.Errorf("(b) new key: %v, key %q", reason, got.KeyID)
	}
	if got, reason := ring.Verify(old, opening, agreeing(c)); reason != ticket.UnknownKey || got.KeyID != "" {
		t.Errorf("(b) key removed: %v, key %q", reason, got.KeyID)
	}

	// (c) between exp and exp + leeway a ticket still passes here, with the nonce it always had: refusing its
	// reuse is the nonce memory's part, which must last to ExpiresAt + Skew.
	got, reason := ring.Verify(next, c.ExpiresAt.Add(ring.Skew()-time.Millisecond), agreeing(c))
	if reason != ticket.OK || got.Nonce.String() != c.Nonce || !got.ExpiresAt.Equal(c.ExpiresAt) {
		t.Errorf("(c) %v, %+v", reason, got)
	}

	// (d) nothing here can fetch a key: an unknown one is a miss in a map
	for i := range 1000 {
		forged := signed(t, keySet(t, keyV1), strings.Replace(goldenHeader, "202606", fmt.Sprint(i), 1), "{}")
		if _, reason := ring.Verify(forged, opening, agreeing(c)); reason != ticket.UnknownKey {
			t.Fatalf("(d) %v", reason)
		}
	}
}

// K04: a ticket for activity 1, SKU A, path p1, version 8 serves nothing else.
func TestK04_CrossActivityAndUnicodeIDs(t *testing.T) {
	ring := newRing(t, keyV1)
	c := sampleClaims()
	raw := issue(t, ring, c)
	for name, tc := range map[string]struct {
		edit func(*ticket.Expect)
		want admission.Outcome
	}{
		"activity 2":                       {func(e *ticket.Expect) { e.ActivityID = "10002" }, admission.TokenInvalid},
		"SKU B":                            {func(e *ticket.Expect) { e.SKUID = "90002" }, admission.TokenInvalid},
		"path p2":                          {func(e *ticket.Expect) { e.PathID = "p_7vKh2Q" }, admission.TokenInvalid},
		"another user":                     {func(e *ticket.Expect) { e.UserID = "70000002" }, admission.TokenInvalid},
		"another device":                   {func(e *ticket.Expect) { e.DeviceHash = admission.DeviceHash("other") }, admission.TokenInvalid},
		"version 9":                        {func(e *ticket.Expect) { e.ActivityVersion = 9 }, admission.TokenExpired},
		"version 9 with a path of its own": {func(e *ticket.Expect) { e.ActivityVersion, e.PathID = 9, "p_of_nine" }, admission.TokenExpired},
		"version 10":                       {func(e *ticket.Expect) { e.ActivityVersion = 10 }, admission.TokenInvalid},
	} {
		e := agreeing(c)
		tc.edit(&e)
		if _, reason := ring.Verify(raw, opening, e); reason.Outcome() != tc.want {
			t.Errorf("%s: %v, want %v", name, reason, tc.want)
		}
	}
	for _, id := range []string{
		" req12345", "req12345\u200b", "req1234\u00e9", "req1234e\u0301", strings.Repeat("r", 10<<10), "", "req1234\n", "req\x00123456",
	} {
		c := sampleClaims()
		c.Nonce = id
		if _, err := ring.Issue(c); err == nil {
			t.Errorf("issued the nonce %.20q", id)
		}
	}
}

func TestRingRefusesAChangeWholeAndKeepsItsKeys(t *testing.T) {
	ring := newRing(t, keyV1, keyV2)
	if ring.ActiveKeyID() != "ticket-key-202606" {
		t.Errorf("the first key signs, not %q", ring.ActiveKeyID())
	}
	if err := ring.SetActive("absent"); err == nil || ring.ActiveKeyID() != "ticket-key-202606" {
		t.Errorf("%v, active %q", err, ring.ActiveKeyID())
	}
	if err := ring.SetActive("ticket-key-202607"); err != nil {
		t.Fatal(err)
	}
	ed, err := keys.NewEd25519("ed")
	if err != nil {
		t.Fatal(err)
	}
	withEd, err := keySet(t, keyV2).Add(ed)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]keys.Set{
		"the chosen key is gone": keySet(t, keyV1),
		"a key that is not oct":  withEd,
		"no keys":                {},
	} {
		if err := ring.Swap(set); err == nil || !ring.Has("ticket-key-202606") || ring.ActiveKeyID() != "ticket-key-202607" {
			t.Errorf("%s: %v, active %q", name, err, ring.ActiveKeyID())
		}
	}
	if err := ring.SetActive(""); err != nil || ring.ActiveKeyID() != "ticket-key-202606" {
		t.Errorf("%v, active %q", err, ring.ActiveKeyID())
	}
	if _, err := ticket.NewRing(keySet(t, keyV1), ticket.Config{Skew: time.Hour}); err == nil {
		t.Error("took a skew of an hour")
	}
}

// Verifiers see the keys of before or after a swap, never a mixture: a key in both is always known.
func TestRingSwapDuringVerify(t *testing.T) {
	ring := newRing(t, keyV1, keyV2)
	c := sampleClaims()
	raw, want := issue(t, ring, c), agreeing(c)
	sets := []keys.Set{keySet(t, keyV1), keySet(t, keyV1, keyV2)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			if err := ring.Swap(sets[i%2]); err != nil {
				t.Error(err)
			}
			if err := ring.SetActive("ticket-key-202607"); (err == nil) != (i%2 == 1) {
				t.Errorf("set active: %v", err)
			}
			if err := ring.SetActive(""); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if got, reason := ring.Verify(raw, opening, want); reason != ticket.OK || got.Nonce.String() != c.Nonce {
			t.Fatalf("%v, %+v", reason, got)
		}
		issue(t, ring, c)
	}
}
