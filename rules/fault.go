package rules

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with a document.
type Fault struct {
	Path    string `json:"path"`    // JSON path from "$"
	Message string `json:"message"` // in words, for the person who wrote the document
}

func (f Fault) String() string { return f.Path + ": " + f.Message }

// Faults is everything wrong with a document, in the order of the document where it has one.
type Faults []Fault

// maxFaults bounds what one document can make us say.
const maxFaults = 200

// Error lists all faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// report collects the faults and warnings of one document.
type report struct {
	faults   Faults
	warnings Faults
	told     map[string]bool // paths with a fault: one place is reported once, by who saw it first
}

func (r *report) full() bool { return len(r.faults) >= maxFaults }

func (r *report) fault(path, format string, args ...any) {
	if r.full() || r.told[path] {
		return
	}
	if r.told == nil {
		r.told = map[string]bool{}
	}
	r.told[path] = true
	r.faults = append(r.faults, Fault{path, fmt.Sprintf(format, args...)})
}

func (r *report) warn(path, format string, args ...any) {
	if len(r.warnings) < maxFaults {
		r.warnings = append(r.warnings, Fault{path, fmt.Sprintf(format, args...)})
	}
}

// Reason is why a document was refused: a metric label, a closed set.
type Reason string

// The reasons.
const (
	RefusedSyntax        Reason = "syntax"         // not one JSON value, a BOM, a duplicate key
	RefusedDecode        Reason = "decode"         // unknown fields, wrong types
	RefusedValidate      Reason = "validate"       // out of range, or rules that contradict each other
	RefusedEmpty         Reason = "empty"          // nothing, white space, null, []
	RefusedDeleted       Reason = "deleted"        // the key is gone
	RefusedVersion       Reason = "version"        // not above the current, or far above it
	RefusedHighWater     Reason = "high_water"     // at boot: below what this instance or the cluster has seen
	RefusedPolicyVersion Reason = "policy_version" // an older policy inside a newer bundle
	RefusedConfirm       Reason = "confirm"        // implausible, and not confirmed by its hash
	RefusedLoad          Reason = "load"           // Sentinel did not take it as it was given
)

// Reasons lists them all, so that every series exists from the start.
func Reasons() []Reason {
	return []Reason{RefusedSyntax, RefusedDecode, RefusedValidate, RefusedEmpty, RefusedDeleted,
		RefusedVersion, RefusedHighWater, RefusedPolicyVersion, RefusedConfirm, RefusedLoad}
}

// Rejection is a document that was refused whole.
type Rejection struct {
	Reason  Reason
	Version int64  // of the document; 0 when it could not be read
	Hash    string // of the document; "" when it could not be read
	Faults  Faults // at least one
}

func (r *Rejection) Error() string {
	return fmt.Sprintf("rules refused (%s): %s", r.Reason, r.Faults.Error())
}

// Unwrap gives the faults.
func (r *Rejection) Unwrap() error { return r.Faults }

func reject(reason Reason, b *Bundle, faults ...Fault) *Rejection {
	r := &Rejection{Reason: reason, Faults: faults}
	if b != nil {
		r.Version, r.Hash = b.Version, b.Hash()
	}
	return r
}
