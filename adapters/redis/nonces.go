package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// Nonces implements admission.Nonces: one script, one round trip, never retried. When
// the store is away every claim fails, and a claim that fails admits nobody.
type Nonces struct {
	client goredis.UniversalClient
	claim  *Script
}

// NewNonces keeps the nonces in the limiter store.
func NewNonces(c goredis.UniversalClient) *Nonces {
	return &Nonces{client: c, claim: NewScript("claim_nonce")}
}

// Claim binds the nonce to the request_id, or says to which it is bound.
func (n *Nonces) Claim(ctx context.Context, a admission.ClaimArgs) (admission.ClaimResult, error) {
	values, err := n.claim.Run(ctx, n.client,
		[]string{replayKey(a.UserID, a.Nonce), requestKey(a.UserID, a.RequestID)},
		a.RequestID, a.Ref.ActivityID+"|"+a.Ref.SKUID+"|"+a.BodyHash, a.TTL.Milliseconds())
	if err != nil {
		return admission.ClaimResult{}, err
	}
	f := fields{op: n.claim.Name(), left: values}
	r := admission.ClaimResult{Claim: admission.Claim(f.int())}
	if r.Claim == admission.ClaimNonceConflict {
		r.FirstRequestID = f.string()
	}
	if r.Claim < admission.ClaimFirst || r.Claim > admission.ClaimBodyConflict {
		f.fail(r.Claim)
	}
	if err := f.end(); err != nil {
		return admission.ClaimResult{}, fmt.Errorf("claim: %w", err)
	}
	return r, nil
}
