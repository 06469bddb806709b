package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
)

// Decode reads a document strictly and validates it. It returns the bundle, its warnings,
// and a *Rejection that holds every fault.
func Decode(doc []byte) (*Bundle, Faults, error) {
	if blank(doc) {
		return nil, nil, reject(RefusedEmpty, nil, Fault{"$", "the document is empty; to clear a family write \"none\" for it"})
	}
	var rep report
	n, ok := parse(doc, &rep)
	if !ok {
		return nil, nil, reject(RefusedSyntax, nil, rep.faults...)
	}
	switch {
	case n.kind == kindNull, n.kind == kindArray && len(n.items) == 0, n.kind == kindObject && len(n.members) == 0:
		return nil, nil, reject(RefusedEmpty, nil, Fault{"$", "the document is empty; to clear a family write \"none\" for it"})
	}
	syntax := len(rep.faults)
	var b Bundle
	binder{&rep}.bind("$", n, reflect.ValueOf(&b).Elem())
	decoded := len(rep.faults)
	if n.kind == kindObject {
		b.validate("$", &rep)
	}
	if len(rep.faults) == 0 {
		return &b, rep.warnings, nil
	}
	reason := RefusedValidate
	if decoded > 0 {
		reason = RefusedDecode
	}
	if syntax > 0 {
		reason = RefusedSyntax
	}
	return nil, nil, &Rejection{Reason: reason, Version: b.Version, Faults: rep.faults}
}

func blank(doc []byte) bool { return len(bytes.TrimSpace(doc)) == 0 }

// Encode writes the bundle in its one canonical form: fields in the order of the type, map
// keys sorted, absent fields absent, no white space. It is what the hash is taken of.
func (b *Bundle) Encode() []byte {
	doc, err := encode(b)
	if err != nil {
		panic("rules: a decoded bundle always encodes: " + err.Error())
	}
	return doc
}

// Indent is Encode for people.
func (b *Bundle) Indent() []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b.Encode(), "", "  "); err != nil {
		panic("rules: our own encoding is JSON: " + err.Error())
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// Hash is "sha256:" and the hex digest of the canonical form without "confirm", so that a
// bundle can carry its own hash there.
func (b *Bundle) Hash() string {
	plain := *b
	plain.Confirm = ""
	sum := sha256.Sum256(plain.Encode())
	return "sha256:" + hex.EncodeToString(sum[:])
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
