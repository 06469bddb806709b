package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/config"
)

// TestReadyOnlyWhenTheSaleIsKnown: an instance that has just started is not ready before it has
// read which activities there are, and how far the line of an open one has come.
func TestReadyOnlyWhenTheSaleIsKnown(t *testing.T) {
	c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }, Flags: map[string]string{"data.dir": t.TempDir(), "demo.opens_in": "10m", "instance.id": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := newService(t.Context(), c, slog.New(slog.DiscardHandler)) // wired, and nothing runs
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	says := func(want string) bool {
		t.Helper()
		return strings.Contains(strings.Join(s.unready(), "; "), want)
	}
	if !says("the activities are not read yet") {
		t.Errorf("before everything: %q", s.unready())
	}
	if err := s.beginDemonstration(t.Context()); err != nil {
		t.Fatal(err)
	}
	const unread = "the waiting room of activity " + demoActivity + " is not read yet"
	if says(unread) || says("the activities") {
		t.Errorf("before the opening: %q", s.unready())
	}
	publishDemo(t, s, 2, s.directory.ByID(demoActivity).PathID, s.now().Add(2*time.Second)) // it opens sooner
	eventually(t, patience, "the opening", func() bool { return !s.now().Before(s.directory.ByID(demoActivity).OpensAt) })
	if !says(unread) {
		t.Errorf("open and unread: %q", s.unready())
	}
	if err := s.room.Refresh(t.Context(), s.directory.All()); err != nil {
		t.Fatal(err)
	}
	if says(unread) {
		t.Errorf("open and read: %q", s.unready())
	}
}
