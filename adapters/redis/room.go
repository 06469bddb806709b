package redis

import (
	"context"
	"encoding/json"
	"errors"
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

// Room implements admission.Room. A join is one script on the user's group of keys; the
// groups lie on different nodes of a cluster. Nothing expires: a place that expired could
// be taken twice. When the store is away nobody joins and the watermarks stay what they
// were; one that comes back empty gives no number for the second time.
type Room struct {
	client  goredis.UniversalClient
	numbers *Script
	join    *Script
	close   *Script
	state   *Script
}

// NewRoom keeps the waiting rooms in the limiter store, or in one of their own.
func NewRoom(c goredis.UniversalClient) *Room {
	return &Room{
		client: c, numbers: NewScript("room_numbers"), join: NewScript("room_join"),
		close: NewScript("room_close"), state: NewScript("room_state"),
	}
}

// Open sets the count of numbers to none given, unless there is one.
func (r *Room) Open(ctx context.Context, activityID string) error {
	if err := r.client.HSetNX(ctx, roomNumbersKey(activityID), "last", 0).Err(); err != nil {
		return Classify("open room", err)
	}
	return nil
}

// Begin marks the state's key, so that the mark goes with it.
func (r *Room) Begin(ctx context.Context, activityID string) (bool, error) {
	first, err := r.client.HSetNX(ctx, roomStateKey(activityID), "begun", 1).Result()
	if err != nil {
		return false, Classify("begin room", err)
	}
	return first, nil
}

// Numbers leases sequence numbers.
func (r *Room) Numbers(ctx context.Context, activityID string, n, known int64) (int64, error) {
	values, err := r.numbers.Run(ctx, r.client, []string{roomNumbersKey(activityID)}, n, known)
	if err != nil {
		return 0, err
	}
	f := fields{op: r.numbers.Name(), left: values}
	first := f.int()
	return first, f.end()
}

// Join gives the user one place; a repeated join reads the same one.
func (r *Room) Join(ctx context.Context, activityID string, p admission.Place, closed time.Time) (admission.Place, error) {
	part := roomPart(p.UserID)
	group := roomGroup(part)
	joined := "" // by the store's clock
	if !p.JoinedAt.IsZero() {
		joined = strconv.FormatInt(p.JoinedAt.UnixMilli(), 10)
	}
	notBefore := int64(0)
	if !closed.IsZero() {
		notBefore = closed.UnixMilli()
	}
	values, err := r.join.Run(ctx, r.client,
		[]string{roomUsersKey(activityID, part), roomLogKey(activityID, group), roomClosedKey(activityID, group)},
		p.UserID, p.Lane, p.Sequence, joined, notBefore)
	if err != nil {
		return admission.Place{}, err
	}
	f := fields{op: r.join.Name(), left: values}
	_ = f.int() // new or known: the place is the same
	got := admission.Place{UserID: p.UserID, Lane: f.string(), JoinedAt: time.UnixMilli(f.int()), Sequence: f.int()}
	if err := f.end(); err != nil {
		return admission.Place{}, err
	}
	return got, nil
}

// CloseDraw closes every group. An error may leave some of them open: the caller closes again.
func (r *Room) CloseDraw(ctx context.Context, activityID string, at time.Time) error {
	calls := make([]Call, roomGroups)
	for g := range calls {
		calls[g] = Call{Script: r.close, Keys: []string{roomClosedKey(activityID, g)}, Args: []any{at.UnixMilli()}}
	}
	for _, reply := range RunAll(ctx, r.client, calls) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Members reads the next lines of every group's log, in one pipeline.
func (r *Room) Members(ctx context.Context, activityID string, from admission.RoomCursor, limit int) ([]admission.Place, admission.RoomCursor, bool, error) {
	const op = "room members"
	if from == nil {
		from = make(admission.RoomCursor, roomGroups)
	}
	if len(from) != roomGroups || limit <= 0 {
		return nil, nil, false, notSent(op, errors.New("no cursor of this store, or no limit"))
	}
	each := int64(min(limit, maxMembers)-1)/roomGroups + 1
	pipe := r.client.Pipeline()
	logs := make([]*goredis.StringSliceCmd, roomGroups)
	for g := range logs {
		logs[g] = pipe.LRange(ctx, roomLogKey(activityID, g), from[g], from[g]+each-1)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	next, more := slices.Clone(from), false
	var page []admission.Place
	for g, log := range logs {
		lines, err := log.Result()
		if err != nil {
			return nil, nil, false, Classify(op, err)
		}
		for _, line := range lines {
			p, err := parsePlace(op, line)
			if err != nil {
				return nil, nil, false, err
			}
			page = append(page, p)
		}
		next[g] += int64(len(lines))
		more = more || int64(len(lines)) == each
	}
	return page, next, more, nil
}

// parsePlace reads "user lane joined_ms sequence".
func parsePlace(op, line string) (admission.Place, error) {
	p := strings.Split(line, " ")
	if len(p) != 4 {
		return admission.Place{}, wrongShape(op, line)
	}
	ms, err1 := strconv.ParseInt(p[2], 10, 64)
	sequence, err2 := strconv.ParseInt(p[3], 10, 64)
	if err1 != nil || err2 != nil {
		return admission.Place{}, wrongShape(op, line)
	}
	return admission.Place{UserID: p[0], Lane: p[1], JoinedAt: time.UnixMilli(ms), Sequence: sequence}, nil
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

// SetState publishes a state, unless its term or one of its watermarks would go back, or
// its draw was sealed otherwise.
func (r *Room) SetState(ctx context.Context, activityID string, s admission.RoomState) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return notSent(r.state.Name(), err)
	}
	seal := ""
	if !s.Seal.Zero() {
		seal = fmt.Sprintf("%s %d %d %d", s.Seal.Root, s.Seal.Drawn, s.Seal.BeforeMS, s.Seal.Last)
	}
	args := []any{s.Term, doc, seal}
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

// Joined adds the lengths of the groups' logs up.
func (r *Room) Joined(ctx context.Context, activityID string) (admission.RoomCount, error) {
	const op = "room joined"
	pipe := r.client.Pipeline()
	logs := make([]*goredis.IntCmd, roomGroups)
	for g := range logs {
		logs[g] = pipe.LLen(ctx, roomLogKey(activityID, g))
	}
	numbers := pipe.HMGet(ctx, roomNumbersKey(activityID), "last", "from", "known")
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var count admission.RoomCount
	for _, log := range logs {
		n, err := log.Result()
		if err != nil {
			return admission.RoomCount{}, Classify(op, err)
		}
		count.People += n
	}
	values, err := numbers.Result()
	if err != nil {
		return admission.RoomCount{}, Classify(op, err)
	}
	for i, to := range []*int64{&count.Last, &count.From, &count.Known} {
		text, given := values[i].(string)
		if !given {
			continue
		}
		if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
			return admission.RoomCount{}, wrongShape(op, text)
		}
	}
	return count, nil
}

// RemoveRoom unlinks the activity's keys in parts; the memory is freed in the background.
func (r *Room) RemoveRoom(ctx context.Context, activityID string) error {
	if err := r.unlink(ctx, roomStateKey(activityID), roomNumbersKey(activityID)); err != nil {
		return err
	}
	for g := range roomGroups {
		keys := []string{roomLogKey(activityID, g), roomClosedKey(activityID, g)}
		for part := range roomParts {
			if roomGroup(part) == g {
				keys = append(keys, roomUsersKey(activityID, part))
			}
		}
		if err := r.unlink(ctx, keys...); err != nil {
			return err
		}
	}
	return nil
}

// unlink takes keys of one tag.
func (r *Room) unlink(ctx context.Context, keys ...string) error {
	for some := range slices.Chunk(keys, removeAtOnce) {
		if err := r.client.Unlink(ctx, some...).Err(); err != nil {
			return Classify("remove room", err)
		}
	}
	return nil
}
