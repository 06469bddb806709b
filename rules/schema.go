package rules

import (
	_ "embed"
	"reflect"
	"strings"
)

// schemaDocument is what editors use; a test holds it to Schema.
//
//go:embed schema.json
var schemaDocument []byte

// SchemaDocument is the shipped JSON Schema (draft 2020-12) of a bundle, for editors: field
// names, types and the enums written as words. The loader is the authority; ranges and
// everything that spans fields are only its.
func SchemaDocument() []byte { return append([]byte(nil), schemaDocument...) }

// Schema derives the JSON Schema from the bundle's types.
func Schema() map[string]any {
	defs := map[string]any{}
	root := schemaOf(reflect.TypeFor[Bundle](), "", defs)
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
	if rules, ok := t.FieldByName("Rules"); ok && strings.HasPrefix(t.Name(), "Family[") {
		return map[string]any{"oneOf": []any{schemaOf(rules.Type, "", defs), map[string]any{"const": None}}}
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
