package guard

import "github.com/prometheus/client_golang/prometheus"

var (
	stateDesc   = prometheus.NewDesc("seckill_dependency_breaker_state", "Where the breaker stands: 0 closed, 1 half open, 2 open.", []string{"dependency"}, nil)
	refusedDesc = prometheus.NewDesc("seckill_dependency_breaker_refused_total", "Calls that an open breaker did not make.", []string{"dependency"}, nil)
)

// collector exports breakers; their names are the labels.
type collector []*Breaker

// Register exports breakers to a registry.
func Register(r prometheus.Registerer, breakers ...*Breaker) { r.MustRegister(collector(breakers)) }

func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- stateDesc; ch <- refusedDesc }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, b := range c {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(b.State()), b.name)
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(b.Refused()), b.name)
	}
}
