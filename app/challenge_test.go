package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAJoinBeforeTheOpeningShowsItsWork: end to end. A join is told what to solve, has a
// place once it is solved, and is asked nothing after the opening; nothing else is asked.
func TestAJoinBeforeTheOpeningShowsItsWork(t *testing.T) {
	const policy = `"admission": [{"activity_id": "10001", "sku_id": "90001", "policy_version": 1, "challenge_bits": 12}]`
	s := openSale(t, map[string]string{"rules.file": rulesWith(t, `"schema": 1,`, `"schema": 1, `+policy+`,`), "demo.opens_in": "10m"})
	stranger := func(n int) *person {
		p := &person{user: fmt.Sprint(7_300_000_000_000_000_000 + n), device: fmt.Sprintf("device-%016d", n)}
		p.session = s.do(t.Context(), http.MethodPost, "/v1/session", fmt.Sprintf(`{"user_id":%q}`, p.user), nil).Session
		return p
	}
	p, other := stranger(1), stranger(2)
	join := func(p *person, challenge string) answer {
		t.Helper()
		body := "{}"
		if challenge != "" {
			body = `{"challenge":` + strconv.Quote(challenge) + `}`
		}
		return s.do(t.Context(), http.MethodPost, "/v1/activities/"+demoActivity+"/queue/join", body, p.headers())
	}
	asked := join(p, "")
	var told struct {
		Action    string    `json:"next_action"`
		Retryable bool      `json:"retryable"`
		Now       time.Time `json:"server_time"`
		Challenge struct {
			Kind       string    `json:"kind"`
			Seed       string    `json:"seed"`
			Difficulty int       `json:"difficulty"`
			ExpiresAt  time.Time `json:"expires_at"`
		} `json:"challenge"`
	}
	if err := json.Unmarshal([]byte(asked.Raw), &told); err != nil {
		t.Fatal(err)
	}
	c := told.Challenge
	if asked.HTTP != http.StatusForbidden || asked.Code != "CHALLENGE_REQUIRED" || told.Action != "SOLVE_CHALLENGE" || !told.Retryable || c.Kind != "pow" || c.Difficulty != 12 || c.Seed == "" {
		t.Fatalf("a join without work: %s", asked.Raw)
	}
	if left := c.ExpiresAt.Sub(told.Now); left < time.Minute-time.Second || left > 2*time.Minute {
		t.Errorf("the challenge lives for %v", left)
	}
	solution := ""
	for n := 0; solution == ""; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d", c.Seed, p.user, n))
		if bits.LeadingZeros16(uint16(sum[0])<<8|uint16(sum[1])) >= c.Difficulty {
			solution = fmt.Sprintf("%s:%d", c.Seed, n)
		}
	}
	if got := join(other, solution); got.Code != "CHALLENGE_REQUIRED" {
		t.Errorf("somebody else's solution: %s", got.Raw)
	}
	if got := join(p, strings.Replace(solution, ":", ":0", 1)); got.Code != "CHALLENGE_REQUIRED" {
		t.Errorf("a malformed solution: %s", got.Raw)
	}
	first, second := join(p, solution), join(p, solution)
	if first.HTTP != http.StatusOK || first.Pass == "" || second.Pass != first.Pass {
		t.Errorf("solved: %s, then %s", first.Raw, second.Raw)
	}
	p.pass = first.Pass
	publishDemo(t, s.s, 2, s.path, time.Now().Add(3*time.Second)) // it opens sooner
	s.until("the opening", func() bool { return time.Now().After(s.s.directory.ByID(demoActivity).OpensAt) })
	if got := join(other, ""); got.HTTP != http.StatusOK || got.Pass == "" {
		t.Errorf("after the opening: %s", got.Raw)
	}
	s.turn(p)
	if got := s.submit(t.Context(), p, nil); got.Code != "SECKILL_QUEUED" {
		t.Errorf("submit: %s", got.Raw)
	}
}
