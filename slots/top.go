package slots

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
)

// top counts who asks for what, for an operator's eyes. One request in topSample is
// counted, as that many: the others pay for a multiplication.
type top struct {
	skus    *limit.TopK[admission.SKURef]
	users   *limit.TopK[string] // whose ticket was good
	sources *limit.TopK[uint64]
}

const (
	topBits     = 4
	topSample   = 1 << topBits
	topCounters = 1024 // of each; ten times as many as are shown
	topShown    = 100
	topHalfLife = time.Minute
)

func newTop() (t top, err error) {
	if t.skus, err = limit.NewTopK[admission.SKURef](topCounters); err != nil {
		return t, err
	}
	if t.users, err = limit.NewTopK[string](topCounters); err != nil {
		return t, err
	}
	t.sources, err = limit.NewTopK[uint64](topCounters)
	return t, err
}

// arrived counts a submit before anything refuses it, and says whether it is one of those
// that are counted.
func (t *top) arrived(req *admission.Request) bool {
	// The low bits of an arrival's nanosecond are as good as dice, and are there already;
	// the multiplication spreads a clock that ticks more coarsely.
	if uint64(req.Mono)*0x9e3779b97f4a7c15>>(64-topBits) != 0 {
		return false
	}
	t.skus.Add(req.Ref(), topSample)
	t.sources.Add(req.SourceKey, topSample)
	return true
}

// verified counts the user of a submit whose ticket was good.
func (t *top) verified(req *admission.Request) {
	t.users.Add(strings.Clone(req.UserID), topSample) // not a part of a longer text
}

// run lets counts fade until ctx ends.
func (t *top) run(ctx context.Context) {
	tick := time.NewTicker(topHalfLife)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.skus.Halve()
			t.users.Halve()
			t.sources.Halve()
		}
	}
}

// TopView is the most frequent of late: GET /admin/v1/top. Counts are estimates from a
// sample and fade with a half-life; a count is at most Over too high.
type TopView struct {
	HalfLifeSeconds int64      `json:"half_life_s"`
	Sample          int64      `json:"sample"` // one request in so many is counted
	SKUs            []TopEntry `json:"skus"`
	Users           []TopEntry `json:"users"`   // hashed as in logs
	Sources         []TopEntry `json:"sources"` // hashed as the limiter view shows an address
}

// TopEntry is one of them.
type TopEntry struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Over     int64  `json:"over"`
}

// Top lists at most n of each, n in 1..100.
func (g *Gate) Top(n int) TopView {
	n = min(max(n, 1), topShown)
	return TopView{
		HalfLifeSeconds: int64(topHalfLife / time.Second), Sample: topSample,
		SKUs:    entries(g.top.skus.Top(n), func(r admission.SKURef) string { return r.ActivityID + ":" + r.SKUID }),
		Users:   entries(g.top.users.Top(n), g.config.HashUser),
		Sources: entries(g.top.sources.Top(n), sourceHash),
	}
}

func sourceHash(key uint64) string { return strconv.FormatUint(key, 36) }

func entries[K comparable](counted []limit.Counted[K], name func(K) string) []TopEntry {
	out := make([]TopEntry, len(counted))
	for i, c := range counted {
		out[i] = TopEntry{name(c.Key), c.Count, c.Over}
	}
	return out
}
