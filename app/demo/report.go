package demo

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/bench/load"
)

// Report is the verdict with its figures; --json writes it as it is.
type Report struct {
	OK         bool        `json:"ok"`
	Violations []Violation `json:"violations"`

	ActivityID string  `json:"activity_id"`
	SKUID      string  `json:"sku_id"`
	Seed       uint64  `json:"seed,string"`
	Targets    int     `json:"targets"`
	Users      int     `json:"users"`
	HostilePct float64 `json:"hostile_percent"`

	Stock     int64 `json:"stock"`
	Sold      int64 `json:"sold"`      // reservations that stand, in the stock store
	Remaining int64 `json:"remaining"` // in the stock store
	Orders    int64 `json:"orders"`    // in SQL, not cancelled
	Buyers    int64 `json:"buyers"`    // distinct people with one
	Told      int64 `json:"told"`      // people who were told of a reservation
	Conserved bool  `json:"conserved"` // total = remaining + live + created + paid, by reservation
	Failed    int64 `json:"failed"`    // reservations that ended without an order
	Waiting   int64 `json:"waiting"`   // people in line when it ended
	Tally     Tally `json:"tally"`

	Joined   int64 `json:"joined"`
	Released int64 `json:"released"`
	Tickets  int64 `json:"tickets"`

	SoldInMS  *int64 `json:"sold_in_ms"`  // from the opening to the last reservation; nil: not sold out
	ShownInMS *int64 `json:"shown_in_ms"` // to the first queue document that said SOLD_OUT

	Calls         []CallReport                   `json:"calls"`
	Hostile       map[Kind]*HostileFacts         `json:"hostile"`
	Endings       map[Kind]map[client.Ending]int `json:"endings"`
	Stuck         []string                       `json:"stuck"` // reservations LIVE for longer than recovery needs
	StuckLive     int64                          `json:"stuck_live"`
	Amplification float64                        `json:"amplification"` // requests / first tries
	Commands      *Commands                      `json:"redis"`         // nil: /metrics is not known
	ElapsedMS     int64                          `json:"elapsed_ms"`
}

// CallReport is one call's figures. Wire is from sending to the answer; Intended from the moment when it was
// wanted, waiting for a connection of this program included.
type CallReport struct {
	Call     client.Call       `json:"call"`
	Requests int64             `json:"requests"`
	Retries  int64             `json:"retries"`
	Codes    map[string]int64  `json:"codes"`
	Faults   map[string]int64  `json:"faults"`
	Examples map[string]string `json:"fault_examples"`
	Wire     load.Summary      `json:"wire"`
	Intended load.Summary      `json:"intended"`
}

// Commands are Redis round trips that belong to submits, from the first instance's counters.
type Commands struct {
	Claims      float64 `json:"nonce_claims"`
	Reserves    float64 `json:"reserves"`
	LeaseAsks   float64 `json:"lease_asks"`
	PerAdmitted float64 `json:"per_admitted_submit"`
	All         float64 `json:"round_trips_of_everything"`
}

const (
	claimCounter   = "seckill_replay_claim_total"
	reserveCounter = "seckill_order_reserve_total"
	leaseCounter   = "seckill_global_lease_asks_total"
	tripCounter    = "seckill_redis_round_trip_seconds_count"
)

// commandCounters are what the service counts of its round trips.
var commandCounters = []string{claimCounter, reserveCounter, leaseCounter, tripCounter}

// commandsPerAdmitted is nil when the counters cannot be read or nothing was reserved.
func commandsPerAdmitted(before, after counters, err error) *Commands {
	if err != nil {
		return nil
	}
	diff := func(name string) float64 { return after[name] - before[name] }
	c := &Commands{Claims: diff(claimCounter), Reserves: diff(reserveCounter), LeaseAsks: diff(leaseCounter), All: diff(tripCounter)}
	if c.Reserves <= 0 {
		return nil
	}
	c.PerAdmitted = (c.Claims + c.Reserves + c.LeaseAsks) / c.Reserves
	return c
}

func (l *ledger) violations() []Violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Violation
	for _, rule := range slices.Sorted(maps.Keys(l.broken)) {
		out = append(out, *l.broken[rule])
	}
	return out
}

func (r *run) report(s seen) *Report {
	l := r.ledger
	st, or := s.tally.Stock, s.tally.Orders
	out := &Report{
		ActivityID: r.offer.activityID, SKUID: r.offer.skuID, Seed: r.config.Seed, Targets: len(r.config.Target.Public),
		Users: r.config.Users, HostilePct: r.config.Hostile, Stock: s.stock,
		Sold: st.Live + st.Created + st.Paid, Remaining: st.Remaining, Orders: or.Created + or.Paid, Buyers: or.Users,
		Told: int64(len(s.holders)), Conserved: s.tallyFailed == nil && st.Conserved(), Waiting: s.waiting, Tally: s.tally,
		Joined: l.joined.Load(), Released: l.released.Load(), Tickets: l.ticketed.Load(),
		StuckLive: st.Live, Amplification: r.budget.Amplification(), ElapsedMS: time.Since(r.begin).Milliseconds(),
		Stuck: []string{},
	}
	for _, a := range s.accepted {
		switch {
		case a.answer.Status == client.StatusFailed:
			out.Failed++
		case !a.answer.Final() && time.Since(a.since) > stuckAfter:
			out.Stuck = append(out.Stuck, a.answer.ReservationID)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if shown := r.soldOut.Load(); shown != 0 {
		last, first := l.lastSale.Sub(r.shop.opens).Milliseconds(), time.Unix(0, shown).Sub(r.shop.opens).Milliseconds()
		out.SoldInMS, out.ShownInMS = &last, &first
	}
	for call, f := range l.calls {
		out.Calls = append(out.Calls, CallReport{call, f.requests, f.retries, maps.Clone(f.codes), maps.Clone(f.faults), maps.Clone(f.examples), f.wire.Summary(), f.intended.Summary()})
	}
	slices.SortFunc(out.Calls, func(a, b CallReport) int { return cmp.Compare(b.Requests, a.Requests) })
	out.Hostile, out.Endings = l.hostile, l.endings
	return out
}

// Table writes the report for people.
func (r *Report) Table(to io.Writer) error {
	w := &table{tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)}
	w.row("Sale", "activity %s, SKU %s, %d instances, seed %d", r.ActivityID, r.SKUID, r.Targets, r.Seed)
	w.row("People", "%d, %v %% of them hostile; %d joined, %d released, %d took a ticket", r.Users, r.HostilePct, r.Joined, r.Released, r.Tickets)
	w.row("Stock", "%d units; %d reserved, %d left", r.Stock, r.Sold, r.Remaining)
	w.row("Orders in SQL", "%d of %d people; %d people were told of a reservation, %d reservations failed", r.Orders, r.Buyers, r.Told, r.Failed)
	w.row("Conservation", "%s: %d = %d left + %d live + %d created + %d paid", yes(r.Conserved), r.Tally.Stock.Total, r.Tally.Stock.Remaining, r.Tally.Stock.Live, r.Tally.Stock.Created, r.Tally.Stock.Paid)
	if r.SoldInMS != nil {
		w.row("Sold out", "%v after the opening; shown %v after it", ms(*r.SoldInMS), ms(*r.ShownInMS))
	} else {
		w.row("Sold out", "no; %d people still in line", r.Waiting)
	}
	w.row("Amplification", "%.3f requests per first try", r.Amplification)
	if c := r.Commands; c != nil {
		w.row("Redis", "%.2f round trips per admitted submit (%.0f claims, %.0f reservations, %.0f asks for a lease)", c.PerAdmitted, c.Claims, c.Reserves, c.LeaseAsks)
	} else {
		w.row("Redis", "n/a: the counters of the internal listener are not known")
	}
	if n, example := r.faults(); n > 0 {
		w.row("Network", "%d network faults, requests without an answer, as in: %s", n, example)
	}
	if r.StuckLive > 0 || len(r.Stuck) > 0 {
		w.row("Stuck", "%d reservations LIVE; longer than %v: %s", r.StuckLive, stuckAfter, head(r.Stuck, 5))
	}
	w.line("\ncall\trequests\tretries\tP50 ms\tP99 ms\tP99 ms from intention\tanswers")
	for _, c := range r.Calls {
		w.line("%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%s", c.Call, c.Requests, c.Retries, c.Wire.P50, c.Wire.P99, c.Intended.P99, counts(c.Codes, c.Faults))
	}
	w.line("\nhostile\tpeople\tattempts\tadmitted\tanswers")
	for _, k := range hostileKinds {
		h := r.Hostile[k]
		switch {
		case h == nil:
			w.line("%s\t0\t-\t-\t", k)
		case h.Attempts == 0:
			w.line("%s\t%d\tnot tried: nobody's turn came\t\t", k, h.People)
		default:
			admitted := fmt.Sprint(h.Admitted)
			if k == Twins || k == Tabs {
				admitted = "own" // their own purchase; more than one of it is a violation
			}
			w.line("%s\t%d\t%d\t%s\t%s", k, h.People, h.Attempts, admitted, counts(h.Codes, nil))
		}
	}
	if r.OK {
		w.line("\nVerdict: no violation")
	} else {
		w.line("\nVerdict: %d violations", len(r.Violations))
		for _, v := range r.Violations {
			w.line("  %s: %d times, as in: %s", v.Rule, v.Count, strings.ReplaceAll(v.Example, "\t", " "))
		}
	}
	return w.Flush()
}

// faults counts the requests without an answer, and shows one.
func (r *Report) faults() (n int64, example string) {
	for _, c := range r.Calls {
		for _, kind := range slices.Sorted(maps.Keys(c.Faults)) {
			n += c.Faults[kind]
			example = cmp.Or(example, c.Examples[kind])
		}
	}
	return n, example
}

type table struct{ *tabwriter.Writer }

func (t *table) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }
func (t *table) row(name, format string, args ...any) {
	t.line("%s\t"+format, append([]any{name}, args...)...)
}

func yes(b bool) string {
	if b {
		return "holds"
	}
	return "BROKEN"
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func counts(codes, faults map[string]int64) string {
	var parts []string
	for _, m := range []map[string]int64{codes, faults} {
		for _, k := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) }) {
			parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
		}
	}
	return strings.Join(parts, ", ")
}

func head(list []string, n int) string {
	if len(list) > n {
		return strings.Join(list[:n], " ") + " …"
	}
	return strings.Join(list, " ")
}
