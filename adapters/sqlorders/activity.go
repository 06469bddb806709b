package sqlorders

import (
	"context"
	"fmt"
	"maps"

	"github.com/sluice-io/sluice/app/admission"
)

// PublishActivity stores the next version of an activity; publications wait for each other.
func (s *Store) PublishActivity(ctx context.Context, a admission.Activity) (admission.Activity, error) {
	err := s.write(ctx, "publish activity "+a.ID, func(q Querier) error {
		if s.dialect.LockActivities != "" {
			if _, err := q.Exec(ctx, s.dialect.LockActivities); err != nil {
				return err
			}
		}
		old, err := s.activity(ctx, q, a.ID)
		if err != nil {
			return err
		}
		if why := succession(old, &a); why != "" {
			return fmt.Errorf("%s: %w", why, admission.ErrConflict)
		}
		var live, samePath int64
		if err := q.Query(ctx, countActivities, []any{number(a.ID)}, func(scan Scan) error { return scan(&live) }); err != nil {
			return err
		}
		if live >= admission.MaxActivities {
			return fmt.Errorf("activity_id: %d activities are live already, end one: %w", live, admission.ErrConflict)
		}
		if err := q.Query(ctx, countPaths, []any{number(a.ID), a.PathID}, func(scan Scan) error { return scan(&samePath) }); err != nil {
			return err
		}
		if samePath > 0 {
			return fmt.Errorf("path_id: another live activity has it: %w", admission.ErrConflict)
		}
		return put(ctx, q, a)
	})
	if err != nil {
		return admission.Activity{}, err
	}
	return a, nil
}

func put(ctx context.Context, q Querier, a admission.Activity) error {
	_, err := q.Exec(ctx, putActivity, number(a.ID), a.Version, a.PathID, string(admission.EncodeActivity(a)), a.PublishedAt.UnixMilli(),
		a.ClosesAt.UnixMilli(), a.PayWithin.Milliseconds(), a.RebuyAfterCancel, false)
	if err != nil {
		return err
	}
	for _, k := range a.SKUs {
		if _, err := q.Exec(ctx, putSKU, number(a.ID), number(k.ID), k.Stock, k.Price.Amount, k.Price.Currency); err != nil {
			return err
		}
	}
	return nil
}

// succession says why a may not follow old (nil: nothing), naming the field; "" when it may. It sets what a keeps
// of the first version.
func succession(old, a *admission.Activity) string {
	switch {
	case !admission.ValidDecimal(a.ID):
		return "activity_id: is no canonical decimal"
	case !admission.ValidID(a.PathID):
		return "path_id: is missing or malformed"
	case a.Ended:
		return "ended: an ended activity is not published"
	case old == nil && a.Version != 1:
		return fmt.Sprintf("activity_version: must be 1, the activity is new; got %d", a.Version)
	}
	skus := make(map[string]bool, len(a.SKUs))
	for i, k := range a.SKUs {
		if !admission.ValidDecimal(k.ID) || skus[k.ID] {
			return fmt.Sprintf("skus[%d].sku_id: is no canonical decimal of its own", i)
		}
		skus[k.ID] = true
	}
	if old == nil {
		return ""
	}
	switch {
	case old.Ended:
		return "activity_id: the activity has ended"
	case a.Version != old.Version+1:
		return fmt.Sprintf("activity_version: must be %d, one after the published one; got %d", old.Version+1, a.Version)
	case len(a.SKUs) != len(old.SKUs):
		return "skus: the SKUs may not change"
	}
	for i, k := range a.SKUs {
		was := old.SKU(k.ID)
		if was == nil {
			return fmt.Sprintf("skus[%d].sku_id: the SKUs may not change", i)
		}
		if was.Stock != k.Stock {
			return fmt.Sprintf("skus[%d].stock: may not change from %d", i, was.Stock)
		}
	}
	if f := a.Fairness; f.Mode != old.Fairness.Mode || f.DrawClosesBefore != old.Fairness.DrawClosesBefore ||
		f.Beacon != old.Fairness.Beacon || !maps.Equal(f.Weights, old.Fairness.Weights) {
		return "fairness: may not change after the first version"
	}
	if !a.OpensAt.Equal(old.OpensAt) && old.Fairness.Mode != admission.FairnessFIFO && !a.PublishedAt.Before(old.DrawClosesAt()) {
		return "opens_at: may not change once joining for the draw has closed"
	}
	a.PublishedAt = old.PublishedAt
	return ""
}

// Activities lists live ones first, then the ended ones that were published last.
func (s *Store) Activities(ctx context.Context) (activities []admission.Activity, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err = s.db.Query(ctx, selectActivities, []any{int64(admission.MaxActivities)}, func(scan Scan) error {
		a, err := scanActivity(scan)
		activities = append(activities, a)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("activities: %w", err)
	}
	return activities, nil
}

// EndActivity ends an activity for ever. Reservations that it has are still decided, paid and cancelled.
func (s *Store) EndActivity(ctx context.Context, activityID string) error {
	return s.write(ctx, "end activity", func(q Querier) error {
		n, err := q.Exec(ctx, endActivity, number(activityID))
		if err == nil && n == 0 {
			err = fmt.Errorf("activity %q: %w", activityID, admission.ErrNotFound)
		}
		return err
	})
}

// DeleteActivity removes every row of one activity; of none it does nothing.
func (s *Store) DeleteActivity(ctx context.Context, activityID string) error {
	return s.write(ctx, "delete activity", func(q Querier) error {
		err := q.Query(ctx, s.sql.lockActivitySKUs, []any{number(activityID)}, func(Scan) error { return nil })
		for i := 0; err == nil && i < len(deleteActivity); i++ {
			_, err = q.Exec(ctx, deleteActivity[i], number(activityID))
		}
		return err
	})
}

func (s *Store) activity(ctx context.Context, q Querier, id string) (found *admission.Activity, err error) {
	err = q.Query(ctx, selectActivity, []any{number(id)}, func(scan Scan) error {
		a, err := scanActivity(scan)
		found = &a
		return err
	})
	return found, err
}

func scanActivity(scan Scan) (admission.Activity, error) {
	var document string
	var ended bool
	if err := scan(&document, &ended); err != nil {
		return admission.Activity{}, err
	}
	a, err := admission.DecodeStoredActivity([]byte(document))
	if err != nil {
		return admission.Activity{}, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	a.Ended = ended // the column is the truth, so that ending rewrites no document
	return a, nil
}
