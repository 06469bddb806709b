// Package rows lists what `make bench` measures. A new area is one file with its rows and
// one line in All.
package rows

import (
	"slices"

	"github.com/sluice-io/sluice/bench/pairs"
)

// All returns every row, in the order of the table.
func All() []pairs.Row {
	return slices.Concat(
		Limiters(),
		KeyedLimiters(),
		Chains(),
		Wire(),
		HTTP(),
		StockScripts(),
		Orders(),
	)
}
