package limit_test

import (
	"testing"

	"github.com/sluice-io/sluice/app/limit"
)

func TestHasher(t *testing.T) {
	h := limit.NewHasher()
	if h.Join("a", "bc") == h.Join("ab", "c") || h.Join("a", "b") == h.Join("b", "a") {
		t.Error("parts run together")
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
