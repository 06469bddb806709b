package rows

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"time"

	sentinel "github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/soldout"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/bench/pairs"
	"github.com/sluice-io/sluice/rules"
	"github.com/sluice-io/sluice/slots"
)

// Chains returns the rows of the pipeline: what a submit costs without HTTP, from its
// request to its decision, against one rate.Allow. The rules are the shipped ones with
// thresholds so wide that they admit; the stages are the service's own. The clock is read
// once a request. A session is remembered, and the stores answer at once.
func Chains() []pairs.Row {
	return []pairs.Row{
		{Name: "first chain, sold out, without the ticket stage", Against: allow, Gate: 6, Goal: 4, MaxAllocs: 3,
			Subject: chain{users: 1000, soldOut: true, unsigned: true}.enter, Baseline: rateAllow},
		{Name: "first chain, sold out", Against: allow, Gate: 18, Goal: 12, MaxAllocs: 4,
			Subject: chain{users: 1000, soldOut: true}.enter, Baseline: rateAllow},
		{Name: "both chains, admitted, 100k users", Against: allow, Gate: 25, Goal: 16, MaxAllocs: 12,
			Subject: chain{users: 100_000}.both, Baseline: rateAllow},
		{Name: "both chains, admitted, 1,000 users: all in cache", Against: allow, Subject: chain{users: 1000}.both, Baseline: rateAllow},
		{Name: "first chain, refused by flow rule", Against: allow, Subject: chain{users: 1000, flow: "0"}.enter, Baseline: rateAllow},
		{Name: "first chain, refused by source", Against: allow, Subject: chain{users: 1000, source: "0"}.enter, Baseline: rateAllow},
		{Name: "first chain, forged ticket", Against: allow, Subject: chain{users: 1000, forged: true}.enter, Baseline: rateAllow},
		{Name: "first chain, refused by user", Against: allow, Subject: chain{users: 1000, user: "0"}.enter, Baseline: rateAllow},
		{Name: "Sentinel entry, its own chain, no rules", Against: allow, Subject: sentinelEntry, Baseline: rateAllow},
	}
}

// chain is a gate with everything around it in memory, and its callers.
type chain struct {
	users              int
	soldOut            bool // the mark is up
	forged             bool // every ticket's signature is wrong
	unsigned           bool // the ticket stage believes what it is told
	flow, source, user string
}

var sale = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// serverHeap is a part of what a busy instance holds (limiter tables, claims, holders). The
// collector runs as often as it does there; in a process of a few megabytes it would run
// all the time.
const serverHeap = 64 << 20

func (c chain) enter() pairs.Op {
	gate, arrivals := c.build()
	heap := make([]byte, serverHeap)
	clock, req, next := limit.NewClock(), &admission.Request{}, 0
	return func(n int) {
		for range n {
			arrivals[next].fill(req, clock)
			req.End(gate.Enter(req))
			if next++; next == len(arrivals) {
				next = 0
			}
		}
		runtime.KeepAlive(heap)
	}
}

func (c chain) both() pairs.Op {
	gate, arrivals := c.build()
	heap := make([]byte, serverHeap)
	ctx := context.Background()
	clock, req, next := limit.NewClock(), &admission.Request{}, 0
	return func(n int) {
		for range n {
			arrivals[next].fill(req, clock)
			d := gate.Enter(req)
			if !d.Refused() {
				d = gate.Reserve(ctx, req)
			}
			if d.Refused() {
				panic("refused: " + string(d.Reason)) // the row would measure something else
			}
			req.End(d)
			if next++; next == len(arrivals) {
				next = 0
			}
		}
		runtime.KeepAlive(heap)
	}
}

func (c chain) build() (*slots.Gate, []arrival) {
	if err := rules.InitSentinel(slog.New(slog.DiscardHandler)); err != nil {
		panic(err)
	}
	ring := must(ticket.NewRing(must(keys.NewSet(must(keys.NewOct("k1")))), ticket.Config{}))
	reg, clock, hasher := prometheus.NewRegistry(), limit.NewClock(), limit.NewHasher()
	activity := &admission.Activity{
		ID: "10001", Version: 3, PathID: "p_0123456789", OpensAt: sale, ClosesAt: sale.Add(time.Hour),
		SKUs: []admission.SKU{{ID: "90001", Stock: 100, LimitPerUser: 1}},
	}
	refs := []admission.SKURef{{ActivityID: "10001", SKUID: "90001"}}
	board := soldout.New(emptyStock{}, func() int64 { return int64(clock.Now()) }, soldout.NewMetrics(reg))
	board.Serve(refs, func(admission.SKURef) time.Duration { return time.Hour })
	if c.soldOut {
		if err := board.Step(context.Background()); err != nil {
			panic(err)
		}
	}
	config := slots.Config{
		Verify: func(token string, _ time.Time) (string, bool) { return token, true },
		Ring:   ring, Board: board, Nonces: firstClaim{}, Hasher: hasher, Clock: clock.Now,
		Spend: func(context.Context, admission.SKURef) (func(), admission.Decision) {
			return func() {}, admission.Decision{}
		},
		SourceKey: func(p netip.Prefix) uint64 { return source.PrefixKey(hasher, p) }, Registerer: reg,
	}
	if c.unsigned {
		config.Ring = believed{}
	}
	gate := must(slots.NewGate(config))
	applier := rules.NewApplier(rules.Config{InstanceID: "bench"})
	if err := applier.Apply(context.Background(), rules.Update{Raw: []byte(c.document()), At: sale}, "bench"); err != nil {
		panic(err)
	}
	gate.Apply(applier.Snapshot(), refs, clock.Now())
	return gate, c.arrivals(ring, activity)
}

// document is the shipped rules, wide, and narrow where the row wants a refusal.
func (c chain) document() string {
	or := func(s, wide string) string {
		if s == "" {
			return wide
		}
		return s
	}
	rate := func(s string) string {
		if s == "" {
			return `{"rate_per_s":1000000,"burst":1000000}`
		}
		return `{"rate_per_s":0,"burst":0}`
	}
	return `{"schema":1,"version":1,"sentinel":{
		"flow":[{"resource":"seckill.submit","threshold":` + or(c.flow, "1000000000") + `}],
		"hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":1000000000,"durationInSec":1}],
		"system":[{"metricType":4,"triggerCount":0.75},{"metricType":1,"triggerCount":200}]},
		"limits":{"source":` + rate(c.source) + `,"user":` + rate(c.user) + `,"device":` + rate("") + `},
		"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"max_in_flight":1000000}]}`
}

// arrival is what a shopper sends, and where it goes.
type arrival struct {
	activity                              *admission.Activity
	requestID, deviceHash, bearer, ticket string
	source, prefix                        uint64
}

// fill makes the request of an arrival, as httpapi does: in memory that is in the cache. Only
// what a shopper sends comes from afar.
func (a *arrival) fill(req *admission.Request, clock limit.Clock) {
	*req = admission.Request{}
	req.Now, req.Mono = sale.Add(time.Minute), int64(clock.Now())
	req.Activity, req.SKU = a.activity, &a.activity.SKUs[0]
	req.RequestID, req.DeviceHash, req.Bearer, req.Ticket = a.requestID, a.deviceHash, a.bearer, a.ticket
	req.SourceKey, req.SourcePrefixKey = a.source, a.prefix
	req.BodyHash = "sha256:9f86d081884c7d659a2feaa0c55ad015"
}

// arrivals are shoppers in random order, four behind an address. They lie in memory in the
// order of their coming, each one's texts together, as what a socket has just delivered is
// warm; the limiters' tables are met in random order, as in a sale.
func (c chain) arrivals(ring *ticket.Ring, activity *admission.Activity) []arrival {
	out := make([]arrival, c.users)
	for n, i := range rand.Perm(c.users) {
		user := strconv.Itoa(7_000_000 + i)
		device, now := admission.DeviceHash("device-of-"+user), sale.Add(time.Minute)
		signed := must(ring.Issue(ticket.Claims{
			ActivityID: "10001", SKUID: "90001", UserID: user, DeviceHash: device, ActivityVersion: 3, PathID: activity.PathID,
			Nonce: "n_nonce_of_" + user, NotBefore: now, ExpiresAt: now.Add(30 * time.Second),
		}))
		if c.forged {
			signed = signed[:len(signed)-4] + "AAAA"
		}
		out[n] = arrival{
			activity: activity, requestID: "request-" + user, deviceHash: device, bearer: user, ticket: signed,
			source: uint64(i/4)*0x9e3779b97f4a7c15 + 1, prefix: uint64(i/400)*0x9e3779b97f4a7c15 + 1,
		}
	}
	together(out)
	return out
}

// together lays the texts of all arrivals out one after the other.
func together(arrivals []arrival) {
	texts := func(a *arrival) []*string { return []*string{&a.requestID, &a.deviceHash, &a.bearer, &a.ticket} }
	var all strings.Builder
	for i := range arrivals {
		for _, text := range texts(&arrivals[i]) {
			all.WriteString(*text)
		}
	}
	rest := all.String()
	for i := range arrivals {
		for _, text := range texts(&arrivals[i]) {
			n := len(*text)
			*text, rest = rest[:n], rest[n:]
		}
	}
}

// emptyStock has sold all it had to users who ask no more.
type emptyStock struct{ admission.Stock }

const sold = 100

func (emptyStock) Snapshot(context.Context, admission.SKURef) (admission.StockSnapshot, error) {
	return admission.StockSnapshot{Mark: admission.Mark{Incarnation: 1, ActivityVersion: 3, Epoch: 1, LogLength: sold}, Total: sold, Open: true}, nil
}

func (emptyStock) Log(context.Context, admission.SKURef, int64, int) ([]admission.LogEvent, error) {
	events := make([]admission.LogEvent, sold)
	for i := range events {
		events[i] = admission.LogEvent{Kind: admission.LogReserved, UserID: strconv.Itoa(1 + i), ReservationID: strconv.Itoa(1 + i)}
	}
	return events, nil
}

// firstClaim is a limiter store that answers at once.
type firstClaim struct{}

func (firstClaim) Claim(context.Context, admission.ClaimArgs) (admission.ClaimResult, error) {
	return admission.ClaimResult{Claim: admission.ClaimFirst}, nil
}

// believed is a ticket stage without the work.
type believed struct{}

func (believed) Verify(string, time.Time, ticket.Expect) (ticket.Ticket, ticket.Reason) {
	return ticket.Ticket{KeyID: "k1", NotBefore: sale, ExpiresAt: sale.Add(time.Hour)}, ticket.OK
}

// sentinelEntry is what Sentinel's own interface costs on a resource without rules.
func sentinelEntry() pairs.Op {
	if err := rules.InitSentinel(slog.New(slog.DiscardHandler)); err != nil {
		panic(err)
	}
	return func(n int) {
		for range n {
			if e, blocked := sentinel.Entry("bench", sentinel.WithTrafficType(base.Outbound)); blocked == nil {
				e.Exit()
			}
		}
	}
}
