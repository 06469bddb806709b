package rules

import (
	"context"
	"time"
)

// Source is where bundles come from. Every implementation passes the suite in
// adapters/conformance.
type Source interface {
	// Run emits what the source holds, first of all what it holds now, then every change,
	// and again from time to time although nothing changed: that is the contact from which
	// the age of rules counts. It never closes over a gap by itself: an unreachable source
	// is an Update with Err.
	//
	// Run returns nil when ctx ends, and an error only for what waiting cannot heal: a
	// wrong address, user or file. emit does not block for longer than one apply.
	Run(ctx context.Context, emit func(Update)) error
	// Name says where: "file rules.json", "nacos 127.0.0.1:8848 public/DEFAULT_GROUP/sluice.rules".
	Name() string
}

// Update is one look at the source.
type Update struct {
	Raw    []byte    // the document; not changed afterwards
	Absent bool      // the source answered, and there is no document
	Err    error     // the source did not answer; Raw is nil
	At     time.Time // when it was looked at
}

// Governed is a source that can also be written, for `rules push`.
type Governed interface {
	// Read returns the document, or admission.ErrNotFound.
	Read(ctx context.Context) ([]byte, error)
	// Publish replaces exactly previous by next. admission.ErrConflict: somebody else was
	// faster. previous nil means that there is no document.
	Publish(ctx context.Context, previous, next []byte) error
	// History lists the present document and former ones, newest first, at most limit.
	History(ctx context.Context, limit int) ([]Past, error)
}

// Past is a document that the source holds or held.
type Past struct {
	At  time.Time // when it was published; zero: the source forgot
	By  string    // who published it, where the source knows
	Raw []byte
}
