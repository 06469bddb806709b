package slots

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/stat"

	"github.com/sluice-io/sluice/app/admission"
)

// TestVisitsAreNobodyElses: under a crowd that is admitted, shed, refused and replayed on
// both chains, each request meets the stores under its own name and its own charges go
// back. Run it under the race detector.
func TestVisitsAreNobodyElses(t *testing.T) {
	const crowd, rounds = 16, 200
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":0.001,"burst":1}}`))
	var wrong, claims atomic.Int64
	b.claim = func(_ context.Context, a admission.ClaimArgs) (admission.ClaimResult, error) {
		claims.Add(1)
		if a.RequestID != "request-"+a.UserID || a.Nonce != "n_nonce_of_"+a.UserID {
			wrong.Add(1)
		}
		return admission.ClaimResult{Claim: admission.ClaimFirst}, nil
	}
	var wg sync.WaitGroup
	for g := range crowd {
		wg.Go(func() {
			for i := range rounds {
				req := b.request(fmt.Sprint(1_000_000 + g*rounds + i))
				for range 3 { // shed twice: the burst of one must have come back
					if d := b.gate.Enter(req); d.Refused() {
						wrong.Add(1)
					}
					if d := b.gate.Reserve(t.Context(), req); d.Refused() {
						wrong.Add(1)
					}
					req.End(admission.Decision{Outcome: admission.Overloaded})
				}
				b.gate.Enter(req)
				req.End(admission.Decision{Outcome: admission.Queued})
				if d := b.gate.Enter(b.request(req.UserID)); d.Stage != admission.StageUser {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wrong.Load() != 0 || claims.Load() != 3*crowd*rounds {
		t.Errorf("%d wrong, %d claims; want none and %d", wrong.Load(), claims.Load(), 3*crowd*rounds)
	}
	if n := b.gate.view.Load().policy(b.request("1").Ref()).seats.InFlight(); n != 0 {
		t.Errorf("%d seats still taken", n)
	}
}

// TestReserveWantsAPass: the second chain admits what passed the first and nothing else,
// whatever the service around it forgot.
func TestReserveWantsAPass(t *testing.T) {
	b := newBed(t, quiet(""))
	refused := func(why string, req *admission.Request) {
		t.Helper()
		spent := false
		b.spend = func(context.Context, admission.SKURef) (func(), admission.Decision) {
			spent = true
			return func() {}, admission.Decision{}
		}
		d := b.gate.Reserve(t.Context(), req)
		b.want(d, admission.DependencyUnavailable, admission.StageMode)
		if d.Cause == nil || spent || b.claims.Load() != 0 || b.gate.view.Load().policy(req.Ref()).seats.InFlight() != 0 {
			t.Errorf("%s: cause %v, token spent: %v, %d claims", why, d.Cause, spent, b.claims.Load())
		}
	}
	named := b.request("7")
	named.UserID, named.Nonce = "7", "n_nonce_of_7"
	refused("nobody entered", named)

	forged := b.request("7")
	forged.Ticket = "forged"
	b.want(b.gate.Enter(forged), admission.TokenInvalid, admission.StageTicket)
	forged.Nonce = "n_nonce_of_7"
	refused("the first chain refused", forged)

	tooLate := enter7(b, b.request("7"))
	b.mode = admission.ModeClosed
	b.want(b.gate.Enter(tooLate), admission.OverloadedClosed, admission.StageMode)
	refused("entered again, and refused then", tooLate)
	b.mode = admission.ModeNormal

	noRules := enter7(b, b.request("6"))
	w := b.gate.view.Swap(nil)
	b.want(b.gate.Enter(noRules), admission.DependencyUnavailable, admission.StageMode)
	b.gate.view.Store(w)
	refused("entered again when no rules were in force", noRules)

	original := enter7(b, b.request("7"))
	other := *original
	other.UserID, other.Nonce, other.RequestID = "8", "n_nonce_of_8", "request-8"
	refused("a copy", &other)

	another := newBed(t, quiet(""))
	refused("another gate's", enter7(another, another.request("7")))

	nameless := enter7(b, b.request("8"))
	nameless.UserID = ""
	refused("no user", nameless)
	bare := enter7(b, b.request("9"))
	bare.Nonce = ""
	refused("no nonce", bare)

	b.want(b.gate.Reserve(t.Context(), original), admission.Pass, admission.StageNone)
	original.End(admission.Decision{Outcome: admission.Queued})
}

// TestBothChainsUnderOneSetOfRules: a request whose body was on its way when the rules
// changed ends under those it began with.
func TestBothChainsUnderOneSetOfRules(t *testing.T) {
	b := newBed(t, quiet(""))
	req := enter7(b, b.request("7"))
	b.apply(quiet(`"stages":{"remote_user":"on"}`)) // refuses: there is no store
	b.want(b.gate.Reserve(t.Context(), req), admission.Pass, admission.StageNone)
	b.want(b.gate.Reserve(t.Context(), enter7(b, b.request("7"))), admission.DependencyUnavailable, admission.StageRemoteUser)
}

// TestClaimBudget: a store that waits is left when the budget is used up, one that answers
// is not timed.
func TestClaimBudget(t *testing.T) {
	b := newBed(t, quiet(""))
	b.gate.config.Budgets = func() Budgets { return Budgets{Claim: time.Millisecond} }
	b.claim = func(ctx context.Context, _ admission.ClaimArgs) (admission.ClaimResult, error) {
		<-ctx.Done()
		return admission.ClaimResult{}, ctx.Err()
	}
	d := b.gate.Reserve(t.Context(), enter7(b, b.request("7")))
	b.want(d, admission.DependencyUnavailable, admission.StageNonce)
	if d.Reason != admission.ReasonLimiterResultUnknown {
		t.Errorf("reason %v", d.Reason)
	}
}

// TestHazardLeaveOnce: Sentinel's contexts are pooled, and a second exit would count for
// whoever has the context by then.
func TestHazardLeaveOnce(t *testing.T) {
	for _, document := range []string{quiet(""), with(`"flow":"none","hotspot":"none","system":"none","circuitbreaker":[
		{"resource":"seckill.reserve","strategy":1,"retryTimeoutMs":1000,"minRequestAmount":4,"statIntervalMs":1000,"threshold":0.5}]`)} {
		b := newBed(t, document)
		node := stat.GetOrCreateResourceNode("seckill.reserve", base.ResTypeWeb)
		before := node.CurrentConcurrency()
		first, second := b.inside("7"), b.inside("8")
		first.Visit.(*visit).leave(nil)
		third := b.inside("9") // perhaps with the context of the first
		first.Visit.(*visit).leave(nil)
		first.End(admission.Decision{Outcome: admission.Queued})
		if got := node.CurrentConcurrency(); got != before+2 {
			t.Errorf("concurrency rose by %d, want 2", got-before)
		}
		second.End(admission.Decision{Outcome: admission.Queued})
		third.End(admission.Decision{Outcome: admission.Queued})
		if got := node.CurrentConcurrency(); got != before {
			t.Errorf("concurrency is off by %d when all have left", got-before)
		}
	}
}

// TestReserveAgainWhileInside: each entry is left, whoever calls out of turn.
func TestReserveAgainWhileInside(t *testing.T) {
	b := newBed(t, quiet(""))
	node := stat.GetOrCreateResourceNode("seckill.reserve", base.ResTypeWeb)
	before := node.CurrentConcurrency()
	req := b.inside("7")
	b.apply(quiet(`"stages":{"remote_user":"on"}`)) // refuses, but whoever came before goes by the rules of then
	b.want(b.gate.Reserve(t.Context(), req), admission.Pass, admission.StageNone)
	if got := node.CurrentConcurrency(); got != before+2 {
		t.Errorf("concurrency rose by %d, want 2", got-before)
	}
	req.End(admission.Decision{Outcome: admission.Queued})
	if got := node.CurrentConcurrency(); got != before {
		t.Errorf("concurrency is off by %d", got-before)
	}
}

// TestHazardPanicOnTheWayOut does not take the verdict back, nor leave its context to others.
func TestHazardPanicOnTheWayOut(t *testing.T) {
	b := newBed(t, quiet(""))
	b.gate.view.Load().enter.count(panickingStat{})
	for range 3 {
		b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
	}
	b.want(b.gate.Call(admission.CallStatus, b.request("7")), admission.Pass, admission.StageNone)
}

type panickingStat struct{}

func (panickingStat) Order() uint32                                       { return 9000 }
func (panickingStat) OnEntryPassed(*base.EntryContext)                    {}
func (panickingStat) OnEntryBlocked(*base.EntryContext, *base.BlockError) {}
func (panickingStat) OnCompleted(*base.EntryContext)                      { panic("boom") }
