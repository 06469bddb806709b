package slots

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit/source"
)

// from is a request that comes from an address.
func (b *bed) from(user, addr string) *admission.Request {
	b.t.Helper()
	req := b.request(user)
	own, coarse := source.Prefixes(netip.MustParseAddr(addr))
	req.SourceKey, req.SourcePrefixKey = b.gate.config.SourceKey(own), b.gate.config.SourceKey(coarse)
	return req
}

// TestShedRefundsANamedPrefix: a /24 with a limit of its own gets back what it was charged, as
// every other limit does.
func TestShedRefundsANamedPrefix(t *testing.T) {
	b := newBed(t, quiet(wideUser[:len(wideUser)-1]+`,"overrides":[{"dimension":"source","key":"192.0.2.0/24","rate_per_s":0.001,"burst":1}]}`))
	for i := range 3 {
		enter7(b, b.from("7", fmt.Sprintf("192.0.2.%d", i+1))).End(admission.Decision{Outcome: admission.Overloaded})
	}
	enter7(b, b.from("7", "192.0.2.9")).End(admission.Decision{Outcome: admission.Queued})
	d := b.gate.Enter(b.from("7", "192.0.2.8"))
	b.want(d, admission.RateLimited, admission.StageSource)
	if d.Reason != admission.ReasonSourcePrefixRate {
		t.Errorf("reason %q", d.Reason)
	}
}

// TestShedRefundsAPrefix: one that shares the common limit, too.
func TestShedRefundsAPrefix(t *testing.T) {
	b := newBed(t, quiet(wideUser[:len(wideUser)-1]+`,"source":{"rate_per_s":0.001,"burst":1}}`))
	for i := range 30 { // thrice what the /24 has
		enter7(b, b.from("7", fmt.Sprintf("192.0.2.%d", i+1))).End(admission.Decision{Outcome: admission.Overloaded})
	}
	for i := range 10 {
		enter7(b, b.from("7", fmt.Sprintf("192.0.2.%d", i+1))).End(admission.Decision{Outcome: admission.Queued})
	}
	b.want(b.gate.Enter(b.from("7", "192.0.2.99")), admission.RateLimited, admission.StageSource)
}

// TestSeatsOfSKUsThatLeft: the seats of a SKU that is neither served nor named any more are
// forgotten, or every sale would leave its own behind.
func TestSeatsOfSKUsThatLeft(t *testing.T) {
	b := newBed(t, quiet(""))
	for sku := range 10 {
		b.apply(quiet(fmt.Sprintf(`"admission":[{"activity_id":"10001","sku_id":"%d","policy_version":1}]`, 100+sku)))
	}
	if n := len(b.gate.seats); n != 3 { // the SKU that is served, the one that is named, and all others'
		t.Errorf("seats of %d SKUs are kept, want 3", n)
	}
}

// TestPenaltyOfADeviceThatOnlyTightens: a device that was over its rate too often is refused
// only where the policy says that devices are.
func TestPenaltyOfADeviceThatOnlyTightens(t *testing.T) {
	const limits = `"limits":{"user":{"rate_per_s":1000,"burst":1000},"device":{"rate_per_s":0.001,"burst":1},"penalty_refusals":1,"penalty_window_ms":10000,"penalty_ms":60000}`
	b := newBed(t, quiet(limits))
	for range 6 {
		enter7(b, b.request("7"))
	}
	b.apply(quiet(limits + `,"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"device_refuses":true}]`))
	d := b.gate.Enter(b.request("7"))
	b.want(d, admission.RateLimited, admission.StageDevice)
	if d.Reason != admission.ReasonPenalty {
		t.Errorf("reason %q: the device serves no penalty, and this test shows nothing", d.Reason)
	}
}

// TestShadowsOfDimensionsAreApart although they share a table: an address that happens to
// hash as a user does is not charged as that user.
func TestShadowsOfDimensionsAreApart(t *testing.T) {
	const one = `{"rate_per_s":0.001,"burst":1,"shadow":true}`
	b := newBed(t, quiet(`"limits":{"source":`+one+`,"user":`+one+`}`))
	req := b.request("7")
	req.SourceKey = b.gate.config.Hasher.Join("10001", "90001", "7")
	enter7(b, req)
	for _, stage := range []admission.Stage{admission.StageSource, admission.StageUser} {
		if n := testutil.ToFloat64(b.gate.metrics.shadows[stage]); n != 0 {
			t.Errorf("%v shadow refusals at %v of the first request there was", n, stage)
		}
	}
}

// TestFlowSlotGivesNothingTwice: what an asker read before others asked, and were let through,
// is older than they: it lets nobody through unasked.
func TestFlowSlotGivesNothingTwice(t *testing.T) {
	newBed(t, quiet("")) // Sentinel itself has no rule and admits all
	s := newFlowSlot([]flow.Rule{{Resource: "seckill.submit", Threshold: 1000}}, admission.CallSubmit)
	node := &interrupted{passes: 998}
	ctx := base.NewEmptyEntryContext()
	ctx.Resource, ctx.RuleCheckResult, ctx.StatNode = base.NewResourceWrapper("seckill.submit", base.ResTypeWeb, base.Inbound), base.NewTokenResultPass(), node
	node.meanwhile = func() {
		for range 2 { // one asks and finds one place beside its own; another takes it
			s.Check(ctx)
		}
	}
	s.Check(ctx)
	if left := uint32(s.sure.Load()); left != 0 {
		t.Errorf("%d more need not ask, though three have passed where two places were", left)
	}
}

// interrupted is a node between whose reading and the reader's next step others come.
type interrupted struct {
	base.StatNode
	passes    int64
	meanwhile func()
}

func (n *interrupted) GetSum(base.MetricEvent) int64 {
	if f := n.meanwhile; f != nil {
		n.meanwhile = nil
		f()
	}
	return n.passes
}

// TestResetOfASourceIncludesItsPolls: they have a bucket apart, which an operator who resets an
// address means as well.
func TestResetOfASourceIncludesItsPolls(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"source":{"rate_per_s":0.001,"burst":1}}`))
	poll := func() admission.Decision { return b.gate.Call(admission.CallStatus, b.from("7", "192.0.2.7")) }
	enter7(b, b.from("7", "192.0.2.7"))
	b.want(poll(), admission.Pass, admission.StageNone)
	b.want(poll(), admission.RateLimited, admission.StageSource)
	if err := b.gate.ResetLimiter("source", "192.0.2.7"); err != nil {
		t.Fatal(err)
	}
	b.want(poll(), admission.Pass, admission.StageNone)
}

// TestNobodysClaimIsNotRemembered: an empty place has the key that nobody has.
func TestNobodysClaimIsNotRemembered(t *testing.T) {
	m := newClaimMemory()
	if first, ok := m.get(7, 0); ok {
		t.Errorf("an empty place remembers %q", first)
	}
	m.put(7, 9, "request-7")
	if first, ok := m.get(7, 9); !ok || first != "request-7" {
		t.Errorf("%q, %v", first, ok)
	}
}

// TestWaitsAreTold up to an hour: a closed limiter knows no time.
func TestWaitsAreTold(t *testing.T) {
	for document, want := range map[string]time.Duration{
		`"limits":{"user":{"rate_per_s":0,"burst":0}}`:       maxRetryAfter,
		`"limits":{"user":{"rate_per_s":0.0001,"burst":1}}`:  maxRetryAfter,
		`"limits":{"user":{"rate_per_s":0.00125,"burst":1}}`: 800 * time.Second,
	} {
		b := newBed(t, quiet(document))
		b.gate.Enter(b.request("7"))
		if d := b.gate.Enter(b.request("7")); d.RetryAfter != want {
			t.Errorf("%s: %v, want %v", document, d.RetryAfter, want)
		}
	}
}
