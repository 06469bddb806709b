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
	byID   map[string]*admission.Activity
	byPath map[string]*admission.Activity
	all    []*admission.Activity // by id
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
		if a.Ended || now.After(a.ClosesAt.Add(servedAfterClosing)) {
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

// Refresh rereads the mirror. A version lower than the one in view is kept out: a
// replica that lags must not bring an old path or old times back.
func (d *Directory) Refresh(ctx context.Context) error {
	list, err := d.mirror.Activities(ctx)
	if err != nil {
		return err
	}
	old := d.view.Load()
	next := &view{byID: make(map[string]*admission.Activity, len(list)), byPath: make(map[string]*admission.Activity, len(list))}
	for i := range list {
		a := &list[i]
		if have := old.byID[a.ID]; have != nil && have.Version > a.Version && have.PublishedAt.Equal(a.PublishedAt) {
			a = have
		}
		next.byID[a.ID] = a
		next.byPath[a.PathID] = a
		next.all = append(next.all, a)
	}
	slices.SortFunc(next.all, func(a, b *admission.Activity) int { return strings.Compare(a.ID, b.ID) })
	d.view.Store(next)
	return nil
}

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
