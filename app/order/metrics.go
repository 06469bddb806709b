package order

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// Metrics counts what becomes of orders. Every label comes from a closed set and
// every instrument is resolved once.
type Metrics struct {
	reserve [admission.ReserveClosed + 1]prometheus.Counter // by code; 0 is a fault
	send    [sendResults]prometheus.Counter
	batch   prometheus.Histogram
	waiting prometheus.Gauge

	marked      prometheus.Counter
	markDropped prometheus.Counter
	markFailed  prometheus.Counter

	verdict       map[admission.VerdictOutcome]prometheus.Counter
	decideFailed  prometheus.Counter
	decideSeconds prometheus.Histogram
	applyFailed   [appliers]prometheus.Counter
	deadLetters   prometheus.Counter
	panics        prometheus.Counter

	recovered      [recoveryActions]prometheus.Counter
	recoveryFailed [recoveryActions]prometheus.Counter
	oldestDue      prometheus.Gauge
	restoring      prometheus.Gauge

	differences *prometheus.GaugeVec
}

// sendResult is how one hand-off to the queue ended.
type sendResult uint8

const (
	sendAcked sendResult = iota
	sendUnknown
	sendUnavailable
	sendFull
	sendLeft
	sendNoBudget

	sendResults
)

var sendResultNames = [sendResults]string{"acked", "unknown", "unavailable", "full", "left", "no_budget"}

// applier is who carried a verdict into the stock.
type applier uint8

const (
	byConsumer applier = iota
	byRecovery
	byService
	byRepair

	appliers
)

var applierNames = [appliers]string{"consumer", "recovery", "service", "repair"}

// recoveryAction is one thing that recovery does.
type recoveryAction uint8

const (
	recoverScan recoveryAction = iota
	recoverResend
	recoverDecide
	recoverEffect
	recoverUnpaid

	recoveryActions
)

var recoveryActionNames = [recoveryActions]string{"scan", "resend", "decide", "effect", "unpaid"}

var reserveNames = [admission.ReserveClosed + 1]string{
	"fault", "reserved", "same", "body_conflict", "holder", "sold_out", "not_open", "ended", "version", "missing", "closed",
}

// NewMetrics registers the package's metrics; nil registers nothing and still counts.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_order_send_batch_messages", Help: "Messages of one send to the queue.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_order_send_waiting", Help: "Messages accepted by the sender and not yet sent.",
		}),
		marked:       counter("seckill_order_marked_sent_total", "Reservations whose acknowledged message was recorded."),
		markDropped:  counter("seckill_order_mark_dropped_total", "Acknowledgements not recorded because the buffer was full; recovery sends these again."),
		markFailed:   counter("seckill_order_mark_failed_total", "Acknowledgements that the stock store did not take; recovery sends these again."),
		decideFailed: counter("seckill_order_decide_failed_total", "Messages that SQL did not decide; they come again."),
		decideSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_order_decide_seconds", Help: "Duration of one deciding transaction, in seconds.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		deadLetters: counter("seckill_order_dead_letters_total", "Messages that can never be decided."),
		panics:      counter("seckill_order_panics_total", "Panics contained while deciding or sending."),
		oldestDue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_order_oldest_due_seconds", Help: "Age of the oldest due reservation that the last recovery step met, in seconds; 0 when none was due.",
		}),
		restoring: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_restore_closed_skus", Help: "SKUs on sale whose stock is closed until it is restored from SQL; alert above 0.",
		}),
		differences: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "seckill_reconcile_differences", Help: "Differences between stock and SQL at the last comparison, by kind: " + kindList() + ".",
		}, []string{"kind"}),
	}
	reserve := vec("seckill_order_reserve_total", "Reservations wanted, by result.", "result")
	for i, name := range reserveNames {
		m.reserve[i] = reserve.WithLabelValues(name)
	}
	send := vec("seckill_order_send_total", "Hand-offs to the queue, by result: acked, unknown, unavailable, full, left (the caller left before it was sent), no_budget.", "result")
	for i, name := range sendResultNames {
		m.send[i] = send.WithLabelValues(name)
	}
	verdict := vec("seckill_order_verdicts_total", "Verdicts of SQL, repeats included, by outcome.", "outcome")
	m.verdict = make(map[admission.VerdictOutcome]prometheus.Counter, 3)
	for _, o := range []admission.VerdictOutcome{admission.VerdictCreated, admission.VerdictDuplicate, admission.VerdictNoCapacity} {
		m.verdict[o] = verdict.WithLabelValues(string(o))
	}
	apply := vec("seckill_order_effect_failed_total", "Batches of verdicts that did not reach the stock store, by who carried them: consumer, recovery, service, repair.", "by")
	for i, name := range applierNames {
		m.applyFailed[i] = apply.WithLabelValues(name)
	}
	recovered := vec("seckill_recovery_total", "What recovery did, by action: scan (SKUs), resend, decide, effect, unpaid (reservations).", "action")
	failed := vec("seckill_recovery_failed_total", "What recovery tried in vain, by action.", "action")
	for i, name := range recoveryActionNames {
		m.recovered[i] = recovered.WithLabelValues(name)
		m.recoveryFailed[i] = failed.WithLabelValues(name)
	}
	for _, k := range kinds {
		m.differences.WithLabelValues(string(k))
	}
	if r != nil {
		r.MustRegister(m.batch, m.waiting, m.marked, m.markDropped, m.markFailed, m.decideFailed, m.decideSeconds,
			m.deadLetters, m.panics, m.oldestDue, m.restoring, m.differences, reserve, send, verdict, apply, recovered, failed)
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func vec(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}
