package httpapi

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// Metrics is the funnel: every decision, once. Its labels are closed sets: calls,
// stages, outcomes' codes and reasons of our own, never anything a caller wrote.
type Metrics struct {
	ingress  *prometheus.CounterVec
	rejected *prometheus.CounterVec
	admitted *prometheus.CounterVec
	origin   map[Document]prometheus.Counter

	mu       sync.Mutex // guards replacing resolved
	resolved atomic.Pointer[map[verdict]instruments]
}

// verdict is one combination of labels. There are at most a few hundred.
type verdict struct {
	call    admission.Call
	stage   admission.Stage
	outcome admission.Outcome
	reason  admission.Reason
}

type instruments struct{ ingress, rejected prometheus.Counter }

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		ingress:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_ingress_requests_total", Help: "Calls by resource, deciding stage (none: it passed all), decision (the outcome's code, PASS) and reason."}, []string{"call", "stage", "decision", "reason"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_rejected_requests_total", Help: "Submits refused, by stage and reason."}, []string{"stage", "reason"}),
		admitted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_admitted_requests_total", Help: "Submits that hold a reservation."}, []string{"activity_id", "sku_id"}),
	}
	m.resolved.Store(&map[verdict]instruments{})
	origin := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_origin_requests_total", Help: "Requests for public documents that no cache in front answered, by document."}, []string{"document"})
	m.origin = map[Document]prometheus.Counter{}
	for _, doc := range []Document{DocumentActivity, DocumentQueue, DocumentPage, DocumentAsset} {
		m.origin[doc] = origin.WithLabelValues(string(doc))
	}
	r.MustRegister(m.ingress, m.rejected, m.admitted, origin)
	return m
}

// Decided counts a decision. A combination is resolved the first time it occurs.
func (m *Metrics) Decided(call admission.Call, req *admission.Request, d admission.Decision) {
	v := verdict{call, d.Stage, d.Outcome, d.Reason}
	i, ok := (*m.resolved.Load())[v]
	if !ok {
		i = m.resolve(v)
	}
	i.ingress.Inc()
	switch {
	case call != admission.CallSubmit:
	case d.Outcome == admission.Queued:
		m.admitted.WithLabelValues(req.Activity.ID, req.SKU.ID).Inc() // ten thousand times a sale
	default:
		i.rejected.Inc()
	}
}

// Served counts a public document.
func (m *Metrics) Served(doc Document) { m.origin[doc].Inc() }

func (m *Metrics) resolve(v verdict) instruments {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := instruments{
		ingress:  m.ingress.WithLabelValues(v.call.String(), v.stage.String(), v.outcome.String(), string(v.reason)),
		rejected: m.rejected.WithLabelValues(v.stage.String(), string(v.reason)),
	}
	next := maps.Clone(*m.resolved.Load())
	next[v] = i
	m.resolved.Store(&next)
	return i
}
