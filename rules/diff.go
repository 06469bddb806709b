package rules

import (
	"fmt"
	"strconv"
	"strings"
)

// Change is one difference between two bundles. From or To is "" where there is nothing.
type Change struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// String says the change in words.
func (c Change) String() string {
	switch {
	case c.From == "":
		return fmt.Sprintf("%s: added, %s", c.Path, c.To)
	case c.To == "":
		return fmt.Sprintf("%s: removed, was %s", c.Path, c.From)
	}
	s := fmt.Sprintf("%s: %s becomes %s", c.Path, c.From, c.To)
	from, errF := strconv.ParseFloat(c.From, 64)
	to, errT := strconv.ParseFloat(c.To, 64)
	if errF != nil || errT != nil || from <= 0 || to <= 0 || strings.HasSuffix(c.Path, "version") {
		return s
	}
	if to > from {
		return fmt.Sprintf("%s (x %.3g)", s, to/from)
	}
	return fmt.Sprintf("%s (1/%.3g)", s, from/to)
}

// Diff lists what changes from a to b, as written. Rules are matched by what names them (an
// id, an activity and SKU, a resource), not by their place in a list. A canary's bundle is
// compared with the canary before it, a first one with the main bundle beside it: its changes
// are what its instances do otherwise.
func Diff(a, b *Bundle) []Change {
	var changes []Change
	mainA, mainB := *a, *b
	mainA.Canary, mainB.Canary = nil, nil
	diff("$", tree(&mainA), tree(&mainB), &changes)
	var before, after string
	if a.Canary != nil {
		before = percentage(a.Canary)
	}
	if b.Canary != nil {
		after = percentage(b.Canary)
	}
	if before != after {
		changes = append(changes, Change{"$.canary.percent", before, after})
	}
	if b.Canary == nil {
		return changes
	}
	beside := &mainB
	if a.Canary != nil {
		beside = a.Canary.Bundle
	}
	diff(CanaryPath, tree(beside), tree(b.Canary.Bundle), &changes)
	return changes
}

// CanaryPath is where a canary's bundle stands in a document.
const CanaryPath = "$.canary.bundle"

func percentage(c *Canary) string { return strconv.FormatFloat(c.Percent, 'g', -1, 64) }

func tree(b *Bundle) node {
	var rep report
	n, _ := parse(b.Encode(), &rep) // our own encoding is JSON
	return n
}

func diff(path string, a, b node, out *[]Change) {
	switch {
	case a.kind == kindObject && b.kind == kindObject:
		diffObjects(path, a, b, out)
	case a.kind == kindArray && b.kind == kindArray:
		diffLists(path, a, b, out)
	case a.String() != b.String():
		*out = append(*out, Change{path, a.String(), b.String()})
	}
}

func diffObjects(path string, a, b node, out *[]Change) {
	for _, m := range a.members {
		if other, ok := b.member(m.key); ok {
			diff(join(path, m.key), m.value, other, out)
		} else {
			*out = append(*out, Change{join(path, m.key), m.value.String(), ""})
		}
	}
	for _, m := range b.members {
		if _, ok := a.member(m.key); !ok {
			*out = append(*out, Change{join(path, m.key), "", m.value.String()})
		}
	}
}

func diffLists(path string, a, b node, out *[]Change) {
	left, met := map[string]node{}, map[string]bool{}
	for i, item := range b.items {
		left[item.name(i)] = item
	}
	for i, item := range a.items {
		name := item.name(i)
		met[name] = true
		if other, ok := left[name]; ok {
			diff(path+"["+name+"]", item, other, out)
		} else {
			*out = append(*out, Change{path + "[" + name + "]", item.String(), ""})
		}
	}
	for i, item := range b.items {
		if name := item.name(i); !met[name] {
			*out = append(*out, Change{path + "[" + name + "]", "", item.String()})
		}
	}
}

func (n node) member(key string) (node, bool) {
	for _, m := range n.members {
		if m.key == key {
			return m.value, true
		}
	}
	return node{}, false
}

// name is what a rule is called: two rules without names of their own are told apart by place.
func (n node) name(place int) string {
	if n.kind != kindObject {
		return n.String()
	}
	if id, ok := n.member("id"); ok {
		return id.text
	}
	var words []string
	for _, key := range []string{"activity_id", "sku_id", "dimension", "key", "resource", "metricType", "paramKey", "paramIndex", "strategy", "valStr"} {
		if v, ok := n.member(key); ok {
			words = append(words, v.text)
		}
	}
	if len(words) == 0 {
		return strconv.Itoa(place)
	}
	return strings.Join(words, " ")
}

// String writes the value as JSON on one line.
func (n node) String() string {
	switch n.kind {
	case kindNull:
		return "null"
	case kindBool:
		return strconv.FormatBool(n.truth)
	case kindNumber:
		return n.text
	case kindString:
		return strconv.Quote(n.text)
	case kindArray, kindObject:
	}
	var parts []string
	if n.kind == kindArray {
		for _, item := range n.items {
			parts = append(parts, item.String())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	for _, m := range n.members {
		parts = append(parts, strconv.Quote(m.key)+": "+m.value.String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
