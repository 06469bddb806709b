package rules

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the rules. The zero pointer counts nothing.
type Metrics struct {
	applied  prometheus.Counter
	rejected map[Reason]prometheus.Counter
	version  prometheus.Gauge
	age      prometheus.Gauge
	stale    prometheus.Gauge
	source   *prometheus.GaugeVec
	contact  prometheus.Counter
	apply    prometheus.Histogram
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_rules_rejected_total",
		Help: "Documents refused whole, by reason (syntax, decode, validate, empty, deleted, version, high_water, policy_version, confirm, load)."}, []string{"reason"})
	m := &Metrics{
		rejected: map[Reason]prometheus.Counter{},
		applied:  prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_rules_applied_total", Help: "Bundles put in force."}),
		version:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "seckill_rules_version", Help: "Version of the document in force; 0: none."}),
		age:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "seckill_rules_age_seconds", Help: "Seconds since the source last showed the version in force as current."}),
		stale:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "seckill_rules_stale", Help: "1 while this instance is behind the cluster's high-water mark for longer than its grace."}),
		source:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_rules_policy_source", Help: "1 for where the rules in force came from (source, last_good)."}, []string{"policy_source"}),
		contact:  prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_rules_source_errors_total", Help: "Looks at the source that got no answer."}),
		apply:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seckill_rules_apply_seconds", Help: "Seconds from a document in hand to its snapshot in force.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8)}),
	}
	reg.MustRegister(rejected, m.applied, m.version, m.age, m.stale, m.source, m.contact, m.apply)
	for _, r := range Reasons() {
		m.rejected[r] = rejected.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) refused(r Reason) {
	if m != nil {
		m.rejected[r].Inc()
	}
}

func (m *Metrics) inForce(version int64, fromLastGood bool, seconds float64) {
	if m == nil {
		return
	}
	m.applied.Inc()
	m.version.Set(float64(version))
	m.apply.Observe(seconds)
	m.from(fromLastGood)
}

func (m *Metrics) from(lastGood bool) {
	if m == nil {
		return
	}
	m.source.WithLabelValues("last_good").Set(boolean(lastGood))
	m.source.WithLabelValues("source").Set(boolean(!lastGood))
}

func (m *Metrics) watch(ageSeconds float64, stale bool) {
	if m != nil {
		m.age.Set(ageSeconds)
		m.stale.Set(boolean(stale))
	}
}

func (m *Metrics) unreachable() {
	if m != nil {
		m.contact.Inc()
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
