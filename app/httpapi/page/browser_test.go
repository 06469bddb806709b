package page_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience is the longest that a test waits for the page to say something.
const patience = 90 * time.Second

// browser is a headless Chromium.
type browser struct {
	ctx  context.Context
	slow float64 // how many times longer than on an idle machine its start took
}

// before is a time that is enough on an idle machine, or as much more as this one is slower.
func (in browser) before(d time.Duration) string {
	return time.Duration(float64(d) * max(1, in.slow)).Round(time.Second).String()
}

// openBrowser starts one for a test. A machine without one fails.
func openBrowser(t *testing.T, options ...chromedp.ExecAllocatorOption) browser {
	t.Helper()
	if testing.Short() {
		t.Skip("drives a browser")
	}
	options = append(append(chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(chromedp.DefaultExecAllocatorOptions)],
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"),
		chromedp.WindowSize(1000, 900)), options...)
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(release)
	ctx, quit := chromedp.NewContext(allocated)
	t.Cleanup(quit)
	began := time.Now()
	if err := chromedp.Do(ctx); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			t.Fatal("no Chromium: run adapters/servers/chromium.sh (make browser)")
		}
		t.Fatalf("the browser did not start: %v", err)
	}
	const idle = 1500 * time.Millisecond
	return browser{ctx, float64(time.Since(began)) / float64(idle)}
}

// tab is one tab of a browser, looked at the way a person does: by what it says.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// person opens a tab that shares nothing with others: another browser profile.
func person(t *testing.T, in browser) *tab {
	t.Helper()
	return open(t, in, chromedp.WithNewBrowserContext())
}

// another opens a second tab of the same person.
func (b *tab) another() *tab { return open(b.t, browser{ctx: b.ctx}) }

func open(t *testing.T, in browser, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, done := chromedp.NewContext(in.ctx, options...)
	t.Cleanup(done)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	b.listen()
	return b
}

// listen fails the test for what the page throws and for what the content policy stops.
func (b *tab) listen() {
	messages, ended := chromedp.Console(b.ctx), make(chan struct{})
	go func() {
		defer close(ended)
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" && m.Source != "network" {
				b.t.Errorf("console: %v (%s:%d)", m, m.URL, m.Line)
			}
		}
	}()
	b.t.Cleanup(func() {
		_ = chromedp.Cancel(b.ctx)
		<-ended
	})
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v; the page says:\n%s", err, b.text("body"))
	}
}

func (b *tab) visit(url string) { b.t.Helper(); b.do(chromedp.Navigate(url)) }

// eval answers the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is what an element says; "" when there is none.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(`+quote(selector)+`)?.innerText ?? ""`)
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience))); err != nil {
		b.t.Fatalf("%s did not come true (%v); the page says:\n%s", expression, err, b.text("body"))
	}
}

// reads waits until the element contains the words.
func (b *tab) reads(selector, words string) {
	b.t.Helper()
	b.until(`(document.querySelector(` + quote(selector) + `)?.innerText ?? "").includes(` + quote(words) + `)`)
}

// press clicks the button with this text.
func (b *tab) press(label string) {
	b.t.Helper()
	find := `[...document.querySelectorAll("button")].find((b) => b.checkVisibility() && b.ariaDisabled !== "true" && b.textContent === ` + quote(label) + `)`
	b.until(find + ` !== undefined`)
	eval[bool](b, find+`.click() ?? true`)
}

// asksToCancel presses until the question is there: a card that is drawn anew at that moment,
// because the order has just arrived, has not been asked yet.
func (b *tab) asksToCancel() {
	b.t.Helper()
	b.until(`(() => {
		const find = (label) => [...document.querySelectorAll("button")].find((b) => b.checkVisibility() && b.ariaDisabled !== "true" && b.textContent === label);
		if (find("Yes, cancel it")) return true;
		find("Cancel this order")?.click();
		return false;
	})()`)
}

func (b *tab) signIn(user string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible("#user"), chromedp.SendKeys("#user", user))
	b.press("Sign in")
	b.reads("#status", "Signed in as "+user)
}

// picture writes what is seen to PAGE_PICTURES, when that is set, for somebody to look at.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("PAGE_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Errorf("picture %s: %v", name, err)
	}
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// wire stands between browser and service: it counts requests and can be cut.
type wire struct {
	*httptest.Server
	cut    atomic.Bool
	mu     sync.Mutex
	counts map[string]int // by method and path; guarded by mu
}

func newWire(t *testing.T, service http.Handler) *wire {
	t.Helper()
	w := &wire{counts: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.counts[r.Method+" "+r.URL.Path]++
		w.mu.Unlock()
		if w.cut.Load() {
			panic(http.ErrAbortHandler) // the connection breaks, as on a train
		}
		service.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		w.Close()
		if t.Failed() {
			t.Logf("requests: %v", w.counts)
		}
	})
	return w
}

// seen counts the requests whose method and path begin so.
func (w *wire) seen(prefix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for path, count := range w.counts {
		if strings.HasPrefix(path, prefix) {
			n += count
		}
	}
	return n
}

func forwardTo(address string) http.Handler {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	p.ErrorLog = log.New(io.Discard, "", 0) // a page that outlives the service at the end of a test
	return p
}
