package waitroom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// counter is a store's count of numbers, and how it was asked.
type counter struct {
	mu    sync.Mutex
	last  int64   // guarded by mu
	sizes []int64 // guarded by mu; of the leases
	fail  error   // guarded by mu
	takes time.Duration
}

func (c *counter) lease(ctx context.Context, _ string, n, known int64) (int64, error) {
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, n)
	if c.fail != nil {
		return 0, c.fail
	}
	first := max(c.last, known) + 1
	c.last = first + n - 1
	return first, nil
}

// TestABurstOfJoinsLeasesBlocks: a number each, none twice, and few trips to the count.
func TestABurstOfJoinsLeasesBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, seconds = 1000, 10
		c := &counter{takes: time.Millisecond}
		n := newNumbers(c.lease)
		var mu sync.Mutex
		var given []int64
		var joins sync.WaitGroup
		for range perSecond * seconds {
			time.Sleep(time.Second / perSecond)
			joins.Go(func() {
				number, err := n.take(t.Context(), "10001", 0, false, time.Now())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				given = append(given, number)
			})
		}
		joins.Wait()
		slices.Sort(given)
		if unique := slices.Compact(slices.Clone(given)); len(unique) != perSecond*seconds {
			t.Errorf("%d numbers for %d joins", len(unique), len(given))
		}
		t.Logf("%d joins: %d leases of %v; the last number is %d", len(given), len(c.sizes), c.sizes, c.last)
		if len(c.sizes) > 30 {
			t.Errorf("%d leases for %d joins in %d s", len(c.sizes), len(given), seconds)
		}
		if skipped := float64(c.last)/float64(len(given)) - 1; skipped > 0.2 {
			t.Errorf("%.0f %% of the numbers are nobody's", 100*skipped)
		}
	})
}

// TestBlocks: their size, their life, and what is given back.
func TestBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		n := newNumbers(c.lease)
		take := func(want int64) {
			t.Helper()
			if got, err := n.take(t.Context(), "10001", 0, false, time.Now()); err != nil || got != want {
				t.Errorf("number %d, %v, want %d", got, err, want)
			}
		}
		take(1) // the first join knows of no others
		take(2) // two in this second
		take(3)
		take(4) // a block of four: three joins before, and this
		time.Sleep(blockLife - time.Millisecond)
		take(5)
		n.giveBack("10001", 5) // whoever had a place
		take(5)
		n.giveBack("10001", 2) // of another block: who knows who has it
		take(6)
		time.Sleep(10 * time.Second)
		n.giveBack("10001", 6)
		take(8) // the 7 was leased more than a second ago; what was given back died with it
		if other, err := n.take(t.Context(), "10002", 0, false, time.Now()); err != nil || other != 9 {
			t.Errorf("another activity has a block of its own: %d, %v", other, err)
		}
		if want := []int64{1, 2, 4, 1, 1}; !slices.Equal(c.sizes, want) {
			t.Errorf("blocks of %v, want %v", c.sizes, want)
		}
		n.keep(func(id string) bool { return id == "10001" })
		if len(n.blocks) != 1 {
			t.Errorf("%d activities are remembered", len(n.blocks))
		}
	})
}

// TestStrictTakesOneNumberAJoin.
func TestStrictTakesOneNumberAJoin(t *testing.T) {
	c := &counter{}
	n := newNumbers(c.lease)
	for want := range int64(20) {
		if got, err := n.take(t.Context(), "10001", 0, true, time.Now()); err != nil || got != want+1 {
			t.Errorf("number %d, %v, want %d", got, err, want+1)
		}
	}
	if len(c.sizes) != 20 || slices.Max(c.sizes) != 1 {
		t.Errorf("leases of %v, want one number each", c.sizes)
	}
}

// TestAFailedLeaseFailsThoseWhoWait: together and once; and one who leaves takes nothing
// from the others.
func TestAFailedLeaseFailsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := fmt.Errorf("connection refused: %w", admission.ErrUnavailable)
		c := &counter{takes: 100 * time.Millisecond, fail: away}
		n := newNumbers(c.lease)
		var joins sync.WaitGroup
		burst := func(want error) {
			first, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer leave()
			joins.Go(func() { // it leases, and leaves before that has ended
				_, _ = n.take(first, "10001", 0, false, time.Now())
			})
			synctest.Wait()
			for range 100 {
				joins.Go(func() {
					if _, err := n.take(t.Context(), "10001", 0, false, time.Now()); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
			joins.Wait()
		}
		burst(admission.ErrUnavailable)
		if len(c.sizes) != 1 {
			t.Errorf("%d leases were tried, want one", len(c.sizes))
		}
		c.fail = nil
		burst(nil)
	})
}

// TestJoinsAreGivenTheirNumbers: through the room, on a store: few leases, and a policy
// pushed to strict at once.
func TestJoinsAreGivenTheirNumbers(t *testing.T) {
	b := newBed(t)
	burst := func(from, to int) {
		const workers = 10 // a pool's connections
		var joins sync.WaitGroup
		for w := range workers {
			joins.Go(func() {
				for i := from + w; i < to; i += workers {
					if _, d := b.room.Join(t.Context(), b.request(fmt.Sprint(70_000_000+i), "phone"), "", ""); d.Refused() {
						t.Errorf("join %d: %+v", i, d)
					}
				}
			})
		}
		joins.Wait()
	}
	burst(0, 500)
	leases := b.store.leases.Load()
	t.Logf("%d leases for 500 joins", leases)
	if leases > 100 {
		t.Errorf("%d leases for 500 joins", leases)
	}
	b.policy.StrictSequence = true
	burst(500, 550)
	if n := b.store.leases.Load() - leases; n != 50 {
		t.Errorf("strict: %d leases for 50 joins", n)
	}
	page, _, _, err := b.store.Members(t.Context(), b.a.ID, nil, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[int64]bool{}
	for _, p := range page {
		numbers[p.Sequence] = true
	}
	if len(page) != 550 || len(numbers) != 550 {
		t.Errorf("%d places with %d numbers, want 550", len(page), len(numbers))
	}
	b.policy.StrictSequence = false
	before := b.store.leases.Load()
	burst(0, 300) // the page is loaded again: all of them have a place
	count, err := b.store.Joined(t.Context(), b.a.ID)
	if err != nil || count.People != 550 {
		t.Errorf("%+v, %v", count, err)
	}
	t.Logf("%d leases for 300 who had a place", b.store.leases.Load()-before)
}
