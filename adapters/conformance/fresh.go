package conformance

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// fresh returns a decimal id that no other case on the same store uses.
func fresh(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(1e17+rand.Int64N(8e17), 10) //nolint:gosec // an id, not a secret
}

// isFault reports whether err is wrapped as package admission demands of an adapter.
func isFault(err error) bool {
	return errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrUnknownResult)
}
