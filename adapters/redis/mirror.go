package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// activityIndex names the mirrored activities: a set of ids, at most MaxActivities.
const activityIndex = "sec:activities"

// Mirror implements admission.Mirror: the activities of SQL as every instance rereads
// them, one key each, and an index. When a document cannot be read the whole reading
// fails, and instances keep what they have: a sale never vanishes by half.
type Mirror struct {
	client goredis.UniversalClient
	put    *Script
}

var _ admission.Mirror = (*Mirror)(nil)

// NewMirror uses a client that Open made.
func NewMirror(c goredis.UniversalClient) *Mirror {
	return &Mirror{client: c, put: NewScript("put_activity")}
}

func activityKey(id string) string { return "sec:activity:" + admission.ActivityTag(id) }

// PutActivity implements admission.Mirror. The document is written before the index, so
// that whoever sees the id finds it.
func (m *Mirror) PutActivity(ctx context.Context, a admission.Activity) error {
	if err := m.room(ctx, a.ID); err != nil {
		return err
	}
	b, err := encodeActivity(a)
	if err != nil {
		return Classify("put activity", badArgument(err.Error()))
	}
	values, err := m.put.Run(ctx, m.client, []string{activityKey(a.ID)}, a.Version, b)
	if err != nil {
		return err
	}
	f := fields{op: "put_activity", left: values}
	if f.int() == 0 {
		stored := f.int()
		if err := f.end(); err != nil {
			return err
		}
		return fmt.Errorf("activity %s version %d: version %d is mirrored: %w", a.ID, a.Version, stored, admission.ErrConflict)
	}
	if err := f.end(); err != nil {
		return err
	}
	return Classify("put activity", m.client.SAdd(ctx, activityIndex, a.ID).Err())
}

// room refuses the activity that would be one too many.
func (m *Mirror) room(ctx context.Context, id string) error {
	pipe := m.client.Pipeline()
	known, count := pipe.SIsMember(ctx, activityIndex, id), pipe.SCard(ctx, activityIndex)
	if _, err := pipe.Exec(ctx); err != nil {
		return Classify("put activity", err)
	}
	if !known.Val() && count.Val() >= admission.MaxActivities {
		return fmt.Errorf("activity %s: %d are mirrored, at most %d: %w", id, count.Val(), admission.MaxActivities, admission.ErrConflict)
	}
	return nil
}

// Activities implements admission.Mirror in two round trips, ordered by id.
func (m *Mirror) Activities(ctx context.Context) ([]admission.Activity, error) {
	ids, err := m.client.SMembers(ctx, activityIndex).Result()
	if err != nil {
		return nil, Classify("activities", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	pipe := m.client.Pipeline()
	documents := make([]*goredis.StringCmd, len(ids))
	for i, id := range ids {
		documents[i] = pipe.HGet(ctx, activityKey(id), "document")
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	activities := make([]admission.Activity, 0, len(ids))
	for i, id := range ids {
		b, err := documents[i].Bytes()
		if errors.Is(err, goredis.Nil) {
			continue // removed between the two readings
		}
		if err != nil {
			return nil, Classify("activities", err)
		}
		a, err := decodeActivity(id, b)
		if err != nil {
			return nil, &Fault{Op: "activities", Kind: KindShape, Sentinel: admission.ErrUnavailable, Err: err}
		}
		activities = append(activities, a)
	}
	return activities, nil
}

// RemoveActivity implements admission.Mirror.
func (m *Mirror) RemoveActivity(ctx context.Context, id string) error {
	if err := m.client.SRem(ctx, activityIndex, id).Err(); err != nil {
		return Classify("remove activity", err)
	}
	return Classify("remove activity", m.client.Unlink(ctx, activityKey(id)).Err())
}
