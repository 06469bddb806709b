package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Nonces is the suite of admission.Nonces. open gives the backend; cases use users of
// their own, so one store may serve all of them.
func Nonces(t *testing.T, open func(t *testing.T) admission.Nonces) {
	t.Run("table of claims", func(t *testing.T) { claimTable(t, open(t)) })
	t.Run("a conflict writes nothing", func(t *testing.T) { claimConflictWritesNothing(t, open(t)) })
	t.Run("race of twins", func(t *testing.T) { claimTwins(t, open(t)) })
	t.Run("race of rivals for one nonce", func(t *testing.T) { claimRivals(t, open(t)) })
	t.Run("users do not meet", func(t *testing.T) { claimUsersApart(t, open(t)) })
	t.Run("S01 ids beyond 2^53 stay apart", func(t *testing.T) { claimWideIDs(t, open(t)) })
	t.Run("arguments out of range write nothing", func(t *testing.T) { claimArguments(t, open(t)) })
	t.Run("an ended context claims nothing", func(t *testing.T) { claimEnded(t, open(t)) })
}

func claimArgs(user, nonce, request, body string) admission.ClaimArgs {
	return admission.ClaimArgs{
		UserID: user, Nonce: nonce, RequestID: request, BodyHash: body,
		Ref: admission.SKURef{ActivityID: "10001", SKUID: "90001"}, TTL: time.Minute,
	}
}

func mustClaim(t *testing.T, n admission.Nonces, a admission.ClaimArgs) admission.ClaimResult {
	t.Helper()
	r, err := n.Claim(t.Context(), a)
	if err != nil {
		t.Fatalf("claim %+v: %v", a, err)
	}
	return r
}

func claimTable(t *testing.T, n admission.Nonces) {
	u := fresh(t)
	otherSKU := claimArgs(u, "nonce-003", "request-1", "body-1")
	otherSKU.Ref.SKUID = "90002"
	for _, step := range []struct {
		what  string
		args  admission.ClaimArgs
		want  admission.Claim
		first string
	}{
		{"fresh", claimArgs(u, "nonce-001", "request-1", "body-1"), admission.ClaimFirst, ""},
		{"again", claimArgs(u, "nonce-001", "request-1", "body-1"), admission.ClaimSame, ""},
		{"other request, same nonce", claimArgs(u, "nonce-001", "request-2", "body-1"), admission.ClaimNonceConflict, "request-1"},
		{"other request and body, same nonce", claimArgs(u, "nonce-001", "request-2", "body-2"), admission.ClaimNonceConflict, "request-1"},
		{"same request, other body", claimArgs(u, "nonce-001", "request-1", "body-2"), admission.ClaimBodyConflict, ""},
		{"S11 same request, other body, fresh nonce", claimArgs(u, "nonce-002", "request-1", "body-2"), admission.ClaimBodyConflict, ""},
		{"S11 same request, other SKU, fresh nonce", otherSKU, admission.ClaimBodyConflict, ""},
		{"same request and body, fresh nonce", claimArgs(u, "nonce-004", "request-1", "body-1"), admission.ClaimFirst, ""},
		{"that nonce is bound now", claimArgs(u, "nonce-004", "request-9", "body-1"), admission.ClaimNonceConflict, "request-1"},
		{"another purchase", claimArgs(u, "nonce-005", "request-5", "body-5"), admission.ClaimFirst, ""},
		{"the first one still reads same", claimArgs(u, "nonce-001", "request-1", "body-1"), admission.ClaimSame, ""},
	} {
		got := mustClaim(t, n, step.args)
		if got.Claim != step.want || got.FirstRequestID != step.first {
			t.Errorf("%s: got %+v, want claim %d of %q", step.what, got, step.want, step.first)
		}
	}
}

func claimConflictWritesNothing(t *testing.T, n admission.Nonces) {
	u := fresh(t)
	mustClaim(t, n, claimArgs(u, "nonce-001", "request-1", "body-1"))
	mustClaim(t, n, claimArgs(u, "nonce-001", "request-2", "body-2")) // nonce conflict
	mustClaim(t, n, claimArgs(u, "nonce-002", "request-1", "body-3")) // body conflict
	if r := mustClaim(t, n, claimArgs(u, "nonce-002", "request-2", "body-9")); r.Claim != admission.ClaimFirst {
		t.Errorf("after two conflicts their ids must be free: got %+v", r)
	}
}

func claimTwins(t *testing.T, n admission.Nonces) {
	args := claimArgs(fresh(t), "nonce-001", "request-1", "body-1")
	counts := claimRace(t, n, 16, func(int) admission.ClaimArgs { return args })
	if counts[admission.ClaimFirst] != 1 || counts[admission.ClaimSame] != 15 {
		t.Errorf("16 twins: got %v, want one first and 15 the same", counts)
	}
}

func claimRivals(t *testing.T, n admission.Nonces) {
	u := fresh(t)
	counts := claimRace(t, n, 16, func(i int) admission.ClaimArgs {
		return claimArgs(u, "nonce-001", fmt.Sprintf("request-%d", i), "body-1")
	})
	if counts[admission.ClaimFirst] != 1 || counts[admission.ClaimNonceConflict] != 15 {
		t.Errorf("16 rivals: got %v, want one first and 15 conflicts", counts)
	}
}

func claimRace(t *testing.T, n admission.Nonces, racers int, args func(i int) admission.ClaimArgs) map[admission.Claim]int {
	t.Helper()
	var mu sync.Mutex
	counts := make(map[admission.Claim]int)
	var group sync.WaitGroup
	for i := range racers {
		group.Go(func() {
			r, err := n.Claim(t.Context(), args(i))
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			counts[r.Claim]++
		})
	}
	group.Wait()
	return counts
}

func claimUsersApart(t *testing.T, n admission.Nonces) {
	u := fresh(t)
	for _, user := range []string{u + "1", u + "2"} {
		if r := mustClaim(t, n, claimArgs(user, "nonce-001", "request-1", "body-"+user)); r.Claim != admission.ClaimFirst {
			t.Errorf("user %s: got %+v, want first: ids of another user must not matter", user, r)
		}
	}
}

func claimWideIDs(t *testing.T, n admission.Nonces) {
	prefix := fresh(t)
	for _, user := range []string{"7300000000000000001", "7300000000000000002"} {
		args := claimArgs(user, prefix+"-nonce", prefix+"-request", user)
		if r := mustClaim(t, n, args); r.Claim != admission.ClaimFirst {
			t.Errorf("user %s: got %+v, want first", user, r)
		}
		if r := mustClaim(t, n, args); r.Claim != admission.ClaimSame {
			t.Errorf("user %s again: got %+v, want same", user, r)
		}
	}
}

func claimArguments(t *testing.T, n admission.Nonces) {
	u := fresh(t)
	for name, spoil := range map[string]func(*admission.ClaimArgs){
		"ttl 0":            func(a *admission.ClaimArgs) { a.TTL = 0 },
		"ttl negative":     func(a *admission.ClaimArgs) { a.TTL = -time.Second },
		"ttl below a ms":   func(a *admission.ClaimArgs) { a.TTL = time.Microsecond },
		"empty request_id": func(a *admission.ClaimArgs) { a.RequestID = "" },
	} {
		args := claimArgs(u, "nonce-001", "request-1", "body-1")
		spoil(&args)
		if r, err := n.Claim(t.Context(), args); err == nil {
			t.Errorf("%s: got %+v, want an error", name, r)
		}
	}
	if r := mustClaim(t, n, claimArgs(u, "nonce-001", "request-1", "body-1")); r.Claim != admission.ClaimFirst {
		t.Errorf("after refused arguments: got %+v, want first", r)
	}
}

func claimEnded(t *testing.T, n admission.Nonces) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := claimArgs(fresh(t), "nonce-001", "request-1", "body-1")
	if _, err := n.Claim(ctx, args); !isFault(err) {
		t.Errorf("ended context: got %v, want a fault of package admission", err)
	}
	if r := mustClaim(t, n, args); r.Claim != admission.ClaimFirst {
		t.Errorf("got %+v, want first: the ended call must not have claimed", r)
	}
}

// long is an id of the greatest length that a request may carry.
func long(prefix string) string {
	return prefix + strings.Repeat("x", max(0, admission.MaxIDLen-len(prefix)))
}
