package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/spelling"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"queue", "queue", 0}, {"quue", "queue", 1}, {"queuee", "queue", 1},
		{"qieue", "queue", 1}, {"qeuue", "queue", 1}, {"ab", "ba", 1}, {"abcd", "badc", 2}, {"listen.publik", "listen.public", 1},
		{"data-dir", "data.dir", 1}, {"größe", "grosse", 3},
	} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d slips, want %d", c.a, c.b, got, c.want)
		}
	}
}

// It is a measure: nothing is nearer than itself, and the way back is as long.
func TestDistanceIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abc.")), 0, 8, -1)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := spelling.Distance(a, b)
		if d != spelling.Distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("%q and %q: %d there, %d back", a, b, d, spelling.Distance(b, a))
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"queue", "orders", "stock.redis", "audit.redis", "listen.public", "roles"}
	for word, want := range map[string]string{
		"qeue": "queue", "order": "orders", "stok.redis": "stock.redis", "listen.pulbic": "listen.public", "LISTEN.public": "",
		"ab": "", "": "", "something.else": "", "queue": "", strings.Repeat("q", 200): "",
	} {
		if got := spelling.Nearest(word, slices.Values(names)); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
