package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/follow"
)

// Times of a Watched file.
const (
	// pollEvery bounds how long a change goes unseen where file events do not arrive: network file
	// systems, exhausted inotify instances.
	pollEvery = 5 * time.Second
	// settle lets a burst of events of one save pass before the file is read, so that an editor's
	// truncate-then-write is not counted as a broken file.
	settle = 50 * time.Millisecond
)

// A Watched key file keeps whoever uses its keys up to date. Its owner gives use, which takes a new set
// or refuses it (ticket.Ring.Swap, session.Verifier.Swap); a set that cannot be read or is refused
// changes nothing.
type Watched struct {
	path string
	use  func(Set) error

	mu   sync.Mutex
	seen [sha256.Size]byte // guarded by mu; of the content in force or last refused
	err  error             // guarded by mu; of the last reload, nil when the file is in force

	failures atomic.Uint64
}

// Watch loads the file and hands its set to use. An error here means that nothing was taken: at start-up
// there is no older set to fall back to, so the caller must not go on.
func Watch(path string, use func(Set) error) (*Watched, error) {
	w := &Watched{path: path, use: use}
	if err := w.Reload(); err != nil {
		return nil, err
	}
	return w, nil
}

// Run follows the file until ctx ends. It returns no error: a failed reload is counted and kept instead.
func (w *Watched) Run(ctx context.Context) {
	follow.File{Path: w.path, PollEvery: pollEvery, Settle: settle}.Run(ctx, func() {
		_ = w.Reload() // counted and kept by Reload itself
	})
}

// Reload reads the file now. Content that was already read is not handed to use again, and a broken file
// counts as one failure however often it is read.
func (w *Watched) Reload() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, content, err := load(w.path)
	sum := sha256.Sum256(content)
	if len(content) > 0 && bytes.Equal(sum[:], w.seen[:]) {
		return w.err
	}
	if err == nil {
		err = w.use(set)
	}
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) {
		w.failures.Add(1)
	}
	w.seen, w.err = sum, err
	return err
}

// Err is the error of the last reload, nil while the file's content is in force.
func (w *Watched) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Failures counts changes of the file that were not taken.
func (w *Watched) Failures() uint64 { return w.failures.Load() }
