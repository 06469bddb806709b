package pairs

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// Summary is a run: the content of bench/out/summary.json.
type Summary struct {
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Rows    []Result `json:"rows"`
	LeftOut []Absent `json:"left_out,omitempty"` // rows that could not be measured here
}

// Absent is a row that was left out, and why.
type Absent struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// OK says that every gate holds that was measured.
func (s Summary) OK() bool {
	for _, r := range s.Rows {
		if !r.OK {
			return false
		}
	}
	return true
}

// Write writes the summary as JSON, replacing a former one whole.
func (s Summary) Write(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode summary: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// Print writes the summary as a table.
func (s Summary) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tvalue\tIQR\tgoal\tgate\tallocs\tverdict\tagainst\t")
	for _, r := range s.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Name, number(&r.Value), number(&r.IQR),
			number(r.Goal), number(r.Gate), number(&r.Allocs), r.verdict(), r.Against)
	}
	t.Flush()
	for _, a := range s.LeftOut {
		fmt.Fprintf(w, "left out: %s (%s)\n", a.Name, a.Why)
	}
	fmt.Fprintf(w, "\n%s, commit %s; smaller is better, medians\n", s.Machine, s.Commit)
}

func (r Result) verdict() string {
	switch {
	case !r.OK:
		return "FAIL"
	case r.Gate == nil:
		return "-"
	case r.Goal != nil && r.Value > *r.Goal:
		return "ok"
	}
	return "goal"
}

func number(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'g', 4, 64)
}
