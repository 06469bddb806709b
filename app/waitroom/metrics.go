package waitroom

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the room did.
type Metrics struct {
	Issued      prometheus.Counter
	StoreErrors prometheus.Counter
	Restored    prometheus.Counter // places stored again from their pass
	Challenged  prometheus.Counter // joins that were asked for work
	Solved      prometheus.Counter // joins that showed it
	Unsolved    prometheus.Counter // joins whose solution does not hold
}

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	challenges := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_join_challenge_total", Help: "Joins before the opening where work is demanded, by result (asked, solved, refused)."}, []string{"result"})
	m := &Metrics{
		Issued:      prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_ticket_issued_total", Help: "Tickets issued to people whose turn it was."}),
		StoreErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_queue_store_errors_total", Help: "Rereads of the room's state that failed; watermarks stayed."}),
	}
	m.Restored = prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_queue_places_restored_total", Help: "Places of a lost room that were stored again from their holders' passes."})
	m.Challenged, m.Solved, m.Unsolved = challenges.WithLabelValues("asked"), challenges.WithLabelValues("solved"), challenges.WithLabelValues("refused")
	r.MustRegister(m.Issued, m.StoreErrors, m.Restored, challenges)
	return m
}
