package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const path = "/etc/sluice/keys.json"

// bed follows path in virtual time by events that the test makes up.
type bed struct {
	events chan fsnotify.Event
	errs   chan error
	start  time.Time
	looks  []time.Duration // since start
}

// run follows for as long as script takes.
func run(t *testing.T, script func(b *bed)) []time.Duration {
	t.Helper()
	b := &bed{events: make(chan fsnotify.Event), errs: make(chan error), start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	f := File{Path: path, PollEvery: 5 * time.Second, Settle: 50 * time.Millisecond}
	go func() {
		defer close(done)
		f.follow(ctx, b.events, b.errs, func() { b.looks = append(b.looks, time.Since(b.start)) })
	}()
	script(b)
	cancel()
	<-done
	return b.looks
}

func (b *bed) event(name string, op fsnotify.Op) {
	b.events <- fsnotify.Event{Name: filepath.Join(filepath.Dir(path), name), Op: op}
}

func TestWhatMakesItLook(t *testing.T) {
	for _, c := range []struct {
		name   string
		script func(b *bed)
		looks  []time.Duration // after the first, which is at once
	}{
		{"nothing but the poll", func(*bed) { time.Sleep(11 * time.Second) }, []time.Duration{5 * time.Second, 10 * time.Second}},
		{"a burst of one save is one look", func(b *bed) {
			for range 3 {
				b.event("keys.json", fsnotify.Write)
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(time.Second)
		}, []time.Duration{90 * time.Millisecond}},
		{"a mounted secret's link has moved", func(b *bed) {
			b.event("..data", fsnotify.Create)
			time.Sleep(time.Second)
		}, []time.Duration{50 * time.Millisecond}},
		{"other rights are no other content", func(b *bed) {
			b.event("keys.json", fsnotify.Chmod)
			time.Sleep(time.Second)
		}, nil},
		{"a neighbour that writes without a pause delays nothing", func(b *bed) {
			b.event("keys.json", fsnotify.Write)
			for range 100 {
				b.event("sluice.db-wal", fsnotify.Write)
				time.Sleep(10 * time.Millisecond)
			}
		}, []time.Duration{50 * time.Millisecond}},
		{"events were lost", func(b *bed) {
			b.errs <- fsnotify.ErrEventOverflow
			time.Sleep(time.Second)
		}, []time.Duration{50 * time.Millisecond}},
		{"the watch has ended", func(b *bed) {
			close(b.events)
			close(b.errs)
			time.Sleep(6 * time.Second)
		}, []time.Duration{5 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := run(t, c.script)
				if len(looks) == 0 || looks[0] != 0 {
					t.Fatalf("looked at %v, want at once", looks)
				}
				if got := looks[1:]; len(got) != len(c.looks) {
					t.Fatalf("looked at %v, want %v", got, c.looks)
				}
				for i, want := range c.looks {
					if got := looks[i+1]; got != want {
						t.Errorf("look %d after %v, want %v", i+1, got, want)
					}
				}
			})
		})
	}
}

// A folder that is not there yet grants no watch: the poll sees the file when it comes.
func TestWithoutAWatchThePollRemains(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "later", "rules.json"), PollEvery: 10 * time.Millisecond}
	if w, err := f.watch(); err == nil {
		w.Close()
		t.Fatal("a folder that is not there was watched")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a failed test only
	defer cancel()
	looked := 0
	f.Run(ctx, func() {
		looked++
		if looked == 2 {
			if err := errors.Join(os.Mkdir(filepath.Dir(f.Path), 0o700), os.WriteFile(f.Path, nil, 0o600)); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(f.Path); err == nil {
			cancel()
		}
	})
	if looked < 2 || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("looked %d times, then %v", looked, ctx.Err())
	}
}
