package rules_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

var update = flag.Bool("update", false, "write schema.json anew")

// The schema that is shipped is the one of the types.
func TestSchemaIsOfTheTypes(t *testing.T) {
	want, err := json.MarshalIndent(schema(), "", " ")
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

// schema derives the JSON Schema from the bundle's types.
func schema() map[string]any {
	defs := map[string]any{}
	root := schemaOf(reflect.TypeFor[rules.Bundle](), "", defs)
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Sluice rule bundle",
		"$ref":    root["$ref"],
		"$defs":   defs,
	}
}

func schemaOf(t reflect.Type, enum string, defs map[string]any) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), enum, defs)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), "", defs)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), enum, defs)}
	case reflect.Struct:
		return structSchema(t, defs)
	case reflect.String:
		s := map[string]any{"type": "string"}
		if enum != "" {
			s["enum"] = strings.Split(enum, ",")
		}
		return s
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	default: // the integers
		return map[string]any{"type": "integer"}
	}
}

func structSchema(t reflect.Type, defs map[string]any) map[string]any {
	if list, ok := t.FieldByName("Rules"); ok && strings.HasPrefix(t.Name(), "Family[") {
		return map[string]any{"oneOf": []any{schemaOf(list.Type, "", defs), map[string]any{"const": rules.None}}}
	}
	ref := map[string]any{"$ref": "#/$defs/" + t.Name()}
	if _, ok := defs[t.Name()]; ok {
		return ref
	}
	properties, required := map[string]any{}, []string{}
	def := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	defs[t.Name()] = def // before its fields: a canary holds a bundle
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = schemaOf(f.Type, f.Tag.Get("enum"), defs)
		if _, need := f.Tag.Lookup("need"); need {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		def["required"] = required
	}
	return ref
}
