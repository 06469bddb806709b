package rules_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

var update = flag.Bool("update", false, "write schema.json anew")

// The schema that is shipped is the one of the types.
func TestSchemaIsOfTheTypes(t *testing.T) {
	want, err := json.MarshalIndent(rules.Schema(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(rules.SchemaDocument()) != string(want) {
		t.Error("schema.json is not of the types; run: go test ./rules -run Schema -update")
	}
}
