// Package follow tells when a file may have new content: rules and keys that an operator
// changes under a running service.
//
// It promises that a change is seen within File.PollEvery however it was saved, by a write
// into the file, a rename over it, or the symbolic link of a mounted secret, and mostly
// within File.Settle of its last event. Where the system grants no watch (no folder yet, a
// network file system, no inotify instances left) only the poll remains: slower, not wrong.
package follow

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// File is one file to follow.
type File struct {
	Path      string
	PollEvery time.Duration // above 0: the longest a change goes unseen
	// Settle is the quiet time after an event before the file is looked at, so that an
	// editor's truncate-then-write is not taken for a broken file.
	Settle time.Duration
}

// Run calls look at once, after every change and every PollEvery, from this goroutine alone,
// until ctx ends. look reads the file itself: often nothing has changed.
func (f File) Run(ctx context.Context, look func()) {
	w, err := f.watch()
	if err != nil {
		f.follow(ctx, nil, nil, look)
		return
	}
	defer w.Close() // waits for the watcher's goroutine
	f.follow(ctx, w.Events, w.Errors, look)
}

// watch watches the folder, not the file: a rename over the file would leave a watch on the
// old inode.
func (f File) watch() (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(f.Path)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (f File) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, look func()) {
	look()
	poll := time.NewTicker(f.PollEvery)
	defer poll.Stop()
	settled := time.NewTimer(0)
	<-settled.C
	defer settled.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				events = nil
			} else if f.concerns(e) {
				settled.Reset(f.Settle)
			}
		case _, open := <-errs: // read, or it would block the events
			if !open {
				errs = nil
			} else { // an overflow: events were lost
				settled.Reset(f.Settle)
			}
		case <-settled.C:
			look()
		case <-poll.C:
			look()
		case <-ctx.Done():
			return
		}
	}
}

// concerns reports whether an event of the folder may have changed the file: one of its own,
// or a name that came into being beside it, which is how the link of a mounted secret moves.
// Writes to its neighbours do not: a database in the same folder would never let it settle.
func (f File) concerns(e fsnotify.Event) bool {
	if filepath.Base(e.Name) == filepath.Base(f.Path) {
		return e.Op != fsnotify.Chmod
	}
	return e.Has(fsnotify.Create)
}
