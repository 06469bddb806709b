package soldout

import (
	"time"

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
	marked   *prometheus.GaugeVec
	behind   *prometheus.GaugeVec
	reopen   prometheus.Histogram
}

// bySKU labels only configured SKUs.
var bySKU = []string{"activity_id", "sku_id"}

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Hits:     prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_local_soldout_hits_total", Help: "Submits answered SOLD_OUT from memory."}),
		Ignored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_soldout_ignored_total", Help: "Snapshots and events older than the known moment."}),
		Reopened: prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_stock_reopened_total", Help: "Sold-out marks taken down because stock came back."}),
		Errors:   prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_soldout_read_errors_total", Help: "Snapshots or logs of the stock store that could not be read."}),
		epochs:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_stock_epoch", Help: "Stock epoch: rises when remaining crosses zero."}, bySKU),
		left:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_stock_remaining", Help: "Units left as the last snapshot saw them."}, bySKU),
		marked:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_soldout_version", Help: "Stock epoch of the sold-out mark that this instance answers from; 0 without one."}, bySKU),
		behind:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seckill_soldout_state_divergence_seconds", Help: "For how long this instance's view of the stock has not been confirmed by the stock store, as each reading begins."}, bySKU),
		reopen: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_stock_reopen_delay_seconds", Help: "From a STOCK_REOPENED event's emission to this instance taking its mark down.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	r.MustRegister(m.Hits, m.Ignored, m.Reopened, m.Errors, m.epochs, m.left, m.marked, m.behind, m.reopen)
	return m
}

// mark tells the epoch of the mark in force; nil: none.
func (m *Metrics) mark(ref admission.SKURef, up *mark) {
	epoch := 0.0
	if up != nil {
		epoch = float64(up.at.Epoch)
	}
	m.marked.WithLabelValues(ref.ActivityID, ref.SKUID).Set(epoch)
}

// diverged tells how long the view of a SKU has stood unconfirmed.
func (m *Metrics) diverged(ref admission.SKURef, unconfirmed time.Duration) {
	m.behind.WithLabelValues(ref.ActivityID, ref.SKUID).Set(unconfirmed.Seconds())
}

// forget ends the series of a SKU that is no longer served.
func (m *Metrics) forget(ref admission.SKURef) {
	for _, v := range []*prometheus.GaugeVec{m.epochs, m.left, m.marked, m.behind} {
		v.DeleteLabelValues(ref.ActivityID, ref.SKUID)
	}
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
