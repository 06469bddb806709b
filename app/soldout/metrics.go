package soldout

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// Metrics counts what the marks did.
type Metrics struct {
	Hits     prometheus.Counter // requests answered from a mark
	Ignored  prometheus.Counter // moments older than the known one
	Reopened prometheus.Counter // marks taken down
	Errors   prometheus.Counter // snapshots or logs that could not be read
	epochs   *prometheus.GaugeVec
	left     *prometheus.GaugeVec
}

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Hits:     prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_local_soldout_hits_total", Help: "Submits answered SOLD_OUT from memory."}),
		Ignored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_soldout_ignored_total", Help: "Snapshots and events older than the known moment."}),
		Reopened: prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_stock_reopened_total", Help: "Sold-out marks taken down because stock came back."}),
		Errors:   prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_soldout_read_errors_total", Help: "Snapshots or logs of the stock store that could not be read."}),
		epochs:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_stock_epoch", Help: "Stock epoch: rises when remaining crosses zero."}, []string{"activity_id", "sku_id"}),
		left:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_stock_remaining", Help: "Units left as the last snapshot saw them."}, []string{"activity_id", "sku_id"}),
	}
	r.MustRegister(m.Hits, m.Ignored, m.Reopened, m.Errors, m.epochs, m.left)
	return m
}

// epoch is off the hot path: once per snapshot; its labels are configured SKUs only.
func (m *Metrics) epoch(ref admission.SKURef, s admission.StockSnapshot) {
	m.epochs.WithLabelValues(ref.ActivityID, ref.SKUID).Set(float64(s.Epoch))
	m.left.WithLabelValues(ref.ActivityID, ref.SKUID).Set(float64(s.Remaining))
}

func (m *Metrics) step(err error) {
	if err != nil {
		m.Errors.Inc()
	}
}
