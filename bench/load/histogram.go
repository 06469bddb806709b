package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a Histogram can tell apart: 1 us to 10 min with three significant digits, in about 200 KiB.
const (
	shortest = time.Microsecond
	longest  = 10 * time.Minute
	digits   = 3
)

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // guarded by mu
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(shortest.Microseconds(), longest.Microseconds(), digits)}
}

// Record counts one duration; what lies outside the range counts as its end.
func (h *Histogram) Record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.h.RecordValue(min(max(d, shortest), longest).Microseconds()) // inside the range by construction
}

// Summary is a histogram in the figures that are read.
type Summary struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// Summary reads the histogram; all zero when it is empty.
func (h *Histogram) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	ms := func(us int64) float64 { return float64(us) / 1000 }
	at := func(q float64) float64 { return ms(h.h.ValueAtQuantile(q)) }
	return Summary{Count: h.h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: ms(h.h.Max())}
}
