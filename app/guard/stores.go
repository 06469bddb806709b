package guard

import (
	"context"

	"github.com/sluice-io/sluice/app/admission"
)

// Nonces guards the claim.
type Nonces struct {
	next    admission.Nonces
	breaker *Breaker
}

// NewNonces puts a breaker before a limiter store's claims.
func NewNonces(next admission.Nonces, b *Breaker) *Nonces { return &Nonces{next, b} }

// Claim makes the claim, or fails with ErrUnavailable while the breaker is open.
func (n *Nonces) Claim(ctx context.Context, a admission.ClaimArgs) (admission.ClaimResult, error) {
	return call(ctx, n.breaker, func() (admission.ClaimResult, error) { return n.next.Claim(ctx, a) })
}

// Stock guards the reservation. Everything else goes through: who holds something is
// answered, and recovery works, as well as the store lets them.
type Stock struct {
	admission.Stock
	breaker *Breaker
}

// NewStock puts a breaker before a stock store's reservations.
func NewStock(next admission.Stock, b *Breaker) *Stock { return &Stock{next, b} }

// Reserve reserves, or fails with ErrUnavailable while the breaker is open: then nothing
// was reserved.
func (s *Stock) Reserve(ctx context.Context, a admission.ReserveArgs) (admission.ReserveResult, error) {
	return call(ctx, s.breaker, func() (admission.ReserveResult, error) { return s.Stock.Reserve(ctx, a) })
}
