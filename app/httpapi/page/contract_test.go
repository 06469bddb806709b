package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// The client rules of the wire contract, kept by the page.

// atTurn brings a new person to their turn.
func atTurn(t *testing.T, in browser, s *stage) (*tab, *wire) {
	t.Helper()
	s.set(func() { s.queue["lanes"] = []any{lane(everybody, 5000, 40)} })
	w := newWire(t, s.handler())
	b := inLine(t, in, w)
	b.reads("h2", "It is your turn")
	return b, w
}

// inLine signs a new person in and joins.
func inLine(t *testing.T, in browser, w *wire) *tab {
	t.Helper()
	b := person(t, in)
	b.visit(w.URL + activityPath)
	b.signIn("70000001")
	b.press("Join")
	return b
}

func TestClientRules(t *testing.T) {
	in := openBrowser(t)
	created := said(admission.PollOrderCreated, map[string]any{"order_id": "8100012"})
	reserved := said(admission.Queued, map[string]any{"reservation_id": "v_stage0001", "next_poll_after_ms": 400})
	nothing := said(admission.NotFound, nil)

	for _, c := range []struct {
		name      string
		submits   []answer
		results   []answer
		tickets   []answer
		says      string // in the end
		submitted int
		asked     int
	}{
		{"after 202 it only polls", []answer{reserved}, []answer{said(admission.PollQueued, map[string]any{"next_poll_after_ms": 300}), created}, nil, "Your order is created", 1, 2},
		{"a lost answer is sent once more", []answer{lost, reserved}, []answer{created}, nil, "Your order is created", 2, 1},
		{"two lost answers: it asks", []answer{lost, lost, reserved}, []answer{nothing, created}, nil, "Your order is created", 3, 2},
		{"sold out after a lost answer is not believed", []answer{lost, said(admission.SoldOut, nil)}, []answer{created}, nil, "Your order is created", 2, 1},
		{"sold out after a lost answer, and nothing reserved", []answer{lost, said(admission.SoldOut, nil)}, []answer{nothing}, nil, "Sold out", 2, 1},
		{"sold out at once is believed", []answer{said(admission.SoldOut, nil)}, nil, nil, "Sold out", 1, 0},
		{"unknown: it asks before it sends again", []answer{said(admission.DependencyUnavailable, nil)}, []answer{said(admission.PollQueued, map[string]any{"next_poll_after_ms": 300}), created}, nil, "Your order is created", 1, 2},
		{"an expired ticket is exchanged anew", []answer{said(admission.TokenExpired, nil), reserved}, []answer{nothing, created}, []answer{ticket(), ticket()}, "Your order is created", 2, 2},
		{"replayed: it follows the result", []answer{said(admission.Replayed, map[string]any{"status": "QUEUED", "next_poll_after_ms": 300})}, []answer{created}, nil, "Your order is created", 1, 1},
		{"a holder sees the order", []answer{said(admission.AlreadyPurchased, map[string]any{"order_id": "8100012", "existing_request_id": "r_other0001"})}, nil, nil, "You already have an order", 1, 0},
		{"no unit left", []answer{reserved}, []answer{said(admission.PollNoCapacity, nil)}, nil, "No unit was left", 1, 1},
		{"the sale ends", []answer{said(admission.ActivityEnded, nil)}, nil, nil, "The sale is over", 1, 0},
		{"back to the line", []answer{said(admission.OverloadedQueueOnly, map[string]any{"retry_after_ms": 200}), reserved}, nil, nil, "It is your turn", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.submits, s.results = c.submits, c.results
			if c.tickets != nil {
				s.tickets = c.tickets
			}
			b, _ := atTurn(t, in, s)
			b.press("Buy now")
			if c.says == "It is your turn" {
				b.reads(".notice", "You are back in line")
			}
			b.reads("h2", c.says)
			submits := s.made("submit")
			if len(submits) != c.submitted || len(s.made("result")) != c.asked {
				t.Errorf("%d submits and %d questions, want %d and %d", len(submits), len(s.made("result")), c.submitted, c.asked)
			}
			for _, r := range submits {
				if key := r.header.Get("Idempotency-Key"); key != "r_stage0001" {
					t.Errorf("a submit with request_id %q", key)
				}
			}
		})
	}

	t.Run("Retry-After is honoured", func(t *testing.T) {
		s := newStage(t)
		s.submits = []answer{said(admission.RateLimited, map[string]any{"retry_after_ms": 1500}), said(admission.Overloaded, map[string]any{"retry_after_ms": 1200}), reserved}
		s.results = []answer{created}
		b, _ := atTurn(t, in, s)
		b.press("Buy now")
		b.reads("h2", "Your order is created")
		submits := s.made("submit")
		if len(submits) != 3 {
			t.Fatalf("%d submits, want 3", len(submits))
		}
		for i, least := range []time.Duration{1500 * time.Millisecond, 1200 * time.Millisecond} {
			if gap := submits[i+1].at.Sub(submits[i].at); gap < least {
				t.Errorf("submit %d came after %v, told to wait %v", i+2, gap, least)
			}
		}
	})

	t.Run("a reload in the middle of a submit asks first", func(t *testing.T) {
		s := newStage(t)
		s.submits = []answer{said(admission.Overloaded, map[string]any{"retry_after_ms": 60_000})}
		s.results = []answer{created}
		b, w := atTurn(t, in, s)
		b.press("Buy now")
		b.reads("h2", "Trying to reserve")
		b.until(`document.querySelector(".notice").innerText.includes("very busy")`)
		b.visit(w.URL + activityPath)
		b.reads("h2", "Your order is created")
		if n := len(s.made("submit")); n != 1 {
			t.Errorf("%d submits, want 1", n)
		}
	})
}

// TestAnotherTurnIsOfferedWhereThereIsOne: by what the activity allows, also after a reload,
// which still tells how the places were given.
func TestAnotherTurnIsOfferedWhereThereIsOne(t *testing.T) {
	in := openBrowser(t)
	for _, c := range []struct {
		name    string
		rebuy   bool
		most    int
		offered bool
		says    string
	}{
		{"one attempt", false, 1, false, "One attempt per person"},
		{"one more", true, 2, true, "Ask for another turn"},
		{"all used", true, 1, false, "All your attempts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.activity["rebuy_after_cancel"], s.activity["max_attempts"] = c.rebuy, c.most
			s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
			s.results = []answer{said(admission.PollOrderCancelled, map[string]any{"order_id": "8100012"})}
			s.orders = []answer{orderIs("CANCELLED")}
			b, w := atTurn(t, in, s)
			b.press("Buy now")
			for range 2 { // and after a reload
				b.reads("h2", "The order is cancelled")
				b.reads(".card", c.says)
				b.reads("#fairness summary", "How the places are given")
				if offered := strings.Contains(b.text(".card"), "Ask for another turn"); offered != c.offered {
					t.Errorf("another turn offered: %t", offered)
				}
				b.visit(w.URL + activityPath)
			}
			if !c.offered {
				return
			}
			// The service has none after all, or has not heard of the cancel yet: that is said.
			b.press("Ask for another turn")
			b.reads(".notice", "There is no other turn for you yet")
			b.reads("h2", "The order is cancelled")
		})
	}
}

// TestPolling: hints are obeyed, failures thin the questions out, and the end ends them.
func TestPolling(t *testing.T) {
	in := openBrowser(t)

	t.Run("within the hint", func(t *testing.T) {
		s := newStage(t)
		s.queue["poll_after_ms"] = map[string]any{"low": 400, "high": 700}
		w := newWire(t, s.handler())
		b := person(t, in) // only looks: nobody's actions shorten a wait
		b.visit(w.URL + activityPath)
		for len(s.made("queue")) < 8 {
			time.Sleep(100 * time.Millisecond)
		}
		polls := s.made("queue")
		spread, shortest := map[time.Duration]bool{}, time.Hour
		for i := 1; i < len(polls); i++ {
			gap := polls[i].at.Sub(polls[i-1].at)
			spread[gap.Round(20*time.Millisecond)] = true
			if shortest = min(shortest, gap); gap < 390*time.Millisecond {
				t.Errorf("a gap of %v, told 400 to 700 ms", gap)
			}
		}
		if shortest > 1500*time.Millisecond { // a busy machine makes some of them longer
			t.Errorf("no gap below %v, told 400 to 700 ms", shortest)
		}
		if len(spread) < 3 {
			t.Errorf("gaps without jitter: %v", spread)
		}
	})

	t.Run("a dead service is asked ever more rarely, and found again", func(t *testing.T) {
		s := newStage(t)
		w := newWire(t, s.handler())
		b := inLine(t, in, w)
		b.reads("h2", "ahead of you")
		w.cut.Store(true)
		b.reads("#outage", "Connection lost. Your place is kept")
		before := w.seen("GET /v1/activities/10001/queue")
		time.Sleep(10 * time.Second)
		if n := w.seen("GET /v1/activities/10001/queue") - before; n > 12 { // 22 at the pace of the hint
			t.Errorf("%d questions to a dead service in 10 s", n)
		}
		b.reads("h2", "ahead of you") // what was known stays
		w.cut.Store(false)
		b.reads("#status", "Connected")
	})

	t.Run("sold out", func(t *testing.T) {
		s := newStage(t)
		w := newWire(t, s.handler())
		b := inLine(t, in, w)
		b.reads("h2", "ahead of you")
		s.set(func() { s.queue["state"] = "SOLD_OUT" })
		b.reads("h2", "Sold out")
		b.reads("#status", "No further updates")
		asked := len(s.made("queue"))
		time.Sleep(3 * time.Second)
		if n := len(s.made("queue")) - asked; n > 0 {
			t.Errorf("%d polls after the end", n)
		}
		s.set(func() { s.queue["state"] = "OPEN" })
		b.press("Look again")
		b.reads("h2", "ahead of you")
	})

	t.Run("sold out, and units may come back", func(t *testing.T) {
		s := newStage(t)
		s.queue["lanes"] = []any{lane(everybody, 5000, 40)}
		s.queue["state"], s.queue["reopening"] = "SOLD_OUT", true
		w := newWire(t, s.handler())
		b := person(t, in)
		b.visit(w.URL + activityPath)
		b.reads(".card", "Bought on another device?")
		b.signIn("70000001")
		b.press("Look for my order")
		b.reads(".card", "this page goes on looking")
		if again := eval[bool](b, `document.querySelector("[data-act=again]").checkVisibility()`); again {
			t.Error("a button that asks for what the page does by itself")
		}
		b.picture("soldout-watch")
		asked := len(s.made("queue"))
		for len(s.made("queue")) < asked+3 {
			time.Sleep(50 * time.Millisecond)
		}
		s.set(func() { s.queue["state"] = "OPEN" })
		b.reads("h2", "It is your turn")
		b.reads(".notice", "Some units have come back")
		b.picture("reopened")
		s.set(func() {
			s.queue["state"], s.queue["reopening"] = "SOLD_OUT", false
			s.submits = []answer{said(admission.SoldOut, nil)}
		})
		b.press("Buy now")
		b.reads(".card", "This page has stopped asking")
		b.reads("#status", "No further updates")
		b.press("Look again")
	})

	t.Run("a personal answer is ahead of the document", func(t *testing.T) {
		s := newStage(t)
		s.submits = []answer{said(admission.SoldOut, nil)}
		b, _ := atTurn(t, in, s)
		b.press("Buy now")
		b.reads("h2", "Sold out")
		told := time.Now()
		asked := len(s.made("queue"))
		for len(s.made("queue")) < asked+4 { // OPEN, and never sold out as far as the document knows: it looks on, and believes nothing yet
			time.Sleep(50 * time.Millisecond)
		}
		b.reads("h2", "Sold out")
		s.set(func() { s.queue["reopening"] = true })
		b.reads("h2", "It is your turn")
		if after := time.Since(told); after < 2900*time.Millisecond { // an older document may be from before the sell-out
			t.Errorf("believed after %v", after)
		}
		if n := len(s.made("ticket")); n > 2 {
			t.Errorf("%d questions for a ticket", n)
		}
	})

	t.Run("two tabs ask as one", func(t *testing.T) {
		s := newStage(t)
		w := newWire(t, s.handler())
		b := inLine(t, in, w)
		b.reads("h2", "ahead of you")
		second := b.another()
		second.visit(w.URL + activityPath)
		second.reads("h2", b.text("h2"))
		second.reads("#status", "Shown from another tab")
		before, began := len(s.made("queue")), time.Now()
		time.Sleep(4 * time.Second)
		n, passed := len(s.made("queue"))-before, time.Since(began)
		if most := int(passed/(300*time.Millisecond)) + 1; n > most { // one who asks each 300 ms, the shortest hint
			t.Errorf("%d polls in %v, want %d at the most", n, passed, most)
		}
		if n := len(s.made("join")); n != 1 {
			t.Errorf("%d joins by one person", n)
		}
	})
}

// TestSessionOfTheSite: in production the site signs people in and hands the session over.
func TestSessionOfTheSite(t *testing.T) {
	in := openBrowser(t)
	s := newStage(t)
	s.site = true
	w := newWire(t, s.handler())
	b := person(t, in)
	b.visit(w.URL + activityPath)
	b.press("Join") // a gateway might know who it is
	b.reads("h2", "Sign in to take part")
	b.reads(".card", "on the shop’s own site")
	if eval[bool](b, `document.querySelector("#user") !== null`) {
		t.Error("a field for a user id in production")
	}

	// The site is another tab of the same origin.
	site := b.another()
	site.visit(w.URL + "/assets/none")
	eval[bool](site, `(localStorage.setItem("sluice.session", `+quote(jws(map[string]any{"sub": "70000001"}))+`), true)`)
	b.press("Join")
	b.reads("h2", "ahead of you")

	// Or it posts a message to the page.
	eval[bool](b, `(postMessage({type: "sluice.session", session: ""}), true)`)
	b.reads("h2", "Join the line")
	eval[bool](b, `(postMessage({type: "sluice.session", session: `+quote(jws(map[string]any{"sub": "70000001"}))+`}), true)`)
	b.reads("h2", "ahead of you") // the place was kept
}

func TestChallengeIsSolved(t *testing.T) {
	in := openBrowser(t)
	s := newStage(t)
	s.pow = 11
	b := inLine(t, in, newWire(t, s.handler()))
	b.reads("h2", "ahead of you")
	if n := len(s.made("join")); n != 2 {
		t.Errorf("%d joins, want one that is challenged and one with the solution", n)
	}
}

// TestDrawIsVerified: the page works out the rank that the service has, and notices every figure that is not as revealed.
func TestDrawIsVerified(t *testing.T) {
	in := openBrowser(t)
	rank := rankOf("70000001")
	for _, c := range []struct {
		name string
		set  func(s *stage)
		says string
	}{
		{"nothing told", func(*stage) {}, "Draw verified"},
		{"the same rank told", func(s *stage) { s.rank = int64(rank) }, "Draw verified"},
		{"another rank told", func(s *stage) { s.rank = int64(rank) + 1 }, "could not be verified"},
		{"another commitment", func(s *stage) { s.queue["draw"].(map[string]any)["commitment"] = strings.Repeat("0", 64) }, "could not be verified"},
		{"another secret", func(s *stage) { s.queue["draw"].(map[string]any)["secret"] = strings.Repeat("0", 64) }, "could not be verified"},
		{"joined after the draw", func(s *stage) { s.sequence, s.late = 5001, true }, "You joined after the draw"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			c.set(s)
			b := inLine(t, in, newWire(t, s.handler()))
			b.reads(".check", c.says)
			shown := strings.ReplaceAll(eval[string](b, `document.querySelector(".figures dd:last-child").textContent`), ",", "")
			want := fmt.Sprintf("%d of 2^52", rank)
			if c.name == "joined after the draw" {
				want = fmt.Sprintf("%d of 2^52", uint64(1)<<52+5001)
			}
			if shown != want && c.name != "another secret" {
				t.Errorf("rank %q, want %q", shown, want)
			}
		})
	}
}
