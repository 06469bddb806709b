package redis

import (
	"context"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// A restore brings a SKU back to what SQL says, after a failover that lost writes, a lost
// key or a NO_CAPACITY: CloseSKU, wait until the order group has consumed what was sent
// before, Apply every outcome (CANCELLED first, live orders last), Reopen. Each step may be
// repeated, and by anybody: a restore that died is begun again.

// CloseSKU stops reservations of the SKU and returns the server's time, after which none
// was made. A lost stock is made anew from spec, closed, with all its units: the effects
// of SQL's orders then take theirs.
func (s *Stock) CloseSKU(ctx context.Context, spec admission.StockSpec) (closedAt time.Time, err error) {
	k := keysOf(spec.Ref)
	values, err := s.scripts.closeSKU.Run(ctx, s.client, []string{k.stock(), k.soldOut()}, specArgs(spec)...)
	if err != nil {
		return time.Time{}, err
	}
	f := fields{op: "close_sku", left: values}
	f.int() // whether it was made anew
	at := f.int()
	return time.UnixMilli(at), f.end()
}

// Reopen opens a closed SKU on the primary that answers, under a greater incarnation: the
// stored one + 1, or least if that is greater. An open one is left alone. least is what the
// caller knows to exceed every incarnation that instances may have seen (a term will do);
// 0 if it knows none.
func (s *Stock) Reopen(ctx context.Context, ref admission.SKURef, least int64) error {
	k := keysOf(ref)
	values, err := s.scripts.reopenSKU.Run(ctx, s.client, []string{k.stock(), k.log(), k.soldOut()}, least)
	if err != nil {
		return err
	}
	f := fields{op: "reopen_sku", left: values}
	switch word := f.string(); word {
	case "MISSING":
		return missing("reopen_sku", ref)
	case "OPEN":
		return f.end()
	case "REOPENED":
		remaining, mark := f.int(), f.mark()
		if err := f.end(); err != nil {
			return err
		}
		kind := admission.EventReopened
		if remaining <= 0 {
			kind = admission.EventSoldOut
		}
		s.options.Crossed(crossing(ref, mark, kind))
		return nil
	default:
		return wrongShape("reopen_sku", word)
	}
}
