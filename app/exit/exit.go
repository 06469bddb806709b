// Package exit is what a command says to the shell: 0 done, 1 the answer is no, 2 wrong
// use, 3 a dependency is away.
package exit

import "errors"

// The codes.
const (
	No    = 1 // a violation, a rejected file
	Usage = 2 // wrong flags or settings
	Away  = 3 // a dependency is away
)

// Error is an error with the code that the process ends with.
type Error struct {
	code int
	err  error
}

// Code gives err a code.
func Code(code int, err error) error { return &Error{code, err} }

// Said is the code of an answer that has been printed whole: its text is empty, and nothing
// is to be added in words.
func Said(code int) error { return Code(code, errSaid) }

var errSaid = errors.New("")

// Error is the wrapped error's text.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.err }

// ExitCode is the process's code.
func (e *Error) ExitCode() int { return e.code }

// Of is the code of any error: its own, or 1.
func Of(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return No
}
