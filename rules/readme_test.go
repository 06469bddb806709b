package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

// The commented example of the README is a valid bundle without a warning.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```jsonc\n")
	if !ok {
		t.Fatal("no example")
	}
	example, _, _ := strings.Cut(rest, "```")
	example = regexp.MustCompile(`(?m)//.*$`).ReplaceAllString(example, "")
	_, warnings, err := rules.Decode([]byte(example))
	if err != nil || len(warnings) > 0 {
		t.Errorf("%v\n%v", err, warnings)
	}
}
