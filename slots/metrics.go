package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/stat"
	"github.com/alibaba/sentinel-golang/core/system_metric"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
)

// metrics are the pipeline's instruments, resolved once: nothing on the hot path looks
// a label up.
type metrics struct {
	blocks          [admission.Calls]*blockCounters
	shadows         [admission.Stages]prometheus.Counter
	tickets         [ticket.Reasons]prometheus.Counter
	ticketsByKey    *prometheus.CounterVec
	claims          [claimResults]prometheus.Counter
	remotes         map[string]prometheus.Counter // read only after construction
	deviceTightened prometheus.Counter
	sheds           map[admission.Reason]prometheus.Counter // read only after construction
}

// shedReasons are why a chain says that we are full. shedOther is what a lease may say
// beyond them.
var shedReasons = [...]admission.Reason{
	admission.ReasonModeQueueOnly, admission.ReasonModeClosed, admission.ReasonSystemRule, admission.ReasonFlowRule, admission.ReasonSKURate,
	admission.ReasonIsolationRule, admission.ReasonSeats, admission.ReasonLeaseEmpty, shedOther,
}

const shedOther admission.Reason = "other"

// blockCounters counts Sentinel's blocks of one resource by type.
type blockCounters struct {
	byType [blockTypes]prometheus.Counter
}

const blockTypes = int(base.BlockTypeHotSpotParamFlow) + 1

var blockNames = [blockTypes]string{"stage", "flow", "isolation", "circuitbreaker", "system", "hotspot"}

func (b *blockCounters) count(t base.BlockType) {
	if int(t) >= blockTypes {
		t = base.BlockTypeUnknown
	}
	b.byType[t].Inc()
}

func newMetrics(r prometheus.Registerer, g *Gate) *metrics {
	m := &metrics{remotes: map[string]prometheus.Counter{}, sheds: map[admission.Reason]prometheus.Counter{}}
	blocks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sentinel_resource_block_total", Help: "Requests blocked on a resource, by the slot that blocked (stage: a stage of ours that is no rate)."}, []string{"resource", "slot"})
	shadows := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_shadow_refusals_total", Help: "Requests that a stage in shadow would have refused."}, []string{"stage"})
	tickets := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_ticket_verify_total", Help: "Tickets checked, by result."}, []string{"result"})
	m.ticketsByKey = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_ticket_verify_by_key_total", Help: "Tickets of a key in the ring, by result (refused; seckill_ticket_verify_total has the others)."}, []string{"key_id", "result"})
	claims := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_replay_claim_total", Help: "Nonce claims, by result."}, []string{"result"})
	remotes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_remote_limit_total", Help: "Questions to the cluster-wide user bucket, by answer (allowed, refused, error)."}, []string{"result"})
	m.deviceTightened = prometheus.NewCounter(prometheus.CounterOpts{Name: "seckill_device_tightened_total", Help: "Requests whose device was over its rate and took one more from its user's bucket."})
	sheds := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seckill_load_shed_total", Help: "Requests answered SYSTEM_OVERLOADED, by reason."}, []string{"reason"})
	r.MustRegister(blocks, shadows, sheds, tickets, m.ticketsByKey, claims, remotes, m.deviceTightened, &resourceCollector{resources: g.resources}, &limiterCollector{gate: g})
	for c := range admission.Calls {
		m.blocks[c] = &blockCounters{}
		for t, name := range blockNames {
			m.blocks[c].byType[t] = blocks.WithLabelValues(c.String(), name)
		}
	}
	for s := range admission.Stages {
		m.shadows[s] = shadows.WithLabelValues(s.String())
	}
	for t := range ticket.Reasons {
		m.tickets[t] = tickets.WithLabelValues(t.String())
	}
	for result, name := range claimNames {
		m.claims[result] = claims.WithLabelValues(name)
	}
	for _, result := range []string{"allowed", "refused", "error"} {
		m.remotes[result] = remotes.WithLabelValues(result)
	}
	for _, reason := range shedReasons {
		m.sheds[reason] = sheds.WithLabelValues(string(reason))
	}
	return m
}

// shed counts a decision that says that we are full; every other one is none of its business.
func (m *metrics) shed(d admission.Decision) {
	switch d.Outcome {
	case admission.Overloaded, admission.OverloadedQueueOnly, admission.OverloadedClosed:
		c, known := m.sheds[d.Reason]
		if !known {
			c = m.sheds[shedOther]
		}
		c.Inc()
	default:
	}
}

func (m *metrics) remote(result string)     { m.remotes[result].Inc() }
func (m *metrics) shadow(s admission.Stage) { m.shadows[s].Inc() }
func (m *metrics) claim(result claimResult) { m.claims[result].Inc() }

// claimResult is how a claim ended: a label.
type claimResult uint8

const (
	claimFirst claimResult = iota
	claimSame
	claimNonceConflict
	claimBodyConflict
	claimLocalConflict
	claimError
	claimResults
)

var claimNames = [claimResults]string{"first", "same", "nonce_conflict", "body_conflict", "local_conflict", "error"}

// ticket counts by reason, and failures by key: a key that some instances do not know
// shows there. The key is in the ring, so the label set is closed.
func (m *metrics) ticket(r ticket.Reason, keyID string) {
	m.tickets[min(r, ticket.Reasons-1)].Inc()
	if r != ticket.OK && keyID != "" {
		m.ticketsByKey.WithLabelValues(keyID, "refused").Inc()
	}
}

// resourceCollector exports the statistics that Sentinel keeps of our resources.
type resourceCollector struct {
	resources [admission.Calls]*base.ResourceWrapper
}

var (
	passDesc        = prometheus.NewDesc("sentinel_resource_pass_qps", "Passed per second, over Sentinel's last statistic interval.", []string{"resource"}, nil)
	blockDesc       = prometheus.NewDesc("sentinel_resource_block_qps", "Blocked per second.", []string{"resource"}, nil)
	completeDesc    = prometheus.NewDesc("sentinel_resource_complete_qps", "Completed per second.", []string{"resource"}, nil)
	errorDesc       = prometheus.NewDesc("sentinel_resource_error_qps", "Completed with an error per second.", []string{"resource"}, nil)
	rtDesc          = prometheus.NewDesc("sentinel_resource_rt_avg_ms", "Mean time between entry and exit, ms.", []string{"resource"}, nil)
	systemCPUDesc   = prometheus.NewDesc("sentinel_system_cpu", "Fraction of the CPU quota as the system rules see it; -1: not known.", nil, nil)
	systemLoadDesc  = prometheus.NewDesc("sentinel_system_load", "Load average of the host as the system rules see it; -1: not known.", nil, nil)
	concurrencyDesc = prometheus.NewDesc("sentinel_resource_concurrency", "Entries that have not exited; only those of seckill.reserve stay.", []string{"resource"}, nil)
)

func (*resourceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{passDesc, blockDesc, completeDesc, errorDesc, rtDesc, concurrencyDesc, systemCPUDesc, systemLoadDesc} {
		ch <- d
	}
}

func (c *resourceCollector) Collect(ch chan<- prometheus.Metric) {
	rules.TickSentinel()
	ch <- prometheus.MustNewConstMetric(systemCPUDesc, prometheus.GaugeValue, system_metric.CurrentCpuUsage())
	ch <- prometheus.MustNewConstMetric(systemLoadDesc, prometheus.GaugeValue, system_metric.CurrentLoad())
	for call, r := range c.resources {
		n := stat.GetResourceNode(r.Name())
		if n == nil {
			continue // nobody has called it yet
		}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, r.Name())
		}
		gauge(passDesc, n.GetQPS(base.MetricEventPass))
		gauge(blockDesc, n.GetQPS(base.MetricEventBlock))
		completed := base.MetricEventComplete
		if !stays(admission.Call(call)) {
			completed = base.MetricEventPass
		}
		gauge(completeDesc, n.GetQPS(completed))
		gauge(errorDesc, n.GetQPS(base.MetricEventError))
		gauge(rtDesc, n.AvgRT())
		gauge(concurrencyDesc, float64(n.CurrentConcurrency()))
	}
}

// limiterCollector exports the keyed limiters and the seats.
type limiterCollector struct{ gate *Gate }

var (
	entriesDesc  = prometheus.NewDesc("seckill_local_limiter_entries", "Keys remembered.", []string{"dimension"}, nil)
	rejectDesc   = prometheus.NewDesc("seckill_local_limiter_reject_total", "Calls refused.", []string{"dimension"}, nil)
	overflowDesc = prometheus.NewDesc("seckill_local_limiter_overflow_total", "Calls that found the table full and were decided by their prefix.", []string{"dimension"}, nil)
	inflightDesc = prometheus.NewDesc("seckill_inflight_requests", "Seats taken.", []string{"activity_id", "sku_id"}, nil)
	seatsDesc    = prometheus.NewDesc("seckill_inflight_limit", "Seats in all.", []string{"activity_id", "sku_id"}, nil)
)

func (*limiterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{entriesDesc, rejectDesc, overflowDesc, inflightDesc, seatsDesc} {
		ch <- d
	}
}

func (c *limiterCollector) Collect(ch chan<- prometheus.Metric) {
	g := c.gate
	for name, table := range map[string]*limit.Keyed{"source": g.sources, "user": g.users, "device": g.devices, "call": g.callers, "shadow": g.shadows} {
		s := table.Stats()
		ch <- prometheus.MustNewConstMetric(entriesDesc, prometheus.GaugeValue, float64(s.Entries), name)
		ch <- prometheus.MustNewConstMetric(rejectDesc, prometheus.CounterValue, float64(s.Refused+s.OverflowRefused), name)
		ch <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, float64(s.Overflowed+s.OverflowRefused), name)
	}
	w := g.view.Load()
	if w == nil {
		return
	}
	for ref, p := range w.policies {
		ch <- prometheus.MustNewConstMetric(inflightDesc, prometheus.GaugeValue, float64(p.seats.InFlight()), ref.ActivityID, ref.SKUID)
		ch <- prometheus.MustNewConstMetric(seatsDesc, prometheus.GaugeValue, float64(p.seats.Limit()), ref.ActivityID, ref.SKUID)
	}
}
