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
// next in the history beside the file, with previous before it where nobody published that
// but a hand.
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
	if err := s.rememberPresent(now); err != nil {
		return err
	}
	if err := s.remember(s.published(next)); err != nil {
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

// published is a document that we publish now.
func (s *FileSource) published(doc []byte) past {
	p := past{At: s.now().UTC(), Document: string(doc)}
	if u, err := user.Current(); err == nil {
		p.By = u.Username
	}
	return p
}

// rememberPresent keeps what is about to be replaced, if it came past Publish.
func (s *FileSource) rememberPresent(doc []byte) error {
	if doc == nil {
		return nil
	}
	p, err := s.unpublished(doc)
	if p == nil || err != nil {
		return err
	}
	return s.remember(*p)
}

// unpublished is the present document as a hand wrote it: when, and nobody knows who. Nil:
// the newest of the history is the same.
func (s *FileSource) unpublished(doc []byte) (*past, error) {
	names, err := s.historyNames()
	if err != nil {
		return nil, err
	}
	written, err := os.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	p := &past{At: written.ModTime().UTC(), Document: string(doc)}
	if len(names) == 0 {
		return p, nil
	}
	newest, ok, err := s.recall(names[0])
	switch {
	case err != nil:
		return nil, err
	case ok && newest.Document == p.Document:
		return nil, nil
	case ok && !p.At.After(newest.At):
		p.At = newest.At.Add(1) // a copy may keep an older file's time; it came after that all the same
	}
	return p, nil
}

func (s *FileSource) remember(p past) error {
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

// recall reads one file of the history; ok false: it is not ours.
func (s *FileSource) recall(name string) (p past, ok bool, err error) {
	in, err := os.ReadFile(filepath.Join(s.historyDir(), name))
	if err != nil {
		return p, false, err
	}
	return p, json.Unmarshal(in, &p) == nil, nil
}

// History lists the present document, what was published through Publish and what was found
// there by it, newest first.
func (s *FileSource) History(ctx context.Context, limit int) ([]Past, error) {
	names, err := s.historyNames()
	if err != nil {
		return nil, err
	}
	var list []Past
	add := func(p past) { list = append(list, Past{At: p.At, By: p.By, Raw: []byte(p.Document)}) }
	if now, err := s.Read(ctx); err == nil {
		p, err := s.unpublished(now)
		if err != nil {
			return nil, err
		}
		if p != nil {
			add(*p)
		}
	}
	for _, name := range names[:min(limit, len(names))] {
		p, ok, err := s.recall(name)
		if err != nil {
			return nil, err
		}
		if ok {
			add(p)
		}
	}
	return list[:min(limit, len(list))], nil
}

func orDuration(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}
