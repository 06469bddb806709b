// Package directory is the activities as this instance sees them: the mirror in the
// stock store, reread every second, behind one atomic pointer.
//
// When the store is away the last view stays: an activity that was on sale goes on
// being known, and whether anything can be bought is the stock's answer, not this one's.
package directory

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Directory finds activities by id and by path. Reads are one atomic load and one map look-up.
type Directory struct {
	mirror admission.Mirror
	log    *slog.Logger
	view   atomic.Pointer[view]
	wake   chan struct{}
}

type view struct {
	byID    map[string]*admission.Activity
	byPath  map[string]*admission.Activity
	all     []*admission.Activity // by id
	former  map[string]string     // path that a version before had -> id; at most maxFormer
	missing map[string]int        // readings in a row that lacked it, by id
}

// New makes an empty directory; Refresh or Run fills it.
func New(mirror admission.Mirror, log *slog.Logger) *Directory {
	d := &Directory{mirror: mirror, log: log, wake: make(chan struct{}, 1)}
	d.view.Store(&view{})
	return d
}

// ByPath finds the activity of a dynamic path, nil if there is none.
func (d *Directory) ByPath(pathID string) *admission.Activity { return d.view.Load().byPath[pathID] }

// ByID finds an activity, nil if it is not known here.
func (d *Directory) ByID(id string) *admission.Activity { return d.view.Load().byID[id] }

// Read reports whether the mirror has been read at least once: an empty directory may be one
// that knows nothing yet.
func (d *Directory) Read() bool { return d.view.Load().byID != nil }

// All lists the activities by id. The slice is shared: read only.
func (d *Directory) All() []*admission.Activity { return d.view.Load().all }

// servedAfterClosing is how long after its closing an activity's SKUs are still followed:
// its last orders are paid or cancelled, and their owners ask.
const servedAfterClosing = time.Hour

// SKUs lists every SKU that this instance serves at now: of the activities that are not
// ended and have not been closed for long.
func (d *Directory) SKUs(now time.Time) []admission.SKURef {
	var refs []admission.SKURef
	for _, a := range d.All() {
		if now.After(a.ClosesAt.Add(servedAfterClosing)) {
			continue
		}
		for i := range a.SKUs {
			refs = append(refs, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID})
		}
	}
	return refs
}

// Wake makes Run reread at once: somebody heard of a change.
func (d *Directory) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Refresh rereads the mirror. What is older than what is in view is kept out: a replica
// that lags must not bring an old path, old times or an ended sale back. A path that a
// new version gave up still finds the activity, so that a ticket of the version before
// is told that it is out of date and not that there is no such thing.
func (d *Directory) Refresh(ctx context.Context) error {
	list, err := d.mirror.Activities(ctx)
	if err != nil {
		return err
	}
	old := d.view.Load()
	next := &view{byID: make(map[string]*admission.Activity, len(list)), byPath: make(map[string]*admission.Activity, len(list)), former: map[string]string{}, missing: map[string]int{}}
	for i := range list {
		a := &list[i]
		if have := old.byID[a.ID]; have != nil && older(a, have) {
			a = have
		}
		next.byID[a.ID] = a
		next.all = append(next.all, a)
	}
	for id, have := range old.byID {
		// The leader writes the mirror anew every few seconds. A store that lost it must not
		// turn a sale under way into "there is no such thing", which sends people home.
		if next.byID[id] == nil && !have.Ended && old.missing[id] < keepMissing {
			next.byID[id], next.missing[id] = have, old.missing[id]+1
			next.all = append(next.all, have)
		}
	}
	for path, id := range old.former {
		if next.byID[id] != nil {
			next.former[path] = id
		}
	}
	for _, a := range next.all {
		if have := old.byID[a.ID]; have != nil && have.PathID != a.PathID && len(next.former) < maxFormer {
			next.former[have.PathID] = a.ID
		}
	}
	for path, id := range next.former {
		next.byPath[path] = next.byID[id]
	}
	for _, a := range next.all { // the paths of now win over former ones
		next.byPath[a.PathID] = a
	}
	slices.SortFunc(next.all, func(a, b *admission.Activity) int { return strings.Compare(a.ID, b.ID) })
	d.view.Store(next)
	return nil
}

// older reports whether a is a former state of what is known of the same publication.
func older(a, have *admission.Activity) bool {
	if !have.PublishedAt.Equal(a.PublishedAt) {
		return false // begun anew
	}
	return have.Version > a.Version || have.Version == a.Version && have.Ended && !a.Ended
}

// keepMissing is for how many readings an activity that the mirror no longer has stays in
// view: half a minute, several times as long as the leader takes to write it again.
const keepMissing = 30

// maxFormer bounds the former paths that are remembered, of all activities together.
const maxFormer = admission.MaxActivities

// Run rereads every period until ctx ends.
func (d *Directory) Run(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := d.Refresh(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("activities not reread", "event", "directory_stale", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.wake:
		}
	}
}
