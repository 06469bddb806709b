package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Bounds of a document.
const (
	MaxDocument = 1 << 20 // bytes; Nacos itself takes up to 10 MiB
	maxDepth    = 16      // the deepest path of a bundle with a canary is 8
)

// node is one JSON value, kept with what the standard decoder throws away: the order and
// the spelling of keys, and numbers as they were written.
type node struct {
	kind    kind
	text    string // of a string, or a number's literal
	truth   bool   // of a boolean
	members []member
	items   []node
}

type member struct {
	key   string
	value node
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}

func (k kind) String() string { return kindNames[k] }

// parse reads exactly one JSON value. Duplicate keys are faults with their path; whatever
// makes the rest unreadable (a BOM, bad UTF-8, trailing content) is the only fault.
func parse(doc []byte, rep *report) (node, bool) {
	switch {
	case len(doc) > MaxDocument:
		rep.fault("$", "the document has %d bytes, more than the %d allowed", len(doc), MaxDocument)
		return node{}, false
	case bytes.HasPrefix(doc, []byte("\xef\xbb\xbf")):
		rep.fault("$", "the document begins with a byte order mark; save it as UTF-8 without one")
		return node{}, false
	case !utf8.Valid(doc):
		rep.fault("$", "the document is not UTF-8")
		return node{}, false
	}
	p := parser{dec: json.NewDecoder(bytes.NewReader(doc)), rep: rep, doc: doc}
	p.dec.UseNumber()
	n, err := p.value("$", 0)
	if err != nil {
		rep.fault("$", "%s", p.describe(err))
		return node{}, false
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		rep.fault("$", "something follows the document at byte %d", p.dec.InputOffset())
		return node{}, false
	}
	return n, true
}

type parser struct {
	dec *json.Decoder
	rep *report
	doc []byte
}

func (p *parser) value(path string, depth int) (node, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return node{}, err
	}
	switch t := tok.(type) {
	case nil:
		return node{kind: kindNull}, nil
	case bool:
		return node{kind: kindBool, truth: t}, nil
	case json.Number:
		return node{kind: kindNumber, text: string(t)}, nil
	case string:
		return node{kind: kindString, text: t}, nil
	}
	if depth >= maxDepth {
		return node{}, fmt.Errorf("%s is nested deeper than %d levels", path, maxDepth)
	}
	if tok == json.Delim('[') {
		return p.array(path, depth)
	}
	return p.object(path, depth)
}

func (p *parser) array(path string, depth int) (node, error) {
	n := node{kind: kindArray}
	for p.dec.More() {
		item, err := p.value(path+"["+strconv.Itoa(len(n.items))+"]", depth+1)
		if err != nil {
			return node{}, err
		}
		n.items = append(n.items, item)
	}
	_, err := p.dec.Token() // the closing bracket
	return n, err
}

func (p *parser) object(path string, depth int) (node, error) {
	n := node{kind: kindObject}
	seen := map[string]bool{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return node{}, err
		}
		key, ok := tok.(string)
		if !ok {
			return node{}, fmt.Errorf("%s has a key that is not a string", path)
		}
		at := join(path, key)
		if seen[key] {
			p.rep.fault(at, "the key is there twice")
		}
		seen[key] = true
		v, err := p.value(at, depth+1)
		if err != nil {
			return node{}, err
		}
		n.members = append(n.members, member{key, v})
	}
	_, err := p.dec.Token()
	return n, err
}

// describe says where in the text a syntax error is, in lines as an editor counts them.
func (p *parser) describe(err error) string {
	offset := p.dec.InputOffset()
	var se *json.SyntaxError
	if errors.As(err, &se) {
		offset = se.Offset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the document ends too early"
	}
	before := p.doc[:min(int(offset), len(p.doc))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf("not JSON at line %d, column %d: %v", line, column, err)
}

// join appends a key to a path; keys that would be ambiguous are quoted.
func join(path, key string) string {
	if len(key) > 64 {
		key = key[:64]
	}
	for i := 0; i < len(key); i++ {
		c := key[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return path + "[" + strconv.Quote(key) + "]"
		}
	}
	if key == "" {
		return path + `[""]`
	}
	return path + "." + key
}

func at(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
