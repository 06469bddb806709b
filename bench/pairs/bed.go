package pairs

import "time"

// Bed is what a row stands on that needs more than this process: a server, and the clock of
// what the server spends. The client's own work is then no part of the figure.
type Bed struct {
	Subject, Baseline Op
	Clock             func() time.Duration
	Run               time.Duration // length of one run, by Clock: long enough for its grain
	Pairs             int           // of alternated runs in the full plan; each may take far longer than Run
	Close             func()        // ends what was started; called once
}

// minPairs is the least number of alternated runs that is worth a median.
const minPairs = 15

// on returns the plan for a bed: its own runs, and as much fewer pairs as the plan is quicker
// than the full one.
func (p Plan) on(b Bed) Plan {
	return Plan{Pairs: max(b.Pairs*p.Pairs/Full().Pairs, minPairs), Run: b.Run}
}
