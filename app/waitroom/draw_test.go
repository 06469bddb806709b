package waitroom_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/waitroom"
)

// TestASaleBegunAnewDrawsAnew: the same id and version published again has a secret that no
// earlier sale has revealed; a new version of the same sale keeps its own.
func TestASaleBegunAnewDrawsAnew(t *testing.T) {
	again, err := waitroom.DeriveSecret(drawKey(t), "10001", 1, published.Add(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if first := secretOf(t, "10001", 1); again == first || again.Commitment("10001", 1) == first.Commitment("10001", 1) {
		t.Error("the second sale has the secret that the first one revealed")
	}
	room := waitroom.New(waitroom.Config{DrawKey: drawKey(t)})
	v1 := &admission.Activity{ID: "10001", Version: 1, PublishedAt: published}
	v2 := &admission.Activity{ID: "10001", Version: 2, PublishedAt: published, PathID: "p_another", Name: "renamed"}
	if room.Commitment(v1) == "" || room.Commitment(v1) != room.Commitment(v2) {
		t.Error("a new version changed the commitment")
	}
}

func drawKey(t testing.TB) keys.Key {
	t.Helper()
	set, err := keys.Parse("test", []byte(`{"keys":[{"kty":"oct","kid":"draw","alg":"HS256","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return set.First()
}

// published is when the activities of these tests were.
var published = time.Date(2026, 11, 11, 9, 0, 0, 0, time.UTC)

func secretOf(t testing.TB, activityID string, version int64) waitroom.Secret {
	t.Helper()
	s, err := waitroom.DeriveSecret(drawKey(t), activityID, version, published)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a browser or an auditor computes from the revealed facts must be what we computed: here once more,
// by hand, the rank by way of its 52 leading bits.
func TestDrawByHand(t *testing.T) {
	secret := secretOf(t, "10001", 1)
	commitment := sha256.Sum256([]byte(string(secret[:]) + "|10001|1"))
	if secret.Commitment("10001", 1) != commitment {
		t.Error("commitment differs")
	}
	if secret.Commitment("10001", 2) == commitment || secretOf(t, "10001", 2) == secret || secretOf(t, "10002", 1) == secret {
		t.Error("secrets of two activities or versions are not told apart")
	}

	root := strings.Repeat("ab", 32)
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte(root + "|beacon 4711"))
	seed := mac.Sum(nil)
	if got := secret.Seed(root, "beacon 4711"); hex.EncodeToString(got[:]) != hex.EncodeToString(seed) {
		t.Errorf("seed %x, want %x", got, seed)
	}
	mac = hmac.New(sha256.New, seed)
	mac.Write([]byte("10001|70000001"))
	bits := new(big.Int).Rsh(new(big.Int).SetBytes(mac.Sum(nil)), 256-52)
	if got := secret.Seed(root, "beacon 4711").Rank("10001", "70000001"); got != bits.Uint64() {
		t.Errorf("rank %d, want %d", got, bits)
	}
}

func TestRanksAreBelowDrawnAndLateOnesBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seed waitroom.RankSeed
		copy(seed[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		rank := seed.Rank("1", strconv.FormatInt(rapid.Int64Min(1).Draw(t, "user"), 10))
		late := waitroom.LateRank(rapid.Int64Range(1, 1<<52-1).Draw(t, "sequence"))
		if rank >= waitroom.Drawn || late <= rank || late >= 1<<53 {
			t.Fatalf("rank %d, late rank %d", rank, late)
		}
	})
}

// Ranks are spread evenly: chi-squared over 64 equal parts for 64,000 users, whose 0.1 % bound at 63
// degrees of freedom is 103.4. The seed is fixed, so the test cannot fail by chance.
func TestRanksAreEven(t *testing.T) {
	seed := secretOf(t, "10001", 1).Seed("root", "")
	const users, parts = 64_000, 64
	var counts [parts]float64
	for i := range users {
		counts[seed.Rank("10001", strconv.Itoa(70_000_000+i))*parts/waitroom.Drawn]++
	}
	var chi float64
	for _, c := range counts {
		chi += (c - users/parts) * (c - users/parts) / (users / parts)
	}
	if chi > 103.4 {
		t.Errorf("chi-squared %.1f", chi)
	}
}

func TestDrawKeyMustBeOct(t *testing.T) {
	ed, err := keys.NewEd25519("ed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := waitroom.DeriveSecret(ed, "1", 1, published); err == nil {
		t.Error("took a key that is not oct")
	}
}
