package waitroom

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the room did.
type Metrics struct {
	Issued      prometheus.Counter
	StoreErrors prometheus.Counter
}

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Issued:      prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_ticket_issued_total", Help: "Tickets issued to people whose turn it was."}),
		StoreErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_queue_store_errors_total", Help: "Rereads of the room's state that failed; watermarks stayed."}),
	}
	r.MustRegister(m.Issued, m.StoreErrors)
	return m
}
