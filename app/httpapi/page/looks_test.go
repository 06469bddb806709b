package page_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluice-io/sluice/app/admission"
)

// scene brings the page into one state.
type scene struct {
	name string
	say  string // the heading that it must have
	set  func(s *stage)
	act  func(b *tab)
}

func scenes() []scene {
	join := func(b *tab) { b.signIn("70000001"); b.press("Join") }
	buy := func(b *tab) { join(b); b.press("Buy now") }
	turn := func(s *stage) { s.queue["lanes"] = []any{lane(everybody, 5000, 40)} }
	before := func(s *stage, left time.Duration) {
		opens := time.Now().Add(left)
		s.activity["opens_at"], s.queue["opens_at"] = stamp(opens), stamp(opens)
		s.activity["fairness"] = map[string]any{"mode": "random", "draw_closes_at": stamp(opens.Add(-5 * time.Second))}
		s.queue["state"] = "PREQUEUE"
		s.queue["draw"] = map[string]any{"commitment": draw()["commitment"], "drawn": 0, "trust": "operator"}
	}
	result := func(o admission.Outcome, more map[string]any) func(*stage) {
		return func(s *stage) {
			turn(s)
			s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
			s.results = []answer{said(o, more)}
		}
	}
	order := map[string]any{"order_id": "8100012"}
	return []scene{
		{"signin", "Sign in to take part", func(s *stage) { before(s, 3*time.Hour) }, func(*tab) {}},
		{"join", "Join the line", func(s *stage) { before(s, 26*time.Hour) }, func(b *tab) { b.signIn("70000001") }},
		{"joined", "You are in", func(s *stage) { before(s, 4*time.Minute) }, join},
		{"waiting", "people are ahead of you", func(s *stage) { s.queue["lanes"] = []any{lane(rankOf("70000001")/2, 394, 4)} }, join},
		{"unlikely", "will probably not reach you", func(s *stage) { s.queue["reach"] = 12 }, join},
		{"paused", "The sale is paused", func(s *stage) { s.queue["state"] = "PAUSED" }, join},
		{"turn", "It is your turn", turn, join},
		{"turn-several", "It is your turn", func(s *stage) {
			turn(s)
			s.activity["skus"] = []any{sku("90001", "Long-distance walking boots", "1299.00", 3), sku("90002", "A tent for two people and, with good will, their dog; four seasons, packs into the boots", "2480.50", 2), sku("90003", "Lamp", "9.90", 1)}
		}, join},
		{"busy", "Trying to reserve", func(s *stage) {
			turn(s)
			s.submits = []answer{said(admission.Overloaded, map[string]any{"retry_after_ms": 60_000})}
		}, buy},
		{"reserved", "Reserved for you", result(admission.PollQueued, map[string]any{"next_poll_after_ms": 500}), buy},
		{"order", "Your order is created", result(admission.PollOrderCreated, order), func(b *tab) { buy(b); b.reads(".receipt", "Quantity") }},
		{"sure", "Your order is created", result(admission.PollOrderCreated, order), func(b *tab) { buy(b); b.reads(".receipt", "Quantity"); b.press("Cancel this order") }},
		{"paid", "Paid. It is yours.", func(s *stage) { result(admission.PollOrderPaid, order)(s); s.orders = []answer{orderIs("PAID")} }, buy},
		{"cancelled", "The order is cancelled", func(s *stage) {
			result(admission.PollOrderCancelled, order)(s)
			s.orders = []answer{orderIs("CANCELLED")}
		}, buy},
		{"nocapacity", "No unit was left", result(admission.PollNoCapacity, nil), buy},
		{"soldout", "Sold out", func(s *stage) { s.queue["state"] = "SOLD_OUT" }, func(b *tab) {
			b.signIn("70000001")
			b.press("Look for my order")
			b.reads(".card", "before you could get one")
		}},
		{"soldout-stranger", "Sold out", func(s *stage) { s.queue["state"] = "SOLD_OUT" }, func(*tab) {}},
		{"ended", "The sale is over", func(s *stage) { s.queue["state"] = "ENDED" }, func(*tab) {}},
		{"mismatch", "people are ahead of you", func(s *stage) { s.rank = int64(rankOf("70000001")) + 1 }, func(b *tab) {
			join(b)
			b.reads(".check", "could not be verified")
			eval[bool](b, `document.querySelector("details").open = true`)
		}},
	}
}

// Every state fits a phone of 320 and of 390 pixels, in both languages, with controls large enough to touch.
func TestEveryStateFitsAPhone(t *testing.T) {
	everyState(t, openBrowser(t, chromedp.WindowSize(390, 844)), "light")
}

func TestEveryStateInTheDark(t *testing.T) {
	in := openBrowser(t, chromedp.WindowSize(390, 844), chromedp.Flag("blink-settings", "preferredColorScheme=0"))
	everyState(t, in, "dark")
}

func everyState(t *testing.T, in browser, scheme string) {
	for _, c := range scenes() {
		if scheme == "dark" && !slices.Contains([]string{"signin", "waiting", "turn-several", "busy", "sure", "mismatch"}, c.name) {
			continue // these have every colour
		}
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			c.set(s)
			w := newWire(t, s.handler())
			b := person(t, in)
			b.do(chromedp.EmulateViewport(390, 844))
			b.visit(w.URL + activityPath)
			c.act(b)
			b.reads("h2", c.say)
			if got := eval[bool](b, `matchMedia("(prefers-color-scheme: dark)").matches`); got != (scheme == "dark") {
				t.Fatalf("the browser is not in the %s", scheme)
			}
			b.picture(fmt.Sprintf("%s-%s-en", c.name, scheme))
			b.fits("390 px, English")
			b.press("中文")
			b.until(`document.documentElement.lang === "zh-CN"`)
			if heading := b.text("h2"); !regexp.MustCompile(`\p{Han}`).MatchString(heading) {
				t.Errorf("the heading in Chinese: %q", heading)
			}
			b.picture(fmt.Sprintf("%s-%s-zh", c.name, scheme))
			b.fits("390 px, Chinese")
			b.do(chromedp.EmulateViewport(320, 640))
			b.fits("320 px, Chinese")
		})
	}
}

// fits: nothing is wider than the screen, and what is to be pressed can be.
func (b *tab) fits(what string) {
	b.t.Helper()
	if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		b.t.Errorf("%s: %d px too wide", what, over)
	}
	small := eval[string](b, `[...document.querySelectorAll("button:not(.link), summary, input:not([type=radio]), .sku-choice")]
		.filter((e) => e.checkVisibility() && (e.offsetHeight < 44 || e.offsetWidth < 44)).map((e) => e.outerHTML).join("\n")`)
	if small != "" {
		b.t.Errorf("%s: too small to touch: %s", what, small)
	}
	nameless := eval[string](b, `[...document.querySelectorAll("button, input, summary")].filter((e) => e.checkVisibility() &&
		!(e.textContent || e.labels?.length || e.getAttribute("aria-label"))).map((e) => e.outerHTML).join("\n")`)
	if nameless != "" {
		b.t.Errorf("%s: without a name: %s", what, nameless)
	}
}

func TestSeveralThings(t *testing.T) {
	in := openBrowser(t)
	s := newStage(t)
	s.activity["skus"] = []any{sku("90001", "Boots", "1299.00", 1), sku("90002", "Tent", "2480.50", 3), sku("90003", "Lamp", "9.90", 1)}
	s.tickets = []answer{ticket(), said(admission.SoldOut, nil), ticket()}
	s.submits = []answer{said(admission.Queued, map[string]any{"next_poll_after_ms": 300})}
	s.results = []answer{said(admission.PollOrderCreated, map[string]any{"order_id": "8100012"})}
	b, w := atTurn(t, in, s)

	eval[bool](b, `document.querySelector('input[value="90003"]').click() ?? true`)
	b.reads(".sku:has(:checked)", "Lamp")
	b.press("Buy now") // another ticket is needed; the answer is that this one is gone
	b.reads(".notice", "That one is sold out")
	b.reads("#goods", "Sold out")
	b.reads(".sku:has(:checked)", "Boots")

	eval[bool](b, `document.querySelector('input[value="90002"]').click() ?? true`)
	b.reads(".card", "How many?")
	b.do(chromedp.SetValue("#quantity", "2"))
	eval[bool](b, `document.querySelector("#quantity").dispatchEvent(new Event("change"))`)
	b.press("Buy now")
	b.reads("h2", "Your order is created")
	if n := w.seen("POST /s/p_stage0001/90002"); n != 1 {
		t.Errorf("%d submits of the chosen SKU", n)
	}
}

// Who reads with the ears is told what changes, and only that.
func TestAnnouncements(t *testing.T) {
	in := openBrowser(t)
	s := newStage(t)
	w := newWire(t, s.handler())
	b := inLine(t, in, w)
	b.reads("#live", "ahead of you. Probably")
	eval[bool](b, `(globalThis.spoken = [], new MutationObserver(() => spoken.push(document.querySelector("#live").textContent))
		.observe(document.querySelector("#live"), {childList: true, characterData: true, subtree: true}), true)`)
	time.Sleep(3 * time.Second) // polls and clocks go on in silence
	if n := eval[int](b, `spoken.length`); n > 0 {
		t.Errorf("%d announcements while nothing changed: %s", n, eval[string](b, `spoken.join(" / ")`))
	}
	s.set(func() { s.queue["lanes"] = []any{lane(everybody, 5000, 40)} })
	b.reads("#live", "It is your turn")
	if title := eval[string](b, `document.title`); title != "● It is your turn · Winter opening" {
		t.Errorf("title %q", title)
	}
	b.press("中文")
	b.reads("#live", "轮到您了") // what was said is said in the language that is read now
	b.press("English")
	if n := eval[int](b, `spoken.length`) - 2; n > 2 { // perhaps "You are next" on the way
		t.Errorf("%d announcements of one turn", n)
	}
}

// The countdown is the server's, whatever this device's clock says.
func TestCountdownIsTheServers(t *testing.T) {
	in := openBrowser(t)
	s := newStage(t)
	opens := time.Now().Add(30 * time.Minute)
	s.activity["opens_at"], s.queue["opens_at"], s.queue["state"] = stamp(opens), stamp(opens), "PREQUEUE"
	w := newWire(t, s.handler())
	b := person(t, in)
	b.do(chromedp.Navigate("about:blank"))
	b.visit(w.URL + "/assets/none") // the origin, without the page
	eval[bool](b, `(localStorage.setItem("probe", "1"), true)`)
	b.visit(w.URL + activityPath)
	eval[bool](b, `(Date.now = () => 0, true)`)
	b.reads(".clock", "00:2") // minutes
	for end := time.Now().Add(patience); ; {
		most := time.Until(opens)
		left, err := time.Parse("15:04:05", b.text(".clock"))
		if err != nil {
			t.Fatal(err)
		}
		shown, least := time.Duration(left.Minute())*time.Minute+time.Duration(left.Second())*time.Second, time.Until(opens)
		if shown >= least-time.Second && shown <= most+time.Second {
			return
		}
		if time.Now().After(end) { // a busy machine may paint a second late, not each time
			t.Fatalf("the countdown shows %v of %v", shown, least)
		}
	}
}

// The colours keep what the style sheet promises: text 7:1, controls 4.5:1, in both schemes.
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("static/app.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark := map[string]string{}, map[string]string{}
	variable := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)
	bright, night, ok := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("no dark scheme")
	}
	for _, m := range variable.FindAllStringSubmatch(bright, -1) {
		light[m[1]], dark[m[1]] = m[2], m[2]
	}
	for _, m := range variable.FindAllStringSubmatch(night, -1) {
		dark[m[1]] = m[2]
	}
	for _, c := range []struct {
		on, under string
		least     float64
	}{
		{"ink", "paper", 7}, {"ink", "card", 7}, {"soft", "paper", 7}, {"soft", "card", 7}, {"ink", "tint", 7},
		{"on-accent", "accent", 7}, {"accent", "card", 7}, {"accent", "paper", 4.5}, {"warn", "warn-tint", 7},
		{"bad", "card", 7}, {"bad", "paper", 4.5}, {"good", "paper", 4.5}, {"on-accent", "accent-strong", 7}, {"accent", "tint", 4.5},
	} {
		for scheme, colours := range map[string]map[string]string{"light": light, "dark": dark} {
			if got := contrast(t, colours[c.on], colours[c.under]); got < c.least {
				t.Errorf("%s: %s on %s is %.2f:1, below %.1f:1", scheme, c.on, c.under, got, c.least)
			}
		}
	}
}

// contrast is the ratio of WCAG 2.
func contrast(t *testing.T, a, b string) float64 {
	la, lb := luminance(t, a), luminance(t, b)
	return (math.Max(la, lb) + 0.05) / (math.Min(la, lb) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatalf("%q: %v", colour, err)
	}
	linear := func(c uint64) float64 {
		v := float64(c&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}
