package waitroom

import (
	"math"
	"time"
)

// Wave is one release: a stretch of ranks that may come now.
type Wave struct {
	ID    int64  `json:"id"` // 1.., of the activity
	AtMS  int64  `json:"at_ms"`
	Ranks int64  `json:"ranks"` // people in it
	End   uint64 `json:"end"`   // its watermark
}

// Records is what a leader leaves to the next: the young waves and the totals.
type Records struct {
	Young       []Wave  `json:"young"`         // at most maxYoung, the newest last
	Released    int64   `json:"released"`      // people in all waves
	LastID      int64   `json:"last_id"`       //
	LastAtMS    int64   `json:"last_at_ms"`    //
	SoldOutOnce bool    `json:"sold_out_once"` // the 2 % on top of the stock are over
	Carry       float64 `json:"carry"`         // fraction of a person that the rate has not released yet
}

// maxYoung bounds the waves that instances count by: at the shortest interval of 200 ms
// they reach back 25 s, longer than any claim time that the rules accept by default.
const maxYoung = 128

// Counts is what the fleet counted: first issues of tickets and reservations made.
type Counts struct {
	ByWave      map[int64]int64 // wave -> tickets issued to its ranks
	Issued      map[int64]int64 // Unix second -> tickets issued
	Reserved    map[int64]int64 // Unix second of the ticket's issue -> reservations made with it
	IssuedAll   int64
	ReservedAll int64
	Waiting     int64 // tickets whose submit was shed and whose holders come again
}

// WavePolicy is the policy of a release.
type WavePolicy struct {
	Interval     time.Duration // between two waves; 0: every round
	ShowUpPrior  float64       // s before anything was seen
	ReservePrior float64       // c before anything was seen
	PriorWeight  float64       // observations that a prior is worth
	Claim        time.Duration // within which a released person is expected to come
	Use          time.Duration // within which a ticket is expected to be used
	WaveSize     int64         // people at most in a wave
	Rate         float64       // min(R_sys, R_wave), people a second
	ModeFactor   float64       // 1 NORMAL, 0.5 DEGRADED, 0 otherwise
}

// Situation is what a release is decided on.
type Situation struct {
	Now       time.Time
	Remaining int64 // units
	Stock     int64 // units in all
	Records   Records
	Counts    Counts
	Policy    WavePolicy
}

// Release is a decision of the wave formula, with the estimates that explain it.
type Release struct {
	People int64
	Carry  float64 // for Records
	S      float64 // show-up: tickets issued per rank released
	C      float64 // reservations per ticket
	E      float64 // tickets that young waves are still expected to ask for
	F      float64 // reservations that young tickets are still expected to make
	Target float64 // reservations wanted
	Need   float64 // people wanted, before the caps
	Reach  int64   // people whom the stock is expected to reach in all
}

// leastEstimate keeps s and c off zero: a bad minute must not release everybody.
const leastEstimate = 0.05

// overshoot of the stock until it has sold out once: some reservations come back.
const overshoot = 0.02

// Decide is the wave formula of 70-waiting-room:
//
//	need    = floor((target - c E - F - W) / (c s))
//	release = clamp(need, 0, min(wave_size, rate x interval) x mode factor)
//
// It counts everybody once: a released person is in E until their ticket is issued, a
// ticket is in F until its reservation is made, a reservation has left remaining. Whoever
// was told "we are full" is in W while their ticket lasts: counted as a no-show, they would
// let somebody else in just when nobody can be served, and both would come.
// At remaining <= 0 nothing is released and need is not computed.
func Decide(in Situation) Release {
	p, nowMS := in.Policy, in.Now.UnixMilli()
	out := Release{Carry: in.Records.Carry}

	youngRanks, youngIssued := int64(0), int64(0)
	for _, w := range in.Records.Young {
		if nowMS-w.AtMS < p.Claim.Milliseconds() {
			youngRanks += w.Ranks
			youngIssued += in.Counts.ByWave[w.ID]
		}
	}
	out.S = estimate(in.Counts.IssuedAll-youngIssued, in.Records.Released-youngRanks, p.ShowUpPrior, p.PriorWeight)

	settled := p.Use + time.Second
	recentIssued, recentReserved := since(in.Counts.Issued, in.Now, settled), since(in.Counts.Reserved, in.Now, settled)
	out.C = estimate(in.Counts.ReservedAll-recentReserved+in.Counts.Waiting, in.Counts.IssuedAll-recentIssued, p.ReservePrior, p.PriorWeight)

	for _, w := range in.Records.Young {
		if nowMS-w.AtMS < p.Claim.Milliseconds() {
			out.E += max(0, out.S*float64(w.Ranks)-float64(in.Counts.ByWave[w.ID]))
		}
	}
	out.F = max(0, out.C*float64(since(in.Counts.Issued, in.Now, p.Use))-float64(since(in.Counts.Reserved, in.Now, p.Use)))
	out.Reach = in.Records.Released
	if in.Remaining <= 0 {
		return out
	}
	remaining := float64(in.Remaining)
	out.Reach += int64(remaining / (out.C * out.S))

	out.Target = remaining - math.Sqrt(remaining)
	if !in.Records.SoldOutOnce {
		out.Target += overshoot * float64(in.Stock)
	}
	out.Target = max(1, out.Target)
	out.Need = math.Floor((out.Target - out.C*out.E - out.F - float64(in.Counts.Waiting)) / (out.C * out.S))

	elapsed := time.Duration(nowMS-in.Records.LastAtMS) * time.Millisecond
	if in.Records.LastAtMS == 0 || elapsed > time.Second || elapsed < 0 {
		elapsed = time.Second // the first wave, or a new leader: no credit for the time away
	}
	limit := min(float64(p.WaveSize), out.Carry+p.Rate*elapsed.Seconds()) * p.ModeFactor
	released := math.Floor(min(max(0, out.Need), limit))
	out.People = int64(released)
	out.Carry = min(max(0, limit-released), 1)
	return out
}

// estimate is a ratio with a prior of some observations, at least leastEstimate.
func estimate(hits, of int64, prior, weight float64) float64 {
	e := (float64(hits) + prior*weight) / (float64(of) + weight)
	if math.IsNaN(e) {
		e = prior
	}
	return max(leastEstimate, min(e, 1))
}

// since adds up the seconds that are younger than d.
func since(bySecond map[int64]int64, now time.Time, d time.Duration) (n int64) {
	from := now.Add(-d).Unix()
	for second, count := range bySecond {
		if second > from {
			n += count
		}
	}
	return n
}

// Add records a release that was published.
func (r *Records) Add(now time.Time, people int64, end uint64) {
	r.LastAtMS = now.UnixMilli()
	if people == 0 {
		return
	}
	r.LastID++
	r.Released += people
	r.Young = append(r.Young, Wave{ID: r.LastID, AtMS: r.LastAtMS, Ranks: people, End: end})
	if extra := len(r.Young) - maxYoung; extra > 0 {
		r.Young = append([]Wave(nil), r.Young[extra:]...)
	}
}

// Of finds the wave that released a rank. 0 stands for every wave before the young ones.
func (r *Records) Of(rank uint64) int64 {
	for i, w := range r.Young {
		if rank < w.End {
			if i == 0 && w.ID > 1 {
				return 0 // the first young one does not know where it began
			}
			return w.ID
		}
	}
	return 0
}
