package keys

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Where file events never arrive, or their channel ends, polling finds a change within pollEvery.
func TestPollingAloneFindsAChange(t *testing.T) {
	ended := make(chan fsnotify.Event)
	close(ended)
	for name, events := range map[string]chan fsnotify.Event{"no events": nil, "events ended": ended} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				write := func(id string) string {
					k, err := NewOct(id)
					if err != nil {
						t.Fatal(err)
					}
					path := filepath.Join(t.TempDir(), "keys.json")
					if err := (Set{keys: []Key{k}}).WriteFile(path); err != nil {
						t.Fatal(err)
					}
					return path
				}
				names := make(chan string, 2)
				w, err := Watch(write("old"), func(s Set) error { names <- s.First().ID(); return nil })
				if err != nil {
					t.Fatal(err)
				}
				<-names
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); w.follow(ctx, events) }()
				time.Sleep(time.Second) // virtual
				if err := os.Rename(write("new"), w.path); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if got := <-names; got != "new" || time.Since(start) > pollEvery {
					t.Errorf("took %q after %v", got, time.Since(start))
				}
				cancel()
				<-done
			})
		})
	}
}
