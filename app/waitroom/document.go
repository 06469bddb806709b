package waitroom

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// document is the queue document, the same bytes for everybody.
type document struct {
	body  []byte
	built time.Time
}

const (
	// documentAge is how long a built document is served from memory: under the second
	// that caches keep it, so that it costs nothing to be asked.
	documentAge = 200 * time.Millisecond
	// documentMaxAge is what caches are told.
	documentMaxAge = time.Second
)

type queueDocument struct {
	ActivityID      string      `json:"activity_id"`
	ActivityVersion int64       `json:"activity_version"`
	State           string      `json:"state"`
	OpensAt         string      `json:"opens_at"`
	ServerTime      string      `json:"server_time"`
	Lanes           []queueLane `json:"lanes"`
	Poll            pollHint    `json:"poll_after_ms"`
	DrawClosesAt    string      `json:"draw_closes_at"`
	Draw            queueDraw   `json:"draw"`
	Joined          int64       `json:"joined"`
	Last            int64       `json:"last"`      // the greatest sequence number given: those between are not all somebody's
	Reach           int64       `json:"reach"`     // people whom the stock is expected to reach
	Reopening       bool        `json:"reopening"` // "sold out" is not the last word, see Room.reopening
	// Gaps are where the numbers leap because the room was lost, the oldest first.
	Gaps []admission.RoomGap `json:"gaps,omitempty"`
}

type queueLane struct {
	Lane          string  `json:"lane"`
	Watermark     uint64  `json:"watermark"`
	Released      int64   `json:"released"`
	Joined        int64   `json:"joined"`
	ReleasePerSec float64 `json:"release_per_s"`
}

type pollHint struct {
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// queueDraw is what anybody needs to check a rank. The secret is revealed at the opening.
type queueDraw struct {
	Commitment  string `json:"commitment"`
	JoinRoot    string `json:"join_root,omitempty"`
	Drawn       int64  `json:"drawn"`
	BeforeMS    int64  `json:"before_ms,omitempty"` // whose joined_ms is below this is in the draw
	PublicValue string `json:"public_value,omitempty"`
	Trust       string `json:"trust,omitempty"` // "operator": no beacon is configured
	Secret      string `json:"secret,omitempty"`
}

// Queue builds the activity's queue document, or serves the one built just now.
func (r *Room) Queue(a *admission.Activity) (body []byte, maxAge time.Duration) {
	now := r.config.Now()
	s := r.standing(a.ID)
	if s == &unknown {
		return r.build(a, s, now), documentMaxAge
	}
	if d := s.doc.Load(); d != nil && now.Sub(d.built) < documentAge && !now.Before(d.built) {
		return d.body, documentMaxAge
	}
	d := &document{body: r.build(a, s, now), built: now}
	s.doc.Store(d)
	return d.body, documentMaxAge
}

func (r *Room) build(a *admission.Activity, s *standing, now time.Time) []byte {
	doc := queueDocument{
		ActivityID: a.ID, ActivityVersion: a.Version, State: stateAt(a, s.state.State, now),
		OpensAt: stamp(a.OpensAt), ServerTime: stamp(now), DrawClosesAt: stamp(a.DrawClosesAt()),
		Lanes: []queueLane{}, Joined: s.state.Joined, Last: s.state.Last, Reach: s.state.Reach, Gaps: s.state.Lost.Gaps(),
	}
	policy := r.config.Policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID})
	if (policy.Mode >= admission.ModeQueueOnly || s.gone) && doc.State == StateOpen {
		doc.State = StatePaused
	}
	for _, name := range slices.Sorted(maps.Keys(s.state.Lanes)) {
		l := s.state.Lanes[name]
		doc.Lanes = append(doc.Lanes, queueLane{name, l.Watermark, l.Released, l.Joined, math.Round(l.ReleasePerSec*100) / 100}) // what is left of an average is no rate
	}
	doc.Poll = pollHint{Low: policy.LongestPoll.Milliseconds() / 4, High: policy.LongestPoll.Milliseconds()}
	if a.Fairness.Mode != admission.FairnessFIFO {
		doc.Draw = r.draw(a, s, now)
	}
	doc.Reopening = r.reopening(a, s, doc.State)
	body, err := json.Marshal(doc)
	if err != nil {
		r.config.Log.Error("queue document", "event", "queue_document", "error", err)
		return []byte(`{}`)
	}
	return body
}

// reopening reports that "sold out" is not the last word: units that are reserved and not
// paid may come back, or some have. A page that was told "sold out" looks on while it is
// true, and believes an OPEN again; else it stops asking.
func (r *Room) reopening(a *admission.Activity, s *standing, state string) bool {
	if state != StateSoldOut {
		return s.records.SoldOutOnce && state != StateEnded
	}
	return slices.ContainsFunc(a.SKUs, func(sku admission.SKU) bool {
		return r.config.MayReturn(admission.SKURef{ActivityID: a.ID, SKUID: sku.ID})
	})
}

// Commitment is the hex commitment of the activity's draw; "" for fifo, which has none.
func (r *Room) Commitment(a *admission.Activity) string {
	if a.Fairness.Mode == admission.FairnessFIFO {
		return ""
	}
	secret, err := DeriveSecret(r.config.DrawKey, a.ID, firstVersion, a.PublishedAt)
	if err != nil {
		return "" // start-up has checked the key
	}
	commitment := secret.Commitment(a.ID, firstVersion)
	return hex.EncodeToString(commitment[:])
}

func (r *Room) draw(a *admission.Activity, s *standing, now time.Time) queueDraw {
	secret, err := DeriveSecret(r.config.DrawKey, a.ID, firstVersion, a.PublishedAt)
	if err != nil {
		return queueDraw{} // start-up has checked the key
	}
	commitment := secret.Commitment(a.ID, firstVersion)
	d := queueDraw{Commitment: hex.EncodeToString(commitment[:]), PublicValue: a.Fairness.Beacon}
	if d.PublicValue == "" {
		d.Trust = "operator"
	}
	if seal := s.state.Seal; !seal.Zero() {
		d.JoinRoot, d.Drawn, d.BeforeMS = seal.Root, seal.Drawn, seal.BeforeMS
		if !now.Before(a.OpensAt) {
			d.Secret = hex.EncodeToString(secret[:])
		}
	}
	return d
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
