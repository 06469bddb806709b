package limit

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// PenaltyRule says when a caller who ignores refusals is refused without a look at his
// bucket. The zero value never does.
type PenaltyRule struct {
	Refusals int64         // refusals in Window that are still forgiven; policy: penalty_refusals
	Window   time.Duration // counted from the first of them; policy: penalty_window
	For      time.Duration // length of the penalty; policy: penalty_ms
}

// NewPenaltyRule returns a rule. refusals and window must be positive, penalty must not be
// negative; penalty 0 switches the rule off.
func NewPenaltyRule(refusals int64, window, penalty time.Duration) (PenaltyRule, error) {
	switch {
	case refusals < 1 || refusals > maxCount:
		return PenaltyRule{}, &FieldError{"penalty_refusals", fmt.Sprintf("%d is not in 1..%d", refusals, maxCount)}
	case window <= 0 || window > maxWindowTime:
		return PenaltyRule{}, &FieldError{"penalty_window", fmt.Sprintf("%v is not in (0, %v]", window, maxWindowTime)}
	case penalty < 0 || penalty > maxWindowTime:
		return PenaltyRule{}, &FieldError{"penalty_ms", fmt.Sprintf("%v is not in [0, %v]", penalty, maxWindowTime)}
	}
	return PenaltyRule{Refusals: refusals, Window: window, For: penalty}, nil
}

func (r PenaltyRule) off() bool { return r.Refusals <= 0 || r.For <= 0 }

const (
	penaltyWays = 8 // offenders a set can hold
	// maxPenaltySets bounds the memory: 64 Ki sets of 264 bytes, 17 MB.
	maxPenaltySets = 1 << 16
)

// Penalties remembers who has been refused, and whom to refuse outright. Use it for
// verified users and devices, never for a source, behind which many people may stand.
//
// It is a bounded table of sets of eight. When a set is full the one with the fewest
// refusals is forgotten, and whoever serves a penalty never is: if all eight do, a new
// offender goes uncounted. Forgetting errs towards mercy, for the offender's own bucket
// still refuses him.
type Penalties struct {
	sets      []penaltySet
	mask      uint64
	until     atomic.Int64 // the end of the last penalty: before it somebody may be serving
	sentenced atomic.Int64
	uncounted atomic.Int64
}

type penaltySet struct {
	mu        sync.Mutex
	offenders [penaltyWays]offender // guarded by mu
}

// offender counts the refusals of one caller since an instant, or serves until one.
type offender struct {
	id       uint64
	refusals int64   // -1: serving
	until    Instant // end of the window, or of the penalty
}

const serving = -1

// NewPenalties returns an empty table for about entries offenders (8..524,288, rounded up
// to a power of two).
func NewPenalties(entries int) (*Penalties, error) {
	if entries < penaltyWays || entries > maxPenaltySets*penaltyWays {
		return nil, &FieldError{"entries", fmt.Sprintf("%d is not in %d..%d", entries, penaltyWays, maxPenaltySets*penaltyWays)}
	}
	sets := 1 << bits.Len(uint((entries-1)/penaltyWays))
	return &Penalties{sets: make([]penaltySet, sets), mask: uint64(sets - 1)}, nil
}

// Serving returns how much longer id must wait for its penalty to end, and zero when it
// serves none. While nobody serves one it is a single atomic load.
func (p *Penalties) Serving(now Instant, id uint64) time.Duration {
	if int64(now) >= p.until.Load() {
		return 0
	}
	set := p.set(id)
	set.mu.Lock()
	defer set.mu.Unlock()
	if o := set.find(id); o != nil && o.refusals == serving {
		return max(o.until.Sub(now), 0)
	}
	return 0
}

// Refused counts a refusal of id by its own limit, and reports whether it has just begun a
// penalty. Refusals for other reasons, and those of the penalty itself, are not offences:
// do not report them.
func (p *Penalties) Refused(now Instant, id uint64, rule PenaltyRule) bool {
	if id == 0 || rule.off() {
		return false
	}
	set := p.set(id)
	set.mu.Lock()
	defer set.mu.Unlock()
	o := set.find(id)
	if o == nil {
		o = set.make(now)
		if o == nil {
			p.uncounted.Add(1)
			return false
		}
	}
	if o.id != id || now >= o.until {
		*o = offender{id: id, until: now.Add(rule.Window)}
	}
	if o.refusals == serving {
		return false
	}
	if o.refusals++; o.refusals <= rule.Refusals {
		return false
	}
	o.refusals, o.until = serving, now.Add(rule.For)
	p.sentenced.Add(1)
	for last := p.until.Load(); int64(o.until) > last && !p.until.CompareAndSwap(last, int64(o.until)); {
		last = p.until.Load()
	}
	return true
}

// Pardon forgets id and reports whether it was remembered: an operator's act.
func (p *Penalties) Pardon(id uint64) bool {
	set := p.set(id)
	set.mu.Lock()
	defer set.mu.Unlock()
	o := set.find(id)
	if o != nil {
		*o = offender{}
	}
	return o != nil
}

// PenaltyStats are counts since the table was made.
type PenaltyStats struct {
	Sentenced int64 // penalties begun
	Uncounted int64 // refusals not counted because all in a set were serving
}

// Stats returns the counts.
func (p *Penalties) Stats() PenaltyStats {
	return PenaltyStats{Sentenced: p.sentenced.Load(), Uncounted: p.uncounted.Load()}
}

func (p *Penalties) set(id uint64) *penaltySet { return &p.sets[id&p.mask] }

func (s *penaltySet) find(id uint64) *offender {
	for i := range s.offenders {
		if s.offenders[i].id == id && id != 0 {
			return &s.offenders[i]
		}
	}
	return nil
}

// make returns a place for a new offender: a free or outdated one, else that of the one
// with the fewest refusals who is not serving, else nil.
func (s *penaltySet) make(now Instant) *offender {
	var least *offender
	for i := range s.offenders {
		switch o := &s.offenders[i]; {
		case now >= o.until:
			return o
		case o.refusals != serving && (least == nil || o.refusals < least.refusals):
			least = o
		}
	}
	return least
}
