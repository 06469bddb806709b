package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-io/sluice/app/admission"
)

// watchful looks at every frame: whether the focus is lost to the body once somebody has
// it, whether the card or the screen moves, whether something is too wide, and what is said aloud.
const watchful = `(() => {
	const seen = globalThis.seen = { lost: [], moved: [], wide: [], said: [], focused: false };
	const live = document.querySelector("#live");
	new MutationObserver(() => seen.said.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
	let top;
	const look = () => {
		const heading = document.querySelector("h2")?.textContent ?? "";
		const held = document.activeElement;
		if (held !== document.body && held.checkVisibility()) seen.focused = true;
		else if (seen.focused) seen.lost.push(heading);
		const card = document.querySelector("#card");
		const now = card.offsetTop;
		if (!card.hidden) {
			if (top !== undefined && now !== top) seen.moved.push(heading + ": from " + top + " to " + now);
			top = now;
		}
		const root = document.documentElement;
		if (root.scrollWidth > root.clientWidth) seen.wide.push(heading);
		requestAnimationFrame(look);
	};
	requestAnimationFrame(look);
	return true;
})()`

// steady fails the test for what watchful saw.
func (b *tab) steady() {
	b.t.Helper()
	for what, complaint := range map[string]string{"lost": "the focus is lost", "moved": "the card moves", "wide": "wider than the screen"} {
		if found := eval[string](b, `[...new Set(seen.`+what+`)].join(" / ")`); found != "" {
			b.t.Errorf("%s: %s", complaint, found)
		}
	}
}

// TestEveryChangeByKeyboard goes from the countdown to a cancelled order with Tab, Enter and
// typing alone, on a narrow phone, in both languages: the focus is never lost, nothing jumps,
// and every change is said aloud.
func TestEveryChangeByKeyboard(t *testing.T) {
	in := openBrowser(t, chromedp.WindowSize(360, 740))
	for language, say := range map[string]map[string]string{
		"en": {
			"countdown": "Opens in", "signIn": "Sign in to take part", "join": "Join the line", "joined": "You are in", "waiting": "people are ahead of you",
			"next": "You are next", "turn": "It is your turn", "sending": "Trying to reserve", "again": "Attempt 2 of", "reserved": "Reserved for you", "order": "Your order is created",
			"pay": "Pay before", "sure": "Cancel this order?", "cancelled": "The order is cancelled",
		},
		"zh": {
			"countdown": "距开始还有", "signIn": "请先登录", "join": "加入排队", "joined": "您已加入", "waiting": "您前面约有",
			"next": "马上轮到您", "turn": "轮到您了", "sending": "正在为您预留", "again": "第 2 次尝试", "reserved": "已为您保留", "order": "订单已创建",
			"pay": "前付款", "sure": "确定取消订单吗", "cancelled": "订单已取消",
		},
	} {
		t.Run(language, func(t *testing.T) {
			s := newStage(t)
			opens := time.Now().Add(7 * time.Second)
			s.activity["opens_at"], s.queue["opens_at"] = stamp(opens), stamp(opens)
			s.activity["fairness"] = map[string]any{"mode": "random", "draw_closes_at": stamp(opens.Add(-time.Second))}
			revealed := s.queue["draw"]
			s.queue["state"], s.queue["draw"] = "PREQUEUE", map[string]any{"commitment": draw()["commitment"], "drawn": 0, "trust": "operator"}
			s.submits = []answer{said(admission.Overloaded, map[string]any{"retry_after_ms": 1500}), said(admission.Queued, map[string]any{"next_poll_after_ms": 1500})}
			s.results = []answer{said(admission.PollOrderCreated, map[string]any{"order_id": "8100012"})}
			w := newWire(t, s.handler())
			b := person(t, in)
			b.do(chromedp.EmulateViewport(360, 740))
			b.visit(w.URL + activityPath)
			b.reads("h2", "Sign in to take part")
			eval[bool](b, watchful)
			press := func() { t.Helper(); b.do(chromedp.KeyEvent(kb.Enter)) }

			b.tabTo("[data-language=" + language + "]")
			press()
			b.reads("h2", say["signIn"])
			b.reads(".card", say["countdown"])
			b.tabTo("#user")
			b.do(chromedp.KeyEvent("70000001"), chromedp.KeyEvent(kb.Enter))
			b.heard("h2", say["join"])
			b.tabTo("[data-act=join]")
			press()
			b.heard("h2", say["joined"])
			b.picture("keyboard-joined-" + language)

			b.until(`document.querySelector("[role=timer]") === null`) // the opening, by the page's own clock
			s.set(func() { s.queue["state"], s.queue["draw"] = "OPEN", revealed })
			b.heard("h2", say["waiting"])
			s.set(func() { s.queue["lanes"] = []any{lane(everybody, 5000, 40)} })
			b.heard("h2", say["turn"])
			b.tabTo("[data-act=buy]")
			b.picture("keyboard-turn-" + language)
			press()
			b.heard("h2", say["sending"])
			b.until(`document.activeElement.tagName === "H2"`) // the focus is on what became of the press
			b.picture("keyboard-sending-" + language)
			b.heard("h2", say["reserved"])
			b.heard("h2", say["order"])
			b.heard(".card", say["pay"])
			b.until(`document.activeElement.tagName === "H2"`)
			b.tabTo("[data-act=ask]")
			press()
			b.reads(".sure", say["sure"])
			b.until(`document.activeElement.dataset.act === "keep"`)
			b.tabTo("[data-act=cancel]")
			b.picture("keyboard-sure-" + language)
			press()
			b.heard("h2", say["cancelled"])
			b.until(`document.activeElement.tagName === "H2"`)

			// The language changes under the focus, and the focus stays.
			other := map[string]string{"en": "zh", "zh": "en"}[language]
			b.tabTo("[data-language="+other+"]", chromedp.KeyModifiers(kb.ModifierShift))
			press()
			b.until(`document.activeElement.dataset.language === ` + quote(other))
			// What is pressed may go away with the press.
			b.tabTo("#status .link")
			press()
			b.until(`document.querySelector("#user") !== null`)
			b.until(`document.activeElement.tagName === "H2"`)
			b.steady()
		})
	}
}

// heard waits until an element reads so, and demands that it was said aloud.
func (b *tab) heard(selector, words string) {
	b.t.Helper()
	b.reads(selector, words)
	ended := time.Now().Add(patience)
	for time.Now().Before(ended) {
		if eval[bool](b, `seen.said.some((s) => s.includes(`+quote(words)+`))`) {
			return
		}
	}
	b.t.Errorf("%q was not said aloud; said: %s", words, strings.ReplaceAll(eval[string](b, `seen.said.join(" / ")`), "\n", " "))
}
