// Package pairs measures one thing as a ratio to another in a way that holds on a shared
// machine: both run in turn, a millisecond or two each, many times, and what is reported is
// the median of the ratios of neighbours. A busy minute slows both and leaves the ratio;
// time in which others have the core is not counted at all.
//
// An absolute time is never reported; the few figures that are not ratios (bytes, a pause)
// say their unit.
package pairs

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// Op runs an operation n times. The loop is its own, so that nothing of the measurement
// stands between two operations.
type Op func(n int)

// Row is one line of the table. Smaller is better.
type Row struct {
	Name    string
	Against string  // what the value is a ratio to, or the unit of Value
	Gate    float64 // the most that is accepted; 0: told, not judged
	Goal    float64 // what we aim at; 0: none

	// MaxAllocs is the most allocations an operation may make when the row has a gate.
	MaxAllocs float64

	// Wall counts wall time, for operations that wait or that use other goroutines. Without
	// it the processor time of the measuring thread counts.
	Wall bool

	// Subject and Baseline build fresh state and return the operation on it. They are
	// called when the row's turn comes; what they built is garbage after it.
	Subject, Baseline func() Op

	// Value takes one sample of a figure that is not a ratio, instead of the two above.
	Value func() float64

	// Open makes the bed of a row that needs a server, instead of Subject and Baseline. An
	// error says what is missing: the row is then left out, and told so.
	Open func() (Bed, error)
}

// Result is a measured row, as summary.json has it.
type Result struct {
	Name    string   `json:"name"`
	Value   float64  `json:"value"` // median
	Against string   `json:"against"`
	Gate    *float64 `json:"gate"` // null: none
	Goal    *float64 `json:"goal"`
	OK      bool     `json:"ok"`
	IQR     float64  `json:"iqr"`    // distance between the quartiles
	Allocs  float64  `json:"allocs"` // of the subject, per operation
}

// maxValues bounds the samples of a figure that is not a ratio: each may take long.
const maxValues = 31

// Plan says how much to measure.
type Plan struct {
	Pairs int           // of alternated runs; at least 15
	Run   time.Duration // length of one run
}

// Many short runs, not a few long ones: a run shorter than the scheduler's slice is seldom
// interrupted, and the median passes over those that are.

// Full is the plan of figures that are published: about 2 s a row.
func Full() Plan { return Plan{Pairs: 401, Run: 2 * time.Millisecond} }

// Quick is the plan of a look before a commit: about half a second a row.
func Quick() Plan { return Plan{Pairs: 151, Run: 1500 * time.Microsecond} }

// Measure measures one row. The error is that of its Open.
func (p Plan) Measure(row Row) (Result, error) {
	r := Result{Name: row.Name, Against: row.Against, Gate: some(row.Gate), Goal: some(row.Goal)}
	var samples []float64
	switch {
	case row.Value != nil:
		samples = p.values(row.Value)
	case row.Open != nil:
		bed, err := row.Open()
		if err != nil {
			return r, err
		}
		defer bed.Close()
		samples = p.on(bed).ratios(bed.Clock, bed.Subject, bed.Baseline)
	default:
		subject, baseline := row.Subject(), row.Baseline()
		clock := threadClock()
		if row.Wall {
			clock = wallClock()
		}
		samples = p.ratios(clock, subject, baseline)
		r.Allocs = allocs(subject)
	}
	slices.Sort(samples)
	r.Value = round(quantile(samples, 0.5))
	r.IQR = round(quantile(samples, 0.75) - quantile(samples, 0.25))
	r.OK = row.Gate == 0 || r.Value <= row.Gate && r.Allocs <= row.MaxAllocs
	return r, nil
}

func (p Plan) values(value func() float64) []float64 {
	samples := make([]float64, min(p.Pairs, maxValues))
	for i := range samples {
		samples[i] = value()
	}
	return samples
}

// ratios alternates the two; every other pair begins with the other one, so that neither
// always profits from a warm cache.
func (p Plan) ratios(clock func() time.Duration, subject, baseline Op) []float64 {
	runtime.LockOSThread() // its time is what counts
	defer runtime.UnlockOSThread()
	perOp := func(op Op, n int) float64 { return float64(timed(clock, op, n)) / float64(n) }
	ns, nb := p.calibrate(clock, subject), p.calibrate(clock, baseline)
	runtime.GC() // what building left is not the operation's
	samples := make([]float64, p.Pairs)
	for i := range samples {
		var s, b float64
		if i%2 == 0 {
			s, b = perOp(subject, ns), perOp(baseline, nb)
		} else {
			b, s = perOp(baseline, nb), perOp(subject, ns)
		}
		samples[i] = s / b
	}
	return samples
}

// calibrate returns how many operations fill a run. The shortest of three timings counts:
// an interruption must not make the runs tiny.
func (p Plan) calibrate(clock func() time.Duration, op Op) int {
	for n := 16; ; n *= 2 {
		took := min(timed(clock, op, n), timed(clock, op, n), timed(clock, op, n))
		if took >= p.Run/4 {
			return max(int(float64(n)*float64(p.Run)/float64(took)), 1)
		}
	}
}

// timed never returns zero, which a coarse clock might say.
func timed(clock func() time.Duration, op Op, n int) time.Duration {
	start := clock()
	op(n)
	return max(clock()-start, 1)
}

// wallClock returns a clock of wall time, read monotonically.
func wallClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// allocs counts allocations per operation, to two decimals: what the runtime allocates
// now and then by itself disappears in the rounding.
func allocs(op Op) float64 {
	const n = 2000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	op(n)
	runtime.ReadMemStats(&after)
	return math.Floor(100*float64(after.Mallocs-before.Mallocs)/n) / 100
}

// quantile interpolates in sorted samples.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func round(x float64) float64 { return math.Round(x*10_000) / 10_000 }

func some(x float64) *float64 {
	if x == 0 {
		return nil
	}
	return &x
}
