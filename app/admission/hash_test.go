package admission_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
)

func TestBodyHashByHand(t *testing.T) {
	sum := sha256.Sum256([]byte("10001|90001|70000001|1"))
	if got, want := admission.BodyHash("10001", "90001", "70000001", 1), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDeviceHashTakesAnyLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringN(0, 300, -1).Draw(t, "device")
		sum := sha256.Sum256([]byte(id))
		if got := admission.DeviceHash(id); got != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Fatal(got)
		}
	})
}
