package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/app/exit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is a tiny sale in memory that keeps the contract, but for the one fault that it is told to have. It
// exists so that the verdict can be seen to fail.
type instance struct {
	fault string

	mu      sync.Mutex
	offer   published
	left    int64
	joined  map[string]int64
	ranks   map[string]int
	holds   map[string]*held // by user
	orders  int64
	nextRsv int
}

type published struct {
	ActivityID string    `json:"activity_id"`
	OpensAt    time.Time `json:"opens_at"`
	SKUs       []struct {
		ID    string `json:"sku_id"`
		Stock int64  `json:"stock"`
	} `json:"skus"`
}

type held struct {
	request, rsv, order string
	polls               int
}

const path = "p_1234567890"

func (i *instance) say(w http.ResponseWriter, o admission.Outcome, more map[string]any) {
	r := o.Row()
	m := map[string]any{
		"status": r.Status, "code": r.Code, "message": r.English, "retryable": r.Retryable, "next_action": r.NextAction,
		"next_poll_after_ms": 100, "retry_after_ms": 0, "server_time": time.Now().UTC().Format(time.RFC3339Nano),
	}
	if r.Retryable {
		m["retry_after_ms"] = 300
		w.Header().Set("Retry-After", "1")
	}
	if i.fault == "wrong row" && o == admission.SoldOut {
		m["next_action"] = "POLL"
	}
	for k, v := range more {
		m[k] = v
	}
	i.write(w, r.HTTP, m, "no-store")
}

func (i *instance) write(w http.ResponseWriter, code int, v any, cache string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", cache)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	part := strings.Split(r.URL.Path, "/")
	switch {
	case r.Method == "POST" && r.URL.Path == "/admin/v1/activities":
		_ = json.Unmarshal(body, &i.offer)
		i.left = i.offer.SKUs[0].Stock
		i.write(w, 200, i.offer, "no-store")
	case strings.HasSuffix(r.URL.Path, "/tally"):
		i.write(w, 200, i.tally(), "no-store")
	case r.Method == "GET" && len(part) == 4 && part[2] == "activities":
		i.write(w, 200, map[string]any{
			"activity_id": i.offer.ActivityID, "activity_version": 1, "path_id": path, "name": "n", "opens_at": i.offer.OpensAt, "closes_at": i.offer.OpensAt.Add(time.Hour),
			"server_time": time.Now(), "fairness": map[string]any{"mode": "random"}, "skus": i.offer.SKUs,
		}, "public, max-age=5")
	case strings.HasSuffix(r.URL.Path, "/queue"):
		i.write(w, 200, i.queue(), "public, max-age=1")
	case strings.HasSuffix(r.URL.Path, "/join"):
		if i.joined[user] == 0 {
			i.joined[user], i.ranks[user] = time.Now().UnixMilli(), len(i.joined)
		}
		i.write(w, 200, map[string]any{"pass": user + "/" + r.Header.Get("X-Device-Id"), "state": "OPEN", "lane": "default", "joined_ms": i.joined[user], "next_poll_after_ms": 500, "rank": i.ranks[user]}, "no-store")
	case strings.HasSuffix(r.URL.Path, "/tickets"):
		i.ticket(w, r, user)
	case part[1] == "s":
		i.submit(w, r, user, part, string(body))
	case strings.HasPrefix(r.URL.Path, "/v1/requests/"):
		i.request(w, user, part[3])
	default:
		i.say(w, admission.NotFound, nil)
	}
}

func (i *instance) open() bool    { return !time.Now().Before(i.offer.OpensAt) }
func (i *instance) soldOut() bool { return i.left <= 0 && i.fault != "oversell" || i.orders >= 100 }

func (i *instance) queue() map[string]any {
	state, watermark := "PREQUEUE", uint64(0)
	switch {
	case i.open() && i.soldOut():
		state = "SOLD_OUT"
	case i.open():
		state, watermark = "OPEN", 1<<53-1
		if i.fault == "units kept" {
			watermark = 10
		}
	}
	return map[string]any{
		"activity_id": i.offer.ActivityID, "activity_version": 1, "state": state, "opens_at": i.offer.OpensAt, "server_time": time.Now(),
		"lanes": []any{map[string]any{"lane": "default", "watermark": watermark}}, "poll_after_ms": map[string]int{"low": 100, "high": 300},
		"draw_closes_at": i.offer.OpensAt, "draw": map[string]any{},
	}
}

func (i *instance) ticket(w http.ResponseWriter, r *http.Request, user string) {
	switch {
	case !i.open():
		i.say(w, admission.QueueWaiting, nil)
	case i.soldOut() && i.holds[user] == nil:
		i.say(w, admission.SoldOut, nil)
	case i.fault == "honest refused":
		i.say(w, admission.TokenInvalid, nil)
	default:
		id := "req_" + user
		i.write(w, 200, map[string]any{
			"ticket": "h." + user + "/" + r.Header.Get("X-Device-Id") + ".0123456789012345678901234567890123456789012", "request_id": id, "path_id": path, "nonce": "n_" + id, "expires_at": time.Now().Add(time.Minute),
		}, "no-store")
	}
}

func (i *instance) submit(w http.ResponseWriter, r *http.Request, user string, part []string, body string) {
	id := r.Header.Get("Idempotency-Key")
	echo := map[string]any{"request_id": id}
	good := "h." + user + "/" + r.Header.Get("X-Device-Id") + ".0123456789012345678901234567890123456789012"
	h := i.holds[user]
	switch {
	case part[2] != path || part[3] != i.offer.SKUs[0].ID:
		i.say(w, admission.NotFound, nil)
	case r.Header.Get("X-Seckill-Ticket") != good && i.fault != "forgery admitted":
		i.say(w, admission.TokenInvalid, echo)
	case h != nil && h.request == id:
		echo["reservation_id"], echo["status"] = h.rsv, "QUEUED"
		i.say(w, admission.Replayed, echo)
	case h != nil && i.fault != "replay admitted":
		echo["existing_request_id"] = h.request
		i.say(w, admission.ReplayRejected, echo)
	case i.soldOut() && (h == nil || i.fault != "replay admitted"):
		i.say(w, admission.SoldOut, echo)
	case body != fmt.Sprintf(`{"request_id":%q,"activity_id":%q,"sku_id":%q,"quantity":1}`, id, i.offer.ActivityID, part[3]):
		i.say(w, admission.InvalidArgument, echo)
	default:
		i.left--
		i.nextRsv++
		rsv := fmt.Sprintf("r_%d", i.nextRsv)
		if h == nil {
			i.orders++
			i.holds[user] = &held{id, rsv, fmt.Sprint(1000 + i.orders), 0}
		}
		echo["reservation_id"] = rsv
		i.say(w, admission.Queued, echo)
	}
}

func (i *instance) request(w http.ResponseWriter, user, id string) {
	h := i.holds[user]
	if h == nil || h.request != id || i.fault == "lost" {
		i.say(w, admission.NotFound, map[string]any{"request_id": id})
		return
	}
	m := map[string]any{"request_id": id, "reservation_id": h.rsv}
	if h.polls++; h.polls == 1 || i.fault == "never decided" {
		i.say(w, admission.PollQueued, m)
		return
	}
	if m["order_id"] = h.order; i.fault == "two orders" {
		m["order_id"] = "4242" // everybody's
	}
	i.say(w, admission.PollOrderCreated, m)
}

func (i *instance) tally() Tally {
	total := i.offer.SKUs[0].Stock
	t := Tally{Conserved: true}
	t.Stock = admission.StockTally{Total: total, Remaining: max(0, i.left), Created: min(i.orders, total)}
	t.Stock.Remaining = total - t.Stock.Created
	t.Orders = admission.OrderTally{Total: total, Sold: i.orders, Created: i.orders, Users: i.orders}
	if i.fault == "not conserved" {
		t.Stock.Remaining += 3
	}
	return t
}

func start(t *testing.T, fault string) Target {
	t.Helper()
	s := httptest.NewServer(&instance{fault: fault, joined: map[string]int64{}, ranks: map[string]int{}, holds: map[string]*held{}})
	t.Cleanup(s.Close)
	return Target{Public: []string{s.URL}, Admin: s.URL, Token: "t", Sign: func(user string, _ time.Time) (string, error) { return user, nil }}
}

func play(t *testing.T, target Target, change func(*Config)) *Report {
	t.Helper()
	c := Config{Target: target, Users: 120, Hostile: 30, Stock: 30, OpensIn: 2 * time.Second, Stall: 30 * time.Second, Timeout: 3 * time.Minute, Seed: 42}
	if change != nil {
		change(&c)
	}
	report, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Table(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	return report
}

func TestSale(t *testing.T) {
	t.Parallel()
	r := play(t, start(t, ""), nil)
	if !r.OK || r.Sold != 30 || r.Orders != 30 || r.Told != 30 || r.SoldInMS == nil || !r.Conserved || r.Waiting != 0 {
		t.Errorf("%+v", r)
	}
	for _, k := range hostileKinds {
		if r.Hostile[k] == nil || r.Hostile[k].People == 0 {
			t.Errorf("%s: nobody came", k)
		}
	}
	for _, k := range []Kind{Forger, Thief, WrongPath, Hammer} {
		if r.Hostile[k].Attempts == 0 || r.Hostile[k].Admitted != 0 {
			t.Errorf("%s: %+v", k, r.Hostile[k])
		}
	}
}

func TestVerdictSeesABrokenService(t *testing.T) {
	for fault, rule := range map[string]string{
		"oversell":         "no oversell",
		"two orders":       "an order belongs to one person",
		"wrong row":        "contract: submit",
		"forgery admitted": "hostile attempts are not admitted",
		"replay admitted":  "hostile attempts are not admitted",
		"lost":             "every reservation comes to an end",
		"not conserved":    "conservation",
		"units kept":       "units are sold while people wait",
		"honest refused":   "an honest person is not refused like a hostile one",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := play(t, start(t, fault), func(c *Config) {
				if fault == "lost" || fault == "units kept" {
					c.Stall = 4 * time.Second // these sales come to no end
				}
				if fault == "replay admitted" {
					c.Users, c.Stock = 90, 90 // everybody holds a unit, so everybody who replays does
				}
			})
			found := false
			for _, v := range r.Violations {
				found = found || v.Rule == rule
			}
			if r.OK || !found {
				t.Errorf("%q is not among %+v", rule, r.Violations)
			}
		})
	}
}

// An instance that dies takes its people to the other one, and is no violation.
func TestInstanceDies(t *testing.T) {
	t.Parallel()
	shared := &instance{joined: map[string]int64{}, ranks: map[string]int{}, holds: map[string]*held{}}
	a, b := httptest.NewServer(shared), httptest.NewServer(shared)
	t.Cleanup(a.Close)
	target := Target{Public: []string{a.URL, b.URL}, Admin: a.URL, Token: "t", Sign: func(user string, _ time.Time) (string, error) { return user, nil }}
	var once sync.Once
	r := play(t, target, func(c *Config) {
		c.Users = 400
		c.Progress = func(p Progress) {
			if p.Joined > 100 {
				once.Do(func() { b.CloseClientConnections(); b.Close() })
			}
		}
	})
	if !r.OK || r.Sold != 30 {
		t.Errorf("violations %+v", r.Violations)
	}
	faults := int64(0)
	for _, c := range r.Calls {
		for _, n := range c.Faults {
			faults += n
		}
	}
	if faults == 0 {
		t.Error("nobody met the dead instance")
	}
}

func TestNobodyThere(t *testing.T) {
	dir := t.TempDir()
	command := func(args ...string) error {
		cmd := Command(Env{Getenv: func(string) string { return "" }})
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors = true
		return cmd.ExecuteContext(context.Background())
	}
	if err := command("--data.dir", dir); exit.Of(err) != exit.Away || !strings.Contains(err.Error(), "sluice serve") {
		t.Errorf("no ready.json: %v", err)
	}
	if err := command("--bogus"); exit.Of(err) != exit.Usage {
		t.Errorf("unknown flag: %v", err)
	}
	if err := command("--data.dir", dir, "--target", "http://127.0.0.1:1"); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("no admin: %v", err)
	}
	write(t, filepath.Join(dir, readyFile), `{"event":"ready","public":"127.0.0.1:1","admin":"127.0.0.1:1"}`)
	if err := command("--data.dir", dir); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--admin-token-file") {
		t.Errorf("no token: %v", err)
	}
	write(t, filepath.Join(dir, tokenFile), "secret\n")
	if err := command("--data.dir", dir); exit.Of(err) != exit.Away {
		t.Errorf("nobody listens: %v", err)
	}
	if err := command("--data.dir", dir, "--users", "0"); exit.Of(err) != exit.Usage {
		t.Errorf("no users: %v", err)
	}
	if err := command("--data.dir", dir, "--session-keys", filepath.Join(dir, "none.json")); exit.Of(err) != exit.Usage {
		t.Errorf("no such key file: %v", err)
	}
}

// TestAnAdminTokenThatIsRefused: the words say which flag to give, and no body is dumped.
func TestAnAdminTokenThatIsRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"code":"UNAUTHENTICATED"}`)
	}))
	defer s.Close()
	a := admin{base: s.URL, token: "wrong", http: s.Client()}
	err := a.call(t.Context(), http.MethodGet, "/admin/v1/activities", nil, nil)
	if exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--admin-token-file") || strings.Contains(err.Error(), "{") {
		t.Errorf("exit code %d: %v", exit.Of(err), err)
	}
}

// TestProgressCountsEveryFault: the line and the verdict count the same.
func TestProgressCountsEveryFault(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.calls[client.CallQueue] = &callFacts{faults: map[string]int64{"refused": 13}}
	l.calls[client.CallJoin] = &callFacts{faults: map[string]int64{"refused": 4}}
	r := &run{ledger: l, edge: &edge{}}
	if p := r.progress(); p.Faulted != 17 {
		t.Errorf("%d faults in the progress, want 17", p.Faulted)
	}
}

func TestCommandJudges(t *testing.T) {
	t.Parallel()
	target := start(t, "not conserved")
	dir := t.TempDir()
	write(t, filepath.Join(dir, tokenFile), "secret")
	write(t, filepath.Join(dir, sessionKeysFile), `{"keys":[{"kty":"oct","kid":"s","alg":"HS256","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}`)
	cmd := Command(Env{Getenv: func(string) string { return "" }})
	var out, progress bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&progress)
	cmd.SilenceErrors = true
	file := filepath.Join(dir, "verdict.json")
	cmd.SetArgs([]string{"--data.dir", dir, "--target", target.Public[0], "--admin", target.Admin, "--users", "20", "--stock", "3", "--opens-in", "2s", "--json", file})
	if err := cmd.ExecuteContext(context.Background()); exit.Of(err) != exit.No {
		t.Errorf("error %v, want a no", err)
	}
	if !strings.Contains(out.String(), "Verdict: ") || !strings.Contains(progress.String(), "joined ") {
		t.Errorf("printed\n%s\n%s", out.String(), progress.String())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil || r.OK || len(r.Violations) == 0 || r.Stock != 3 {
		t.Errorf("%v: %s", err, raw)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
