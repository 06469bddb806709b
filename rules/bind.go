package rules

import (
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// binder fills Go values from a parsed document by their json tags and reports every
// difference: unknown keys, keys that differ in case alone, null, wrong types, numbers that
// do not fit. A field tagged need:"" must be there, whatever its value: a mistyped key must
// never become a threshold of 0.
type binder struct{ rep *report }

// bound is a type that reads its own node.
type bound interface {
	bind(b binder, path string, n node)
}

func (b binder) bind(path string, n node, v reflect.Value) {
	if v.CanAddr() {
		if own, ok := v.Addr().Interface().(bound); ok {
			own.bind(b, path, n)
			return
		}
	}
	if n.kind == kindNull {
		b.rep.fault(path, "null is not a value here; leave the field out")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		b.bind(path, n, v.Elem())
	case reflect.Struct:
		b.object(path, n, v)
	case reflect.Map:
		b.table(path, n, v)
	case reflect.Slice:
		b.list(path, n, v)
	case reflect.String:
		if b.want(path, n, kindString) {
			v.SetString(n.text)
		}
	case reflect.Bool:
		if b.want(path, n, kindBool) {
			v.SetBool(n.truth)
		}
	case reflect.Float64:
		b.float(path, n, v)
	default: // the integers
		b.integer(path, n, v)
	}
}

func (b binder) want(path string, n node, k kind) bool {
	if n.kind != k {
		b.rep.fault(path, "must be %s, not %s", k, n.kind)
		return false
	}
	return true
}

func (b binder) object(path string, n node, v reflect.Value) {
	if !b.want(path, n, kindObject) {
		return
	}
	fields := fieldsOf(v.Type())
	found := map[string]bool{}
	for _, m := range n.members {
		f, ok := fields[m.key]
		if !ok {
			b.unknown(path, m.key, fields)
			continue
		}
		if found[m.key] {
			continue // reported as a duplicate
		}
		found[m.key] = true
		b.bind(join(path, m.key), m.value, v.Field(f.index))
	}
	for _, name := range sortedKeys(fields) {
		if fields[name].need && !found[name] {
			b.rep.fault(join(path, name), "must be given")
		}
	}
}

func (b binder) unknown(path, key string, fields map[string]field) {
	if b.rep.full() {
		return // a megabyte of unknown keys is not worth a megabyte of words
	}
	for _, name := range sortedKeys(fields) {
		if strings.EqualFold(name, key) {
			b.rep.fault(join(path, key), "differs from %q in case alone; keys are exact", name)
			return
		}
	}
	b.rep.fault(join(path, key), "is not a field; known are %s", strings.Join(sortedKeys(fields), ", "))
}

func (b binder) table(path string, n node, v reflect.Value) {
	if !b.want(path, n, kindObject) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.members)))
	for _, m := range n.members {
		elem := reflect.New(v.Type().Elem()).Elem()
		b.bind(join(path, m.key), m.value, elem)
		v.SetMapIndex(reflect.ValueOf(m.key), elem)
	}
}

func (b binder) list(path string, n node, v reflect.Value) {
	if !b.want(path, n, kindArray) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		b.bind(at(path, i), item, v.Index(i))
	}
}

func (b binder) float(path string, n node, v reflect.Value) {
	if !b.want(path, n, kindNumber) {
		return
	}
	x, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		b.rep.fault(path, "%s is out of range", n.text)
		return
	}
	v.SetFloat(x)
}

func (b binder) integer(path string, n node, v reflect.Value) {
	if !b.want(path, n, kindNumber) {
		return
	}
	if strings.ContainsAny(n.text, ".eE") {
		b.rep.fault(path, "must be a whole number, written without a point or an exponent")
		return
	}
	if v.CanInt() {
		if x, err := strconv.ParseInt(n.text, 10, 64); err != nil || v.OverflowInt(x) {
			b.rep.fault(path, "%s is out of range", n.text)
		} else {
			v.SetInt(x)
		}
		return
	}
	switch x, err := strconv.ParseUint(n.text, 10, 64); {
	case strings.HasPrefix(n.text, "-"):
		b.rep.fault(path, "%s is negative", n.text)
	case err != nil || v.OverflowUint(x):
		b.rep.fault(path, "%s is out of range", n.text)
	default:
		v.SetUint(x)
	}
}

// field is where a key of an object goes.
type field struct {
	index int
	need  bool
}

func fieldsOf(t reflect.Type) map[string]field {
	fields := make(map[string]field, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		_, need := f.Tag.Lookup("need")
		fields[name] = field{i, need}
	}
	return fields
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
