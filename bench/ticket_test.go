package bench

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

// ticketCase is one ticket of ordinary size, its verifier and its key.
type ticketCase struct {
	ring   *ticket.Ring
	secret []byte
	good   string
	forged string // of the same length
	want   ticket.Expect
	now    time.Time
}

func newTicketCase(b *testing.B) ticketCase {
	b.Helper()
	k, err := keys.NewOct("ticket-key-202606")
	if err != nil {
		b.Fatal(err)
	}
	set, err := keys.NewSet(k)
	if err != nil {
		b.Fatal(err)
	}
	ring, err := ticket.NewRing(set, ticket.Config{})
	if err != nil {
		b.Fatal(err)
	}
	derive, err := ticket.NewDeriver(k)
	if err != nil {
		b.Fatal(err)
	}
	now := time.UnixMilli(1782388800000)
	claims := ticket.Claims{
		ActivityID: "10001", SKUID: "90001", UserID: "70000001",
		DeviceHash: admission.DeviceHash("device-0123456789"), ActivityVersion: 8, PathID: "p_7vKh2P8wQz1x",
		Nonce:     derive.Nonce("70000001", "10001", "90001", 8, 0),
		NotBefore: now, ExpiresAt: now.Add(30 * time.Second),
	}
	good, err := ring.Issue(claims)
	if err != nil {
		b.Fatal(err)
	}
	secret, _ := k.Secret()
	return ticketCase{
		ring: ring, secret: secret, good: good, forged: good[:len(good)-43] + strings.Repeat("A", 43), now: now,
		want: ticket.Expect{
			ActivityID: claims.ActivityID, SKUID: claims.SKUID, UserID: claims.UserID,
			DeviceHash: claims.DeviceHash, ActivityVersion: claims.ActivityVersion, PathID: claims.PathID,
		},
	}
}

// BenchmarkTicket puts the check of a good and of a forged ticket beside the least it could cost (one HMAC
// of the same bytes, its key prepared) and beside golang-jwt doing the signature and the JSON alone.
func BenchmarkTicket(b *testing.B) {
	c := newTicketCase(b)
	b.Run("bareHMAC", func(b *testing.B) {
		mac := hmac.New(sha256.New, c.secret)
		text := []byte(c.good[:len(c.good)-44])
		var sum [sha256.Size]byte
		b.ReportAllocs()
		for b.Loop() {
			mac.Reset()
			mac.Write(text)
			mac.Sum(sum[:0])
		}
	})
	verify := func(raw string, want ticket.Reason) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, reason := c.ring.Verify(raw, c.now, c.want); reason != want {
					b.Fatal(reason)
				}
			}
		}
	}
	unknown := "eyJhbGciOiJIUzI1NiIsImtpZCI6InRpY2tldC1rZXktMjAyNjA1IiwidHlwIjoic2Vja2lsbC10aWNrZXQifQ" +
		c.good[strings.IndexByte(c.good, '.'):] // kid ticket-key-202605
	b.Run("good", verify(c.good, ticket.OK))
	b.Run("forged", verify(c.forged, ticket.Signature))
	b.Run("unknownKey", verify(unknown, ticket.UnknownKey))
	b.Run("golangJWT", func(b *testing.B) {
		parser := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}))
		key := func(*jwt.Token) (any, error) { return c.secret, nil }
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parser.Parse(c.good, key); err != nil {
				b.Fatal(err)
			}
		}
	})
}
