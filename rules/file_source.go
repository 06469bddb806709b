package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/follow"
)

// FileSource is a watched file: rules on a developer's machine, and what embedded mode uses.
// It follows both ways of saving, a rename over the file and a write into it; a file that is
// gone is reported as absent and changes nothing. A watch that the system does not grant
// leaves the poll, which sees a change within PollEvery.
type FileSource struct {
	Path string
	// Create is written when there is no file at the start; nil: nothing is.
	Create    []byte
	PollEvery time.Duration // default 3 s; also the contact from which age counts
	Settle    time.Duration // quiet time after a write before the file is read; default 20 ms
	Now       func() time.Time
}

// Name of the source.
func (s *FileSource) Name() string { return "file " + filepath.Base(s.Path) }

// Run follows the file until ctx ends. An error: the file that Create asks for cannot be written.
func (s *FileSource) Run(ctx context.Context, emit func(Update)) error {
	if err := s.create(); err != nil {
		return err
	}
	f := follow.File{Path: s.Path, PollEvery: orDuration(s.PollEvery, 3*time.Second), Settle: orDuration(s.Settle, 20*time.Millisecond)}
	f.Run(ctx, func() { emit(s.look()) })
	return nil
}

func (s *FileSource) create() error {
	if s.Create == nil {
		return nil
	}
	if _, err := os.Stat(s.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeFile(s.Path, s.Create)
}

func (s *FileSource) look() Update {
	u := Update{At: s.now()}
	u.Raw, u.Err = os.ReadFile(s.Path)
	if errors.Is(u.Err, fs.ErrNotExist) {
		return Update{Absent: true, At: u.At}
	}
	return u
}

func (s *FileSource) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Read returns the document.
func (s *FileSource) Read(context.Context) ([]byte, error) {
	raw, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", s.Path, admission.ErrNotFound)
	}
	return raw, err
}

// Publish replaces previous by next under a lock that other publishers take too, and keeps
// previous in the history beside the file.
func (s *FileSource) Publish(ctx context.Context, previous, next []byte) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	now, err := s.Read(ctx)
	switch {
	case errors.Is(err, admission.ErrNotFound):
		now = nil
	case err != nil:
		return err
	}
	if string(now) != string(previous) {
		return fmt.Errorf("%s was changed meanwhile: %w", s.Path, admission.ErrConflict)
	}
	if err := s.remember(next); err != nil {
		return err
	}
	return writeFile(s.Path, next)
}

func (s *FileSource) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.Path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil // closing unlocks
}

// maxHistory is how many documents are kept beside the file.
const maxHistory = 50

// past is one file of the history: what was published, when and by whom.
type past struct {
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Document string    `json:"document"`
}

func (s *FileSource) historyDir() string { return s.Path + ".history" }

func (s *FileSource) remember(doc []byte) error {
	p := past{At: s.now().UTC(), Document: string(doc)}
	if u, err := user.Current(); err == nil {
		p.By = u.Username
	}
	out, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(s.historyDir(), fmt.Sprintf("%020d.json", p.At.UnixNano())), out); err != nil {
		return err
	}
	names, err := s.historyNames()
	if err != nil {
		return err
	}
	for _, old := range names[min(maxHistory, len(names)):] {
		if err := os.Remove(filepath.Join(s.historyDir(), old)); err != nil {
			return err
		}
	}
	return nil
}

// historyNames lists the newest first.
func (s *FileSource) historyNames() ([]string, error) {
	entries, err := os.ReadDir(s.historyDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(names)))
	return names, nil
}

// History lists what was published through Publish, newest first.
func (s *FileSource) History(_ context.Context, limit int) ([]Past, error) {
	names, err := s.historyNames()
	if err != nil {
		return nil, err
	}
	var list []Past
	for _, name := range names[:min(limit, len(names))] {
		in, err := os.ReadFile(filepath.Join(s.historyDir(), name))
		if err != nil {
			return nil, err
		}
		var p past
		if err := json.Unmarshal(in, &p); err != nil {
			continue // not ours
		}
		list = append(list, Past{At: p.At, By: p.By, Raw: []byte(p.Document)})
	}
	return list, nil
}

func orDuration(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}
