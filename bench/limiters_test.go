package bench

import (
	"testing"

	"github.com/sluice-io/sluice/bench/pairs"
	"github.com/sluice-io/sluice/bench/rows"
)

// BenchmarkLimiters runs the operations of the table one by one, for a profiler or
// benchstat. Ratios come from `go run ./bench/table`, which alternates them.
func BenchmarkLimiters(b *testing.B) { benchmarkRows(b, rows.Limiters()) }

// BenchmarkKeyed does the same for the table of many keys.
func BenchmarkKeyed(b *testing.B) { benchmarkRows(b, rows.KeyedLimiters()) }

func benchmarkRows(b *testing.B, all []pairs.Row) {
	baselines := map[string]bool{}
	for _, row := range all {
		if row.Value != nil {
			b.Run(row.Name, func(b *testing.B) { benchmarkValue(b, row) })
			continue
		}
		if !baselines[row.Against] {
			baselines[row.Against] = true
			b.Run(row.Against, func(b *testing.B) { benchmarkOp(b, row.Baseline()) })
		}
		b.Run(row.Name, func(b *testing.B) { benchmarkOp(b, row.Subject()) })
	}
}

func benchmarkOp(b *testing.B, op pairs.Op) {
	b.ReportAllocs()
	b.ResetTimer()
	op(b.N)
}

func benchmarkValue(b *testing.B, row pairs.Row) {
	var value float64
	for range b.N {
		value = row.Value()
	}
	b.ReportMetric(value, row.Against)
}
