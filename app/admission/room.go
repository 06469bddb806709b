package admission

import (
	"context"
	"encoding/json"
	"time"
)

// Room is the waiting room's store: who joined and how far the watermarks are. It
// never holds an order.
type Room interface {
	RoomStates
	// Open begins the room's numbers at 1, unless they have begun. Who opens a room must be
	// the one whom RoomStates.Begin told that nobody had before, for it gives numbers from 1
	// again in a store that has come back empty.
	Open(ctx context.Context, activityID string) error
	// Numbers leases the next n sequence numbers, 1 to MaxNumbers at once, and returns the
	// first. A number is given once, also by a store that came back empty: in a room that
	// was not opened, or that has not got as far as known, the greatest that the caller knows
	// to be given, they begin anew behind the time of the store's clock (see RoomCount.From).
	Numbers(ctx context.Context, activityID string, n, known int64) (first int64, err error)
	// Join gives the user one place, set if absent; a repeated join returns the place of the
	// first. A new place joined by the store's clock, unless p says when: a place that is
	// given back as it was to a room that was lost. closed is when joining for the draw has
	// closed, zero when the caller does not know of it: no new place is of before, also in a
	// store that has forgotten CloseDraw. One script, one round trip.
	Join(ctx context.Context, activityID string, p Place, closed time.Time) (Place, error)
	// CloseDraw makes at the least JoinedAt of everybody who joins from now on. It never goes back.
	CloseDraw(ctx context.Context, activityID string, at time.Time) error
	// Members reads about limit lines of the join log on from a cursor; nil begins. The order
	// is that of joining within parts of the log only. more: the end was not reached.
	Members(ctx context.Context, activityID string, from RoomCursor, limit int) (page []Place, next RoomCursor, more bool, err error)
	// Joined is the exact number of places stored, and how far the numbers are.
	Joined(ctx context.Context, activityID string) (RoomCount, error)
	// RemoveRoom deletes an ended activity's keys in bounded parts.
	RemoveRoom(ctx context.Context, activityID string) error
}

// RoomStates is where a room's state is published. The room's own store is one; a second
// one in another store keeps the state when the room's is lost.
type RoomStates interface {
	// State reads the published state; ErrNotFound before the first write.
	State(ctx context.Context, activityID string) (RoomState, error)
	// SetState publishes a state. A lower term than the stored one, a watermark that goes
	// back, or another seal than a stored one, whatever the term, is ErrConflict.
	SetState(ctx context.Context, activityID string, s RoomState) error
	// Begin marks that the activity's room is being opened; first: nobody had marked it.
	// RemoveRoom takes the mark away, and nothing else does.
	Begin(ctx context.Context, activityID string) (first bool, err error)
}

// MaxNumbers bounds one lease of sequence numbers.
const MaxNumbers = 100_000

// RoomCursor is a position in the join log. Only the store that made it reads it.
type RoomCursor []int64

// RoomCount is how full a room is.
type RoomCount struct {
	People int64 // places stored
	Last   int64 // the greatest sequence number given; some are given to nobody
	// From is what the numbers are counted on from: 0 in a room that was opened. Where the
	// store has lost its count it is the time then, in microseconds since 2020 (under 10^15
	// until 2051): another one at each loss, and greater than any number of before, as long
	// as fewer than a million are given a second.
	From  int64
	Known int64 // the greatest number that whoever began them anew knew to be given
}

// Place is one user's place. It is given once.
type Place struct {
	UserID   string
	Lane     string
	JoinedAt time.Time // by the store's clock, ms
	Sequence int64     // 1.., of the activity; its order is that of joining, to about a second
}

// LaneState is one lane's watermark: ranks below it are released.
type LaneState struct {
	Watermark     uint64  `json:"watermark"` // < 2^53
	Released      int64   `json:"released"`  // people below it
	Joined        int64   `json:"joined"`    // people in the lane
	ReleasePerSec float64 `json:"release_per_s"`
}

// RoomState is what the control leader publishes, in one write.
type RoomState struct {
	Term   int64                `json:"term"`
	State  string               `json:"state"` // SCHEDULED, PREQUEUE, DRAWN, OPEN, PAUSED, SOLD_OUT, ENDED
	Lanes  map[string]LaneState `json:"lanes"` // "default" when there is one
	Joined int64                `json:"joined"`
	Last   int64                `json:"last"`            // the greatest sequence number given
	Seal   RoomSeal             `json:"seal,omitzero"`   // once joining for the draw has closed
	Reach  int64                `json:"reach"`           // people whom the stock is expected to reach in all
	Waves  json.RawMessage      `json:"waves,omitempty"` // the leader's records, from which a new leader goes on
	Lost   *RoomLoss            `json:"lost,omitempty"`  // the store has lost places that were given
	EmitAt time.Time            `json:"emitted_at"`
}

// RoomSeal says whom a draw covers: everybody who joined before Before. It is published once.
type RoomSeal struct {
	Root     string `json:"root"`      // hex: the last link of the chain over them
	Drawn    int64  `json:"drawn"`     // people in the draw
	BeforeMS int64  `json:"before_ms"` // JoinedAt below this is in the draw, whatever the activity's times say later
	Last     int64  `json:"last"`      // the greatest sequence number given by then
}

// Covers reports whether a place is in the draw.
func (s RoomSeal) Covers(p Place) bool { return p.JoinedAt.UnixMilli() < s.BeforeMS }

// Zero reports whether the draw is open.
func (s RoomSeal) Zero() bool { return s.Root == "" }

// RoomLoss tells of places that the store has lost. Whoever holds a pass keeps the place
// that it says; the log does not have them.
type RoomLoss struct {
	Joined  int64     `json:"joined"`            // people who had joined before
	Last    int64     `json:"last"`              // the greatest sequence number that was known to be given
	Through int64     `json:"through"`           // numbers up to this one may be of places that were lost
	InDraw  int64     `json:"in_draw,omitempty"` // people with a rank of the draw, when it was lost before the seal: more than the root covers
	From    int64     `json:"from,omitempty"`    // RoomCount.From since: another one in the store is another loss
	Earlier []RoomGap `json:"earlier,omitempty"` // the losses before this one, the oldest first; at most maxGaps
}

// RoomGap is a stretch of numbers that nobody has, or few: after Last, to Through.
type RoomGap struct {
	Joined  int64 `json:"joined"` // people who had joined before
	Last    int64 `json:"last"`
	Through int64 `json:"through"`
}

// maxGaps bounds what is remembered of losses before the last. Of more, the oldest are one.
const maxGaps = 16

// Gaps are the gaps in the numbers of a room, the oldest first; none where nothing was lost.
func (l *RoomLoss) Gaps() []RoomGap {
	if l == nil {
		return nil
	}
	gaps := append(l.Earlier[:len(l.Earlier):len(l.Earlier)], RoomGap{Joined: l.Joined, Last: l.Last, Through: l.Through})
	for len(gaps) > maxGaps {
		gaps[1].Last = gaps[0].Last
		gaps = gaps[1:]
	}
	return gaps
}

// Fleet is the instances' registry in the limiter store.
type Fleet interface {
	// Report writes this instance's line.
	Report(ctx context.Context, instanceID string, line json.RawMessage) error
	// Instances reads every line, dead ones included.
	Instances(ctx context.Context) (map[string]json.RawMessage, error)
	// Forget removes a line.
	Forget(ctx context.Context, instanceID string) error
	// HighWater raises and returns the greatest rule version seen; 0 reads only.
	HighWater(ctx context.Context, version int64) (int64, error)
}

// Leadership elects one control leader.
type Leadership interface {
	// Acquire tries once. ErrConflict: somebody else holds it.
	Acquire(ctx context.Context, role string, ttl time.Duration) (Held, error)
}

// Held is a lock that this process has.
type Held interface {
	// Until is when trust ends: counted from when the attempt started, minus drift.
	Until() time.Time
	// Extend renews; an error means that the lock is lost.
	Extend(ctx context.Context) error
	// Release gives it back.
	Release(ctx context.Context) error
}

// Joined is what somebody who joined is told.
type Joined struct {
	Pass     string
	State    string // the activity's
	Lane     string
	JoinedAt time.Time
	Standing Standing
	Poll     time.Duration
	Need     *Challenge // with ChallengeRequired
}

// Exchanged is what a pass was exchanged for: an eligibility ticket and what belongs to
// it, or with QueueWaiting where its holder stands.
type Exchanged struct {
	Ticket    string
	RequestID string
	PathID    string
	Nonce     string
	ExpiresAt time.Time
	Standing  Standing
	Poll      time.Duration
}

// Standing is where somebody stands; zero before the draw.
type Standing struct {
	Drawn             bool
	Rank              uint64
	Place             int64 // people ahead, estimated
	WaitLow, WaitHigh time.Duration
	Unlikely          bool // the stock is not expected to reach this place; no time is told
}

// Challenge is a proof of work that a join demands.
type Challenge struct {
	Kind       string
	Seed       string
	Difficulty int // leading zero bits of SHA-256(seed|user|counter)
	ExpiresAt  time.Time
}
