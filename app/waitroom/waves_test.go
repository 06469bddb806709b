package waitroom

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
)

var policy = WavePolicy{ShowUpPrior: 1, ReservePrior: 1, PriorWeight: 20, Claim: 9 * time.Second, Use: 4 * time.Second, WaveSize: 2000, Rate: 40_000, ModeFactor: 1}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	cases := []struct {
		name string
		in   Situation
		want int64
	}{
		// target = 1000 - sqrt(1000) + 2 % = 988.4
		{"first wave", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: policy}, 988},
		{"nothing left", Situation{Now: now, Remaining: 0, Stock: 1000, Policy: policy}, 0},
		{"below nothing", Situation{Now: now, Remaining: -3, Stock: 1000, Policy: policy}, 0},
		{"after a sold-out the overshoot is over", Situation{Now: now, Remaining: 100, Stock: 1000, Policy: policy, Records: Records{SoldOutOnce: true}}, 90},
		{"the last unit is offered", Situation{Now: now, Remaining: 1, Stock: 1000, Policy: policy, Records: Records{SoldOutOnce: true}}, 1},
		{"wave size caps", Situation{Now: now, Remaining: 100_000, Stock: 100_000, Policy: policy}, 2000},
		{"rate caps", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: with(func(p *WavePolicy) { p.Rate = 7 })}, 7},
		{"degraded halves the cap", Situation{Now: now, Remaining: 100_000, Stock: 100_000, Policy: with(func(p *WavePolicy) { p.ModeFactor = 0.5 })}, 1000},
		{"closed releases nobody", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: with(func(p *WavePolicy) { p.ModeFactor = 0 })}, 0},
		{"released people are waited for", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: policy,
			Records: Records{Young: []Wave{{ID: 1, AtMS: now.Add(-time.Second).UnixMilli(), Ranks: 988}}, Released: 988, LastID: 1}}, 0},
		{"those with a ticket are waited for", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: policy,
			Records: Records{Young: []Wave{{ID: 1, AtMS: now.Add(-time.Second).UnixMilli(), Ranks: 988}}, Released: 988, LastID: 1},
			Counts:  Counts{ByWave: map[int64]int64{1: 988}, Issued: map[int64]int64{now.Unix(): 988}, IssuedAll: 988}}, 0},
		{"those who were shed come again", Situation{Now: now, Remaining: 1000, Stock: 1000, Policy: policy,
			Records: Records{Released: 988, LastID: 1},
			Counts:  Counts{ByWave: map[int64]int64{1: 988}, Issued: map[int64]int64{now.Unix() - 10: 988}, IssuedAll: 988, Waiting: 988}}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.in); got.People != c.want {
				t.Errorf("released %d, want %d (%+v)", got.People, c.want, got)
			}
		})
	}
}

func with(change func(*WavePolicy)) WavePolicy {
	p := policy
	change(&p)
	return p
}

// TestSlowRateCarriesOver: a rate below one person an interval releases people all the same.
func TestSlowRateCarriesOver(t *testing.T) {
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	p := with(func(p *WavePolicy) { p.Rate = 2 })
	records, released := Records{}, int64(0)
	for range 100 { // 30 s
		d := Decide(Situation{Now: now, Remaining: 1000, Stock: 1000, Records: records, Policy: p})
		records.Carry = d.Carry
		released += d.People
		records.Add(now, d.People, uint64(released))
		now = now.Add(300 * time.Millisecond)
	}
	if released < 55 || released > 65 {
		t.Errorf("released %d in 30 s at 2/s", released)
	}
}

// run is one sale in virtual time: people come to their turn after a delay or never, use
// their ticket or not. It returns how long it took to sell out and the vain turns.
func run(seed uint64, stock, joined int64, show, use float64, p WavePolicy, pause func(now time.Duration) bool) (took time.Duration, vain float64, oversold bool) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	type arrival struct {
		at     time.Duration
		wave   int64
		ticket bool
		issued int64
	}
	start := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	counts := Counts{ByWave: map[int64]int64{}, Issued: map[int64]int64{}, Reserved: map[int64]int64{}}
	var records Records
	var coming []arrival
	remaining, released, turned := stock, int64(0), int64(0)
	const step = 300 * time.Millisecond
	for now := time.Duration(0); now < 30*time.Minute; now += step {
		wall := start.Add(now)
		rest := coming[:0]
		for _, a := range coming {
			if a.at > now {
				rest = append(rest, a)
				continue
			}
			at := start.Add(a.at).Unix()
			switch {
			case !a.ticket && remaining <= 0:
				turned++ // came to their turn and found nothing
			case !a.ticket:
				counts.ByWave[a.wave]++
				counts.Issued[at]++
				counts.IssuedAll++
				if rnd.Float64() < use {
					rest = append(rest, arrival{at: a.at + time.Duration(rnd.Float64()*2*float64(time.Second)), wave: a.wave, ticket: true, issued: at})
				}
			case remaining > 0:
				remaining--
				counts.Reserved[a.issued]++
				counts.ReservedAll++
			default:
				turned++
			}
		}
		coming = rest
		if remaining <= 0 && len(coming) == 0 || remaining <= 0 && took == 0 {
			if took == 0 {
				took = now
			}
			if len(coming) == 0 {
				break
			}
		}
		if pause != nil && pause(now) {
			continue
		}
		d := Decide(Situation{Now: wall, Remaining: remaining, Stock: stock, Records: records, Counts: counts, Policy: p})
		people := min(d.People, joined-released)
		records.Carry = d.Carry
		records.Add(wall, people, uint64(released+people))
		for range people {
			if rnd.Float64() < show {
				coming = append(coming, arrival{at: now + time.Duration(rnd.Float64()*float64(p.Claim-time.Second)), wave: records.LastID})
			}
		}
		released += people
		if released == joined && len(coming) == 0 {
			break
		}
	}
	return took, float64(turned) / float64(max(1, counts.IssuedAll)), remaining < 0
}

// TestSaleInVirtualTime: sold out within the bound that the specification gives with
// priors of 1, few vain turns, with abandonment and with a leader that pauses.
func TestSaleInVirtualTime(t *testing.T) {
	const stock, joined = 10_000, 200_000
	cases := []struct {
		name      string
		show, use float64
		pause     func(time.Duration) bool
	}{
		{"everybody comes", 1, 1, nil},
		{"30 % abandon", 0.7, 0.95, nil},
		{"the leader dies for 3 s", 0.9, 0.95, func(now time.Duration) bool { return now > 2*time.Second && now < 5*time.Second }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			vain := 0.0
			for seed := range uint64(20) {
				took, v, oversold := run(seed, stock, joined, c.show, c.use, policy, c.pause)
				if oversold || took == 0 {
					t.Fatalf("seed %d: oversold %v, sold out after %v", seed, oversold, took)
				}
				vain += v
				// Ideal: the waves' cap, then one claim and one use.
				ideal := time.Duration(float64(stock)/(c.show*c.use)/float64(policy.WaveSize)*0.3*float64(time.Second)) + policy.Claim + policy.Use
				if bound := ideal*13/10 + policy.Claim + policy.Use + 3*time.Second; took > bound {
					t.Errorf("seed %d: sold out after %v, bound %v", seed, took, bound)
				}
			}
			if mean := vain / 20; mean > 0.02 {
				t.Errorf("%.1f %% vain turns in the mean of 20 draws, want below 2 %%", 100*mean)
			}
		})
	}
}

// TestW01AbandonedWaiters: ten are released and finish, ten have left, the last ten are
// released within the claim time and one interval.
func TestW01AbandonedWaiters(t *testing.T) {
	p := with(func(p *WavePolicy) { p.WaveSize = 10; p.PriorWeight = 1 })
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	records := Records{SoldOutOnce: true}
	counts := Counts{ByWave: map[int64]int64{}, Issued: map[int64]int64{}, Reserved: map[int64]int64{}}
	released := int64(0)
	remaining := int64(20)
	var at [3]time.Duration
	for elapsed := time.Duration(0); elapsed < time.Minute && released < 30; elapsed += 300 * time.Millisecond {
		wall := now.Add(elapsed)
		d := Decide(Situation{Now: wall, Remaining: remaining, Stock: 20, Records: records, Counts: counts, Policy: p})
		people := min(d.People, 30-released)
		records.Add(wall, people, uint64(released+people))
		records.Carry = d.Carry
		for i := released; i < released+people; i++ {
			if i < 10 { // the first ten come and buy at once; the next ten never come
				counts.ByWave[records.LastID]++
				counts.Issued[wall.Unix()]++
				counts.IssuedAll++
				counts.Reserved[wall.Unix()]++
				counts.ReservedAll++
				remaining--
			}
		}
		released += people
		for i, n := range []int64{10, 20, 30} {
			if at[i] == 0 && released >= n {
				at[i] = elapsed
			}
		}
	}
	if released < 30 {
		t.Fatalf("%d released in a minute, want all 30", released)
	}
	if wait := at[2] - at[1]; wait > p.Claim+600*time.Millisecond {
		t.Errorf("the last ten waited %v after those who left, want at most the claim time and one interval", wait)
	}
}

func TestLineOrdersAndAdvances(t *testing.T) {
	a := admission.Activity{ID: "10001", OpensAt: time.Unix(1000, 0), Fairness: admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second}}
	place := func(n int64, at time.Time) admission.Place {
		return admission.Place{UserID: fmt.Sprint(n), Lane: DefaultLane, JoinedAt: at, Sequence: n}
	}
	line := NewLine(a, admission.RoomState{})
	var drawn []admission.Place
	for n := int64(1); n <= 1000; n++ {
		drawn = append(drawn, place(n, time.Unix(900, 0)))
	}
	line.Append(drawn)
	line.Append([]admission.Place{place(1001, time.Unix(996, 0)), place(1002, time.Unix(997, 0))})
	root, covers := line.Root()
	if covers != 1000 || line.Len() != 1002 {
		t.Fatalf("root covers %d of %d, want 1000 of 1002", covers, line.Len())
	}
	again := NewLine(a, admission.RoomState{})
	for _, i := range rand.Perm(len(drawn)) { // page by page or at once, in any order: one root
		again.Append(drawn[i : i+1])
	}
	if r, _ := again.Root(); r != root {
		t.Error("another leader reads another root from the same log")
	}
	seal := admission.RoomSeal{Root: root, Drawn: covers, BeforeMS: a.DrawClosesAt().UnixMilli(), Last: 1000}
	seed := Secret{1}.Seed(root, "")
	line.Draw(seal, seed)
	watermark, total := uint64(0), int64(0)
	for range 101 {
		next, released := line.Advance(watermark, 10)
		if next < watermark {
			t.Fatal("a watermark went back")
		}
		watermark, total = next, total+released
	}
	if total != 1002 || line.Released(watermark) != 1002 {
		t.Errorf("%d released, want all 1002", total)
	}
	if next, released := line.Advance(watermark, 10); released != 0 || next != watermark {
		t.Error("an exhausted line released somebody")
	}
	below := 0
	half, _ := line.Advance(0, 500)
	for _, p := range drawn {
		rank, ok := RankOf(&a, p, seal, seed)
		if !ok || rank >= Drawn {
			t.Fatalf("rank %d of a drawn person", rank)
		}
		if rank < half {
			below++
		}
	}
	if below != 500 {
		t.Errorf("%d people are below the watermark of 500", below)
	}
	if late, _ := RankOf(&a, place(1001, time.Unix(996, 0)), seal, seed); late <= Drawn || late >= watermark {
		t.Errorf("rank %d of a late joiner, want behind the drawn and released", late)
	}
	if _, ok := RankOf(&a, drawn[0], admission.RoomSeal{}, seed); ok {
		t.Error("a rank before the draw")
	}
}

// TestAPublishedLineGoesByTheSeal: who joined before the moment that was published is in
// the draw, whatever the activity's times say now, and nobody else.
func TestAPublishedLineGoesByTheSeal(t *testing.T) {
	a := admission.Activity{ID: "10001", OpensAt: time.Unix(5000, 0), Fairness: admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second}}
	var page []admission.Place
	for n := range int64(10) { // by the opening of now all of them joined in time
		page = append(page, admission.Place{UserID: fmt.Sprint(n + 1), Lane: DefaultLane, JoinedAt: time.Unix(900+n, 0), Sequence: n + 1})
	}
	seal := admission.RoomSeal{Root: "aa", Drawn: 5, BeforeMS: 905_000, Last: 6}
	line := NewLine(a, admission.RoomState{Seal: seal})
	line.Append(page)
	if root, drawn := line.Root(); drawn != 5 || line.Seal() != seal || root == "" {
		t.Fatalf("%d in the draw", drawn)
	}
	if next, released := line.Advance(0, 3); next != 0 || released != 0 || line.Exact(0) {
		t.Errorf("%d released before the draw: those behind it would come first", released)
	}
	line.Draw(seal, RankSeed{1})
	if next, released := line.Advance(0, 5); released != 5 || next > Drawn {
		t.Errorf("watermark %d releases %d, want the five of the draw", next, released)
	}
	if next, released := line.Advance(Drawn, 100); released != 5 || next != LateRank(10)+1 {
		t.Errorf("watermark %d releases %d behind the draw", next, released)
	}
}

// TestALineOfBlocks: numbers have gaps, and come in an order that is right to a second
// only. A step of N people ends at the N-th next place that was given, whatever lies
// between, and never past the last.
func TestALineOfBlocks(t *testing.T) {
	for _, mode := range []admission.FairnessMode{admission.FairnessFIFO, admission.FairnessRandom} {
		rapid.Check(t, func(t *rapid.T) {
			a := admission.Activity{ID: "10001", OpensAt: time.Unix(1000, 0), Fairness: admission.Fairness{Mode: mode, DrawClosesBefore: 5 * time.Second}}
			numbers := rapid.SliceOfNDistinct(rapid.Int64Range(1, 2000), 1, 300, rapid.ID[int64]).Draw(t, "numbers")
			late := a.DrawClosesAt()
			seal := admission.RoomSeal{Root: "aa", BeforeMS: late.UnixMilli(), Last: rapid.Int64Range(0, 2000).Draw(t, "sealed at")}
			line, rank := NewLine(a, admission.RoomState{}), LateRank
			if mode == admission.FairnessFIFO {
				rank = func(n int64) uint64 { return uint64(n) }
			}
			for len(numbers) > 0 { // pages of any size
				size := rapid.IntRange(1, len(numbers)).Draw(t, "page")
				var page []admission.Place
				for _, n := range numbers[:size] {
					page = append(page, admission.Place{UserID: fmt.Sprint(n), Lane: DefaultLane, JoinedAt: late, Sequence: n})
				}
				line.Append(page)
				numbers = numbers[size:]
			}
			line.Draw(seal, RankSeed{})
			all := slices.Clone(line.late)
			if !slices.IsSorted(all) {
				t.Fatal("ranks are out of order")
			}
			watermark, out := uint64(0), 0
			for out < len(all) {
				n := rapid.IntRange(1, 50).Draw(t, "people")
				next, released := line.Advance(watermark, int64(n))
				n = min(n, len(all)-out)
				if out += n; released != int64(n) || next != all[out-1]+1 {
					t.Fatalf("watermark %d releases %d of %d, want it after rank %d", next, released, n, all[out-1])
				}
				watermark = next
			}
			if next, released := line.Advance(watermark, 1); released != 0 || next != watermark || watermark > rank(2000)+1 {
				t.Fatalf("past the last rank: %d", next)
			}
		})
	}
}

// TestALineThatLostPlaces: what was given before is released by number, and the log is
// exact again behind it.
func TestALineThatLostPlaces(t *testing.T) {
	lost := &admission.RoomLoss{Joined: 100, Last: 110, Through: 3500}
	place := func(n int64, at time.Time) admission.Place {
		return admission.Place{UserID: fmt.Sprint(n), Lane: DefaultLane, JoinedAt: at, Sequence: n}
	}
	for _, mode := range []admission.FairnessMode{admission.FairnessFIFO, admission.FairnessRandom} {
		a := admission.Activity{ID: "10001", OpensAt: time.Unix(1000, 0), Fairness: admission.Fairness{Mode: mode, DrawClosesBefore: 5 * time.Second}}
		seal, last := admission.RoomSeal{Root: "aa", Drawn: 60, BeforeMS: 995_000, Last: 66}, LateRank(lost.Through)
		line := NewLine(a, admission.RoomState{Seal: seal, Lost: lost})
		if mode == admission.FairnessFIFO {
			seal, last = admission.RoomSeal{}, uint64(lost.Through)
			line = NewLine(a, admission.RoomState{Lost: lost})
		}
		line.Append([]admission.Place{place(3, time.Unix(900, 0)), place(99, time.Unix(999, 0)), place(lost.Through+1, time.Unix(1100, 0)), place(lost.Through+5, time.Unix(1100, 0))})
		line.Draw(seal, RankSeed{1})
		if line.Restored() != 2 {
			t.Errorf("%s: %d restored, want 2", mode, line.Restored())
		}
		if line.Exact(0) || line.Exact(last) || !line.Exact(last+1) {
			t.Errorf("%s: exact at 0 %v, at the last of before %v, behind it %v", mode, line.Exact(0), line.Exact(last), line.Exact(last+1))
		}
		if next, released := line.Advance(last+1, 1); released != 1 || next != last+2 {
			t.Errorf("%s: the first of those who joined since: watermark %d releases %d", mode, next, released)
		}
		if next, released := line.Advance(last+2, 10); released != 1 || next != last+6 {
			t.Errorf("%s: the last of them: watermark %d releases %d", mode, next, released)
		}
	}
	// Lost before the draw closed: behind the draw everybody is in the log.
	a := admission.Activity{ID: "10001", OpensAt: time.Unix(1000, 0), Fairness: admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second}}
	line := NewLine(a, admission.RoomState{Lost: lost})
	line.Append([]admission.Place{place(3, time.Unix(900, 0)), place(lost.Through+9, time.Unix(999, 0))})
	line.Draw(admission.RoomSeal{Root: "aa", Drawn: 1, BeforeMS: 995_000, Last: lost.Through + 5}, RankSeed{1})
	if line.Exact(Drawn-1) || !line.Exact(Drawn) {
		t.Error("lost before the draw closed: only the draw itself is not exact")
	}
}

// TestProportional: by proportion within the draw and by number behind it, never over the
// border in one step and never past the last number given.
func TestProportional(t *testing.T) {
	for _, c := range []struct {
		name      string
		watermark uint64
		people    int64
		crowd     Crowd
		next      uint64
		released  int64
	}{
		{"a quarter", 0, 250, Crowd{Drawn: 1000, From: 1000, Last: 2000}, Drawn / 1000 * 250, 250},
		{"nobody", 5, 0, Crowd{Drawn: 1000, From: 1000, Last: 2000}, 5, 0},
		{"the rest of the draw", Drawn - 1, 250, Crowd{Drawn: 1000, From: 1000, Last: 2000}, Drawn, 250},
		{"more than there are", 0, 1 << 60, Crowd{Drawn: 1000, From: 1000, Last: 2000}, Drawn / 1000 * 1000, 1000},
		{"one", 0, 5, Crowd{Drawn: 1, From: 1, Last: 1}, Drawn, 1},
		{"the first behind the draw", Drawn, 1, Crowd{Drawn: 1000, From: 1200, Last: 2000}, LateRank(1201) + 1, 1},
		{"some behind the draw", LateRank(1101), 10, Crowd{Drawn: 1000, From: 1000, Last: 2000}, LateRank(1111), 10},
		{"the last", LateRank(1996), 10, Crowd{Drawn: 1000, From: 1000, Last: 2000}, LateRank(2000) + 1, 5},
		{"past the last", LateRank(2000) + 1, 10, Crowd{Drawn: 1000, From: 1000, Last: 2000}, LateRank(2000) + 1, 0},
		{"nobody behind", Drawn, 10, Crowd{Drawn: 1000, From: 1000, Last: 1000}, Drawn, 0},
		{"numbers end before the draw's", Drawn, 10, Crowd{Drawn: 1000, From: 1000, Last: 900}, Drawn, 0},
		{"nobody at all", 0, 10, Crowd{}, 0, 0},
		{"nobody drawn", 0, 10, Crowd{Last: 3}, LateRank(3) + 1, 3},
		{"the last before a loss", LateRank(1996), 10, Crowd{Drawn: 1000, From: 1000, Last: 2000, Gaps: []admission.RoomGap{{Last: 2000, Through: 3500}}}, LateRank(3500) + 1, 5},
		{"just before a loss", LateRank(2000) + 1, 10, Crowd{Drawn: 1000, From: 1000, Last: 2000, Gaps: []admission.RoomGap{{Last: 2000, Through: 3500}}}, LateRank(3500) + 1, 0},
		{"behind a loss", LateRank(3500) + 1, 10, Crowd{Drawn: 1000, From: 1000, Last: 2000, Gaps: []admission.RoomGap{{Last: 2000, Through: 3500}}}, LateRank(3500) + 1, 0},
		{"before two losses", 30, 10, Crowd{FIFO: true, Last: 5020, Gaps: []admission.RoomGap{{Last: 30, Through: 5000}, {Last: 5020, Through: 9000}}}, 5001, 1},
		{"between them", 5001, 10, Crowd{FIFO: true, Last: 5020, Gaps: []admission.RoomGap{{Last: 30, Through: 5000}, {Last: 5020, Through: 9000}}}, 5011, 10},
		{"the last of the second", 5011, 10, Crowd{FIFO: true, Last: 5020, Gaps: []admission.RoomGap{{Last: 30, Through: 5000}, {Last: 5020, Through: 9000}}}, 9001, 10},
		{"in order of joining", 0, 10, Crowd{FIFO: true, Last: 30}, 11, 10},
		{"on", 11, 10, Crowd{FIFO: true, Last: 30}, 21, 10},
		{"to the end", 21, 100, Crowd{FIFO: true, Last: 30}, 31, 10},
		{"and not over it", 31, 100, Crowd{FIFO: true, Last: 30}, 31, 0},
	} {
		if next, released := Proportional(c.watermark, c.people, c.crowd); next != c.next || released != c.released {
			t.Errorf("%s: watermark %d, %d released, want %d and %d", c.name, next, released, c.next, c.released)
		}
	}
}

// TestDrawIsUniform: by chi-square over 64 cells, ranks of ordinary user ids are uniform.
func TestDrawIsUniform(t *testing.T) {
	const people, cells = 64_000, 64
	seed := Secret{7}.Seed("00", "")
	var count [cells]float64
	for n := range people {
		count[seed.Rank("10001", fmt.Sprint(70_000_000+n))>>(52-6)]++
	}
	chi := 0.0
	for _, c := range count {
		chi += (c - people/cells) * (c - people/cells) / (people / cells)
	}
	if chi > 113 { // 63 degrees of freedom, p = 0.0001
		t.Errorf("chi-square %.1f over %d cells", chi, cells)
	}
}

func TestRecordsFindTheWaveOfARank(t *testing.T) {
	var r Records
	now := time.Unix(1000, 0)
	for i := range 200 {
		r.Add(now, 10, uint64((i+1)*10))
	}
	if len(r.Young) != maxYoung || r.Released != 2000 {
		t.Fatalf("%d young waves of %d released", len(r.Young), r.Released)
	}
	for rank, want := range map[uint64]int64{0: 0, 719: 0, 729: 0, 735: 74, 1999: 200, 2000: 0} {
		if got := r.Of(rank); got != want {
			t.Errorf("rank %d is of wave %d, want %d", rank, got, want)
		}
	}
}

// TestShedHoldersWait: a shed submit is remembered until its ticket ends or its
// reservation is made.
func TestShedHoldersWait(t *testing.T) {
	c := newCounts()
	now := time.Unix(1000, 0)
	c.shed("10001", "n_one", now.Add(30*time.Second))
	c.shed("10001", "n_one", now.Add(30*time.Second))
	c.shed("10001", "n_two", now.Add(30*time.Second))
	if got := c.snapshot(now)["10001"].Waiting; got != 2 {
		t.Errorf("%d wait, want 2", got)
	}
	c.reserved("10001", "n_one", now)
	if got := c.snapshot(now)["10001"].Waiting; got != 1 {
		t.Errorf("%d wait after a reservation, want 1", got)
	}
	if got := c.snapshot(now.Add(31 * time.Second))["10001"].Waiting; got != 0 {
		t.Errorf("%d wait after their tickets ended, want 0", got)
	}
}
