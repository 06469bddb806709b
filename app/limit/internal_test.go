package limit

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// A window survives its 16 bits with less than one part in a thousand lost, downwards.
func TestCoarse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		window := max(random.Int64N(maxWindow)>>random.IntN(62), 1)
		got := fromCoarse(coarse(window))
		if got > window || float64(window-got) > float64(window)/1000 || coarse(window) == 0 {
			t.Fatalf("%d came back as %d", window, got)
		}
	}
	for _, window := range []int64{1, 2, 2047, 2048, maxWindow - 1, maxWindow} {
		if got := fromCoarse(coarse(window)); got > window || window-got > window/1000 {
			t.Errorf("%d came back as %d", window, got)
		}
	}
}

// The padding of shard follows its fields.
func TestShardFillsCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(shard{}); size != 128 {
		t.Errorf("shard is %d bytes, want 128", size)
	}
}
