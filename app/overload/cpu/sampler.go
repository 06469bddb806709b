package cpu

import (
	"io/fs"
	"math"
	"time"
)

// Unknown is the fraction of which nothing is known: below every trigger, and Sentinel's
// own word for it.
const Unknown = -1

// Sampler measures between two calls of Sample. One goroutine owns it.
type Sampler struct {
	root fs.FS
	cpus func() int

	last []meter
	at   time.Time
}

// meter is one bound on our CPU time: a group's quota, or the runtime's processors.
type meter struct {
	name     string
	capacity float64 // processors
	used     time.Duration
}

// NewSampler returns a sampler that reads below root, os.DirFS("/") but in tests. cpus is
// how many processors this process may run on at once: runtime.GOMAXPROCS(0).
func NewSampler(root fs.FS, cpus func() int) *Sampler { return &Sampler{root: root, cpus: cpus} }

// Sample returns which fraction of its CPU time was used since the call before: 0 idle, 1
// all of it, a little more after a burst that a quota allows. It is not ok on the first
// call, when time stood still, or when nothing could be read.
func (s *Sampler) Sample(now time.Time) (fraction float64, ok bool) {
	elapsed := now.Sub(s.at)
	meters := s.read()
	for _, m := range meters {
		for _, before := range s.last {
			// A group that was made anew counts from zero; a negative time is none.
			if before.name == m.name && m.used >= before.used && elapsed > 0 {
				fraction = max(fraction, float64(m.used-before.used)/(float64(elapsed)*m.capacity))
				ok = true
			}
		}
	}
	s.last, s.at = meters, now
	return fraction, ok
}

// read finds the groups anew each time: a process can be moved and a quota edited.
func (s *Sampler) read() []meter {
	var out []meter
	cpus := float64(max(s.cpus(), 1))
	if used, err := processUsed(s.root); err == nil {
		out = append(out, meter{"process", cpus, used})
	}
	list, err := groups(s.root)
	if err != nil {
		return out
	}
	for _, g := range list {
		quota, err := g.capacity(s.root)
		if err != nil || math.IsInf(quota, 1) {
			continue // a group without a quota holds nobody back; its usage may be the whole machine's
		}
		used, err := g.used(s.root)
		if g.usage == "" {
			used, err = processUsed(s.root)
		}
		if err == nil {
			out = append(out, meter{g.quota, quota, used})
		}
	}
	return out
}

// Quota returns the least number of processors that a quota around us allows, and whether
// there is one.
func (s *Sampler) Quota() (cpus float64, ok bool) {
	list, err := groups(s.root)
	if err != nil {
		return 0, false
	}
	cpus = math.Inf(1)
	for _, g := range list {
		if q, err := g.capacity(s.root); err == nil {
			cpus = min(cpus, q)
		}
	}
	return cpus, !math.IsInf(cpus, 1)
}
