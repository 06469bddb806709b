package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

const (
	// reportEvery is how often an instance writes its line.
	reportEvery = time.Second
	// deadAfter is when an instance that wrote nothing counts as dead. Its last counts stay.
	deadAfter = 5 * time.Second
	// forgetAfter is when a dead instance's line goes: no activity looks so far back.
	forgetAfter = 24 * time.Hour
)

// Line is what an instance tells of itself.
type Line struct {
	InstanceID string                             `json:"instance_id"`
	Boot       string                             `json:"boot,omitempty"` // of this start of it: what it counted before is another line
	Version    int64                              `json:"version"`        // of the rules in force
	Hash       string                             `json:"hash"`
	Canary     bool                               `json:"canary,omitempty"` // it runs the canary's bundle
	Source     string                             `json:"source"`
	AgeMS      int64                              `json:"age_ms"`
	LastError  json.RawMessage                    `json:"last_error"`
	Mode       string                             `json:"mode"`
	Roles      []string                           `json:"roles"`
	Counts     map[string]waitroom.ActivityCounts `json:"counts,omitempty"`
	SeenMS     int64                              `json:"seen_ms"`
}

// Fleet reports this instance and reads the others.
type Fleet struct {
	Store admission.Fleet
	Self  func() Line
	Now   func() time.Time
	Log   *slog.Logger
	// Changed wakes Run: this instance has something new to tell (rules in force), and
	// somebody may wait for it.
	Changed <-chan struct{}

	mu         sync.Mutex
	unreadable map[string]bool // guarded by mu; ids whose line could not be read last time: at most the registry's lines
}

// Run reports every period, and when something changed, until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	everyOr(ctx, reportEvery, f.Changed, f.Log, "report", f.Report)
}

// Report writes this instance's line once.
func (f *Fleet) Report(ctx context.Context) error {
	line := f.Self()
	line.SeenMS = f.Now().UnixMilli()
	body, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return f.Store.Report(ctx, line.key(), body)
}

// key is the line's place in the registry. An instance of a fixed id that starts again
// begins its counts at zero: under the id alone it would take back what it had counted.
func (l Line) key() string {
	if l.Boot == "" {
		return l.InstanceID
	}
	return l.InstanceID + "@" + l.Boot
}

// Lines reads every instance's line, dead ones included; one that cannot be read is
// left out, and logged when that begins.
func (f *Fleet) Lines(ctx context.Context) ([]Line, error) {
	raw, err := f.Store.Instances(ctx)
	if err != nil {
		return nil, err
	}
	lines, old := f.read(raw)
	for _, id := range old {
		_ = f.Store.Forget(ctx, id) // else the next reading does
	}
	sort.Slice(lines, func(i, j int) bool {
		a, b := lines[i], lines[j]
		return a.InstanceID < b.InstanceID || a.InstanceID == b.InstanceID && a.SeenMS < b.SeenMS
	})
	f.replace(lines)
	return lines, nil
}

// replace makes the earlier starts of an instance dead at once: one that has started
// again has ended before. lines are sorted by id, the last start of each id last.
func (f *Fleet) replace(lines []Line) {
	for i := range lines[:max(len(lines)-1, 0)] {
		if l := &lines[i]; l.InstanceID == lines[i+1].InstanceID && f.alive(*l) {
			l.SeenMS = f.Now().Add(-deadAfter).UnixMilli()
			l.forgetWaiting()
		}
	}
}

// forgetWaiting leaves what a dead instance issued and reserved; who waited for it does
// not count on.
func (l *Line) forgetWaiting() {
	for id, c := range l.Counts {
		c.Waiting = 0
		l.Counts[id] = c
	}
}

// read decodes the lines. old are the ids of those that nobody needs any more.
func (f *Fleet) read(raw map[string]json.RawMessage) (lines []Line, old []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.unreadable
	f.unreadable = map[string]bool{}
	for id, body := range raw {
		var l Line
		if err := json.Unmarshal(body, &l); err != nil {
			f.unreadable[id] = true
			if !known[id] {
				f.Log.Warn("fleet line is unreadable", "event", "fleet_line", "instance_id", id, "error", err)
			}
			continue
		}
		if f.Now().Sub(time.UnixMilli(l.SeenMS)) > forgetAfter {
			old = append(old, id)
			continue
		}
		if !f.alive(l) {
			l.forgetWaiting()
		}
		lines = append(lines, l)
	}
	return lines, old
}

// Status is the rules as the live instances hold them.
type Status struct {
	Version   int64            `json:"version"` // the greatest
	Drift     bool             `json:"drift"`   // not every live instance holds the same
	Instances []InstanceStatus `json:"instances"`
}

// InstanceStatus is one live instance's rules.
type InstanceStatus struct {
	InstanceID string          `json:"instance_id"`
	Version    int64           `json:"version"`
	Hash       string          `json:"hash"`
	Source     string          `json:"source"`
	AgeMS      int64           `json:"age_ms"`
	LastError  json.RawMessage `json:"last_error"`
	Canary     bool            `json:"canary,omitempty"` // it runs the canary's bundle
}

// Status reads the live instances' rules.
func (f *Fleet) Status(ctx context.Context) (Status, error) {
	lines, err := f.Lines(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{Instances: []InstanceStatus{}}
	for _, l := range lines {
		if !f.alive(l) {
			continue
		}
		s.Instances = append(s.Instances, InstanceStatus{l.InstanceID, l.Version, l.Hash, l.Source, l.AgeMS, l.LastError, l.Canary})
		s.Version = max(s.Version, l.Version)
	}
	for _, i := range s.Instances {
		s.Drift = s.Drift || i.Version != s.Version || i.Hash != s.Instances[0].Hash
	}
	return s, nil
}

func (f *Fleet) alive(l Line) bool {
	return f.Now().Sub(time.UnixMilli(l.SeenMS)) < deadAfter
}

// Live counts the instances with a role that reported of late.
func Live(lines []Line, now time.Time, role string) (n int) {
	for _, l := range lines {
		if now.Sub(time.UnixMilli(l.SeenMS)) < deadAfter && slices.Contains(l.Roles, role) {
			n++
		}
	}
	return n
}

// Counts adds every instance's counts up, by activity; the dead ones' last included.
func Counts(lines []Line) map[string]waitroom.Counts {
	by := map[string][]waitroom.ActivityCounts{}
	for _, l := range lines {
		for id, c := range l.Counts {
			by[id] = append(by[id], c)
		}
	}
	out := make(map[string]waitroom.Counts, len(by))
	for id, c := range by {
		out[id] = waitroom.Sum(c)
	}
	return out
}
