package page_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/app/httpapi/page"
)

// stage is a service that does what a test wants: lose an answer, run out, be too busy.
// The real one does these too, but not when asked. Answers have the real shapes.
type stage struct {
	t  *testing.T
	mu sync.Mutex

	ahead time.Duration // of this device's clock; set before the first call

	activity map[string]any // guarded by mu, as all that follows
	queue    map[string]any
	sequence int
	late     bool          // joined after the draw
	site     bool          // the site signs people in
	pow      int           // leading zero bits that a join must show
	joined   time.Duration // ago
	rank     int64         // told by join; < 0: not told
	tickets  []answer      // the last one is repeated
	submits  []answer
	results  []answer
	orders   []answer
	calls    []call
}

// answer is what the stage says to one call. The zero answer breaks the connection.
type answer struct {
	http int
	body map[string]any
}

// call is one that the page made.
type call struct {
	at      time.Time
	what    string // "join", "ticket", "submit", "result", "order", "queue", "activity"
	header  http.Header
	request string
}

var lost = answer{}

// said is an answer of the outcome table.
func said(o admission.Outcome, more map[string]any) answer {
	row := o.Row()
	body := map[string]any{
		"request_id": "r_stage0001", "status": row.Status, "code": row.Code, "message": row.English,
		"retryable": row.Retryable, "next_action": row.NextAction, "next_poll_after_ms": 0, "retry_after_ms": 0,
	}
	for k, v := range more {
		body[k] = v
	}
	return answer{row.HTTP, body}
}

func orderIs(status string) answer {
	return answer{200, map[string]any{
		"order_id": "8100012", "reservation_id": "v_stage0001", "request_id": "r_stage0001", "activity_id": "10001", "sku_id": "90001",
		"quantity": 1, "status": status, "created_at": stamp(time.Now()), "pay_before": stamp(time.Now().Add(15 * time.Minute)),
	}}
}

const secret = "6f1d0f7f3f0f8c2ab1b7a1b4f5d3c2e1908172635445362718091a2b3c4d5e6f"

// newStage is a sale that opened a minute ago, with 5,000 people in its draw.
func newStage(t *testing.T) *stage { return newStageAhead(t, 0) }

// newStageAhead is one whose clock is ahead of this device's: the device's is as much behind.
func newStageAhead(t *testing.T, ahead time.Duration) *stage {
	s := &stage{t: t, ahead: ahead, sequence: 17, rank: -1, orders: []answer{orderIs("CREATED")}}
	opened := s.now().Add(-time.Minute)
	s.activity = map[string]any{
		"activity_id": "10001", "activity_version": 1, "path_id": "p_stage0001", "name": "Winter opening",
		"opens_at": stamp(opened), "closes_at": stamp(opened.Add(2 * time.Hour)),
		"fairness": map[string]any{"mode": "random", "draw_closes_at": stamp(opened.Add(-5 * time.Second))},
		"skus":     []any{sku("90001", "Long-distance walking boots", "1299.00", 1)},
	}
	s.queue = map[string]any{
		"activity_id": "10001", "activity_version": 1, "state": "OPEN", "opens_at": s.activity["opens_at"],
		"lanes":         []any{lane(0, 0, 40)},
		"poll_after_ms": map[string]any{"low": 300, "high": 600}, "draw_closes_at": stamp(opened.Add(-5 * time.Second)),
		"draw": draw(), "joined": 5000, "reach": 6000,
	}
	s.tickets = []answer{ticket()}
	return s
}

func sku(id, name, amount string, limit int) map[string]any {
	return map[string]any{"sku_id": id, "name": name, "price": map[string]any{"amount": amount, "currency": "CNY"}, "limit_per_user": limit}
}

func lane(watermark uint64, released, perSecond int) map[string]any {
	return map[string]any{"lane": "default", "watermark": watermark, "released": released, "joined": 5000, "release_per_s": perSecond}
}

// everybody is a watermark above all ranks of the draw and those who came later.
const everybody = 1<<53 - 1

// drawClosedMS divides those in the stage's draw from those behind it.
const drawClosedMS = 1_782_388_800_000

func draw() map[string]any {
	raw, _ := hex.DecodeString(secret)
	commitment := sha256.Sum256([]byte(string(raw) + "|10001|1"))
	return map[string]any{
		"commitment": hex.EncodeToString(commitment[:]), "join_root": strings.Repeat("ab", 32), "drawn": 5000, "before_ms": drawClosedMS,
		"public_value": "beacon round 4,711", "secret": secret,
	}
}

// rankOf is the rank of a user in the stage's draw, as the service would work it out.
func rankOf(user string) uint64 {
	raw, _ := hex.DecodeString(secret)
	mac := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	seed := mac(raw, strings.Repeat("ab", 32)+"|beacon round 4,711")
	return binary.BigEndian.Uint64(mac(seed, "10001|"+user)) >> 12
}

func ticket() answer {
	return answer{200, map[string]any{
		"ticket": "h.p.s", "request_id": "r_stage0001", "path_id": "p_stage0001", "nonce": "n_stage0001", "expires_at": stamp(time.Now().Add(time.Hour)),
	}}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func jws(claims map[string]any) string {
	payload, _ := json.Marshal(claims)
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

func (s *stage) now() time.Time { return time.Now().Add(s.ahead) }

// set changes what the stage says from now on.
func (s *stage) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// made lists the calls of a kind.
func (s *stage) made(what string) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []call
	for _, c := range s.calls {
		if c.what == what {
			out = append(out, c)
		}
	}
	return out
}

// handler is the stage with the real page in front.
func (s *stage) handler() http.Handler {
	mux := http.NewServeMux()
	p := newPage(s.t, func(c *page.Config) { c.DevelopmentSignIn = !s.site })
	mux.Handle("GET /a/{activity}", p.Activity)
	mux.Handle("GET /assets/{name}", p.Assets)
	on := func(pattern, what string, f func(r *http.Request) answer) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.calls = append(s.calls, call{time.Now(), what, r.Header.Clone(), r.PathValue("request")})
			a := f(r)
			s.mu.Unlock()
			if a.http == 0 {
				// A browser sends a request again by itself when a kept connection ends before
				// the first byte; an answer that breaks off is lost for good.
				w.Header().Set("Content-Length", "400")
				w.WriteHeader(http.StatusAccepted)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			body := map[string]any{"server_time": stamp(s.now())}
			for k, v := range a.body {
				body[k] = v
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(a.http)
			if err := json.NewEncoder(w).Encode(body); err != nil {
				s.t.Errorf("stage: %v", err)
			}
		})
	}
	on("POST /v1/session", "session", func(r *http.Request) answer {
		var in struct {
			UserID string `json:"user_id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			s.t.Errorf("sign-in: %v", err)
		}
		return answer{200, map[string]any{"session": jws(map[string]any{"sub": in.UserID}), "user_id": in.UserID}}
	})
	on("GET /v1/activities/10001", "activity", func(*http.Request) answer { return answer{200, s.activity} })
	on("GET /v1/activities/10001/queue", "queue", func(*http.Request) answer { return answer{200, s.queue} })
	on("POST /v1/activities/10001/queue/join", "join", s.join)
	on("POST /v1/activities/10001/tickets", "ticket", func(*http.Request) answer { return next(&s.tickets) })
	on("POST /s/{path}/{sku}", "submit", func(*http.Request) answer { return next(&s.submits) })
	on("GET /v1/requests/{request}", "result", func(*http.Request) answer { return next(&s.results) })
	on("GET /v1/orders/{order}", "order", func(*http.Request) answer { return next(&s.orders) })
	on("POST /v1/orders/{order}/cancel", "cancel", func(*http.Request) answer {
		s.orders = []answer{orderIs("CANCELLED")}
		return s.orders[0]
	})
	return mux
}

func (s *stage) join(r *http.Request) answer {
	user := "70000001"
	if parts := strings.Split(r.Header.Get("Authorization"), "."); len(parts) == 3 {
		var claims struct {
			Sub string `json:"sub"`
		}
		raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
		if err := json.Unmarshal(raw, &claims); err != nil {
			s.t.Errorf("session: %v", err)
		}
		user = claims.Sub
	}
	if r.Header.Get("Authorization") == "" {
		return said(admission.Unauthenticated, nil)
	}
	if s.pow > 0 && !s.solved(r, user) {
		return said(admission.ChallengeRequired, map[string]any{"challenge": map[string]any{
			"kind": "pow", "seed": "c_stage0001", "difficulty": s.pow, "expires_at": stamp(time.Now().Add(time.Minute)),
		}})
	}
	joined := drawClosedMS - 1
	if s.late {
		joined++
	}
	body := map[string]any{
		"pass":  jws(map[string]any{"user_id": user, "lane": "default", "sequence": s.sequence, "joined_ms": joined}),
		"state": s.queue["state"], "lane": "default", "joined_ms": s.now().Add(-s.joined).UnixMilli(), "next_poll_after_ms": 1000,
	}
	if s.rank >= 0 {
		body["rank"] = s.rank
	}
	return answer{200, body}
}

// solved checks a proof of work the way the service does.
func (s *stage) solved(r *http.Request, user string) bool {
	var in struct {
		Challenge string `json:"challenge"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.t.Errorf("join: %v", err)
	}
	counter, ok := strings.CutPrefix(in.Challenge, "c_stage0001:")
	sum := sha256.Sum256([]byte("c_stage0001|" + user + "|" + counter))
	return ok && bits.LeadingZeros64(binary.BigEndian.Uint64(sum[:8])) >= s.pow
}

// next takes the next of the answers; the last one stays.
func next(from *[]answer) answer {
	if len(*from) == 0 {
		return answer{500, map[string]any{"code": "UNSCRIPTED"}}
	}
	a := (*from)[0]
	if len(*from) > 1 {
		*from = (*from)[1:]
	}
	return a
}

func newPage(t *testing.T, set func(*page.Config)) *page.Page {
	t.Helper()
	c := page.Config{DevelopmentSignIn: true, NotFound: httpapi.Absent(time.Now, func() float64 { return 0.5 })}
	if set != nil {
		set(&c)
	}
	p, err := page.New(c)
	if err != nil {
		t.Fatal(fmt.Errorf("page: %w", err))
	}
	return p
}
