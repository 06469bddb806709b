package limit_test

import (
	"testing"

	"github.com/sluice-io/sluice/app/limit"
	"pgregory.net/rapid"
)

// The promise of Metwally et al.: with m counters over N units no count is below the true
// one, none is more than N/m above it, and whoever came more than N/m times is there.
func TestTopKPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 10).Draw(t, "counters")
		top := must(limit.NewTopK[int](m))
		truth, total := map[int]int64{}, int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "units") {
			key := min(rapid.IntRange(0, 30).Draw(t, "a"), rapid.IntRange(0, 30).Draw(t, "b")) // skewed
			n := rapid.Int64Range(1, 3).Draw(t, "n")
			top.Add(key, n)
			truth[key] += n
			total += n
		}
		seen := map[int]bool{}
		for i, c := range top.Top(m) {
			seen[c.Key] = true
			if c.Count < truth[c.Key] || c.Count-c.Over > truth[c.Key] || c.Over > total/int64(m) {
				t.Fatalf("%+v, truth %d of %d", c, truth[c.Key], total)
			}
			if i > 0 && c.Count > top.Top(m)[i-1].Count {
				t.Fatal("not in order")
			}
		}
		for key, n := range truth {
			if n > total/int64(m) && !seen[key] {
				t.Fatalf("key %d came %d of %d times and is not among %d counters", key, n, total, m)
			}
		}
	})
}

func TestTopKFollowsTheRecentPast(t *testing.T) {
	top := must(limit.NewTopK[string](4))
	top.Add("yesterday", 1000)
	for range 10 {
		top.Halve()
		top.Add("now", 10)
	}
	if got := top.Top(2); len(got) != 2 || got[0].Key != "now" || got[1].Key != "yesterday" {
		t.Errorf("%+v", got)
	}
	top.Add("nothing", 0)
	top.Add("less", -5)
	if got := top.Top(99); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if got := top.Top(-1); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTopKParallel(t *testing.T) {
	top := must(limit.NewTopK[int](8))
	race(8, func(worker int) int64 {
		for i := range 2000 {
			top.Add(i%20, 1)
			if i%100 == 0 {
				top.Top(3)
				top.Halve()
			}
		}
		return 0
	})
	if n := len(top.Top(100)); n != 8 {
		t.Errorf("%d counters", n)
	}
}

func TestTopKRejects(t *testing.T) {
	for _, capacity := range []int{0, -1, 1 << 17} {
		_, err := limit.NewTopK[string](capacity)
		wantField(t, err, "capacity")
	}
}

// TestTopKHalvesItsDoubt with its counts: the true count stays within them.
func TestTopKHalvesItsDoubt(t *testing.T) {
	top := must(limit.NewTopK[string](1))
	top.Add("loud", 1000)
	top.Add("quiet", 10)
	top.Halve()
	if got := top.Top(1); len(got) != 1 || got[0] != (limit.Counted[string]{Key: "quiet", Count: 505, Over: 500}) {
		t.Errorf("%+v, want 505 of which 500 are doubtful", got)
	}
}
