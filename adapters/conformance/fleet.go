package conformance

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// Fleet is the suite of admission.Fleet. The registry is one for a whole store, so the
// cases look only at instances of their own, and at how the high-water mark moves.
func Fleet(t *testing.T, open func(t *testing.T) admission.Fleet) {
	t.Run("lines are kept until they are forgotten", func(t *testing.T) { fleetLines(t, open(t)) })
	t.Run("a line out of range is refused", func(t *testing.T) { fleetArguments(t, open(t)) })
	t.Run("the high-water mark only rises", func(t *testing.T) { fleetHighWater(t, open(t)) })
}

func fleetLines(t *testing.T, f admission.Fleet) {
	one, two := fresh(t)+"-1", fresh(t)+"-2"
	t.Cleanup(func() { _ = f.Forget(context.Background(), two) })
	report := func(id, line string) {
		if err := f.Report(t.Context(), id, json.RawMessage(line)); err != nil {
			t.Fatalf("report %s: %v", id, err)
		}
	}
	report(one, `{"version":1}`)
	report(two, `{"version":1}`)
	report(one, `{"version":2}`)
	lines, err := f.Instances(t.Context())
	if err != nil || string(lines[one]) != `{"version":2}` || string(lines[two]) != `{"version":1}` {
		t.Errorf("got %s and %s, %v", lines[one], lines[two], err)
	}
	if err := f.Forget(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := f.Forget(t.Context(), one); err != nil {
		t.Errorf("forgetting again: %v", err)
	}
	lines, err = f.Instances(t.Context())
	if _, kept := lines[one]; kept || err != nil || string(lines[two]) != `{"version":1}` {
		t.Errorf("after forgetting one: got %v, %v", lines, err)
	}
}

func fleetArguments(t *testing.T, f admission.Fleet) {
	id := fresh(t)
	if err := f.Report(t.Context(), id, json.RawMessage(`"`+strings.Repeat("x", 20000)+`"`)); err == nil {
		t.Error("a line of 20 KB: want an error")
	}
	if err := f.Report(t.Context(), "", json.RawMessage(`{}`)); err == nil {
		t.Error("no id: want an error")
	}
	if _, err := f.HighWater(t.Context(), -1); err == nil {
		t.Error("version -1: want an error")
	}
}

func fleetHighWater(t *testing.T, f admission.Fleet) {
	start, err := f.HighWater(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range int64(8) {
		group.Go(func() {
			if got, err := f.HighWater(t.Context(), start+i+1); err != nil || got < start+i+1 {
				t.Errorf("raise to %d: got %d, %v", start+i+1, got, err)
			}
		})
	}
	group.Wait()
	if got, err := f.HighWater(t.Context(), start+1); err != nil || got < start+8 {
		t.Errorf("lower version: got %d, %v, want at least %d", got, err, start+8)
	}
	if got, err := f.HighWater(t.Context(), 0); err != nil || got < start+8 {
		t.Errorf("read: got %d, %v, want at least %d", got, err, start+8)
	}
}
