package bench

import (
	"testing"

	"github.com/sluice-io/sluice/bench/rows"
)

// BenchmarkChains runs the pipeline's rows one by one, for a profiler.
func BenchmarkChains(b *testing.B) { benchmarkRows(b, rows.Chains()) }
