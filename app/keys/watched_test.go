package keys_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/keys"
)

var oct32Next = strings.Replace(oct32, `"t1"`, `"t2"`, 1)

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// taken records what a Watched handed over.
type taken struct {
	names  []string
	refuse error
}

func (k *taken) use(set keys.Set) error {
	if k.refuse != nil {
		return k.refuse
	}
	k.names = append(k.names, set.First().ID())
	return nil
}

func TestBrokenFileKeepsTheOldSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	put(t, path, document(oct32))
	var got taken
	w, err := keys.Watch(path, got.use)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // read again and again: one fault is one failure
		put(t, path, []byte(`{"keys":[`))
		if err := w.Reload(); err == nil || w.Err() == nil || w.Failures() != 1 {
			t.Fatalf("reload %v, kept %v, %d failures", err, w.Err(), w.Failures())
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := w.Reload(); !errors.Is(err, os.ErrNotExist) || w.Failures() != 2 {
		t.Fatalf("%v, %d failures", err, w.Failures())
	}
	put(t, path, document(oct32Next))
	got.refuse = errors.New("not these")
	if err := w.Reload(); !errors.Is(err, got.refuse) || w.Failures() != 3 {
		t.Fatalf("%v, %d failures", err, w.Failures())
	}
	got.refuse = nil
	put(t, path, document(oct32))
	if err := w.Reload(); err != nil || w.Err() != nil {
		t.Fatal(err)
	}
	if names := strings.Join(got.names, " "); names != "t1 t1" {
		t.Errorf("handed over %q", names)
	}
}

func TestUnchangedContentIsNotHandedOverAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	put(t, path, document(oct32))
	var got taken
	w, err := keys.Watch(path, got.use)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, document(oct32))
	if err := w.Reload(); err != nil || len(got.names) != 1 {
		t.Errorf("%v, handed over %v", err, got.names)
	}
}

func TestWatchRefusesToStartWithoutKeys(t *testing.T) {
	var got taken
	if _, err := keys.Watch(filepath.Join(t.TempDir(), "absent.json"), got.use); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Every way in which a file comes to have new content: written in place, replaced by rename, and the link
// of a mounted secret pointed at another folder.
func TestRunFollowsTheFile(t *testing.T) {
	swaps := map[string]func(t *testing.T, dir string, content []byte){
		"written in place": func(t *testing.T, dir string, content []byte) {
			put(t, filepath.Join(dir, "keys.json"), content)
		},
		"renamed over": func(t *testing.T, dir string, content []byte) {
			put(t, filepath.Join(dir, "new"), content)
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "keys.json")); err != nil {
				t.Fatal(err)
			}
		},
		"link moved": func(t *testing.T, dir string, content []byte) {
			if err := os.Mkdir(filepath.Join(dir, "..2"), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, "..2", "keys.json"), content)
			link := filepath.Join(dir, "..tmp")
			if err := os.Symlink("..2", link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "keys.json")
			if name == "link moved" {
				if err := os.Mkdir(filepath.Join(dir, "..1"), 0o700); err != nil {
					t.Fatal(err)
				}
				put(t, filepath.Join(dir, "..1", "keys.json"), document(oct32))
				if err := errors.Join(os.Symlink("..1", filepath.Join(dir, "..data")), os.Symlink("..data/keys.json", path)); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, path, document(oct32))
			}
			names := make(chan string, 4)
			w, err := keys.Watch(path, func(s keys.Set) error { names <- s.First().ID(); return nil })
			if err != nil {
				t.Fatal(err)
			}
			<-names
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); w.Run(ctx) }()
			swap(t, dir, document(oct32Next))
			select {
			case got := <-names:
				if got != "t2" {
					t.Errorf("took %q", got)
				}
			case <-time.After(time.Minute): // a failed test only: polling alone takes 5 s
				t.Error("the change was never seen")
			}
			cancel()
			<-done
		})
	}
}
