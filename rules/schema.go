package rules

import _ "embed"

// schemaDocument is derived from the bundle's types by a test, which holds it to them.
//
//go:embed schema.json
var schemaDocument []byte

// SchemaDocument is the shipped JSON Schema (draft 2020-12) of a bundle, for editors: field
// names, types and the enums written as words. The loader is the authority; ranges and
// everything that spans fields are only its.
func SchemaDocument() []byte { return append([]byte(nil), schemaDocument...) }
