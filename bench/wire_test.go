package bench

import (
	"testing"

	"github.com/sluice-io/sluice/bench/rows"
)

// BenchmarkWire runs what every submit reads and writes beside encoding/json.
func BenchmarkWire(b *testing.B) { benchmarkRows(b, rows.Wire()) }
