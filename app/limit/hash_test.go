package limit_test

import (
	"strconv"
	"testing"

	"github.com/sluice-io/sluice/app/limit"
)

func TestHasher(t *testing.T) {
	h := limit.NewHasher()
	if h.Join("a", "bc") == h.Join("ab", "c") || h.Join("a", "b") == h.Join("b", "a") {
		t.Error("parts run together")
	}
	if h.Extend(h.Join("a", "b"), "c") != h.Join("a", "b", "c") || h.Extend(0, "c") != 0 || h.Extend(h.Join("a"), "") != 0 {
		t.Error("Extend is not Join")
	}
	if h.String("u1") == h.String("u2") || h.String("u1") != h.Bytes([]byte("u1")) {
		t.Error("String and Bytes should agree, and tell names apart")
	}
	if h.String("u1") == limit.NewHasher().String("u1") {
		t.Error("two processes would share a seed")
	}
	for _, none := range []uint64{h.String(""), h.Bytes(nil), h.Join(), h.Join("a", "", "u")} {
		if none != 0 {
			t.Errorf("an empty name has a key: %d", none)
		}
	}
	activity, sku, user := "a1", "s1", "u1"
	if n := testing.AllocsPerRun(100, func() { h.Join(activity, sku, user) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestJoinSpreads: the low bits choose a shard and the high bits a place in it; similar
// names must fill both evenly.
func TestJoinSpreads(t *testing.T) {
	h := limit.NewHasher()
	const names, cells = 1 << 16, 256
	var low, high [cells]int
	seen := make(map[uint64]bool, names)
	for i := range names {
		key := h.Join("10001", "90001", strconv.Itoa(7_000_000+i))
		low[key%cells]++
		high[key>>56]++
		seen[key] = true
	}
	if len(seen) != names {
		t.Errorf("%d of %d keys are distinct", len(seen), names)
	}
	for i := range cells { // mean 256, standard deviation 16
		if low[i] < 160 || low[i] > 352 || high[i] < 160 || high[i] > 352 {
			t.Errorf("cell %d has %d by its low bits and %d by its high ones, want about %d", i, low[i], high[i], names/cells)
		}
	}
}

// TestNest is apart by order and by number, and nobody within anybody is nobody.
func TestNest(t *testing.T) {
	h := limit.NewHasher()
	a, b := h.String("a"), h.String("b")
	seen := map[uint64]bool{a: true, b: true}
	for _, k := range []uint64{limit.Nest(a, b), limit.Nest(b, a), limit.Nest(1, a), limit.Nest(2, a), limit.Nest(1, b), limit.Nest(a, a)} {
		if k == 0 || seen[k] {
			t.Errorf("%x is zero or another's", k)
		}
		seen[k] = true
	}
	if limit.Nest(0, a)+limit.Nest(a, 0) != 0 {
		t.Error("nobody has a key")
	}
}
