package page_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The page against a real service: a process of its own, everything embedded.

const activityPath = "/a/10001"

// startService builds and runs the service and answers its public address.
func startService(t *testing.T, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the service and a browser")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/sluice-io/sluice/app").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, append([]string{"serve", "--data.dir", filepath.Join(dir, "data"),
		"--listen.public", "127.0.0.1:0", "--listen.internal", "127.0.0.1:0", "--listen.admin", "127.0.0.1:0"}, args...)...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the service's log ends with:\n%s", text[max(0, len(text)-4000):])
		}
	})
	var ready struct {
		Event  string `json:"event"`
		Public string `json:"public"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no ready line: %v", err)
	}
	if err := json.Unmarshal(line, &ready); err != nil || ready.Event != "ready" {
		t.Fatalf("ready line %q: %v", line, err)
	}
	return ready.Public
}

func TestSaleInABrowser(t *testing.T) {
	in := openBrowser(t)
	w := newWire(t, forwardTo(startService(t, "--demo.opens_in", in.before(8*time.Second), "--demo.stock", "5")))

	b := person(t, in)
	b.visit(w.URL + activityPath)
	b.picture("real-signin")
	b.signIn("70000001")
	b.picture("real-join")
	b.press("Join")
	b.reads("h2", "You are in")
	b.picture("real-joined")

	// A second tab is the same place, and asks nothing itself.
	second := b.another()
	second.visit(w.URL + activityPath)
	second.reads("h2", "You are in")
	second.reads("#status", "Shown from another tab")

	// The network goes away and comes back; the place is kept.
	w.cut.Store(true)
	b.reads("#outage", "Connection lost. Your place is kept")
	b.picture("real-lost")
	w.cut.Store(false)
	b.reads("#status", "Connected")

	b.reads("h2", "It is your turn")
	b.reads(".check", "Draw verified on this device")
	second.reads("h2", "It is your turn")
	b.picture("real-turn")

	second.press("Buy now") // the tab that is touched leads
	second.reads("h2", "Your order is created")
	b.reads("h2", "Your order is created")
	b.reads("#status", "Shown from another tab")
	b.reads(".receipt", "Order number")
	b.picture("real-order")

	// A reload finds the order again.
	b.visit(w.URL + activityPath)
	b.reads("h2", "Your order is created")
	if n := w.seen("POST /s/"); n != 1 {
		t.Errorf("%d submits for one purchase", n)
	}

	b.asksToCancel()
	b.press("Yes, cancel it")
	b.reads("h2", "The order is cancelled")
	second.reads("h2", "The order is cancelled")
}

// TestOtherDevice: the same person on another device finds the order made on the first; when
// it is cancelled there, a sale that was sold out goes on for those who were still looking.
func TestOtherDevice(t *testing.T) {
	in := openBrowser(t)
	w := newWire(t, forwardTo(startService(t, "--demo.opens_in", "2s", "--demo.stock", "1")))
	first := person(t, in)
	first.visit(w.URL + activityPath)
	first.signIn("70000002")
	first.press("Join")
	first.reads("h2", "It is your turn")
	first.press("Buy now")
	first.reads("h2", "Your order is created")
	order := first.text(".receipt dd")

	loser := person(t, in)
	loser.visit(w.URL + activityPath)
	loser.reads("h2", "Sold out")
	loser.picture("real-soldout")
	loser.reads(".card", "Some may come back when orders are not paid") // there is one, and it is not paid

	time.Sleep(11 * time.Second) // so long after joining it is plain that it was another device
	phone := person(t, in)
	phone.visit(w.URL + activityPath)
	phone.signIn("70000002")
	phone.press("Look for my order")
	phone.reads("h2", "You already have an order")
	if got := phone.text(".receipt dd"); got != order || got == "" {
		t.Errorf("order %q on the second device, %q on the first", got, order)
	}

	// It is given back, and whoever was looking on may try.
	phone.asksToCancel()
	phone.press("Yes, cancel it")
	phone.reads("h2", "The order is cancelled")
	loser.reads("h2", "Sign in to take part")
}

// TestKeyboardAlone buys with Tab, Enter and typing only.
func TestKeyboardAlone(t *testing.T) {
	in := openBrowser(t)
	w := newWire(t, forwardTo(startService(t, "--demo.opens_in", in.before(5*time.Second), "--demo.stock", "5")))
	b := person(t, in)
	b.visit(w.URL + activityPath)
	b.do(chromedp.WaitVisible("#user"))
	b.tabTo("#user")
	b.do(chromedp.KeyEvent("70000003"), chromedp.KeyEvent(kb.Enter))
	b.reads("h2", "Join the line")
	b.until(`document.activeElement.tagName === "H2"`) // read aloud, and the next Tab is the button
	b.tabTo(".primary")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.reads("h2", "You are in")
	b.reads("h2", "It is your turn")
	b.reads("#live", "A turn is the right to try")
	b.tabTo(".primary")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.reads("h2", "Your order is created")
	b.reads("#live", "Your order is created")
	b.tabTo("[data-act=ask]")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.activeElement.textContent === "Keep it"`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.activeElement.textContent === "Cancel this order"`)
}

// tabTo presses Tab until the element has the focus; with Shift it goes back.
func (b *tab) tabTo(selector string, how ...chromedp.KeyOption) {
	b.t.Helper()
	for range 20 {
		if eval[bool](b, `document.activeElement.matches(`+quote(selector)+`)`) {
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab, how...))
	}
	b.t.Fatalf("Tab never reaches %s; the page says:\n%s", selector, b.text("body"))
}
