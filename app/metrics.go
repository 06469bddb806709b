package main

import (
	"github.com/prometheus/client_golang/prometheus"
)

// gauges show what only the whole service knows: modes, rates in force and what binds
// them, the waiting room, readiness. They are read when somebody scrapes.
type gauges struct{ s *service }

var (
	modeDesc    = prometheus.NewDesc("seckill_admission_mode", "Effective mode of new submits: 0 NORMAL, 1 DEGRADED, 2 QUEUE_ONLY, 3 CLOSED.", []string{"activity_id", "sku_id"}, nil)
	rateDesc    = prometheus.NewDesc("seckill_admission_rate_limit", "Reported admission rate, per second, with the term that binds it.", []string{"activity_id", "sku_id", "binding"}, nil)
	queueDesc   = prometheus.NewDesc("seckill_queue_users", "People in the waiting room, by state (joined, released).", []string{"activity_id", "state"}, nil)
	leadingDesc = prometheus.NewDesc("seckill_control_leading", "1 on the instance that leads.", nil, nil)
)

// Describe implements prometheus.Collector.
func (gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{modeDesc, rateDesc, queueDesc, leadingDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Its labels are the activities on sale.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.s
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	leading := 0.0
	if s.leader.Leading() {
		leading = 1
	}
	send(leadingDesc, leading)
	seen := map[string]bool{}
	for _, ref := range s.directory.SKUs(s.now()) {
		p := s.policy(ref)
		rate := p.RAdmit()
		send(modeDesc, float64(max(p.Mode, s.mode())), ref.ActivityID, ref.SKUID)
		send(rateDesc, rate.Rate, ref.ActivityID, ref.SKUID, rate.Binding)
		if seen[ref.ActivityID] {
			continue
		}
		seen[ref.ActivityID] = true
		state := s.room.State(ref.ActivityID)
		var released int64
		for _, lane := range state.Lanes {
			released += lane.Released
		}
		send(queueDesc, float64(state.Joined), ref.ActivityID, "joined")
		send(queueDesc, float64(released), ref.ActivityID, "released")
	}
}
