package pairs_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/bench/pairs"
)

// spin is work whose length is known in advance.
func spin(times int) func() pairs.Op {
	return func() pairs.Op {
		return func(n int) {
			for range n * times {
				work()
			}
		}
	}
}

//go:noinline
func work() {}

func measured(t *testing.T, p pairs.Plan, row pairs.Row) pairs.Result {
	t.Helper()
	r, err := p.Measure(row)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMeasure(t *testing.T) {
	plan := pairs.Plan{Pairs: 15, Run: time.Millisecond}
	r := measured(t, plan, pairs.Row{Name: "three", Against: "one", Gate: 6, Goal: 3, Subject: spin(300), Baseline: spin(100)})
	if r.Value < 1.5 || r.Value > 6 || !r.OK || r.Allocs != 0 || *r.Gate != 6 || *r.Goal != 3 {
		t.Errorf("%+v", r)
	}
	r = measured(t, plan, pairs.Row{Gate: 0.5, Subject: spin(300), Baseline: spin(100)})
	if r.OK {
		t.Errorf("a gate of half was passed: %+v", r)
	}
	var sink []byte
	r = measured(t, plan, pairs.Row{Gate: 1e9, MaxAllocs: 0.5, Baseline: spin(1), Subject: func() pairs.Op {
		return func(n int) {
			for range n {
				sink = make([]byte, 10_000)
			}
		}
	}})
	if r.OK || r.Allocs < 1 || len(sink) == 0 {
		t.Errorf("an allocation was not noticed: %+v", r)
	}
	samples := []float64{5, 1, 2, 9, 3}
	r = measured(t, pairs.Plan{Pairs: len(samples)}, pairs.Row{Against: "ms", Value: func() float64 {
		defer func() { samples = samples[1:] }()
		return samples[0]
	}})
	if r.Value != 3 || r.IQR != 3 || r.Gate != nil || !r.OK {
		t.Errorf("median 3, quartiles 2 and 5, no gate: %+v", r)
	}
}

// TestMeasureBed: the clock of a bed counts, not this process's, and the bed is closed.
func TestMeasureBed(t *testing.T) {
	spent, closed, longest := time.Duration(0), 0, 0
	spend := func(each time.Duration) pairs.Op {
		return func(n int) {
			spent += time.Duration(n) * each
			longest = max(longest, n)
		}
	}
	row := pairs.Row{Open: func() (pairs.Bed, error) {
		return pairs.Bed{
			Subject: spend(3 * time.Microsecond), Baseline: spend(time.Microsecond),
			Clock: func() time.Duration { return spent }, Run: 20 * time.Millisecond, Pairs: 10, Close: func() { closed++ },
		}, nil
	}}
	r := measured(t, pairs.Plan{Pairs: 100, Run: time.Millisecond}, row)
	if r.Value != 3 || r.IQR != 0 || closed != 1 || longest != 20_000 {
		t.Errorf("%+v, closed %d times, runs of %d", r, closed, longest)
	}
	row.Open = func() (pairs.Bed, error) { return pairs.Bed{}, os.ErrNotExist }
	if _, err := pairs.Quick().Measure(row); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bed that is missing: %v", err)
	}
}

func TestSummary(t *testing.T) {
	gate := 2.0
	s := pairs.Summary{Commit: "abc", Machine: "m", Rows: []pairs.Result{
		{Name: "a", Value: 1, Against: "b", Gate: &gate, OK: true},
		{Name: "c", Value: 3, Against: "b", Gate: &gate},
	}}
	if s.OK() {
		t.Error("a failed gate, and yet OK")
	}
	path := filepath.Join(t.TempDir(), "out", "summary.json")
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back pairs.Summary
	if err := json.Unmarshal(text, &back); err != nil || len(back.Rows) != 2 || back.Rows[0].Goal != nil {
		t.Errorf("%v %+v", err, back)
	}
	for _, name := range []string{"name", "value", "against", "gate", "goal", "ok", "iqr", "allocs"} {
		if !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("no %q in %s", name, text)
		}
	}
	if strings.Contains(string(text), "left_out") {
		t.Errorf("nothing was left out: %s", text)
	}
	s.LeftOut = []pairs.Absent{{Name: "d", Why: "no server"}}
	var b strings.Builder
	s.Print(&b)
	if !strings.Contains(b.String(), "left out: d (no server)") {
		t.Errorf("a row is silently absent:\n%s", b.String())
	}
	lines := strings.Split(b.String(), "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "FAIL") }) {
		t.Errorf("the failure is not told:\n%s", b.String())
	}
}
