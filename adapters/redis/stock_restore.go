package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// A restore brings a SKU back to what SQL says, after a failover that lost writes, a lost
// key or a NO_CAPACITY: CloseSKU, wait until the order group has consumed what was sent
// before, Apply every outcome (CANCELLED first, live orders last), Reopen, which counts the
// units anew. Each step may be repeated, and by anybody: a restore that died is begun again.

// CloseSKU stops reservations of the SKU and returns the server's time, after which none
// was made. A stock that is lost or cannot be read is made anew from spec, closed.
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
//
// What remains is then the total less what the reservations hold, whatever was lost or
// written twice before. Verdicts that come meanwhile are read from the log, at most
// countRuns times; after that the SKU stays closed for this time (ErrUnavailable).
func (s *Stock) Reopen(ctx context.Context, ref admission.SKURef, least int64) error {
	c := holdings{stock: s, ref: ref}
	if err := c.read(ctx); err != nil {
		return err
	}
	if err := c.mend(ctx); err != nil {
		return err
	}
	for range countRuns {
		if err := c.follow(ctx); err != nil {
			return err
		}
		if moved, err := s.reopen(ctx, &c, least); err != nil || !moved {
			return err
		}
	}
	return &Fault{
		Op: "reopen_sku " + ref.Tag(), Kind: KindTryAgain, Sentinel: admission.ErrUnavailable,
		Err: errors.New("its reservations moved while they were counted"),
	}
}

// countRuns bounds how often one Reopen catches up with the log: each takes a round trip
// or two, in which few verdicts come.
const countRuns = 10

func (s *Stock) reopen(ctx context.Context, c *holdings, least int64) (moved bool, err error) {
	k := keysOf(c.ref)
	values, err := s.scripts.reopenSKU.Run(ctx, s.client, []string{k.stock(), k.log(), k.soldOut(), k.rsv(), k.buyers()},
		least, c.units(), len(c.held), c.length)
	if err != nil {
		return false, err
	}
	f := fields{op: "reopen_sku", left: values}
	switch word := f.string(); word {
	case "MISSING":
		return false, &Fault{
			Op: "reopen_sku", Kind: KindMissing, Sentinel: admission.ErrNotFound, Err: errors.New("no stock of " + k.tag),
		}
	case "OPEN":
		return false, f.end()
	case "MOVED":
		return true, f.end()
	case "REOPENED":
		remaining, mark := f.int(), f.mark()
		if err := f.end(); err != nil {
			return false, err
		}
		kind := admission.EventReopened
		if remaining <= 0 {
			kind = admission.EventSoldOut
		}
		s.options.Crossed(crossing(c.ref, mark, kind))
		return false, nil
	default:
		return false, wrongShape("reopen_sku", word)
	}
}

// holdings are the units that every reservation of a closed SKU holds, as the log stood at
// length. One reservation is of some 100 bytes here; they are bounded by the total and its
// returns.
type holdings struct {
	stock  *Stock
	ref    admission.SKURef
	length int64
	held   map[string]int64 // reservation_id -> units; 0 once they went back
	live   []admission.Reservation
}

func (c *holdings) units() (sum int64) {
	for _, n := range c.held {
		sum += n
	}
	return sum
}

// read counts all reservations in parts.
func (c *holdings) read(ctx context.Context) (err error) {
	k := keysOf(c.ref)
	c.held, c.live = make(map[string]int64), nil
	if c.length, err = c.stock.client.LLen(ctx, k.log()).Result(); err != nil {
		return Classify("count", err)
	}
	var cursor uint64
	for {
		pairs, next, err := c.stock.client.HScan(ctx, k.rsv(), cursor, "", scanPart).Result()
		if err != nil {
			return Classify("count", err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			c.note(pairs[i], pairs[i+1])
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// note takes one record. One that cannot be read, after every verdict was applied, is of a
// reservation that SQL does not know and nothing can decide any more: it holds nothing.
func (c *holdings) note(id, record string) {
	r, err := parseReservation(c.ref, id, record)
	_, known := c.held[id]
	c.held[id] = 0
	if err != nil {
		return
	}
	switch r.State {
	case admission.Live:
		if c.held[id] = r.Quantity; !known { // HSCAN may name one twice
			c.live = append(c.live, r)
		}
	case admission.Created, admission.Paid:
		c.held[id] = r.Quantity
	case admission.Returned, admission.Duplicate, admission.NoCapacity: // went back
	}
}

// follow counts again what the log says was moved since. A log that is shorter, or stands
// still under a count that does not fit, was written by nobody's script: all is counted.
func (c *holdings) follow(ctx context.Context) error {
	k := keysOf(c.ref)
	length, err := c.stock.client.LLen(ctx, k.log()).Result()
	if err != nil {
		return Classify("count", err)
	}
	reservations, err := c.stock.client.HLen(ctx, k.rsv()).Result()
	if err != nil {
		return Classify("count", err)
	}
	if length < c.length || length == c.length && reservations != int64(len(c.held)) {
		return c.read(ctx)
	}
	for c.length < length {
		events, err := c.stock.Log(ctx, c.ref, c.length, MaxLogPage)
		if err != nil || len(events) == 0 {
			return err
		}
		ids := make([]string, 0, len(events))
		for _, e := range events {
			if e.ReservationID != "" {
				ids = append(ids, e.ReservationID)
			}
		}
		c.length += int64(len(events))
		if len(ids) == 0 {
			continue
		}
		records, err := c.stock.client.HMGet(ctx, k.rsv(), ids...).Result()
		if err != nil {
			return Classify("count", err)
		}
		for i, v := range records {
			if text, ok := v.(string); ok {
				c.note(ids[i], text)
			} else {
				delete(c.held, ids[i])
			}
		}
	}
	return nil
}

// mend tells anew who holds what is undecided, and forgets what only the log knows.
func (c *holdings) mend(ctx context.Context) error {
	calls := make([]Call, 0, len(c.live))
	add := func(user, request, hash, id string) {
		calls = append(calls, Call{
			Script: c.stock.scripts.mend, Keys: keysOf(c.ref).all(user, request), Args: []any{id, user, request, hash},
		})
	}
	for _, r := range c.live {
		add(r.UserID, r.RequestID, r.BodyHash, r.ID)
	}
	for from := int64(0); from < c.length; from += MaxLogPage {
		events, err := c.stock.Log(ctx, c.ref, from, MaxLogPage)
		if err != nil {
			return err
		}
		for _, e := range events {
			if _, known := c.held[e.ReservationID]; e.Kind == admission.LogReserved && !known {
				add(e.UserID, e.RequestID, e.BodyHash, e.ReservationID)
			}
		}
	}
	for len(calls) > 0 {
		n := min(len(calls), applyBatch)
		for _, r := range RunAll(ctx, c.stock.client, calls[:n]) {
			if r.Err != nil {
				return fmt.Errorf("mend a reservation of %s: %w", c.ref.Tag(), r.Err)
			}
		}
		calls = calls[n:]
	}
	return nil
}
