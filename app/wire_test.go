package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
)

// unhurried is the shipped rules without those on how busy the machine is, and with seconds
// for each store: what these tests are about does not depend on who else is running.
func unhurried(t *testing.T) string {
	t.Helper()
	text := string(rules.DefaultDocument())
	system := regexp.MustCompile(`(?s)"system": \[.*?\n    \]`)
	if !system.MatchString(text) {
		t.Fatal("the shipped rules have no system rules")
	}
	text = system.ReplaceAllString(text, `"system": "none"`)
	return strings.Replace(text, `"schema": 1,`, `"schema": 1, "guards": {"budgets_ms": {"limiter": 2000, "lease_ask": 1000, "claim": 1000, "stock": 2000, "queue": 2000}},`, 1)
}

// rulesWith writes the unhurried rules with replacements, and returns the file.
func rulesWith(t *testing.T, changes ...string) string {
	t.Helper()
	text := unhurried(t)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the shipped rules do not say %s", changes[i])
		}
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	path := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fiveOnly lets an address make five calls and then no more for a long time.
func fiveOnly(t *testing.T) string {
	t.Helper()
	return rulesWith(t, `"source": {"rate_per_s": 1000, "burst": 2000}`, `"source": {"rate_per_s": 0.001, "burst": 5}`)
}

// nobody's submit: refused for its session when its source may still ask.
const (
	sourceHasTokens = http.StatusUnauthorized
	sourceIsEmpty   = http.StatusTooManyRequests
)

func (s *sale) anonymous(change func(http.Header)) *http.Request {
	const body = `{}`
	r := httptest.NewRequest(http.MethodPost, "/s/"+s.path+"/"+demoSKU, strings.NewReader(body))
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", "2")
	r.Header.Set("Idempotency-Key", "request-00000001")
	r.Header.Set("X-Device-Id", "device-0000000000000001")
	change(r.Header)
	return r
}

// TestL05ForgedAddresses: one socket, a hundred invented addresses, one bucket.
func TestL05ForgedAddresses(t *testing.T) {
	s := openSale(t, map[string]string{"edge.trusted_cidrs": "none", "rules.file": fiveOnly(t)})
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	counts := map[int]int{}
	for i := range 100 {
		r := s.anonymous(func(h http.Header) {
			address := fmt.Sprintf("203.0.113.%d", i)
			for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "x-forwarded-for"} {
				h[name] = []string{address, "198.51.100." + fmt.Sprint(i)}
			}
			h.Set("Forwarded", "for="+address)
		})
		r.URL.Scheme, r.URL.Host = "http", s.public
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		counts[res.StatusCode]++
	}
	if counts[sourceHasTokens] != 5 || counts[sourceIsEmpty] != 95 {
		t.Errorf("%v, want 5 times %d and 95 times %d", counts, sourceHasTokens, sourceIsEmpty)
	}
}

// TestL07Spellings: what is one source behind a trusted edge, and what is not.
func TestL07Spellings(t *testing.T) {
	s := openSale(t, map[string]string{"rules.file": fiveOnly(t)})
	from := func(forwarded ...string) int {
		r := s.anonymous(func(h http.Header) { h["X-Forwarded-For"] = forwarded })
		r.RemoteAddr = "127.0.0.1:4711"
		w := httptest.NewRecorder()
		s.s.public.ServeHTTP(w, r)
		return w.Code
	}
	drain := func(spell func(i int) string) (passed int) {
		for i := range 20 {
			if from(spell(i)) == sourceHasTokens {
				passed++
			}
		}
		return passed
	}
	if n := drain(func(i int) string { return fmt.Sprintf("2001:db8:0:1::%x", i+1) }); n != 5 {
		t.Errorf("%d addresses of one /64 passed, want 5", n)
	}
	if n := drain(func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i+0x10) }); n != 20 {
		t.Errorf("%d of 20 different /64 passed", n)
	}
	if n := drain(func(i int) string { return fmt.Sprintf("::ffff:192.0.2.%d", i+1) }); n != 20 {
		t.Errorf("%d of 20 different mapped IPv4 addresses passed", n)
	}
	spellings := []string{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "[::ffff:1.2.3.4]:443", "1.2.3.4:80", "64:ff9b::102:304", "6.6.6.6, 1.2.3.4", "1.2.3.4, 127.0.0.9"}
	if n := drain(func(i int) string { return spellings[i%len(spellings)] }); n != 5 {
		t.Errorf("%d of one address in %d spellings passed, want 5", n, len(spellings))
	}
	if got := from("6.6.6.6", "1.2.3.4"); got != sourceIsEmpty {
		t.Errorf("two lines: %d; the last names the source", got)
	}
	if n := drain(func(i int) string { return []string{"2001:DB8:7::1", "2001:db8:7:0::1", "2001:db8:0007:0:0::1"}[i%3] }); n != 5 {
		t.Errorf("%d of one IPv6 address in three spellings passed, want 5", n)
	}
	if n := drain(func(i int) string { return fmt.Sprintf("unknown-%d", i) }); n != 1 {
		t.Errorf("%d whose address cannot be read passed, want 1: they share one strict bucket", n)
	}
}

// series counts what /metrics would show.
func (s *sale) series() (n int) {
	s.t.Helper()
	families, err := s.s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// TestO01Series: whatever callers invent, the number of series stays.
func TestO01Series(t *testing.T) {
	invented := 50_000
	if testing.Short() {
		invented = 5_000
	}
	s := openSale(t, nil)
	p := s.person(1)
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprintf("x%016x", random.Uint64()) }
	attempt := func(i int) {
		r := s.anonymous(func(h http.Header) {
			h.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", random.IntN(256), random.IntN(256), random.IntN(256)))
			h.Set("Authorization", "Bearer "+p.session)
			h.Set("X-Device-Id", p.device)
			head := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"HS256","kid":%q,"typ":"seckill-ticket"}`, word()))
			h.Set("X-Seckill-Ticket", head+".e30."+word())
		})
		r.RemoteAddr = "127.0.0.1:4711"
		switch i % 6 {
		case 0:
			r.URL.Path = "/" + word()
		case 1:
			r.Method = strings.ToUpper(word())
		case 2:
			r.URL.Path = "/s/" + s.path + "/" + fmt.Sprint(random.Int64())
		case 3: // the kid alone
		case 4:
			r.Method, r.URL.Path = http.MethodGet, "/v1/activities/"+fmt.Sprint(random.Int64())
		case 5:
			r.Header.Set("Idempotency-Key", word())
			r.Header.Set("Content-Type", word())
		}
		s.s.public.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i := range 600 { // every kind has been seen
		attempt(i)
	}
	before := s.series()
	for i := range invented {
		attempt(i)
	}
	if after := s.series(); after > before+20 {
		t.Errorf("%d series became %d", before, after)
	}
	families, err := s.s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	of := regexp.MustCompile(`x[0-9a-f]{16}`)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if of.MatchString(strings.ToLower(m.String())) {
				t.Fatalf("a series that a caller named: %s %s", f.GetName(), m)
			}
		}
	}
}

// TestO03TwoServices: two services live in one process, and their rules are reloaded
// again and again; nothing is registered twice and no counter begins anew.
func TestO03TwoServices(t *testing.T) {
	file := rulesWith(t)
	a, b := openSale(t, map[string]string{"rules.file": file}), openSale(t, nil)
	for _, s := range []*sale{a, b} {
		s.do(t.Context(), http.MethodGet, "/nothing", "", nil)
	}
	counted := a.metric("seckill_ingress_requests_total")
	if counted == 0 {
		t.Fatal("nothing was counted")
	}
	text := unhurried(t)
	for version := int64(2); version <= 4; version++ {
		next := strings.Replace(text, `"version": 1`, fmt.Sprintf(`"version": %d`, version), 1)
		if err := os.WriteFile(file+".next", []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
		a.until(fmt.Sprintf("version %d", version), func() bool { return a.s.rules.Status().Version == version })
		if now := a.metric("seckill_ingress_requests_total"); now < counted {
			t.Errorf("after version %d the counter is %v, it was %v", version, now, counted)
		}
	}
	if v := b.s.rules.Status().Version; v != 1 {
		t.Errorf("the other service has version %d", v)
	}
}

// keptLog is a log that may be read while it is written.
type keptLog struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (k *keptLog) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(p)
}

func (k *keptLog) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

// TestO04Logs: a whole purchase at the most talkative level, by somebody who writes into
// every header: one event a line, no secret, no name, no address, nothing of theirs.
func TestO04Logs(t *testing.T) {
	log := &keptLog{}
	s := openSaleLogging(t, map[string]string{"log.level": "debug", "demo.stock": "5"}, log)
	const address, evil = "203.0.113.77", `x","level":"ERROR`
	hostile := func(h map[string]string) map[string]string {
		h["X-Request-Id"] = evil + strings.Repeat("evil", 16<<10/8)
		h["User-Agent"] = "\x1b[31m" + evil
		h["X-Forwarded-For"] = address
		return h
	}
	p := s.person(1)
	s.turn(p)
	got := s.submit(t.Context(), p, func(h map[string]string, _ *string) { hostile(h) })
	if got.Code != "SECKILL_QUEUED" {
		t.Fatal(got.Raw)
	}
	for _, change := range []func(h map[string]string, body *string){
		func(h map[string]string, _ *string) { h["Idempotency-Key"] = evil },
		func(h map[string]string, _ *string) { h["X-Seckill-Ticket"] += "x" },
		func(h map[string]string, _ *string) { h["Authorization"] = "Bearer " + evil },
		func(h map[string]string, _ *string) { h["X-Device-Id"] = evil },
		func(_ map[string]string, body *string) { *body = `{"` + evil + `":1}` },
		func(h map[string]string, _ *string) { h["X-Forwarded-For"] = evil },
	} {
		if got := s.submit(t.Context(), p, func(h map[string]string, b *string) { change(hostile(h), b) }); got.Code == "SECKILL_QUEUED" || strings.Contains(got.Raw, "evil") || strings.Contains(got.Raw, "ERROR") {
			t.Errorf("%d %s", got.HTTP, got.Raw)
		}
	}
	s.until("the order", func() bool {
		a := s.do(t.Context(), http.MethodGet, "/v1/requests/"+p.ticket.RequestID+"?activity_id="+demoActivity+"&sku_id="+demoSKU, "", p.headers())
		return a.Code == "ORDER_CREATED"
	})
	text := log.String()
	for name, secret := range map[string]string{
		"a ticket": p.ticket.Ticket[len(p.ticket.Ticket)-20:], "a pass": p.pass[len(p.pass)-20:], "a session": p.session[len(p.session)-20:],
		"a device": p.device, "a user": p.user, "an address": address, "a header": "evil", "a forged level": `"level":"ERROR"`,
	} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s is in the log: …%s…", name, text[max(0, i-300):min(len(text), i+100)])
		}
	}
	events := 0
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "{") {
			continue // the words for people at the start
		}
		var e struct{ Event, Level string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("not one event a line: %.300s", line)
		}
		if e.Event == "decision" {
			events++
		}
	}
	if events < 5 {
		t.Errorf("%d decisions in the log of a purchase and six refusals", events)
	}
}

// ticketFor signs a ticket as the waiting room would, for whoever the test says.
func (s *sale) ticketFor(p *person, change func(*ticket.Claims)) string {
	s.t.Helper()
	a := s.s.directory.ByID(demoActivity)
	now := time.Now().UTC()
	c := ticket.Claims{
		ActivityID: a.ID, SKUID: demoSKU, UserID: p.user, DeviceHash: admission.DeviceHash(p.device), ActivityVersion: a.Version, PathID: a.PathID,
		Nonce: "n_0123456789abcdef", NotBefore: now, ExpiresAt: now.Add(time.Minute),
	}
	change(&c)
	t, err := s.s.ring.Issue(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// TestS06cBeforeTheOpening: a submit before the opening is refused with the true wait,
// and takes nothing.
func TestS06cBeforeTheOpening(t *testing.T) {
	s := openSale(t, map[string]string{"demo.opens_in": "60s", "demo.stock": "7"})
	p := s.person(1)
	p.ticket = answer{Ticket: s.ticketFor(p, func(*ticket.Claims) {}), RequestID: "request-00000001"}
	got := s.submit(t.Context(), p, nil)
	if got.HTTP != http.StatusForbidden || got.Code != "ACTIVITY_NOT_OPEN" || got.RetryAfter < 30_000 || got.RetryAfter > 65_000 || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s, Retry-After %q", got.HTTP, got.Raw, got.Header.Get("Retry-After"))
	}
	waiting := s.do(t.Context(), http.MethodPost, "/v1/activities/"+demoActivity+"/tickets", fmt.Sprintf(`{"sku_id":%q,"pass":%q}`, demoSKU, p.pass), p.headers())
	if waiting.Code != "QUEUE_WAITING" {
		t.Errorf("the ticket call before the opening: %s", waiting.Raw)
	}
	tally, _, err := s.s.tally(t.Context(), admission.SKURef{ActivityID: demoActivity, SKUID: demoSKU})
	if err != nil || tally.Remaining != 7 {
		t.Errorf("tally %+v, %v", tally, err)
	}
}

// publishDemo publishes a new version of the demonstration, with another path or opening.
func publishDemo(t *testing.T, s *service, version int64, path string, opens time.Time) {
	t.Helper()
	demo := s.directory.ByID(demoActivity)
	doc := fmt.Sprintf(`{"activity_id":%q,"activity_version":%d,"path_id":%q,"name":"Demonstration sale","opens_at":%q,"closes_at":%q,"skus":[{"sku_id":%q,"name":"A very popular thing","stock":%d,"price":{"amount":"9.90","currency":"CNY"}}],"fairness":{"mode":"random","draw_closes_before":%q}}`,
		demoActivity, version, path, opens.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano), demo.ClosesAt.Format(time.RFC3339Nano), demoSKU, demo.SKUs[0].Stock, demoDrawGap)
	if _, faults, err := s.publisher.Publish(context.WithoutCancel(t.Context()), []byte(doc)); err != nil || len(faults) > 0 {
		t.Fatal(faults, err)
	}
	if err := s.directory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestK04OtherTickets: a ticket opens what it was made for and nothing else.
func TestK04OtherTickets(t *testing.T) {
	s := openSale(t, map[string]string{"demo.stock": "9"})
	demo := s.s.directory.ByID(demoActivity)
	s.until("the opening", func() bool { return time.Now().After(demo.OpensAt) })
	p := s.person(1)
	try := func(path string, change func(*ticket.Claims)) string {
		t.Helper()
		r := s.do(t.Context(), http.MethodPost, "/s/"+path+"/"+demoSKU, `{}`, map[string]string{
			"Authorization": "Bearer " + p.session, "X-Device-Id": p.device, "Idempotency-Key": "request-00000001", "X-Seckill-Ticket": s.ticketFor(p, change),
			"X-Forwarded-For": fmt.Sprintf("198.51.100.%d", rand.IntN(256)),
		})
		return r.Code
	}
	for name, c := range map[string]struct {
		change func(*ticket.Claims)
		want   string
	}{
		"its own":          {func(*ticket.Claims) {}, "INVALID_ARGUMENT"}, // it passes; the body is none
		"another activity": {func(c *ticket.Claims) { c.ActivityID = "10002" }, "TOKEN_INVALID"},
		"another SKU":      {func(c *ticket.Claims) { c.SKUID = "90002" }, "TOKEN_INVALID"},
		"another user":     {func(c *ticket.Claims) { c.UserID = "7" }, "TOKEN_INVALID"},
		"another device":   {func(c *ticket.Claims) { c.DeviceHash = admission.DeviceHash("device-of-somebody") }, "TOKEN_INVALID"},
		"another path":     {func(c *ticket.Claims) { c.PathID = "path-of-another" }, "TOKEN_INVALID"},
		"out of time": {func(c *ticket.Claims) {
			c.NotBefore = c.NotBefore.Add(-time.Hour)
			c.ExpiresAt = c.ExpiresAt.Add(-time.Hour)
		}, "TOKEN_EXPIRED"},
		"a version ahead": {func(c *ticket.Claims) { c.ActivityVersion++ }, "TOKEN_INVALID"},
	} {
		if got := try(s.path, c.change); got != c.want {
			t.Errorf("a ticket of %s: %s, want %s", name, got, c.want)
		}
	}

	// A new version with a path of its own, while tickets of the old one are under way.
	publish := func(version int64, path string) {
		t.Helper()
		publishDemo(t, s.s, version, path, demo.OpensAt)
	}
	old := func(c *ticket.Claims) { c.ActivityVersion, c.PathID = 1, demo.PathID }
	publish(2, "path-of-version-2")
	for _, path := range []string{demo.PathID, "path-of-version-2"} {
		if got := try(path, old); got != "TOKEN_EXPIRED" {
			t.Errorf("a ticket of the version before at %s: %s, want TOKEN_EXPIRED", path, got)
		}
	}
	publish(3, "path-of-version-2")
	if got := try(demo.PathID, old); got != "TOKEN_INVALID" {
		t.Errorf("a ticket of two versions before: %s, want TOKEN_INVALID", got)
	}
	if got := try("path-nobody-has", func(*ticket.Claims) {}); got != "NOT_FOUND" {
		t.Errorf("a path of no activity: %s", got)
	}
}

// TestW02NothingPersonalIsCached: on the running service, for a stranger and for two people.
func TestW02NothingPersonalIsCached(t *testing.T) {
	s := openSale(t, map[string]string{"demo.opens_in": "10m"}) // nothing opens between two looks
	a, b := s.person(1), s.person(2)
	join := "/v1/activities/" + demoActivity + "/queue/join"
	x, y := s.do(t.Context(), http.MethodPost, join, "", a.headers()), s.do(t.Context(), http.MethodPost, join, "", b.headers())
	if x.Pass == "" || x.Pass == y.Pass {
		t.Errorf("two people have %q and %q", x.Pass, y.Pass)
	}
	poll := "/v1/requests/request-00000001?activity_id=" + demoActivity + "&sku_id=" + demoSKU
	for _, c := range []struct {
		method, path string
		person       map[string]string
		want         int
	}{
		{http.MethodPost, join, a.headers(), 200}, {http.MethodPost, join, nil, 400}, {http.MethodGet, poll, nil, 401}, {http.MethodGet, poll, a.headers(), 404},
		{http.MethodGet, "/v1/orders/5", a.headers(), 404}, {http.MethodGet, "/v1/orders/x", a.headers(), 400}, {http.MethodPost, "/v1/orders/5/cancel", a.headers(), 404},
	} {
		got := s.do(t.Context(), c.method, c.path, "", c.person)
		if got.HTTP != c.want || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d, Cache-Control %q, %s; want %d", c.method, c.path, got.HTTP, got.Header.Get("Cache-Control"), got.Raw, c.want)
		}
	}
	for _, path := range []string{"/v1/activities/" + demoActivity, "/v1/activities/" + demoActivity + "/queue"} {
		mine, theirs, nobodys := s.do(t.Context(), http.MethodGet, path, "", a.headers()), s.do(t.Context(), http.MethodGet, path, "", b.headers()), s.do(t.Context(), http.MethodGet, path, "", nil)
		if !strings.HasPrefix(mine.Header.Get("Cache-Control"), "public") || strings.Contains(mine.Raw, a.user) {
			t.Errorf("%s: %s", path, mine.Raw)
		}
		if plainOf(mine.Raw) != plainOf(theirs.Raw) || plainOf(mine.Raw) != plainOf(nobodys.Raw) {
			t.Errorf("%s differs between people:\n%s\n%s", path, mine.Raw, theirs.Raw)
		}
	}
	if doc := s.do(t.Context(), http.MethodGet, "/v1/activities/"+demoActivity, "", nil); !strings.Contains(doc.Raw, `"draw_commitment":"`) {
		t.Errorf("the activity commits to no draw: %s", doc.Raw)
	}
}

// plainOf is a document without what changes from one moment to the next.
func plainOf(text string) string {
	return regexp.MustCompile(`"(server_time|joined|released|watermark|release_per_s)":("[^"]*"|[0-9.]+)`).ReplaceAllString(text, "")
}

// TestW04PollsAreApart: a crowd of submits behind one address does not hide from its
// people what became of theirs.
func TestW04PollsAreApart(t *testing.T) {
	s := openSale(t, map[string]string{"rules.file": fiveOnly(t)})
	p := s.person(1)
	limited := false
	for range 10 {
		w := httptest.NewRecorder()
		s.s.public.ServeHTTP(w, s.anonymous(func(http.Header) {}))
		limited = limited || w.Code == sourceIsEmpty
	}
	poll := s.do(t.Context(), http.MethodGet, "/v1/requests/request-00000001?activity_id="+demoActivity+"&sku_id="+demoSKU, "", p.headers())
	if !limited || poll.HTTP != http.StatusNotFound {
		t.Errorf("submits limited: %v; the poll: %s", limited, poll.Raw)
	}
}
