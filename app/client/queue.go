package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"time"
)

// Place is somebody's place in the waiting room.
type Place struct {
	Pass            string  `json:"pass"`
	State           string  `json:"state"` // the activity's
	Lane            string  `json:"lane"`
	JoinedMS        int64   `json:"joined_ms"`
	Rank            *uint64 `json:"rank"`  // nil before the draw
	People          int64   `json:"place"` // ahead, estimated
	WaitMS          *Range  `json:"wait_ms"`
	Unlikely        bool    `json:"unlikely"`
	NextPollAfterMS int64   `json:"next_poll_after_ms"`
}

// Session signs a development user in; an instance in production does not offer it.
func (c *Client) Session(ctx context.Context, p Person) (token string, err error) {
	body, err := json.Marshal(map[string]string{"user_id": p.UserID})
	if err != nil {
		return "", err
	}
	x, err := c.call(ctx, p, request{call: CallSession, method: http.MethodPost, path: "/v1/session", body: body})
	if err != nil {
		return "", err
	}
	var out struct {
		Session string `json:"session"`
	}
	return out.Session, decode(x, &out)
}

// Join takes a place in the line, or finds the one that the person has: tabs and devices share it. A challenge
// is solved and sent.
func (c *Client) Join(ctx context.Context, p Person, activityID string) (Place, error) {
	return c.JoinAt(ctx, p, activityID, time.Time{})
}

// JoinAt is Join for somebody who wanted to join at that moment: a load generator that is late says so.
func (c *Client) JoinAt(ctx context.Context, p Person, activityID string, intended time.Time) (Place, error) {
	r := request{call: CallJoin, method: http.MethodPost, path: "/v1/activities/" + activityID + "/queue/join", intended: intended}
	x, err := c.call(ctx, p, r)
	var refused *Refused
	if errors.As(err, &refused) && refused.Answer.NextAction == actionSolveChallenge && refused.Answer.Challenge != nil {
		if r.body, err = solve(ctx, p.UserID, *refused.Answer.Challenge); err != nil {
			return Place{}, err
		}
		r.intended = time.Time{}
		x, err = c.call(ctx, p, r)
	}
	if err != nil {
		return Place{}, err
	}
	var place Place
	return place, decode(x, &place)
}

// hardest is the most work that a client does: 2^26 hashes are some ten seconds of a phone.
const hardest = 26

// solve finds the counter of a proof of work: `difficulty` leading zero bits in SHA-256(seed|user|counter).
func solve(ctx context.Context, userID string, ch Challenge) ([]byte, error) {
	if ch.Kind != "pow" || ch.Difficulty > hardest {
		return nil, fmt.Errorf("join: cannot solve a challenge of kind %q and difficulty %d", ch.Kind, ch.Difficulty)
	}
	prefix := []byte(ch.Seed + "|" + userID + "|")
	for n := uint64(0); ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		sum := sha256.Sum256(strconv.AppendUint(prefix[:len(prefix):len(prefix)], n, 10))
		if bits.LeadingZeros64(binary.BigEndian.Uint64(sum[:8])) >= ch.Difficulty {
			return json.Marshal(map[string]string{"challenge": ch.Seed + ":" + strconv.FormatUint(n, 10)})
		}
	}
}

// ErrSoldOut ends a wait: nothing is left.
var ErrSoldOut = errors.New("sold out")

// ErrEnded ends a wait: the sale is over.
var ErrEnded = errors.New("the sale has ended")

// longestNap bounds a sleep before the opening, so that an opening that is moved is noticed.
const longestNap = 30 * time.Second

// WaitForTurn polls the one queue document, with jitter, until the place's rank is below its lane's watermark.
// The rank is computed here from the revealed draw; joining again asks for it only where that is impossible.
// The place is returned with its rank. ErrSoldOut and ErrEnded end the wait.
func (c *Client) WaitForTurn(ctx context.Context, p Person, a Activity, place Place) (Place, error) {
	asked := 0
	for {
		q, err := c.documents().Queue(ctx, a.ID)
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return place, ctx.Err()
		case err != nil: // the line goes on without the document; so does the wait
			pause = c.between(shortestPoll, maxPoll)
		case q.State == StateSoldOut:
			return place, ErrSoldOut
		case q.State == StateEnded:
			return place, ErrEnded
		default:
			if place.Rank == nil {
				place.Rank = rankIn(q, a, p.UserID, place.JoinedMS)
			}
			if place.Rank == nil && q.State == StateOpen && asked < 8 {
				if asked++; asked > 1 { // the first poll after the opening may be too early
					if place, err = c.Join(ctx, p, a.ID); err != nil {
						return place, err
					}
				}
			}
			if place.Rank != nil && *place.Rank < q.Watermark(place.Lane) {
				return place, nil
			}
			pause = c.nap(q)
		}
		if err := c.config.Sleep(ctx, pause); err != nil {
			return place, err
		}
	}
}

// nap is how long to wait for the next look: the document's hint, and before the opening at least until then.
func (c *Client) nap(q *Queue) time.Duration {
	low, high := time.Duration(q.PollAfterMS.Low)*time.Millisecond, time.Duration(q.PollAfterMS.High)*time.Millisecond
	low = max(low, shortestPoll)
	pause := c.between(low, max(low, high))
	if until := q.OpensAt.Sub(q.ServerTime); until > 0 {
		pause = min(until, longestNap) + c.between(0, max(low, high))
	}
	return pause
}

// rankIn computes a rank of the draw as everybody can: nil before the reveal, and for those who joined later
// or stand in a line that is not drawn by lot alone.
func rankIn(q *Queue, a Activity, userID string, joinedMS int64) *uint64 {
	if a.Fairness.Mode != "random" && a.Fairness.Mode != "lottery" || q.Draw.JoinRoot == "" || joinedMS >= q.DrawClosesAt.UnixMilli() {
		return nil
	}
	secret, err := hex.DecodeString(q.Draw.Secret)
	if err != nil || len(secret) == 0 {
		return nil
	}
	seed := sign(secret, q.Draw.JoinRoot+"|"+q.Draw.PublicValue)
	sum := sign(seed, a.ID+"|"+userID)
	rank := binary.BigEndian.Uint64(sum[:8]) >> 12
	return &rank
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
