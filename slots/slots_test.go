package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/stat"
	"github.com/alibaba/sentinel-golang/util"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/soldout"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
)

var opening = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// bed is a gate with everything around it in memory.
type bed struct {
	t      *testing.T
	gate   *Gate
	ring   *ticket.Ring
	clock  limit.Instant
	mode   admission.Mode
	spend  func(context.Context, admission.SKURef) (func(), admission.Decision)
	claim  func(context.Context, admission.ClaimArgs) (admission.ClaimResult, error)
	given  atomic.Int64 // tokens given back
	claims atomic.Int64
	act    *admission.Activity

	mu   sync.Mutex
	made []*admission.Request // guarded by mu
}

func (b *bed) Claim(ctx context.Context, a admission.ClaimArgs) (admission.ClaimResult, error) {
	b.claims.Add(1)
	return b.claim(ctx, a)
}

// sentinelClock is Sentinel's clock in these tests. It stands until a test moves it on, so
// that no window ends because the machine is slow, and is moved on between tests: what one
// counted in Sentinel's windows is past for the next.
var sentinelClock = &movedClock{Clock: util.NewMockClock()}

type movedClock struct {
	util.Clock
	ahead atomic.Int64 // ms
}

func (c *movedClock) moveOn(d time.Duration) { c.ahead.Add(d.Milliseconds()) }
func (c *movedClock) CurrentTimeMillis() uint64 {
	return c.Clock.CurrentTimeMillis() + uint64(c.ahead.Load())
}
func (c *movedClock) CurrentTimeNano() uint64 { return c.CurrentTimeMillis() * 1e6 }
func (c *movedClock) Now() time.Time          { return time.UnixMilli(int64(c.CurrentTimeMillis())) }

// noStock is a stock store that a board never reads in these tests.
type noStock struct{ admission.Stock }

func newBed(t *testing.T, document string) *bed {
	t.Helper()
	if err := rules.InitSentinel(slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	util.SetClock(sentinelClock)
	key, err := keys.NewOct("k1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := keys.NewSet(key)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, clock: limit.Instant(time.Hour)}
	if b.ring, err = ticket.NewRing(set, ticket.Config{}); err != nil {
		t.Fatal(err)
	}
	b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
		return func() { b.given.Add(1) }, admission.Decision{}
	}
	b.claim = func(context.Context, admission.ClaimArgs) (admission.ClaimResult, error) {
		return admission.ClaimResult{Claim: admission.ClaimFirst}, nil
	}
	b.act = &admission.Activity{
		ID: "10001", Version: 3, PathID: "p_0123456789", OpensAt: opening, ClosesAt: opening.Add(time.Hour),
		SKUs: []admission.SKU{{ID: "90001", Stock: 100, LimitPerUser: 1}},
	}
	reg := prometheus.NewRegistry()
	hasher := limit.NewHasher()
	b.gate, err = NewGate(Config{
		Mode: func() admission.Mode { return b.mode },
		Verify: func(token string, _ time.Time) (string, bool) {
			return token, admission.ValidDecimal(token) // the token is the user: signatures are session's tests
		},
		Ring: b.ring, Board: soldout.New(noStock{}, func() int64 { return int64(b.clock) }, soldout.NewMetrics(reg)),
		Spend:  func(ctx context.Context, ref admission.SKURef) (func(), admission.Decision) { return b.spend(ctx, ref) },
		Nonces: b, Hasher: hasher, Clock: func() limit.Instant { return b.clock },
		SourceKey:  func(p netip.Prefix) uint64 { return source.PrefixKey(hasher, p) },
		Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.apply(document)
	t.Cleanup(b.end)
	return b
}

// end ends every request that the test made, and says so when somebody is still inside:
// Sentinel's counts are the process's, and the next test would begin with them.
func (b *bed) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, req := range b.made {
		req.End(admission.Decision{Outcome: admission.Queued})
	}
	for _, name := range []string{"seckill.submit", "seckill.reserve"} {
		if n := stat.GetOrCreateResourceNode(name, base.ResTypeWeb).CurrentConcurrency(); n != 0 {
			b.t.Errorf("%d are still inside %s at the end of the test", n, name)
		}
	}
}

// apply compiles and loads a bundle through the real applier, Sentinel included.
func (b *bed) apply(document string) {
	b.t.Helper()
	a := rules.NewApplier(rules.Config{InstanceID: "test"})
	if err := a.Apply(b.t.Context(), rules.Update{Raw: []byte(document), At: time.Now()}, "test"); err != nil {
		b.t.Fatalf("rules: %v", err)
	}
	b.gate.Apply(a.Snapshot(), []admission.SKURef{{ActivityID: "10001", SKUID: "90001"}}, b.clock)
}

// quiet is a bundle in which nothing limits but what a test adds.
func quiet(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"schema":1,"version":1,"sentinel":{"flow":"none","hotspot":"none","system":"none","isolation":"none","circuitbreaker":"none"}` + extra + `}`
}

func (b *bed) request(user string) *admission.Request {
	b.t.Helper()
	now := opening.Add(time.Minute)
	req := &admission.Request{
		Now: now, Mono: int64(b.clock), Activity: b.act, SKU: &b.act.SKUs[0],
		RequestID: "request-" + user, DeviceHash: admission.DeviceHash("device-of-" + user), Bearer: user,
		SourceKey: b.gate.config.Hasher.String("source of " + user), SourcePrefixKey: b.gate.config.Hasher.String("prefix of " + user),
	}
	var err error
	req.Ticket, err = b.ring.Issue(ticket.Claims{
		ActivityID: "10001", SKUID: "90001", UserID: user, DeviceHash: req.DeviceHash, ActivityVersion: 3, PathID: "p_0123456789",
		Nonce: "n_nonce_of_" + user, NotBefore: now, ExpiresAt: now.Add(30 * time.Second),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.made = append(b.made, req)
	b.mu.Unlock()
	return req
}

func (b *bed) want(got admission.Decision, o admission.Outcome, s admission.Stage) {
	b.t.Helper()
	if got.Outcome != o || got.Stage != s {
		b.t.Errorf("decided %v at %v (%v, %v), want %v at %v", got.Outcome, got.Stage, got.Reason, got.Cause, o, s)
	}
}

func TestEveryStageRefusesInItsPlace(t *testing.T) {
	cases := []struct {
		name    string
		rules   string
		change  func(*bed, *admission.Request)
		outcome admission.Outcome
		stage   admission.Stage
	}{
		{"all pass", quiet(""), func(*bed, *admission.Request) {}, admission.Pass, admission.StageNone},
		{"mode QUEUE_ONLY", quiet(""), func(b *bed, _ *admission.Request) { b.mode = admission.ModeQueueOnly }, admission.OverloadedQueueOnly, admission.StageMode},
		{"mode CLOSED", quiet(""), func(b *bed, _ *admission.Request) { b.mode = admission.ModeClosed }, admission.OverloadedClosed, admission.StageMode},
		{"mode DEGRADED passes", quiet(""), func(b *bed, _ *admission.Request) { b.mode = admission.ModeDegraded }, admission.Pass, admission.StageNone},
		{"policy mode", quiet(`"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"mode":"CLOSED"}]`), nil, admission.OverloadedClosed, admission.StageMode},
		{"flow rule", `{"schema":1,"version":1,"sentinel":{"flow":[{"resource":"seckill.submit","threshold":0}],"hotspot":"none","system":"none"}}`, nil, admission.Overloaded, admission.StageFlow},
		{"source", quiet(`"limits":{"source":{"rate_per_s":0,"burst":0}}`), nil, admission.RateLimited, admission.StageSource},
		{"no session", quiet(""), func(_ *bed, r *admission.Request) { r.Bearer = "" }, admission.Unauthenticated, admission.StageSession},
		{"no ticket", quiet(""), func(_ *bed, r *admission.Request) { r.Ticket = "" }, admission.TokenInvalid, admission.StageTicket},
		{"forged ticket", quiet(""), func(_ *bed, r *admission.Request) { r.Ticket += "A" }, admission.TokenInvalid, admission.StageTicket},
		{"somebody else's ticket", quiet(""), func(b *bed, r *admission.Request) { r.Ticket = b.request("42").Ticket }, admission.TokenInvalid, admission.StageTicket},
		{"expired ticket", quiet(""), func(_ *bed, r *admission.Request) { r.Now = r.Now.Add(time.Minute) }, admission.TokenExpired, admission.StageTicket},
		{"before opening", quiet(""), func(b *bed, r *admission.Request) { b.act.OpensAt = r.Now.Add(time.Second) }, admission.ActivityNotOpen, admission.StageActivity},
		{"after closing", quiet(""), func(b *bed, r *admission.Request) { b.act.ClosesAt = r.Now }, admission.ActivityEnded, admission.StageActivity},
		{"ended", quiet(""), func(b *bed, _ *admission.Request) { b.act.Ended = true }, admission.ActivityEnded, admission.StageActivity},
		{"user", quiet(`"limits":{"user":{"rate_per_s":0,"burst":0}}`), nil, admission.RateLimited, admission.StageUser},
		{"device refuses by policy", quiet(`"limits":{"device":{"rate_per_s":0,"burst":0}},"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"device_refuses":true}]`), nil, admission.RateLimited, admission.StageDevice},
		{"device only tightens by default", quiet(`"limits":{"device":{"rate_per_s":0,"burst":0}}`), nil, admission.Pass, admission.StageNone},
		{"device off", quiet(`"stages":{"device":"off"},"limits":{"device":{"rate_per_s":0,"burst":0}},"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"device_refuses":true}]`), nil, admission.Pass, admission.StageNone},
		{"device in shadow", quiet(`"stages":{"device":"shadow"},"limits":{"device":{"rate_per_s":0,"burst":0}},"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"device_refuses":true}]`), nil, admission.Pass, admission.StageNone},
		{"SKU hot-param", `{"schema":1,"version":1,"sentinel":{"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":0,"durationInSec":1}]}}`, nil, admission.Overloaded, admission.StageSKU},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, c.rules)
			req := b.request("7300000000000000001")
			if c.change != nil {
				c.change(b, req)
			}
			b.want(b.gate.Enter(req), c.outcome, c.stage)
			if b.claims.Load() != 0 {
				t.Error("the first chain called a store")
			}
		})
	}
}

func TestNothingPassesBeforeRules(t *testing.T) {
	b := newBed(t, quiet(""))
	b.gate.view.Store(nil)
	b.want(b.gate.Enter(b.request("1")), admission.DependencyUnavailable, admission.StageMode)
	b.want(b.gate.Reserve(t.Context(), b.request("1")), admission.DependencyUnavailable, admission.StageMode)
	b.want(b.gate.Call(admission.CallJoin, b.request("1")), admission.DependencyUnavailable, admission.StageMode)
}

func TestReserveOutcomes(t *testing.T) {
	boom := errors.New("cut")
	cases := []struct {
		name    string
		change  func(*bed)
		outcome admission.Outcome
		stage   admission.Stage
		returns int64 // tokens given back
	}{
		{"first", func(*bed) {}, admission.Pass, admission.StageNone, 0},
		{"same goes on", func(b *bed) { b.answer(admission.ClaimSame, nil) }, admission.Pass, admission.StageNone, 0},
		{"nonce conflict", func(b *bed) { b.answer(admission.ClaimNonceConflict, nil) }, admission.ReplayRejected, admission.StageNonce, 1},
		{"body conflict", func(b *bed) { b.answer(admission.ClaimBodyConflict, nil) }, admission.RequestIDConflict, admission.StageNonce, 1},
		{"fault", func(b *bed) { b.answer(admission.ClaimFirst, boom) }, admission.DependencyUnavailable, admission.StageNonce, 0},
		{"an answer nobody knows", func(b *bed) { b.answer(admission.ClaimNone, nil) }, admission.DependencyUnavailable, admission.StageNonce, 0},
		{"no lease", func(b *bed) {
			b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
				return nil, admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease, Reason: admission.ReasonLeaseEmpty}
			}
		}, admission.Overloaded, admission.StageLease, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, quiet(""))
			c.change(b)
			req := b.request("7")
			b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
			d := b.gate.Reserve(t.Context(), req)
			b.want(d, c.outcome, c.stage)
			req.End(d)
			if got := b.given.Load(); got != c.returns {
				t.Errorf("%d tokens given back, want %d", got, c.returns)
			}
			if n := b.gate.view.Load().policy(req.Ref()).seats.InFlight(); n != 0 {
				t.Errorf("%d seats still taken", n)
			}
		})
	}
}

func (b *bed) answer(c admission.Claim, err error) {
	b.claim = func(context.Context, admission.ClaimArgs) (admission.ClaimResult, error) {
		return admission.ClaimResult{Claim: c, FirstRequestID: "request-first"}, err
	}
}

// TestShedRefunds: a 503 of a later stage gives user, device and source back what they
// were charged; a refusal that is theirs does not.
func TestShedRefunds(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":0.001,"burst":1}}`))
	b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
		return nil, admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease}
	}
	for range 5 {
		req := b.request("7")
		b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
		d := b.gate.Reserve(t.Context(), req)
		b.want(d, admission.Overloaded, admission.StageLease)
		req.End(d)
	}
	req := b.request("7")
	b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
	req.End(admission.Decision{Outcome: admission.InvalidArgument})
	b.want(b.gate.Enter(b.request("7")), admission.RateLimited, admission.StageUser)
}

// TestHazardPanicInAStageRefuses: the pinned Sentinel lets a request pass whose slot panics.
func TestHazardPanicInAStageRefuses(t *testing.T) {
	b := newBed(t, quiet(""))
	b.gate.config.Verify = func(string, time.Time) (string, bool) { panic("boom") }
	before := stat.GetOrCreateResourceNode("seckill.submit", base.ResTypeWeb).CurrentConcurrency()
	for range 5 {
		d := b.gate.Enter(b.request("7"))
		b.want(d, admission.DependencyUnavailable, admission.StageSession)
		if d.Reason != admission.ReasonPanic {
			t.Errorf("reason %q, want panic", d.Reason)
		}
	}
	if after := stat.GetOrCreateResourceNode("seckill.submit", base.ResTypeWeb).CurrentConcurrency(); after != before {
		t.Errorf("concurrency went from %d to %d over panics", before, after)
	}
}

// TestHazardPanicInAStockSlotRefuses: a slot of Sentinel's own that panics breaks the
// chain off, which Sentinel's api takes for a pass.
func TestHazardPanicInAStockSlotRefuses(t *testing.T) {
	b := newBed(t, quiet(""))
	w := b.gate.view.Load()
	w.enter.AddRuleCheckSlot(panicking{})
	b.want(b.gate.Enter(b.request("7")), admission.DependencyUnavailable, admission.StageSystem)
}

type panicking struct{}

func (panicking) Order() uint32                              { return 1500 }
func (panicking) Check(*base.EntryContext) *base.TokenResult { panic("boom") }

// TestHazardBlockedStaysBlocked: results are pooled; a block that is shared between
// requests is reset to a pass by another. Each request must keep its own verdict.
func TestHazardBlockedStaysBlocked(t *testing.T) {
	b := newBed(t, quiet(""))
	var wg sync.WaitGroup
	var wrong atomic.Int64
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				user := fmt.Sprint(1_000_000 + g*1000 + i)
				req := b.request(user)
				bad := i%2 == 1
				if bad {
					req.Ticket = "forged"
				}
				d := b.gate.Enter(req)
				if bad != d.Refused() || !bad && req.UserID != user || !bad && req.Nonce != "n_nonce_of_"+user {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d requests got another request's verdict", n)
	}
}

// TestHazardExitOnce: a request that ends twice leaves the entry and the seat once.
func TestHazardExitOnce(t *testing.T) {
	b := newBed(t, quiet(""))
	req := b.request("7")
	b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
	node := stat.GetOrCreateResourceNode("seckill.reserve", base.ResTypeWeb)
	before := node.CurrentConcurrency()
	d := b.gate.Reserve(t.Context(), req)
	if got := node.CurrentConcurrency(); got != before+1 {
		t.Errorf("concurrency %d inside, want %d", got, before+1)
	}
	req.End(d)
	req.End(d)
	if got := node.CurrentConcurrency(); got != before {
		t.Errorf("concurrency %d after, want %d", got, before)
	}
}

// TestHazardClosedEntryGivesSeatsBack is T05a: handlers that panic between entry and
// exit leave the seats free.
func TestT05SeatsAfterPanicAndUnderABarrier(t *testing.T) {
	b := newBed(t, quiet(`"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"max_in_flight":5}]`))
	for i := 1; i <= 5; i++ {
		func() {
			req := b.request(fmt.Sprint(i))
			var d admission.Decision
			defer func() {
				_ = recover()
			}()
			defer func() { req.End(d) }()
			d = b.gate.Reserve(t.Context(), enter7(b, req))
			panic("handler")
		}()
	}
	seats := b.gate.view.Load().policy(b.request("7").Ref()).seats
	if n := seats.InFlight(); n != 0 {
		t.Fatalf("%d seats taken after panics, want 0", n)
	}
	// (b) 500 goroutines at a barrier: at most 5 are ever in flight.
	inside, over := atomic.Int64{}, atomic.Int64{}
	hold := make(chan struct{})
	b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
		if inside.Add(1) > 5 {
			over.Add(1)
		}
		<-hold
		inside.Add(-1)
		return func() {}, admission.Decision{}
	}
	var wg sync.WaitGroup
	var shed atomic.Int64
	requests := make([]*admission.Request, 500)
	for i := range requests {
		requests[i] = enter7(b, b.request(fmt.Sprint(100+i)))
	}
	for _, req := range requests {
		wg.Go(func() {
			d := b.gate.Reserve(t.Context(), req)
			if d.Stage == admission.StageSeat {
				if shed.Add(1) == 495 {
					close(hold) // all others were refused while five held their seats
				}
			}
			req.End(d)
		})
	}
	wg.Wait()
	if over.Load() != 0 || shed.Load() != 495 || seats.Peak() > 5 {
		t.Errorf("over %d, shed %d, peak %d; want 0, 495 and at most 5", over.Load(), shed.Load(), seats.Peak())
	}
}

// TestT01HotParamWhateverTheType: SKU rules match the SKU's string, with an override per
// value, and the parameter is never missing.
func TestT01HotParamWhateverTheType(t *testing.T) {
	b := newBed(t, `{"schema":1,"version":1,"sentinel":{"flow":"none","system":"none","hotspot":[
		{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":100,"durationInSec":60,
		 "specificItems":[{"valKind":1,"valStr":"90001","threshold":2}]}]}}`)
	passed := 0
	for i := range 10 {
		if !b.gate.Enter(b.request(fmt.Sprint(500 + i))).Refused() {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d of 10 passed a hot-param override of 2", passed)
	}
}

// TestReserveAloneFeedsTheInboundNode: a submit passes two chains and counts once.
func TestReserveAloneFeedsTheInboundNode(t *testing.T) {
	b := newBed(t, quiet(""))
	before := stat.InboundNode().GetSum(base.MetricEventPass)
	req := b.request("7")
	b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
	if got := stat.InboundNode().GetSum(base.MetricEventPass); got != before {
		t.Errorf("the first chain counted %d on the inbound node", got-before)
	}
	d := b.gate.Reserve(t.Context(), req)
	req.End(d)
	if got := stat.InboundNode().GetSum(base.MetricEventPass); got != before+1 {
		t.Errorf("the second chain counted %d on the inbound node, want 1", got-before)
	}
}

// TestLocalReplayNeedsNoStore: the same nonce under another request_id is answered from memory.
func TestLocalReplayNeedsNoStore(t *testing.T) {
	b := newBed(t, quiet(""))
	first := b.request("7")
	first.End(b.gate.Reserve(t.Context(), enter7(b, first)))
	second := b.request("7")
	second.RequestID = "request-other"
	enter7(b, second)
	d := b.gate.Reserve(t.Context(), second)
	b.want(d, admission.ReplayRejected, admission.StageNonce)
	if b.claims.Load() != 1 || second.Record.RequestID != "request-7" {
		t.Errorf("%d claims, first request %q; want 1 and request-7", b.claims.Load(), second.Record.RequestID)
	}
}

func enter7(b *bed, r *admission.Request) *admission.Request {
	b.want(b.gate.Enter(r), admission.Pass, admission.StageNone)
	return r
}

// TestPenalty: a user refused too often is refused outright for a while, and an operator
// can pardon them.
func TestPenalty(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":1,"burst":1},"penalty_refusals":2,"penalty_window_ms":10000,"penalty_ms":60000}`))
	for range 4 {
		b.gate.Enter(b.request("7"))
	}
	b.clock += limit.Instant(10 * time.Second) // the bucket is full again, the penalty goes on
	d := b.gate.Enter(b.request("7"))
	b.want(d, admission.RateLimited, admission.StageUser)
	if d.Reason != admission.ReasonPenalty || d.RetryAfter <= 40*time.Second {
		t.Errorf("reason %v, retry after %v; want penalty, above 40 s", d.Reason, d.RetryAfter)
	}
	if err := b.gate.ResetLimiter("user", "10001:90001:7"); err != nil {
		t.Fatal(err)
	}
	b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
}

// TestShadowCounts: a stage in shadow refuses nobody and is counted.
func TestShadowCounts(t *testing.T) {
	b := newBed(t, `{"schema":1,"version":1,"stages":{"sku":"shadow"},"sentinel":{"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":0,"durationInSec":1}]}}`)
	b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
	if got := testutil.ToFloat64(b.gate.metrics.shadows[admission.StageSKU]); got != 1 {
		t.Errorf("%v shadow refusals counted, want 1", got)
	}
}

// TestGatewayIdentity: a gateway's word stands alone or beside the same user's session,
// never against another's.
func TestGatewayIdentity(t *testing.T) {
	b := newBed(t, quiet(""))
	for _, c := range []struct {
		gateway, bearer string
		want            admission.Outcome
	}{
		{"7", "", admission.Pass},
		{"7", "7", admission.Pass},
		{"7", "8", admission.Unauthenticated},
		{"7", "forged", admission.Unauthenticated},
		{"07", "", admission.Unauthenticated},
		{"", "7", admission.Pass},
	} {
		req := b.request("7")
		req.GatewayUser, req.Bearer = c.gateway, c.bearer
		if d := b.gate.Identify(req); d.Outcome != c.want || c.want == admission.Pass && req.UserID != "7" {
			t.Errorf("gateway %q, session %q: %v as %q, want %v", c.gateway, c.bearer, d.Outcome, req.UserID, c.want)
		}
	}
}

// TestDeviceInShadowTightensNobody: a stage in shadow is counted, not enforced.
func TestDeviceInShadowTightensNobody(t *testing.T) {
	b := newBed(t, quiet(`"stages":{"device":"shadow"},"limits":{"device":{"rate_per_s":0,"burst":0},"user":{"rate_per_s":0.001,"burst":4}}`))
	for range 4 {
		b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
	}
	if got := testutil.ToFloat64(b.gate.metrics.shadows[admission.StageDevice]); got != 4 {
		t.Errorf("%v shadow refusals of devices counted, want 4", got)
	}
}

// oneHolder is a stock in which user 7 holds a unit.
type oneHolder struct{ admission.Stock }

func (oneHolder) Snapshot(context.Context, admission.SKURef) (admission.StockSnapshot, error) {
	return admission.StockSnapshot{Mark: admission.Mark{Incarnation: 1, ActivityVersion: 3, LogLength: 1}, Total: 10, Remaining: 9, Open: true}, nil
}

func (oneHolder) Log(context.Context, admission.SKURef, int64, int) ([]admission.LogEvent, error) {
	return []admission.LogEvent{{Kind: admission.LogReserved, UserID: "7", RequestID: "request-7", ReservationID: "r_7", Outcome: admission.PollQueued, Attempt: 1}}, nil
}

// TestHolderPassesTheClosing: a holder's retry gets its result also across the closing
// moment; everybody else is told that the sale has ended.
func TestHolderPassesTheClosing(t *testing.T) {
	b := newBed(t, quiet(""))
	board := soldout.New(oneHolder{}, func() int64 { return int64(b.clock) }, soldout.NewMetrics(prometheus.NewRegistry()))
	board.Serve([]admission.SKURef{{ActivityID: "10001", SKUID: "90001"}}, func(admission.SKURef) time.Duration { return time.Second })
	if err := board.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.gate.config.Board = board
	b.act.ClosesAt = opening.Add(time.Second)
	holder := b.request("7")
	b.want(b.gate.Enter(holder), admission.Pass, admission.StageNone)
	if holder.Holder.ReservationID != "r_7" {
		t.Errorf("holder %+v, want their reservation", holder.Holder)
	}
	b.want(b.gate.Enter(b.request("8")), admission.ActivityEnded, admission.StageActivity)
}

// TestALateShedGivesBackWhatIsLeft: whoever was shed late has had part of it back by itself.
func TestALateShedGivesBackWhatIsLeft(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":1,"burst":1}}`))
	first := enter7(b, b.request("7"))
	b.clock += limit.Instant(time.Second)
	enter7(b, b.request("7"))
	first.End(admission.Decision{Outcome: admission.Overloaded})
	b.want(b.gate.Enter(b.request("7")), admission.RateLimited, admission.StageUser)
}
