package waitroom

import (
	"maps"
	"sync"
	"time"
)

// counts is what this instance counts for the wave formula: first issues of tickets and
// reservations. The totals only grow; the leader adds the instances up, the dead ones'
// last counts included.
type counts struct {
	mu         sync.Mutex
	activities map[string]*activityCounts // guarded by mu; bounded by the activities served
}

type activityCounts struct {
	ActivityCounts
	first map[issueKey]bool    // whose ticket was counted; at most one a person and SKU and attempt
	shed  map[string]time.Time // nonce of a shed submit -> end of its ticket; at most maxShed
}

// maxShed bounds the shed submits that are remembered; those above it read as no-shows,
// which releases more people than needed and never fewer.
const maxShed = 100_000

type issueKey struct {
	sku      string
	sequence int64
	attempt  int64
}

// ActivityCounts are one instance's counts of one activity.
type ActivityCounts struct {
	ByWave      map[int64]int64 `json:"by_wave,omitempty"`  // of the last waves
	Issued      map[int64]int64 `json:"issued,omitempty"`   // by second, of the last keepSeconds
	Reserved    map[int64]int64 `json:"reserved,omitempty"` // by the ticket's second of issue
	IssuedAll   int64           `json:"issued_all"`
	ReservedAll int64           `json:"reserved_all"`
	Waiting     int64           `json:"waiting"` // tickets whose submit was shed: their holders come again
}

// keepSeconds is longer than any claim or use time plus the age of a fleet line.
const keepSeconds = 120

// keep drops the counts of activities that are not served any more.
func (c *counts) keep(served func(activityID string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.activities, func(id string, _ *activityCounts) bool { return !served(id) })
}

func newCounts() *counts { return &counts{activities: map[string]*activityCounts{}} }

func (c *counts) of(activityID string) *activityCounts {
	a := c.activities[activityID]
	if a == nil {
		a = &activityCounts{first: map[issueKey]bool{}, shed: map[string]time.Time{}}
		a.ByWave, a.Issued, a.Reserved = map[int64]int64{}, map[int64]int64{}, map[int64]int64{}
		c.activities[activityID] = a
	}
	return a
}

// issued counts a ticket once for a person, SKU and attempt: asking again for the same
// ticket is no second show-up.
func (c *counts) issued(activityID, skuID string, sequence, attempt, wave int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.of(activityID)
	key := issueKey{skuID, sequence, attempt}
	if a.first[key] {
		return
	}
	a.first[key] = true
	a.IssuedAll++
	a.Issued[now.Unix()]++
	if wave > 0 {
		a.ByWave[wave]++
	}
}

// shed remembers a submit that was told "we are full" until its ticket ends: its holder
// did come, and comes again.
func (c *counts) shed(activityID, nonce string, ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.of(activityID); len(a.shed) < maxShed {
		a.shed[nonce] = ends
	}
}

func (c *counts) reserved(activityID, nonce string, issuedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.of(activityID)
	delete(a.shed, nonce)
	a.ReservedAll++
	a.Reserved[issuedAt.Unix()]++
}

// snapshot copies the counts, without what is too old to matter by itself.
func (c *counts) snapshot(now time.Time) map[string]ActivityCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]ActivityCounts, len(c.activities))
	for id, a := range c.activities {
		oldest := now.Unix() - keepSeconds
		maps.DeleteFunc(a.Issued, func(second, _ int64) bool { return second < oldest })
		maps.DeleteFunc(a.Reserved, func(second, _ int64) bool { return second < oldest })
		maps.DeleteFunc(a.shed, func(_ string, ends time.Time) bool { return now.After(ends) })
		a.Waiting = int64(len(a.shed))
		newest := int64(0)
		for wave := range a.ByWave {
			newest = max(newest, wave)
		}
		maps.DeleteFunc(a.ByWave, func(wave, _ int64) bool { return wave <= newest-maxYoung })
		copied := a.ActivityCounts
		copied.ByWave, copied.Issued, copied.Reserved = maps.Clone(a.ByWave), maps.Clone(a.Issued), maps.Clone(a.Reserved)
		out[id] = copied
	}
	return out
}

// Sum adds instances' counts of one activity up.
func Sum(instances []ActivityCounts) Counts {
	out := Counts{ByWave: map[int64]int64{}, Issued: map[int64]int64{}, Reserved: map[int64]int64{}}
	add := func(into, from map[int64]int64) {
		for k, v := range from {
			into[k] += v
		}
	}
	for _, a := range instances {
		add(out.ByWave, a.ByWave)
		add(out.Issued, a.Issued)
		add(out.Reserved, a.Reserved)
		out.IssuedAll += a.IssuedAll
		out.ReservedAll += a.ReservedAll
		out.Waiting += a.Waiting
	}
	return out
}
