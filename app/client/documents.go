package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Activity is the public facts of a sale.
type Activity struct {
	ID         string    `json:"activity_id"`
	Version    int64     `json:"activity_version"`
	PathID     string    `json:"path_id"`
	Name       string    `json:"name"`
	OpensAt    time.Time `json:"opens_at"`
	ClosesAt   time.Time `json:"closes_at"`
	ServerTime time.Time `json:"server_time"`
	Fairness   struct {
		Mode         string             `json:"mode"`
		DrawClosesAt time.Time          `json:"draw_closes_at"`
		Weights      map[string]float64 `json:"weights"`
	} `json:"fairness"`
	SKUs []SKU `json:"skus"`
}

// SKU is one thing on sale.
type SKU struct {
	ID           string `json:"sku_id"`
	Name         string `json:"name"`
	LimitPerUser int64  `json:"limit_per_user"`
	Price        Money  `json:"price"`
}

// Money is a decimal amount.
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// The states of an activity that end a wait.
const (
	StateOpen    = "OPEN"
	StateSoldOut = "SOLD_OUT"
	StateEnded   = "ENDED"
)

// Queue is the queue document: the same for everybody.
type Queue struct {
	ActivityID      string    `json:"activity_id"`
	ActivityVersion int64     `json:"activity_version"`
	State           string    `json:"state"` // SCHEDULED, PREQUEUE, DRAWN, OPEN, PAUSED, SOLD_OUT, ENDED
	OpensAt         time.Time `json:"opens_at"`
	ServerTime      time.Time `json:"server_time"`
	DrawClosesAt    time.Time `json:"draw_closes_at"`
	PollAfterMS     Range     `json:"poll_after_ms"`
	Draw            Draw      `json:"draw"`
	Joined          int64     `json:"joined"`
	Lanes           []Lane    `json:"lanes"`
}

// Lane is one line of the waiting room.
type Lane struct {
	Lane          string  `json:"lane"`
	Watermark     uint64  `json:"watermark"` // ranks below it are released
	Released      int64   `json:"released"`  // people
	Joined        int64   `json:"joined"`    // people
	ReleasePerSec float64 `json:"release_per_s"`
}

// Draw is what anybody needs to check a rank. Secret comes with the opening.
type Draw struct {
	Commitment  string `json:"commitment"`   // hex
	JoinRoot    string `json:"join_root"`    // hex
	PublicValue string `json:"public_value"` // as text
	Secret      string `json:"secret"`       // hex
	Drawn       int64  `json:"drawn"`        // people
}

// Watermark is the lane's, or the only lane's when the document does not name it.
func (q *Queue) Watermark(lane string) uint64 {
	for _, l := range q.Lanes {
		if l.Lane == lane || len(q.Lanes) == 1 {
			return l.Watermark
		}
	}
	return 0
}

// Activity reads the public facts of a sale.
func (c *Client) Activity(ctx context.Context, activityID string) (Activity, error) {
	var a Activity
	err := c.get(ctx, Person{}, CallActivity, "/v1/activities/"+activityID, &a)
	return a, err
}

// Queue reads the queue document from an instance.
func (c *Client) Queue(ctx context.Context, activityID string) (*Queue, error) {
	var q Queue
	if err := c.get(ctx, Person{}, CallQueue, "/v1/activities/"+activityID+"/queue", &q); err != nil {
		return nil, err
	}
	return &q, nil
}

func (c *Client) get(ctx context.Context, p Person, call Call, path string, into any) error {
	x, err := c.call(ctx, p, request{call: call, method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	return decode(x, into)
}

func decode(x Exchange, into any) error {
	if err := json.Unmarshal(x.Body, into); err != nil {
		return fmt.Errorf("%s: HTTP %d with a body that is none of ours: %w", x.Call, x.HTTP, err)
	}
	return nil
}
