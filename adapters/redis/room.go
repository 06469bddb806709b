package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// maxMembers bounds one page of the join log.
	maxMembers = 10_000
	// removeAtOnce bounds one UNLINK.
	removeAtOnce = 32
)

// Room implements admission.Room. All keys of an activity share its tag, so that a join
// is one script; the users are spread over 256 hashes. Nothing expires: a place that
// expired could be taken twice. When the store is away nobody joins and the watermarks
// stay what they were.
type Room struct {
	client goredis.UniversalClient
	join   *Script
	state  *Script
}

// NewRoom keeps the waiting rooms in the limiter store, or in one of their own.
func NewRoom(c goredis.UniversalClient) *Room {
	return &Room{client: c, join: NewScript("room_join"), state: NewScript("room_state")}
}

// Join gives the user one place; a repeated join reads the same one.
func (r *Room) Join(ctx context.Context, activityID, userID, lane string) (admission.Place, error) {
	values, err := r.join.Run(ctx, r.client,
		[]string{roomUsersKey(activityID, roomPart(userID)), roomLogKey(activityID)}, userID, lane)
	if err != nil {
		return admission.Place{}, err
	}
	f := fields{op: r.join.Name(), left: values}
	_ = f.int() // new or known: the place is the same
	p := admission.Place{UserID: userID, Lane: f.string(), JoinedAt: time.UnixMilli(f.int()), Sequence: f.int()}
	if err := f.end(); err != nil {
		return admission.Place{}, err
	}
	return p, nil
}

// Members reads a page of the join log, in the order of joining.
func (r *Room) Members(ctx context.Context, activityID string, from int64, limit int) ([]admission.Place, error) {
	const op = "room members"
	if from < 0 || limit <= 0 {
		return nil, nil
	}
	last := from + int64(min(limit, maxMembers)) - 1
	lines, err := r.client.LRange(ctx, roomLogKey(activityID), from, last).Result()
	if err != nil {
		return nil, Classify(op, err)
	}
	places := make([]admission.Place, len(lines))
	for i, line := range lines {
		user, rest, _ := strings.Cut(line, " ")
		lane, joined, _ := strings.Cut(rest, " ")
		ms, err := strconv.ParseInt(joined, 10, 64)
		if err != nil {
			return nil, wrongShape(op, line)
		}
		places[i] = admission.Place{UserID: user, Lane: lane, JoinedAt: time.UnixMilli(ms), Sequence: from + int64(i) + 1}
	}
	return places, nil
}

// State reads the published state.
func (r *Room) State(ctx context.Context, activityID string) (admission.RoomState, error) {
	const op = "room state"
	doc, err := r.client.HGet(ctx, roomStateKey(activityID), "doc").Bytes()
	if err != nil {
		return admission.RoomState{}, Classify(op, err)
	}
	var s admission.RoomState
	if err := json.Unmarshal(doc, &s); err != nil {
		return admission.RoomState{}, wrongShape(op, doc)
	}
	return s, nil
}

// SetState publishes a state, unless its term or one of its watermarks would go back.
func (r *Room) SetState(ctx context.Context, activityID string, s admission.RoomState) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return notSent(r.state.Name(), err)
	}
	args := []any{s.Term, doc}
	for lane, l := range s.Lanes {
		args = append(args, lane, l.Watermark)
	}
	values, err := r.state.Run(ctx, r.client, []string{roomStateKey(activityID)}, args...)
	if err != nil {
		return err
	}
	f := fields{op: r.state.Name(), left: values}
	if f.int() == 1 {
		return f.end()
	}
	what, stored := f.string(), f.string()
	if err := f.end(); err != nil {
		return err
	}
	return fmt.Errorf("room %s: %s is at %s already: %w", activityID, what, stored, admission.ErrConflict)
}

// Joined is the length of the join log.
func (r *Room) Joined(ctx context.Context, activityID string) (int64, error) {
	n, err := r.client.LLen(ctx, roomLogKey(activityID)).Result()
	return n, Classify("room joined", err)
}

// RemoveRoom unlinks the activity's keys in parts; the memory is freed in the background.
func (r *Room) RemoveRoom(ctx context.Context, activityID string) error {
	keys := []string{roomStateKey(activityID), roomLogKey(activityID)}
	for part := range uint32(roomParts) {
		keys = append(keys, roomUsersKey(activityID, part))
	}
	for some := range slices.Chunk(keys, removeAtOnce) {
		if err := r.client.Unlink(ctx, some...).Err(); err != nil {
			return Classify("remove room", err)
		}
	}
	return nil
}
