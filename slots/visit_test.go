package slots

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// TestACopyHasNoVisit: what the first chain found belongs to the request that it saw.
func TestACopyHasNoVisit(t *testing.T) {
	b := newBed(t, quiet(""))
	req := enter7(b, b.request("7"))
	other := *req
	other.UserID, other.Nonce, other.RequestID = "8", "n_nonce_of_8", "request-8"
	var claimed []string
	b.claim = func(_ context.Context, a admission.ClaimArgs) (admission.ClaimResult, error) {
		claimed = append(claimed, a.UserID)
		return admission.ClaimResult{Claim: admission.ClaimFirst}, nil
	}
	b.want(b.gate.Reserve(t.Context(), &other), admission.Pass, admission.StageNone)
	b.want(b.gate.Reserve(t.Context(), req), admission.Pass, admission.StageNone)
	if fmt.Sprint(claimed) != "[8 7]" {
		t.Errorf("claims of %v", claimed)
	}
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
