package slots

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/soldout"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
)

// Config is what the gate is built from.
type Config struct {
	// Mode is the worst mode of operator, cluster and instance; the policy's own is added here.
	Mode func() admission.Mode
	// Verify checks a session; ok is false for none that we signed.
	Verify func(token string, now time.Time) (userID string, ok bool)
	Ring   Tickets
	Board  *soldout.Board
	// Spend takes one token of the SKU's lease and of the activity's; giveBack returns it
	// to the lease it came from.
	Spend  func(ctx context.Context, ref admission.SKURef) (giveBack func(), d admission.Decision)
	Nonces admission.Nonces
	// Limiters counts users across instances, where the rules switch that on; nil refuses then.
	Limiters admission.Limiters
	Hasher   limit.Hasher
	Clock    func() limit.Instant // the clock of Request.Mono
	// SourceKey hashes an address or prefix as requests carry it.
	SourceKey func(netip.Prefix) uint64

	// HashUser names a user to an operator; nil: a hash of this process's own.
	HashUser func(userID string) string

	Budgets    func() Budgets // in force; nil: DefaultBudgets
	MaxEntries int            // of each keyed limiter; default the limiter's own

	Registerer prometheus.Registerer
}

// Tickets verifies tickets: *ticket.Ring, or what a benchmark puts in its place to leave
// the signature out.
type Tickets interface {
	Verify(raw string, now time.Time, want ticket.Expect) (ticket.Ticket, ticket.Reason)
}

// Budgets bound the stages that wait. They are policy and may change while requests run.
type Budgets struct {
	Claim time.Duration // of the nonce claim
}

// DefaultBudgets are those of 80-overload.
func DefaultBudgets() Budgets {
	return Budgets{Claim: 5 * time.Millisecond}
}

func (c Config) withDefaults() Config {
	if c.Budgets == nil {
		c.Budgets = DefaultBudgets
	}
	if c.Mode == nil {
		c.Mode = func() admission.Mode { return admission.ModeNormal }
	}
	if c.HashUser == nil {
		c.HashUser = func(userID string) string { return strconv.FormatUint(c.Hasher.String(userID), 36) }
	}
	return c
}

// Gate is the pipeline with its state. Rules change by Apply; limiters, seats and
// claims live on across changes.
type Gate struct {
	config          Config
	metrics         *metrics
	resources       [admission.Calls]*base.ResourceWrapper
	shadowResources [admission.Calls]*base.ResourceWrapper
	view            atomic.Pointer[view]
	applying        sync.Mutex
	seats           map[admission.SKURef]*limit.Seats // guarded by applying

	sources  *limit.Keyed
	prefixes *limit.Stripes // made by the first Apply: full at its rate, where a changed one would begin empty
	users    *limit.Keyed
	devices  *limit.Keyed
	callers  *limit.Keyed // users of the calls that are no submit
	shadows  *limit.Keyed // of shadow limits, whatever their dimension
	claims   *claimMemory
	top      top
	arrived  func(mono int64) // ticks Sentinel's clock

	penalties *limit.Penalties // of users and devices; never of sources, behind which many may stand
}

// penaltyEntries bounds those who serve a penalty or are counted for one.
const penaltyEntries = 65_536

// prefixStripes is how many /24 and /48 buckets there are; always on.
const prefixStripes = 1024

// NewGate builds a gate that refuses everything until rules are applied.
func NewGate(c Config) (*Gate, error) {
	g := &Gate{config: c.withDefaults(), resources: resources(), shadowResources: shadowResources(), claims: newClaimMemory(), seats: map[admission.SKURef]*limit.Seats{}}
	g.arrived = rules.SentinelTicks(int64(c.Clock()))
	g.metrics = newMetrics(c.Registerer, g)
	keyed := limit.KeyedConfig{MaxEntries: c.MaxEntries}
	var err error
	for _, table := range []**limit.Keyed{&g.sources, &g.users, &g.devices, &g.callers, &g.shadows} {
		if *table, err = limit.NewKeyed(keyed); err != nil {
			return nil, err
		}
	}
	if g.top, err = newTop(); err != nil {
		return nil, err
	}
	if g.penalties, err = limit.NewPenalties(penaltyEntries); err != nil {
		return nil, err
	}
	return g, nil
}

// Enter decides a submit from path and headers, in memory. The entry is over when it
// returns: a slow body must not count as a slow request.
func (g *Gate) Enter(req *admission.Request) admission.Decision {
	req.Visit = nil // an earlier pass is no pass
	v := g.visit(req)
	if v == nil {
		return notReady
	}
	req.Visit = v
	v.counted = g.top.arrived(req)
	v.passed = g.passThrough(v.view.enter, v, admission.CallSubmit)
	return v.decision
}

// Reserve takes a seat, a token and the nonce, for a request that this gate's Enter let pass
// and for no other: not for one that nobody entered, one that was refused, nor the copy of one
// that passed, whose names are not those that were verified. The entry is left when the
// request ends, with the error that Sentinel's breaker counts.
func (g *Gate) Reserve(ctx context.Context, req *admission.Request) admission.Decision {
	v, ok := req.Visit.(*visit)
	if !ok || v.gate != g || v.req != req || !v.passed || req.UserID == "" || req.Nonce == "" {
		return notEntered
	}
	if v.inside.ctx != nil { // inside already: another entry, which is left as well
		v = v.again()
	}
	v.decision = admission.Decision{}
	v.ctx, v.budgets = ctx, g.config.Budgets()
	rules.TickSentinel() // the body took its time
	if enter(v.view.reserve, v) {
		req.AtEnd((*leaving)(v))
		if shadow := g.shadowEntry(v, admission.CallReserve); shadow != nil {
			req.AtEnd((*leaving)(shadow))
		}
	} else {
		g.metrics.shed(v.decision)
	}
	return v.decision
}

// leaving is a visit whose entry is left when its request ends.
type leaving visit

// Settle leaves, with the error that breakers count.
func (l *leaving) Settle(d admission.Decision) {
	rules.TickSentinel()
	if d.Outcome == admission.DependencyUnavailable {
		(*visit)(l).leave(errUnavailable)
	} else {
		(*visit)(l).leave(nil)
	}
}

var errUnavailable = errors.New("dependency unavailable")

// Call decides on a call that is no submit: its flow rule, its source, its user.
func (g *Gate) Call(call admission.Call, req *admission.Request) admission.Decision {
	v := g.visit(req)
	if v == nil {
		return notReady
	}
	g.passThrough(v.view.calls[call], v, call)
	return v.decision
}

// passThrough enters a chain and leaves it at once.
func (g *Gate) passThrough(c *chain, v *visit, call admission.Call) (passed bool) {
	g.arrived(v.req.Mono)
	if !enter(c, v) {
		g.metrics.shed(v.decision)
		return false
	}
	if shadow := g.shadowEntry(v, call); shadow != nil {
		shadow.leave(nil)
	}
	v.leave(nil)
	return true
}

// ChargeSource counts a request that the guard refused against its source; the answer
// stays the guard's, also when nothing is left.
func (g *Gate) ChargeSource(req *admission.Request) {
	if v := g.visit(req); v != nil {
		g.source(v)
	}
}

// Identify finds out who is asking: the gateway's word, or a verified session.
func (g *Gate) Identify(req *admission.Request) admission.Decision {
	if req.GatewayUser != "" {
		// With a session beside it, both must say the same: one of them is somebody else's.
		user, ok := g.config.Verify(req.Bearer, req.Now)
		if admission.ValidDecimal(req.GatewayUser) && (req.Bearer == "" || ok && user == req.GatewayUser) {
			req.UserID = req.GatewayUser
			return admission.Decision{}
		}
	} else if user, ok := g.config.Verify(req.Bearer, req.Now); ok {
		req.UserID = user
		return admission.Decision{}
	}
	return admission.Decision{Outcome: admission.Unauthenticated, Stage: admission.StageSession, Reason: admission.ReasonSession}
}

// notReady: no rules are in force. Nothing is admitted without them.
var notReady = admission.Decision{Outcome: admission.DependencyUnavailable, Stage: admission.StageMode, Reason: admission.ReasonNotReady, RetryAfter: time.Second}

// notEntered: whoever serves this request left the first chain out, or did not heed it.
var notEntered = admission.Decision{
	Outcome: admission.DependencyUnavailable, Stage: admission.StageMode, Reason: admission.ReasonNotReady, RetryAfter: time.Second,
	Cause: errors.New("reserve without a pass of enter"),
}

// visit begins a visit under the rules in force; nil: there are none.
func (g *Gate) visit(req *admission.Request) *visit {
	w := g.view.Load()
	if w == nil {
		return nil
	}
	v := &visit{gate: g, req: req, view: w}
	if req.SKU == nil {
		return v
	}
	ref := req.Ref()
	if v.policy = w.policy(ref); v.policy != w.fallback {
		v.scope = v.policy.scope
	} else {
		v.scope = g.config.Hasher.Join(ref.ActivityID, ref.SKUID)
	}
	v.args[argSKU], v.args[argActivity] = v.policy.skuArg, v.policy.activityArg
	return v
}

// again is the same visit before its second chain, with nothing taken.
func (v *visit) again() *visit {
	return &visit{
		gate: v.gate, req: v.req, view: v.view, policy: v.policy, scope: v.scope,
		userKey: v.userKey, deviceKey: v.deviceKey, userRate: v.userRate, passed: v.passed, args: v.args,
	}
}

// name makes the keys of a verified user and device on this SKU.
func (g *Gate) name(v *visit) {
	v.userKey, v.deviceKey = g.config.Hasher.Extend(v.scope, v.req.UserID), g.config.Hasher.Extend(v.scope, v.req.DeviceHash)
}

// caller limits one user on one kind of call.
func (g *Gate) caller(v *visit, call admission.Call) admission.Decision {
	rate := v.view.callRate(call, v.req.UserID)
	key := limit.Key{ID: g.config.Hasher.Join(call.String(), v.req.UserID), Prefix: v.req.SourcePrefixKey}
	g.shadowLimit(v, admission.StageUser, &v.view.callRates[call], v.req.UserID, key)
	d := g.callers.Allow(limit.Instant(v.req.Mono), key, 1, rate)
	v.req.Quota = quota(rate, d)
	if !d.OK {
		return g.limited(admission.StageUser, admission.ReasonUserRate, d)
	}
	v.refundable(charge{table: g.callers, id: key.ID, rate: rate})
	return admission.Decision{}
}

// Run keeps the keyed limiters small and lets the top counts fade, until ctx ends.
func (g *Gate) Run(ctx context.Context, now func() limit.Instant) {
	var running sync.WaitGroup
	for _, t := range []*limit.Keyed{g.sources, g.users, g.devices, g.callers, g.shadows} {
		running.Go(func() { t.Run(ctx, now) })
	}
	running.Go(func() { g.top.run(ctx) })
	running.Wait()
}
