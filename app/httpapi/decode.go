package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf8"
)

// decodeStrict decodes one small object: exactly the known members at most once each,
// of the right type, nothing after it. Calls that are no submit are rare enough for
// encoding/json; names and repeats are checked here because it does not. A member that
// is an object of its own is decoded as json.RawMessage and then by this function.
func decodeStrict(body []byte, into any, known ...string) *fieldError {
	if !utf8.Valid(body) {
		return &fieldError{"", "is not UTF-8"}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return &fieldError{"", "must be one JSON object"}
	}
	seen := make(map[string]bool, len(known))
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return &fieldError{"", "is not valid JSON"}
		}
		if !slices.Contains(known, name) {
			return &fieldError{"", "has an unknown member"}
		}
		if seen[name] {
			return &fieldError{name, "is given twice"}
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return &fieldError{"", "is not valid JSON"}
		}
		if string(value) == "null" {
			return &fieldError{name, "must not be null"}
		}
	}
	if _, err := dec.Token(); err != nil {
		return &fieldError{"", "is not valid JSON"}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &fieldError{"", "has content after the object"}
	}
	if err := json.Unmarshal(body, into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return &fieldError{wrong.Field, "must be a " + wrong.Type.String()}
		}
		return &fieldError{"", "is not valid JSON"}
	}
	return nil
}
