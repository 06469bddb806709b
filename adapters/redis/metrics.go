package redis

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts faults and round trips by store. Stores are named by their client's
// Options, kinds are the closed set of errors.go.
type Metrics struct {
	errors  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewMetrics registers the package's instruments, once a process.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_redis_errors_total",
			Help: "Redis commands that failed, by store (stock, limiter, audit) and kind (dial, pool, timeout, loading, oom, ...).",
		}, []string{"store", "kind"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "seckill_redis_round_trip_seconds",
			Help:    "Duration of a round trip to Redis, waiting for a connection included, by store.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"store"}),
	}
	reg.MustRegister(m.errors, m.seconds)
	return m
}

// storeMetrics are one store's instruments, resolved once.
type storeMetrics struct {
	errors  map[Kind]prometheus.Counter
	other   prometheus.Counter
	seconds prometheus.Observer
}

var kinds = [...]Kind{
	KindDial, KindPool, KindClosed, KindExpired, KindLoading, KindReadOnly, KindOOM, KindAuth, KindWrongType, KindBusy,
	KindTryAgain, KindClusterDown, KindMasterDown, KindNoReplicas, KindMisconf, KindMaxClients, KindRedirect,
	KindCrossSlot, KindNoScript, KindArguments, KindMissing, KindTimeout, KindCanceled, KindConnection, KindShape, KindReply, KindOther,
}

func (m *Metrics) store(name string) *storeMetrics {
	if m == nil {
		return nil
	}
	s := &storeMetrics{
		errors:  make(map[Kind]prometheus.Counter, len(kinds)),
		other:   m.errors.WithLabelValues(name, string(KindOther)),
		seconds: m.seconds.WithLabelValues(name),
	}
	for _, k := range kinds {
		s.errors[k] = m.errors.WithLabelValues(name, string(k))
	}
	return s
}

func (s *storeMetrics) took(d time.Duration) {
	if s != nil {
		s.seconds.Observe(d.Seconds())
	}
}

func (s *storeMetrics) failed(k Kind) {
	if s == nil || k == "" { // "" is an absent value, no fault
		return
	}
	if c, ok := s.errors[k]; ok {
		c.Inc()
		return
	}
	s.other.Inc()
}
