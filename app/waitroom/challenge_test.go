package waitroom

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// work finds the first counter from from on that shows exactly or at least so many zero
// bits, as the page does.
func work(seed, user string, from uint64, fits func(zeros int) bool) string {
	return spelledWork(seed, user, "", from, fits)
}

// spelledWork is work for counters that are written with something in front.
func spelledWork(seed, user, front string, from uint64, fits func(zeros int) bool) string {
	for n := from; ; n++ {
		sum := sha256.Sum256([]byte(seed + "|" + user + "|" + front + strconv.FormatUint(n, 10)))
		zeros := 0
		for _, b := range sum {
			zeros += bits.LeadingZeros8(b)
			if b != 0 {
				break
			}
		}
		if fits(zeros) {
			return seed + ":" + front + strconv.FormatUint(n, 10)
		}
	}
}

func atLeast(difficulty int) func(int) bool {
	return func(zeros int) bool { return zeros >= difficulty }
}

// challengedBed is a room that demands 8 bits.
func challengedBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.policy.ChallengeBits = 8
	b.now = time.Date(2026, 11, 11, 0, 0, 30, 0, time.UTC) // in the middle of a window
	b.a.OpensAt, b.a.ClosesAt = b.now.Add(time.Hour), b.now.Add(2*time.Hour)
	return b
}

// try joins with a solution and says whether there is a place.
func (b *bed) try(user, solution string) (admission.Joined, bool) {
	b.t.Helper()
	j, d := b.room.Join(b.t.Context(), b.request(user, "phone"), solution, "")
	switch {
	case !d.Refused() && j.Pass != "" && j.Need == nil:
		return j, true
	case d.Outcome == admission.ChallengeRequired && d.Stage == admission.StageRoom && d.Reason == admission.ReasonChallenge && j.Pass == "" && j.Need != nil:
		return j, false
	}
	b.t.Fatalf("join with %q: %+v, %+v", solution, j, d)
	return j, false
}

func TestAJoinIsChallenged(t *testing.T) {
	b := challengedBed(t)
	j, ok := b.try("70000001", "")
	if ok {
		t.Fatal("a join without work has a place")
	}
	if n := j.Need; n.Kind != "pow" || n.Difficulty != 8 || len(n.Seed) != 22 || strings.Contains(n.Seed, ":") || !n.ExpiresAt.Equal(time.Date(2026, 11, 11, 0, 2, 0, 0, time.UTC)) {
		t.Fatalf("%+v", n)
	}
	if n, err := b.store.Joined(t.Context(), b.a.ID); err != nil || n != (admission.RoomCount{}) {
		t.Errorf("%+v have a place, %v", n, err)
	}
	again, _ := b.try("70000001", "")
	if *again.Need != *j.Need {
		t.Error("asking again changes the challenge: work under way is lost")
	}
	solution := work(j.Need.Seed, "70000001", 0, atLeast(8))
	first, ok := b.try("70000001", solution)
	if !ok {
		t.Fatal("a solution is refused")
	}
	replayed, ok := b.try("70000001", solution)
	if !ok || !replayed.JoinedAt.Equal(first.JoinedAt) {
		t.Error("a solution shown twice: want the same place")
	}
	if n, _ := b.store.Joined(t.Context(), b.a.ID); n.People != 1 {
		t.Errorf("%+v places", n)
	}
	if a, s, r := testutil.ToFloat64(b.metrics.Challenged), testutil.ToFloat64(b.metrics.Solved), testutil.ToFloat64(b.metrics.Unsolved); a != 2 || s != 2 || r != 0 {
		t.Errorf("counted %v asked, %v solved, %v refused", a, s, r)
	}
}

func TestWhatIsNoSolution(t *testing.T) {
	b := challengedBed(t)
	j, _ := b.try("70000001", "")
	seed := j.Need.Seed
	good := work(seed, "70000001", 0, atLeast(8))
	counter := strings.TrimPrefix(good, seed+":")
	other, _ := b.try("70000002", "")
	for name, s := range map[string]string{
		"one bit too few":        work(seed, "70000001", 0, func(zeros int) bool { return zeros == 7 }),
		"no work":                work(seed, "70000001", 0, func(zeros int) bool { return zeros == 0 }),
		"another user's":         work(other.Need.Seed, "70000002", 0, atLeast(8)),
		"another user's seed":    work(other.Need.Seed, "70000001", 0, atLeast(8)),
		"an invented seed":       work(strings.Repeat("A", 22), "70000001", 0, atLeast(8)),
		"an empty seed":          work("", "70000001", 0, atLeast(8)),
		"seed alone":             seed,
		"no counter":             seed + ":",
		"counter alone":          counter,
		"two colons":             good + ":1",
		"a zero in front":        spelledWork(seed, "70000001", "0", 0, atLeast(8)),
		"a sign":                 spelledWork(seed, "70000001", "+", 0, atLeast(8)),
		"words":                  spelledWork(seed, "70000001", "x|", 0, atLeast(8)),
		"above 2^64":             spelledWork(seed, "70000001", "9", 1<<63, atLeast(8)),
		"negative":               seed + ":-" + counter,
		"a space":                seed + ": " + counter,
		"hex":                    seed + ":0x" + counter,
		"a fraction":             good + ".0",
		"an exponent":            good + "e0",
		"2^64":                   seed + ":18446744073709551616",
		"a counter without end":  seed + ":" + strings.Repeat("9", 200),
		"another spelling":       strings.ToUpper(seed) + ":" + counter,
		"seed with its padding":  seed + "==:" + counter,
		"other digits":           seed + ":١٢",
		"a separator in between": seed + "|" + counter,
	} {
		if _, ok := b.try("70000001", s); ok {
			t.Errorf("%s: %q has a place", name, s)
		}
	}
	if _, ok := b.try("70000002", good); ok {
		t.Error("a solution serves somebody else")
	}
	if _, ok := b.try("70000001", good); !ok {
		t.Error("the true one is refused")
	}
	huge := work(seed, "70000001", 1<<64-100_000, atLeast(8))
	if _, ok := b.try("70000001", huge); !ok {
		t.Errorf("a great counter is a counter: %s", huge)
	}
	elsewhere := *b.a
	elsewhere.ID = "10002"
	b.a = &elsewhere
	if _, ok := b.try("70000001", good); ok {
		t.Error("a solution serves another activity")
	}
}

// TestAChallengeExpires: when it was said to, and not before, on an instance whose clock
// is behind too.
func TestAChallengeExpires(t *testing.T) {
	b := challengedBed(t)
	j, _ := b.try("70000001", "")
	solution := work(j.Need.Seed, "70000001", 0, atLeast(8))
	given := b.now
	for _, c := range []struct {
		at time.Time
		ok bool
	}{
		{given.Add(-31 * time.Second), true}, // another instance's clock
		{given.Add(-91 * time.Second), false},
		{given.Add(29 * time.Second), true},
		{given.Add(31 * time.Second), true},
		{j.Need.ExpiresAt.Add(-time.Millisecond), true},
		{j.Need.ExpiresAt, false},
		{given.Add(time.Hour - time.Second), false},
	} {
		b.now = c.at
		got, ok := b.try("70000001", solution)
		if ok != c.ok {
			t.Errorf("%v later: accepted %v", c.at.Sub(given), ok)
		}
		if !ok && !got.Need.ExpiresAt.After(b.now.Add(challengeWindow)) {
			t.Errorf("%v later: the next one expires within %v", c.at.Sub(given), got.Need.ExpiresAt.Sub(b.now))
		}
	}
}

// TestTheStrictestPolicyOfAnActivityCounts, and a harder policy asks anew.
func TestTheStrictestPolicyOfAnActivityCounts(t *testing.T) {
	b := challengedBed(t)
	b.a.SKUs = append(b.a.SKUs, admission.SKU{ID: "90002"}, admission.SKU{ID: "90003"})
	hard := 9
	b.room.config.Policy = func(ref admission.SKURef) Policy {
		p := b.policy
		if ref.SKUID == "90002" {
			p.ChallengeBits = hard
		}
		return p
	}
	j, _ := b.try("70000001", "")
	if j.Need.Difficulty != 9 {
		t.Fatalf("%d bits are asked, want those of the stricter SKU", j.Need.Difficulty)
	}
	solution := work(j.Need.Seed, "70000001", 0, func(zeros int) bool { return zeros == 9 })
	hard = 10
	if again, ok := b.try("70000001", solution); ok || again.Need.Difficulty != 10 {
		t.Errorf("accepted %v, then asks %+v", ok, again.Need)
	}
	hard = 9
	if _, ok := b.try("70000001", solution); !ok {
		t.Error("refused")
	}
}

// TestOnlyAJoinBeforeTheOpening is challenged.
func TestOnlyAJoinBeforeTheOpening(t *testing.T) {
	b := challengedBed(t)
	b.now = b.a.OpensAt.Add(-time.Millisecond)
	if _, ok := b.try("70000001", ""); ok {
		t.Error("before the opening: not asked")
	}
	b.now = b.a.OpensAt
	if _, ok := b.try("70000001", ""); !ok {
		t.Error("after the opening: asked")
	}
	b.now = b.a.OpensAt.Add(-time.Minute)
	b.policy.ChallengeBits = 0
	if _, ok := b.try("70000002", "nonsense"); !ok {
		t.Error("off: asked")
	}
	b.policy.ChallengeBits = 24
	b.exchange(admission.TokenInvalid, "70000001", "phone", "x") // a ticket call never is
	b.now = b.a.ClosesAt
	if j, d := b.room.Join(t.Context(), b.request("70000003", "phone"), "", ""); d.Outcome != admission.ActivityEnded || j.Need != nil {
		t.Errorf("after the end: %+v", d)
	}
}

func TestZeroBits(t *testing.T) {
	for _, c := range []struct {
		sum  string
		want int
	}{{"\x80", 0}, {"\x01", 7}, {"\x00\xff", 8}, {"\x00\x10", 11}, {"\x00\x00\x00\x01", 31}} {
		var sum [sha256.Size]byte
		copy(sum[:], c.sum)
		if got := zeroBits(sum); got != c.want {
			t.Errorf("%x: %d zero bits, want %d", c.sum, got, c.want)
		}
	}
	if got := zeroBits([sha256.Size]byte{}); got != 256 {
		t.Errorf("all zero: %d", got)
	}
}

// FuzzSolution: nothing that is sent breaks the check, and only true work passes.
func FuzzSolution(f *testing.F) {
	c := challenges{[]byte("0123456789abcdef0123456789abcdef")}
	now := time.Unix(1_800_000_000, 0)
	seed := c.challenge("10001", "70000001", 8, now).Seed
	for _, s := range []string{"", ":", seed, seed + ":0", seed + ":18446744073709551615", work(seed, "70000001", 0, atLeast(8)), "\xff:\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !c.solved("10001", "70000001", 8, now, s) {
			return
		}
		got, counter, _ := strings.Cut(s, ":")
		n, err := strconv.ParseUint(counter, 10, 64)
		if err != nil || got == "" || fmt.Sprint(n) != counter || work(got, "70000001", n, atLeast(8)) != s {
			t.Errorf("%q passes", s)
		}
	})
}
