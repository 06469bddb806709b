package ticket_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

func newDeriver(t testing.TB) *ticket.Deriver {
	t.Helper()
	d, err := ticket.NewDeriver(keySet(t, keyV1).First())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The derivations spelled out once more, byte by byte: they bind stores and instances of every release.
func TestDerivedIDsAreFixed(t *testing.T) {
	d := newDeriver(t)
	secret, _ := keySet(t, keyV1).First().Secret()
	byHand := func(prefix, prefixed string) string {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(prefixed))
		return prefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	}
	if got, want := d.Nonce("70000001", "10001", "90001", 8, 0), byHand("n_",
		"\x00\x00\x00\x0870000001\x00\x00\x00\x0510001\x00\x00\x00\x0590001\x00\x00\x00\x018\x00\x00\x00\x010"); got != want {
		t.Errorf("nonce %s, want %s", got, want)
	}
	if got, want := d.ReservationID("10001", "90001", "70000001", "q_request"), byHand("r_",
		"\x00\x00\x00\x0510001\x00\x00\x00\x0590001\x00\x00\x00\x0870000001\x00\x00\x00\x09q_request"); got != want {
		t.Errorf("reservation %s, want %s", got, want)
	}
}

func TestDerivedIDsAreValidAndDistinct(t *testing.T) {
	d := newDeriver(t)
	seen := map[string]bool{}
	for _, nonce := range []string{
		d.Nonce("1", "2", "3", 4, 5),
		d.Nonce("12", "", "3", 4, 5), // a plain join of the fields would read the same
		d.Nonce("1", "2", "34", 4, 5),
		d.Nonce("1", "2", "3", 4, 6),
		d.Nonce("1", "2", "3", 5, 5),
	} {
		for _, id := range []string{nonce, ticket.RequestID(nonce), d.ReservationID("1", "2", "3", nonce)} {
			if seen[id] || !admission.ValidID(id) {
				t.Errorf("%q is not valid or not new", id)
			}
			seen[id] = true
		}
	}
	if d.Nonce("1", "2", "3", 4, 5) != newDeriver(t).Nonce("1", "2", "3", 4, 5) {
		t.Error("another instance derives another nonce")
	}
}

func TestDeriverWantsAnOctKey(t *testing.T) {
	ed, err := keys.NewEd25519("ed")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []keys.Key{ed, {}} {
		if _, err := ticket.NewDeriver(k); err == nil {
			t.Errorf("took %v", k)
		}
	}
}

func TestNewPathID(t *testing.T) {
	id, err := ticket.NewPathID(strings.NewReader("nine byte"))
	if err != nil || id != "p_"+base64.RawURLEncoding.EncodeToString([]byte("nine byte")) || !admission.ValidID(id) {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := ticket.NewPathID(iotest.ErrReader(admission.ErrUnavailable)); err == nil {
		t.Error("made a path without randomness")
	}
}
