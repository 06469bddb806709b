package rules

import (
	"context"
	"time"
)

// Preview judges next as an instance that runs current would, without touching anything:
// what `rules push` asks before it publishes. current nil: there is none. The error is the
// *Rejection that instances would report.
func Preview(current, next []byte) (*Bundle, Faults, error) {
	doc, warnings, err := Decode(next)
	if err != nil {
		return nil, nil, err
	}
	a := NewApplier(Config{InstanceID: "preview", Engine: dryEngine{}})
	if current != nil {
		if err := a.Apply(context.Background(), Update{Raw: current, At: time.Now()}, "preview"); err != nil {
			return doc, warnings, nil // nobody runs what is there; there is nothing to compare with
		}
	}
	before := a.Snapshot()
	if err := a.Apply(context.Background(), Update{Raw: next, At: time.Now()}, "preview"); err != nil {
		return doc, warnings, err
	}
	if doc.Canary != nil && before != nil {
		if r := a.checkPlausible(doc, doc.Canary.Bundle, before); r != nil {
			return doc, warnings, r
		}
	}
	return doc, warnings, nil
}

// dryEngine enforces nothing.
type dryEngine struct{}

func (dryEngine) Load(_, _ SentinelRules) error { return nil }
func (dryEngine) Settle() error                 { return nil }
func (dryEngine) Settled() <-chan struct{}      { return nil }

// Next returns a copy of b as the successor of current: the version above it, and no policy
// older than the one in force. It is how a rollback and a promotion are written.
func (b *Bundle) Next(current *Bundle, comment string) *Bundle {
	next := *b
	next.Confirm, next.Comment = "", comment
	next.Version = current.Version + 1
	next.Admission.Rules = append([]Admission(nil), b.Admission.Rules...)
	for i := range next.Admission.Rules {
		p := &next.Admission.Rules[i]
		for _, c := range current.Admission.Rules {
			if c.ActivityID == p.ActivityID && c.SKUID == p.SKUID && p.PolicyVersion <= c.PolicyVersion && !sameJSON(p, &c) {
				p.PolicyVersion = c.PolicyVersion + 1
			}
		}
	}
	return &next
}

// Confirmed returns a copy of b that confirms itself.
func (b *Bundle) Confirmed() *Bundle {
	c := *b
	c.Confirm = c.Hash()
	return &c
}

// WithCanary returns the successor of current that runs b on a percentage of the instances
// and current's main bundle on the rest.
func (b *Bundle) WithCanary(current *Bundle, percent float64, comment string) *Bundle {
	main := *current
	main.Canary = nil
	next := main.Next(current, comment)
	canary := *b
	canary.Confirm = ""
	canary.Version = next.Version
	next.Canary = &Canary{Percent: percent, Bundle: &canary}
	return next
}

func sameJSON(a, b any) bool {
	x, errX := encode(a)
	y, errY := encode(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// At returns a copy of b with another version, unconfirmed.
func (b *Bundle) At(version int64) *Bundle {
	c := *b
	c.Version, c.Confirm = version, ""
	return &c
}
