package admission

import "errors"

// The three kinds of fault. Adapters wrap them with %w and say what failed.
var (
	// ErrUnavailable: the dependency certainly did not do it. Nothing was written.
	ErrUnavailable = errors.New("dependency unavailable")
	// ErrUnknownResult: it may have happened (a timeout, a write error, a lost reply).
	ErrUnknownResult = errors.New("result unknown")
	// ErrConflict: it was refused because the state it was based on is gone
	// (an older term, a version that is not current + 1, a terminal order).
	ErrConflict = errors.New("conflict")
	// ErrNotFound: the dependency answered, and there is no such thing.
	ErrNotFound = errors.New("not found")
)
