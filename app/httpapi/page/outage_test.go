package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluice-io/sluice/app/admission"
)

// offline breaks every connection from now on, and tells the page what a browser tells it
// when its device has lost the network.
func (b *tab) offline(w *wire) {
	b.t.Helper()
	w.cut.Store(true)
	eval[bool](b, `dispatchEvent(new Event("offline"))`)
}

func (b *tab) online(w *wire) {
	b.t.Helper()
	w.cut.Store(false)
	eval[bool](b, `dispatchEvent(new Event("online"))`)
}

// TestOutageInEveryState: whoever loses the network is told so where they look, with what is
// kept for them and no more; all that was known stays, and goes on when the network is back.
func TestOutageInEveryState(t *testing.T) {
	in := openBrowser(t, chromedp.WindowSize(360, 740))
	join := func(b *tab) { b.signIn("70000001"); b.press("Join") }
	buy := func(b *tab) { join(b); b.press("Buy now") }
	before := func(s *stage) {
		opens := s.now().Add(10 * time.Minute)
		s.activity["opens_at"], s.queue["opens_at"], s.queue["state"] = stamp(opens), stamp(opens), "PREQUEUE"
		s.activity["fairness"] = map[string]any{"mode": "random", "draw_closes_at": stamp(opens.Add(-5 * time.Second))}
		s.queue["draw"] = map[string]any{"commitment": draw()["commitment"], "drawn": 0}
	}
	turn := func(s *stage) { s.queue["lanes"] = []any{lane(everybody, 5000, 40)} }
	bought := func(o admission.Outcome, more map[string]any) func(*stage) {
		return func(s *stage) {
			turn(s)
			s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
			s.results = []answer{said(o, more)}
		}
	}
	const nothing, place, order = "Connection lost; trying again.", "Connection lost. Your place is kept", "Connection lost. Your order stands"
	for _, c := range []struct {
		name, heading, kept string
		set                 func(s *stage)
		act                 func(b *tab)
	}{
		{"countdown", "Sign in to take part", nothing, before, func(*tab) {}},
		{"join", "Join the line", nothing, before, func(b *tab) { b.signIn("70000001") }},
		{"joined", "You are in", place, before, join},
		{"waiting", "people are ahead of you", place, func(*stage) {}, join},
		{"turn", "It is your turn", place, turn, join},
		{"reserved", "Reserved for you", place, bought(admission.PollQueued, map[string]any{"next_poll_after_ms": 500}), buy},
		{"order", "Your order is created", order, bought(admission.PollOrderCreated, map[string]any{"order_id": "8100012"}), func(b *tab) { buy(b); b.reads(".receipt", "Quantity") }},
		{"soldout", "Sold out", place, func(s *stage) { s.queue["state"], s.queue["reopening"] = "SOLD_OUT", true }, func(b *tab) {
			b.signIn("70000001")
			b.press("Look for my order")
			b.reads(".card", "before you could get one")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			c.set(s)
			w := newWire(t, s.handler())
			b := person(t, in)
			b.do(chromedp.EmulateViewport(360, 740))
			b.visit(w.URL + activityPath)
			c.act(b)
			b.reads("h2", c.heading)
			b.reads("#status", "Connected")
			card := b.text(".card h2")
			eval[bool](b, watchful)
			b.offline(w)
			b.reads("#outage", c.kept)
			b.reads("#live", c.kept)
			b.picture("offline-" + c.name)
			if hidden := eval[string](b, `(({top, bottom}) => top >= 0 && bottom <= innerHeight ? "" : top + ".." + bottom)(document.querySelector("#outage").getBoundingClientRect())`); hidden != "" {
				t.Errorf("what is said of the connection is out of sight: %s", hidden)
			}
			b.fits("offline")
			clock := b.text("#status")
			b.until(`document.querySelector("#status").innerText !== ` + quote(clock)) // it goes on
			if now := b.text(".card h2"); now != card {
				t.Errorf("%q became %q without the network", card, now)
			}
			b.online(w)
			b.until(`document.querySelector("#outage").hidden`)
			b.reads("#status", "Connected")
			b.reads("#live", "Connected again")
			b.steady()
		})
	}

	t.Run("a join", func(t *testing.T) {
		s := newStage(t)
		before(s)
		w := newWire(t, s.handler())
		b := person(t, in)
		b.do(chromedp.EmulateViewport(360, 740))
		b.visit(w.URL + activityPath)
		b.signIn("70000001")
		b.offline(w)
		b.press("Join")
		b.reads("[data-act=join]", "Joining…")
		b.reads("#outage", nothing)
		b.picture("offline-joining")
		b.until(`document.activeElement !== null`)
		b.online(w)
		b.reads("h2", "You are in")
		if n := len(s.made("join")); n != 1 {
			t.Errorf("%d joins arrived", n)
		}
	})

	t.Run("a submit", func(t *testing.T) {
		s := newStage(t)
		turn(s)
		s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
		s.results = []answer{said(admission.NotFound, nil), said(admission.PollOrderCreated, map[string]any{"order_id": "8100012"})}
		w := newWire(t, s.handler())
		b := person(t, in)
		b.do(chromedp.EmulateViewport(360, 740))
		b.visit(w.URL + activityPath)
		join(b)
		b.reads("h2", "It is your turn")
		b.offline(w)
		b.press("Buy now")
		b.reads("h2", "Trying to reserve")
		b.reads(".card", "The answer was lost. Asking what came of it.")
		b.reads("#outage", place)
		b.picture("offline-submit")
		b.online(w)
		b.reads("h2", "Your order is created")
		if n := len(s.made("submit")); n != 1 {
			t.Errorf("%d submits arrived", n)
		}
	})
}

// TestDeviceClockIsOff: a device whose clock is an hour off counts down to the server's
// opening, opens with it, keeps a session that the server still accepts, and counts the time
// to pay as the server does.
func TestDeviceClockIsOff(t *testing.T) {
	in := openBrowser(t)
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprintf("the server is %v ahead", ahead), func(t *testing.T) {
			s := newStageAhead(t, ahead)
			s.site = true
			opens := s.now().Add(6 * time.Second)
			s.activity["opens_at"], s.queue["opens_at"] = stamp(opens), stamp(opens)
			s.queue["lanes"] = []any{lane(everybody, 5000, 40)}
			s.queue["state"] = "DRAWN"
			s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
			s.results = []answer{said(admission.PollOrderCreated, map[string]any{"order_id": "8100012"})}
			t1 := ticket()
			t1.body["expires_at"] = stamp(s.now().Add(time.Minute))
			s.tickets = []answer{t1}
			o := orderIs("CREATED")
			o.body["created_at"], o.body["pay_before"] = stamp(s.now()), stamp(s.now().Add(15*time.Minute))
			s.orders = []answer{o}
			w := newWire(t, s.handler())
			b := person(t, in)
			b.visit(w.URL + "/assets/none") // the origin, without the page: the site signs in
			session := jws(map[string]any{"sub": "70000001", "exp": s.now().Add(10 * time.Minute).Unix()})
			eval[bool](b, `(localStorage.setItem("sluice.session", `+quote(session)+`), true)`)
			b.visit(w.URL + activityPath)
			b.reads("#status", "Signed in as 70000001")
			b.press("Join")
			b.reads(".clock", "00:00:0")
			b.until(`document.querySelector("[role=timer]") === null`)
			if off := s.now().Sub(opens); off < 0 || off > 2*time.Second {
				t.Errorf("opened %v after the server", off)
			}
			s.set(func() { s.queue["state"] = "OPEN" })
			b.reads("h2", "It is your turn")
			b.press("Buy now")
			b.reads("h2", "Your order is created")
			b.reads(".clock", "14:5")
			shown := eval[string](b, `document.querySelector("#status").innerText`)
			if now := s.now().Local(); !containsClock(shown, now) {
				t.Errorf("the status says %q, the server's time is %v", shown, now)
			}
			if n := len(s.made("ticket")); n != 1 {
				t.Errorf("%d tickets: one that holds was taken for expired", n)
			}
		})
	}
}

// containsClock reports whether a text has this time of day, a second or two ago at most.
func containsClock(text string, at time.Time) bool {
	for ago := range 3 {
		if strings.Contains(text, at.Add(-time.Duration(ago)*time.Second).Format("3:04:05")) {
			return true
		}
	}
	return false
}
