package sqlorders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Decide is the consumer's transaction: it locks the batch's SKU rows in sorted order, reads what was decided on its
// users before, decides the rest in message order, and writes outcomes, orders and sold units. A batch of any size
// takes the same eight statements. CreatedAt of an order is now.
func (s *Store) Decide(ctx context.Context, messages []admission.OrderMessage, now time.Time) ([]admission.Verdict, error) {
	if len(messages) > MaxBatch {
		return nil, fmt.Errorf("decide: %d messages, at most %d: %w", len(messages), MaxBatch, admission.ErrUnavailable)
	}
	poison := make(map[int]string)
	for i, m := range messages {
		if why := flaw(m); why != "" {
			poison[i] = why
		}
	}
	var verdicts []admission.Verdict
	for {
		again := false
		err := s.write(ctx, "decide", func(q Querier) (err error) {
			found := maps.Clone(poison) // of this try alone: the next one may see a SKU that was published meanwhile
			verdicts, again, err = s.decide(ctx, q, messages, found, now)
			if err != nil {
				return err
			}
			poison = found
			if again {
				return errForeign
			}
			return nil
		})
		if again {
			continue // rolled back; poison has grown, so that this ends after len(messages) rounds
		}
		if err != nil {
			return nil, err
		}
		if len(poison) > 0 {
			return verdicts, &admission.PoisonError{Reasons: poison}
		}
		return verdicts, nil
	}
}

// errForeign rolls back a transaction that met a reservation of somebody else.
var errForeign = fmt.Errorf("a reservation of another request: %w", admission.ErrConflict)

// decide decides the messages that are not in poison. again: it put some there too late, begin anew.
func (s *Store) decide(ctx context.Context, q Querier, messages []admission.OrderMessage, poison map[int]string, now time.Time) (verdicts []admission.Verdict, again bool, err error) {
	verdicts = make([]admission.Verdict, len(messages))
	sound := make([]int, 0, len(messages))
	for i := range messages {
		if poison[i] == "" {
			sound = append(sound, i)
		}
	}
	if len(sound) == 0 {
		return verdicts, false, nil
	}
	l, err := s.ledger(ctx, q, messages, sound)
	if err != nil {
		return nil, false, err
	}
	var fresh []admission.Verdict
	for _, i := range sound {
		m := messages[i]
		if l.skus[m.Ref()] == nil {
			poison[i] = "the activity or SKU is unknown"
			continue
		}
		v, isNew := l.decide(m)
		if foreign(m, v) {
			poison[i] = "the reservation belongs to another request"
			continue
		}
		if isNew {
			fresh = append(fresh, v)
		}
	}
	taken, err := s.record(ctx, q, fresh, l, now)
	if err != nil {
		return nil, false, err
	}
	for _, i := range sound {
		m := messages[i]
		switch {
		case poison[i] != "":
		case taken[m.ReservationID]:
			poison[i], again = "the reservation belongs to another request", true
		default:
			v := l.decided[m.ReservationID]
			if v.Outcome == admission.VerdictDuplicate && v.OrderID == "" {
				v.OrderID = l.decided[v.ExistingReservationID].OrderID
			}
			verdicts[i] = v
		}
	}
	return verdicts, again, nil
}

// ledger locks the SKUs and reads what was decided on their users before. What it reads stays so until the
// transaction ends: every other decider waits for the SKU rows.
func (s *Store) ledger(ctx context.Context, q Querier, messages []admission.OrderMessage, sound []int) (*ledger, error) {
	refs := make([]admission.SKURef, len(sound))
	buyers := make([]buyer, len(sound))
	for k, i := range sound {
		refs[k], buyers[k] = messages[i].Ref(), buyer{messages[i].Ref(), messages[i].UserID}
	}
	skus, err := s.lock(ctx, q, refs)
	if err != nil {
		return nil, err
	}
	l := newLedger(skus)
	buyers = unique(buyers, func(a, b buyer) int {
		return cmp.Or(compareRefs(a.ref, b.ref), cmp.Compare(a.user, b.user))
	})
	activities, ids, users := make([]int64, len(buyers)), make([]int64, len(buyers)), make([]int64, len(buyers))
	for k, b := range buyers {
		activities[k], ids[k], users[k] = number(b.ref.ActivityID), number(b.ref.SKUID), number(b.user)
	}
	args, err := s.dialect.Args(activities, ids, users)
	if err != nil {
		return nil, err
	}
	err = q.Query(ctx, s.sql.verdictsOfBuyers, args, func(scan Scan) error {
		v, err := scanVerdict(scan)
		l.learn(v)
		return err
	})
	return l, err
}

// lock locks the SKU rows in sorted order, whatever the order of refs, and reads them. Unknown ones are absent.
func (s *Store) lock(ctx context.Context, q Querier, refs []admission.SKURef) (map[admission.SKURef]*sku, error) {
	refs = unique(refs, compareRefs)
	activities, ids := make([]int64, len(refs)), make([]int64, len(refs))
	for k, r := range refs {
		activities[k], ids[k] = number(r.ActivityID), number(r.SKUID)
	}
	args, err := s.dialect.Args(activities, ids)
	if err != nil {
		return nil, err
	}
	skus := make(map[admission.SKURef]*sku, len(refs))
	err = q.Query(ctx, s.sql.lockSKUs, args, func(scan Scan) error {
		var activity, id, payWithinMs, closesMs int64
		var k sku
		if err := scan(&activity, &id, &k.total, &k.sold, &k.price.Amount, &k.price.Currency, &payWithinMs, &k.rebuy, &closesMs); err != nil {
			return err
		}
		k.payWithin, k.closesAt = time.Duration(payWithinMs)*time.Millisecond, instant(closesMs)
		skus[admission.SKURef{ActivityID: decimal(activity), SKUID: decimal(id)}] = &k
		return nil
	})
	return skus, err
}

// record writes new verdicts and completes them in the ledger with the ids of their orders. It returns the
// reservations that were taken already, and then it has written no orders.
func (s *Store) record(ctx context.Context, q Querier, fresh []admission.Verdict, l *ledger, now time.Time) (taken map[string]bool, err error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	n := len(fresh)
	reservations, requests, hashes, outcomes, existing := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	activities, ids, users, quantities, created, decided := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	taken = make(map[string]bool, n)
	for k, v := range fresh {
		reservations[k], requests[k], hashes[k], outcomes[k], existing[k] = v.ReservationID, v.RequestID, v.BodyHash, string(v.Outcome), v.ExistingReservationID
		activities[k], ids[k], users[k] = number(v.Ref.ActivityID), number(v.Ref.SKUID), number(v.UserID)
		quantities[k], created[k], decided[k] = v.Quantity, v.CreatedAt.UnixMilli(), now.UnixMilli()
		taken[v.ReservationID] = true
	}
	args, err := s.dialect.Args(reservations, activities, ids, users, requests, hashes, quantities, created, outcomes, existing, decided)
	if err != nil {
		return nil, err
	}
	err = q.Query(ctx, s.sql.insertOutcomes, args, func(scan Scan) error {
		var reservation string
		err := scan(&reservation)
		delete(taken, reservation)
		return err
	})
	if err != nil || len(taken) > 0 {
		return taken, err
	}
	return nil, s.create(ctx, q, fresh, l, now)
}

// create writes the orders of the CREATED among the verdicts and adds their units to sold.
func (s *Store) create(ctx context.Context, q Querier, fresh []admission.Verdict, l *ledger, now time.Time) error {
	var reservations, amounts, currencies []string
	var activities, ids, users, quantities, created, payBefore []int64
	units := make(map[admission.SKURef]int64)
	for _, v := range fresh {
		if v.Outcome != admission.VerdictCreated {
			continue
		}
		k := l.skus[v.Ref]
		reservations, activities, ids = append(reservations, v.ReservationID), append(activities, number(v.Ref.ActivityID)), append(ids, number(v.Ref.SKUID))
		amounts, currencies = append(amounts, k.price.Amount), append(currencies, k.price.Currency)
		users, quantities = append(users, number(v.UserID)), append(quantities, v.Quantity)
		created, payBefore = append(created, now.UnixMilli()), append(payBefore, now.Add(k.payWithin).UnixMilli())
		units[v.Ref] += v.Quantity
	}
	if len(reservations) == 0 {
		return nil
	}
	args, err := s.dialect.Args(reservations, activities, ids, users, quantities, amounts, currencies, created, payBefore)
	if err != nil {
		return err
	}
	err = q.Query(ctx, s.sql.insertOrders, args, func(scan Scan) error {
		var id int64
		var reservation string
		err := scan(&id, &reservation)
		v := l.decided[reservation]
		v.OrderID = decimal(id)
		l.decided[reservation] = v
		return err
	})
	if errors.Is(err, admission.ErrConflict) { // the ledger had every order: rows were changed by hand
		return fmt.Errorf("an order exists without its outcome: %w: %v", admission.ErrUnavailable, err) //nolint:errorlint // no longer a conflict
	}
	if err != nil {
		return err
	}
	return s.addSold(ctx, q, units)
}

// addSold moves sold units. The rows are locked already.
func (s *Store) addSold(ctx context.Context, q Querier, units map[admission.SKURef]int64) error {
	var activities, ids, deltas []int64
	for ref, n := range units {
		activities, ids, deltas = append(activities, number(ref.ActivityID)), append(ids, number(ref.SKUID)), append(deltas, n)
	}
	args, err := s.dialect.Args(activities, ids, deltas)
	if err != nil {
		return err
	}
	_, err = q.Exec(ctx, s.sql.addSold, args...)
	return err
}

func compareRefs(a, b admission.SKURef) int {
	return cmp.Or(cmp.Compare(a.ActivityID, b.ActivityID), cmp.Compare(a.SKUID, b.SKUID))
}

// unique sorts s and drops repetitions.
func unique[T comparable](s []T, compare func(a, b T) int) []T {
	slices.SortFunc(s, compare)
	return slices.Compact(s)
}

// number is the bigint of an id that was validated; 0 is nobody's.
func number(id string) int64 {
	n, _ := admission.ParseDecimal(id)
	return n
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
