//go:build !race

// The race detector makes sync.Pool drop what it is given, so allocations are only counted without it.

package ticket_test

import (
	"strings"
	"testing"
)

func TestVerifyAllocatesNothing(t *testing.T) {
	ring := newRing(t, keyV1)
	c := sampleClaims()
	good := issue(t, ring, c)
	forged := good[:len(good)-43] + strings.Repeat("A", 43)
	unknown := issue(t, newRing(t, keyV2), c)
	for name, raw := range map[string]string{"good": good, "forged": forged, "unknown key": unknown} {
		if n := testing.AllocsPerRun(100, func() { ring.Verify(raw, opening, agreeing(c)) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
