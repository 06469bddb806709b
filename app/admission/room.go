package admission

import (
	"context"
	"encoding/json"
	"time"
)

// Room is the waiting room's store: who joined and how far the watermarks are. It
// never holds an order.
type Room interface {
	// Join gives the user one place, set if absent; a repeated join returns the same
	// place. One script, one round trip.
	Join(ctx context.Context, activityID, userID, lane string) (Place, error)
	// Members returns at most limit join-log lines from position from (0-based).
	Members(ctx context.Context, activityID string, from int64, limit int) ([]Place, error)
	// State reads the published state; ErrNotFound before the first write.
	State(ctx context.Context, activityID string) (RoomState, error)
	// SetState publishes a state. A lower term than the stored one, or a watermark that
	// goes back, is ErrConflict.
	SetState(ctx context.Context, activityID string, s RoomState) error
	// Joined is the exact number of places given.
	Joined(ctx context.Context, activityID string) (int64, error)
	// RemoveRoom deletes an ended activity's keys in bounded parts.
	RemoveRoom(ctx context.Context, activityID string) error
}

// Place is one user's place. It is given once.
type Place struct {
	UserID   string
	Lane     string
	JoinedAt time.Time // by the store's clock, ms
	Sequence int64     // 1.., of the activity
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
	Term     int64                `json:"term"`
	State    string               `json:"state"` // SCHEDULED, PREQUEUE, DRAWN, OPEN, PAUSED, SOLD_OUT, ENDED
	Lanes    map[string]LaneState `json:"lanes"` // "default" when there is one
	Joined   int64                `json:"joined"`
	JoinRoot string               `json:"join_root,omitempty"` // hex; once joining for the draw has closed
	Drawn    int64                `json:"drawn"`               // people in the draw
	Reach    int64                `json:"reach"`               // people whom the stock is expected to reach in all
	Waves    json.RawMessage      `json:"waves,omitempty"`     // the leader's records, from which a new leader goes on
	EmitAt   time.Time            `json:"emitted_at"`
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
