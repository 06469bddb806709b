package lease

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// metrics are the package's instruments, each resolved once.
type metrics struct {
	left                      prometheus.Gauge
	wasted                    prometheus.Counter
	granted                   prometheus.Counter
	asksGranted, asksNone     prometheus.Counter
	asksFailed                prometheus.Counter
	exhaustedEmpty, exhausted prometheus.Counter
	seconds                   prometheus.Histogram
	failures                  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, instance string) *metrics {
	asks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seckill_global_lease_asks_total",
		Help: "Asks for tokens, one per bucket, by result (granted, none, error).",
	}, []string{"result"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seckill_global_lease_exhausted_total",
		Help: "Requests refused for want of a token, by reason (lease_empty, lease_store).",
	}, []string{"reason"})
	m := &metrics{
		left: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_global_lease_remaining", Help: "Live tokens of SKUs in this instance's memory, read once a second.",
			ConstLabels: prometheus.Labels{"instance": instance},
		}),
		wasted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_global_lease_wasted_total", Help: "Tokens that died unspent, SKUs and activities together.",
		}),
		granted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_global_lease_granted_total", Help: "Tokens granted, SKUs and activities together.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_global_limiter_latency_seconds", Help: "Duration of one ask for tokens.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .003, .005, .01, .025, .05, .1},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_global_limiter_errors_total", Help: "Asks that the limiter store did not answer, one per bucket.",
		}),
	}
	m.asksGranted, m.asksNone, m.asksFailed = asks.WithLabelValues("granted"), asks.WithLabelValues("none"), asks.WithLabelValues("error")
	m.exhaustedEmpty = refused.WithLabelValues(string(admission.ReasonLeaseEmpty))
	m.exhausted = refused.WithLabelValues(string(admission.ReasonLeaseStore))
	if reg != nil {
		reg.MustRegister(asks, refused, m.left, m.wasted, m.granted, m.seconds, m.failures)
	}
	return m
}

func (m *metrics) refused(r admission.Reason) {
	if r == admission.ReasonLeaseStore {
		m.exhausted.Inc()
	} else {
		m.exhaustedEmpty.Inc()
	}
}

func (m *metrics) asked(took time.Duration) { m.seconds.Observe(took.Seconds()) }

func (m *metrics) answered(a admission.LeaseAnswer) {
	switch {
	case a.Err != nil:
		m.asksFailed.Inc()
		m.failures.Inc()
	case a.Granted > 0:
		m.asksGranted.Inc()
		m.granted.Add(float64(a.Granted))
	default:
		m.asksNone.Inc()
	}
}

func (m *metrics) waste(n int64) {
	if n > 0 {
		m.wasted.Add(float64(n))
	}
}

func (m *metrics) remaining(n int64) { m.left.Set(float64(n)) }
