package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/waitroom"
)

// Metrics shows what the leader decides and on what estimates.
type Metrics struct {
	released *prometheus.CounterVec
	need     *prometheus.GaugeVec
	showUp   *prometheus.GaugeVec
	reserve  *prometheus.GaugeVec
}

// NewMetrics registers with r. The labels are the activities whose waves this process leads.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"activity_id"}
	m := &Metrics{
		released: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_queue_released_total", Help: "People released by this leader's waves."}, labels),
		need:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_wave_need", Help: "People the last wave wanted, before its caps."}, labels),
		showUp:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_wave_show_up", Help: "Estimated tickets issued per person released (s)."}, labels),
		reserve:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_wave_reserve", Help: "Estimated reservations per ticket (c)."}, labels),
	}
	r.MustRegister(m.released, m.need, m.showUp, m.reserve)
	return m
}

func (m *Metrics) wave(activityID string, d waitroom.Release, people int64) {
	m.released.WithLabelValues(activityID).Add(float64(people))
	m.need.WithLabelValues(activityID).Set(d.Need)
	m.showUp.WithLabelValues(activityID).Set(d.S)
	m.reserve.WithLabelValues(activityID).Set(d.C)
}

// forget drops an activity's series: its sale is over, or somebody else leads it.
func (m *Metrics) forget(activityID string) {
	m.released.DeleteLabelValues(activityID)
	m.need.DeleteLabelValues(activityID)
	m.showUp.DeleteLabelValues(activityID)
	m.reserve.DeleteLabelValues(activityID)
}
