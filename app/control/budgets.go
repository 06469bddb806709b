package control

import (
	"context"
	"errors"

	"github.com/sluice-io/sluice/app/admission"
)

// Budgets publishes the rates of the lease buckets while this process leads. Wanted
// lists them; the term is filled in here.
type Budgets struct {
	Leases admission.Leases
	Wanted func() []admission.Budget
}

// Step writes every budget. A conflict means that a newer leader wrote: this one is over.
func (b *Budgets) Step(ctx context.Context, term int64) error {
	var errs []error
	for _, want := range b.Wanted() {
		want.Term = term
		if err := b.Leases.SetBudget(ctx, want); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
