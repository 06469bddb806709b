package rules_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

// Every bad document is a file; testdata/busted.json says which faults, and no others, it
// must be refused for.
func TestBustedDocuments(t *testing.T) {
	raw, err := os.ReadFile("testdata/busted.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]rules.Faults
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/busted_*.json")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d files, %d expectations, %v", len(files), len(want), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := rules.Decode(doc)
			var r *rules.Rejection
			if !errors.As(err, &r) {
				t.Fatalf("accepted: %+v", b)
			}
			left := append(rules.Faults(nil), r.Faults...)
			for _, w := range want[name] {
				found := false
				for i, f := range left {
					if f.Path == w.Path && strings.Contains(f.Message, w.Message) {
						left, found = append(left[:i:i], left[i+1:]...), true
						break
					}
				}
				if !found {
					t.Errorf("no fault %s: …%s…", w.Path, w.Message)
				}
			}
			if len(left) > 0 || t.Failed() {
				t.Errorf("the document's faults:\n%v", r.Faults)
			}
		})
	}
}
