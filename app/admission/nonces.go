package admission

import (
	"context"
	"time"
)

// Nonces binds a ticket's nonce to the first request_id that presents it. A fault
// is ErrUnknownResult or ErrUnavailable, is never retried, and refuses the submit.
type Nonces interface {
	Claim(ctx context.Context, args ClaimArgs) (ClaimResult, error)
}

// ClaimArgs is one claim.
type ClaimArgs struct {
	UserID    string
	Nonce     string
	RequestID string
	Ref       SKURef
	BodyHash  string
	TTL       time.Duration // until the activity closes, plus a buffer; > 0
}

// Claim is how a claim ended.
type Claim uint8

// The claims; the zero value is none of them.
const (
	ClaimNone          Claim = iota
	ClaimFirst               // bound now
	ClaimSame                // bound to this request_id before
	ClaimNonceConflict       // bound to another request_id
	ClaimBodyConflict        // this request_id was bound to another body
)

// ClaimResult is the claim's answer.
type ClaimResult struct {
	Claim          Claim
	FirstRequestID string // of ClaimNonceConflict
}
