package rulescmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-io/sluice/rules"
)

// printChanges prints a difference, one change a line; what a canary's bundle does otherwise
// is a difference of its own.
func printChanges(w io.Writer, indent string, changes []rules.Change) {
	inCanary := false
	for _, c := range changes {
		if rest, ok := strings.CutPrefix(c.Path, rules.CanaryPath); ok {
			if !inCanary {
				fmt.Fprintln(w, indent+"the canary's bundle:")
				inCanary = true
			}
			c.Path = "  $" + rest
		}
		fmt.Fprintln(w, indent+c.String())
	}
}
