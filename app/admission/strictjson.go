package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth of a document: skus[0].price.amount is 4.
const maxDepth = 8

// node is one JSON value that remembers what encoding/json forgets: the order and
// the repetition of keys, and the difference between absent and null.
type node struct {
	kind    string   // "object", "array", "string", "number", "boolean", "null"
	text    string   // of a string; a number's spelling
	truth   bool     // of a boolean
	members []member // of an object, each key once
	items   []*node  // of an array
}

type member struct {
	key   string
	value *node
}

// parseStrict parses exactly one JSON value. It reports faults through fault and
// returns nil when the bytes are no JSON at all.
func parseStrict(data []byte, fault func(path, format string, args ...any)) *node {
	if len(data) > MaxDocumentLen {
		fault("", "is longer than %d bytes", MaxDocumentLen)
		return nil
	}
	if !utf8.Valid(data) {
		fault("", "is not UTF-8")
		return nil
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(data)), fault: fault}
	p.dec.UseNumber()
	root, err := p.value("", 1)
	if err == nil {
		if _, more := p.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		line, column := position(data, p.dec.InputOffset(), err)
		fault("", "line %d, column %d: %v", line, column, err)
		return nil
	}
	return root
}

type parser struct {
	dec   *json.Decoder
	fault func(path, format string, args ...any)
}

func (p *parser) value(path string, depth int) (*node, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return &node{kind: "string", text: v}, nil
	case json.Number:
		return &node{kind: "number", text: v.String()}, nil
	case bool:
		return &node{kind: "boolean", truth: v}, nil
	case json.Delim:
		if depth > maxDepth {
			return nil, errors.New("is nested too deeply")
		}
		if v == '[' {
			return p.array(path, depth)
		}
		return p.object(path, depth)
	default:
		return &node{kind: "null"}, nil
	}
}

func (p *parser) array(path string, depth int) (*node, error) {
	n := &node{kind: "array"}
	for p.dec.More() {
		item, err := p.value(path+"["+strconv.Itoa(len(n.items))+"]", depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	_, err := p.dec.Token()
	return n, err
}

func (p *parser) object(path string, depth int) (*node, error) {
	n := &node{kind: "object"}
	seen := make(map[string]bool)
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errors.New("a key must be a string")
		}
		value, err := p.value(join(path, key), depth+1)
		if err != nil {
			return nil, err
		}
		if seen[key] {
			p.fault(join(path, key), "is given twice")
			continue
		}
		seen[key] = true
		n.members = append(n.members, member{key, value})
	}
	_, err := p.dec.Token()
	return n, err
}

// position turns the place of a fault into line and column, both from 1.
func position(data []byte, offset int64, err error) (line, column int) {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && syntax.Offset > 0 {
		offset = syntax.Offset - 1
	}
	before := data[:min(max(offset, 0), int64(len(data)))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fields reads the members of one object. Every getter reports a fault by itself
// and then returns the zero value.
type fields struct {
	d     *documentReader
	path  string
	value *node
}

func (f fields) fault(key, format string, args ...any) {
	f.d.fault(join(f.path, key), format, args...)
}

// only reports members that are not known, and whether the value is an object at all.
func (f fields) only(known ...string) bool {
	if f.value.kind != "object" {
		f.d.fault(f.path, "must be an object, is a %s", f.value.kind)
		return false
	}
members:
	for _, m := range f.value.members {
		for _, k := range known {
			if m.key == k {
				continue members
			}
		}
		for _, k := range known {
			if strings.EqualFold(m.key, k) {
				f.fault(m.key, "is unknown: keys are written exactly, %q", k)
				continue members
			}
		}
		f.fault(m.key, "is unknown")
	}
	return true
}

func (f fields) find(key string) *node {
	for _, m := range f.value.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (f fields) has(key string) bool { return f.find(key) != nil }

func (f fields) isString(key string) bool {
	n := f.find(key)
	return n != nil && n.kind == "string"
}

// of returns the member if it is there and of that kind.
func (f fields) of(key, kind string) *node {
	switch n := f.find(key); {
	case n == nil:
		f.fault(key, "is missing")
		return nil
	case n.kind != kind:
		f.fault(key, "must be a %s, is a %s", kind, n.kind)
		return nil
	default:
		return n
	}
}

func (f fields) object(key string) (fields, bool) {
	n := f.of(key, "object")
	return fields{f.d, join(f.path, key), n}, n != nil
}

func (f fields) array(key string) ([]*node, bool) {
	n := f.of(key, "array")
	if n == nil {
		return nil, false
	}
	return n.items, true
}

func (f fields) string(key string) string {
	if n := f.of(key, "string"); n != nil {
		return n.text
	}
	return ""
}

func (f fields) boolean(key string) bool {
	n := f.of(key, "boolean")
	return n != nil && n.truth
}

func (f fields) number(key string) (float64, bool) {
	n := f.of(key, "number")
	if n == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(v, 0) {
		f.fault(key, "is out of range")
		return 0, false
	}
	return v, true
}

// text is a line for people: not empty, no control characters, no blank at either end.
func (f fields) text(key string, limit int) string {
	if !f.isString(key) {
		return f.string(key)
	}
	s := f.string(key)
	if s == "" || len(s) > limit || !validText(s) {
		f.fault(key, "must be 1..%d bytes of text without control characters or blanks at its ends", limit)
	}
	return s
}

func (f fields) decimal(key string) string {
	if !f.isString(key) {
		return f.string(key)
	}
	s := f.string(key)
	if !ValidDecimal(s) {
		f.fault(key, "must be a canonical decimal in 1..2^63-1")
		return ""
	}
	return s
}

// integer reads a whole number in low..high; absent is otherwise, or a fault without one.
func (f fields) integer(key string, low, high int64, otherwise *int64) int64 {
	if otherwise != nil && !f.has(key) {
		return *otherwise
	}
	n := f.of(key, "number")
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || n.text == "-0" || v < low || v > high {
		f.fault(key, "must be a whole number in %d..%d", low, high)
		return 0
	}
	return v
}

func (f fields) duration(key string, low, high, otherwise time.Duration) time.Duration {
	if !f.has(key) {
		return otherwise
	}
	if !f.isString(key) {
		f.string(key)
		return 0
	}
	v, err := time.ParseDuration(f.string(key))
	if err != nil || v < low || v > high || v%time.Millisecond != 0 {
		f.fault(key, "must be a duration such as 5s in %s..%s", formatDuration(low), formatDuration(high))
		return 0
	}
	return v
}

func (f fields) time(key string) time.Time {
	if !f.isString(key) {
		f.string(key)
		return time.Time{}
	}
	s := f.string(key)
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !strings.HasSuffix(s, "Z") || t.Nanosecond()%1e6 != 0 || t.Year() < minYear || t.Year() > maxYear {
		f.fault(key, "must be a time such as 2026-11-11T00:00:00Z: UTC, at most milliseconds, years %d..%d", minYear, maxYear)
		return time.Time{}
	}
	return t.UTC()
}
