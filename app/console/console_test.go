package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

func line(role, token string) string {
	sum := sha256.Sum256([]byte(token))
	return role + " sha256:" + hex.EncodeToString(sum[:])
}

// desk is an admin listener whose functions note what they were asked.
type desk struct {
	t     *testing.T
	deps  Deps
	asked []string
	err   error // of every function
	log   strings.Builder
}

func open(t *testing.T) *desk {
	t.Helper()
	tokens, err := ParseTokens(line("operator", "op") + "\n" + line("viewer", "look"))
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t}
	note := func(format string, args ...any) error {
		d.asked = append(d.asked, fmt.Sprintf(format, args...))
		return d.err
	}
	act := admission.Activity{ID: "10001", Version: 1, Name: "Sale", SKUs: []admission.SKU{{ID: "90001"}}}
	d.deps = Deps{
		Tokens: tokens, Log: slog.New(slog.NewJSONHandler(&d.log, nil)), Now: func() time.Time { return noon },
		Publish: func(_ context.Context, doc []byte) (admission.Activity, []admission.FieldError, error) {
			if strings.Contains(string(doc), "faulty") {
				return act, []admission.FieldError{{Path: "skus[0].stock", Message: "must be more"}, {Path: "name", Message: `is "bad"`}}, nil
			}
			return act, nil, note("publish %d bytes", len(doc))
		},
		End: func(_ context.Context, id string) (admission.Activity, error) {
			ended := act
			ended.Ended = true
			return ended, note("end %s", id)
		},
		List: func(context.Context) ([]admission.Activity, error) { return []admission.Activity{act}, note("list") },
		Tally: func(_ context.Context, ref admission.SKURef) (admission.StockTally, admission.OrderTally, error) {
			return admission.StockTally{}, admission.OrderTally{}, note("tally %s", ref.Tag())
		},
		Rules:       func() any { _ = note("rules"); return map[string]any{"version": 7} },
		RulesStatus: func(context.Context) (any, error) { return map[string]any{"drift": false}, note("status") },
		Bundle:      func() []byte { _ = note("bundle"); return []byte(`{"schema":1}`) },
		Mode:        func() admission.Mode { _ = note("mode"); return admission.ModeDegraded },
		SetMode:     func(m admission.Mode) error { return note("set %s", m) },
		Limiter: func(dim, key string) (any, error) {
			return map[string]string{"key": key}, note("limiter %s %s", dim, key)
		},
		Reset: func(dim, key string) error { return note("reset %s %s", dim, key) },
		Top:   func(n int) any { _ = note("top %d", n); return []int{} },
	}
	return d
}

type got struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func (d *desk) send(method, target, body, authorization string) got {
	d.t.Helper()
	d.asked = nil
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	New(d.deps).ServeHTTP(w, r)
	g := got{status: w.Code, header: w.Header(), text: w.Body.String()}
	_ = json.Unmarshal(w.Body.Bytes(), &g.body)
	return g
}

// routes are all of them, with what a good call asks.
var routes = []struct {
	method, target, body string
	operator             bool
	asks, says           string
}{
	{"GET", "/admin/v1/activities", "", false, "list", `{"activities":[{"activity_id":"10001",`},
	{"GET", "/admin/v1/activities/10001", "", false, "list", `{"activity_id":"10001",`},
	{"GET", "/admin/v1/activities/10001/skus/90001/tally", "", false, "tally {a:10001:s:90001}", `"conserved":true`},
	{"GET", "/admin/v1/rules", "", false, "rules", `{"version":7}`},
	{"GET", "/admin/v1/rules/status", "", false, "status", `{"drift":false}`},
	{"GET", "/admin/v1/rules/bundle", "", false, "bundle", `{"schema":1}`},
	{"GET", "/admin/v1/mode", "", false, "mode", `{"mode":"DEGRADED"}`},
	{"GET", "/admin/v1/limiters/source/2001:db8::1", "", false, "limiter source 2001:db8::1", `"key":"2001:db8::1"`},
	{"GET", "/admin/v1/top", "", false, "top 20", `[]`},
	{"POST", "/admin/v1/activities", `{}`, true, "publish 2 bytes", `{"activity_id":"10001",`},
	{"POST", "/admin/v1/activities/10001/end", "", true, "end 10001", `"ended":true`},
	{"PUT", "/admin/v1/mode", `{"mode":"CLOSED"}`, true, "set CLOSED", `{"mode":"CLOSED"}`},
	{"DELETE", "/admin/v1/limiters/user/10001:90001:7", "", true, "reset user 10001:90001:7", `{"reset":true}`},
}

// TestRoles: nobody without a token, a viewer may look, an operator may act. Nothing is
// asked before the role is known.
func TestRoles(t *testing.T) {
	for _, r := range routes {
		d := open(t)
		for _, c := range []struct {
			authorization string
			want          int
		}{
			{"", 401}, {"Bearer ", 401}, {"Bearer wrong", 401}, {"Bearer op2", 401}, {"Basic op", 401}, {"op", 401}, {"Bearer  op", 401},
			{"Bearer look", map[bool]int{true: 403, false: 200}[r.operator]}, {"Bearer op", 200}, {"bearer op", 200},
		} {
			g := d.send(r.method, r.target, r.body, c.authorization)
			if g.status != c.want || g.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s as %q: %d %s, want %d", r.method, r.target, c.authorization, g.status, g.text, c.want)
			}
			asked := strings.Join(d.asked, " ")
			if c.want == 200 && (asked != r.asks || !strings.Contains(g.text, r.says)) || c.want != 200 && asked != "" {
				t.Errorf("%s %s as %q: asked %q, said %s", r.method, r.target, c.authorization, asked, g.text)
			}
			if c.want == 403 && g.body["code"] != "FORBIDDEN" || c.want == 401 && g.body["code"] != "UNAUTHENTICATED" {
				t.Errorf("%s %s as %q: %s", r.method, r.target, c.authorization, g.text)
			}
		}
	}
	d := open(t)
	r := httptest.NewRequest("GET", "/admin/v1/mode", nil)
	r.Header["Authorization"] = []string{"Bearer op", "Bearer op"}
	w := httptest.NewRecorder()
	if New(d.deps).ServeHTTP(w, r); w.Code != 401 {
		t.Errorf("two Authorization lines: %d", w.Code)
	}
}

// TestFaults: each kind of error has its row, with the reason in words.
func TestFaults(t *testing.T) {
	for _, r := range routes {
		for err, want := range map[error]int{
			fmt.Errorf("no such: %w", admission.ErrNotFound): 404, fmt.Errorf("stock: %w", admission.ErrConflict): 409,
			fmt.Errorf("away: %w", admission.ErrUnavailable): 503, errors.New("anything"): 503,
		} {
			d := open(t)
			d.err = err
			g := d.send(r.method, r.target, r.body, "Bearer op")
			switch r.asks {
			case "rules", "bundle", "mode", "top 20": // cannot fail
				if g.status != 200 {
					t.Errorf("%s: %d", r.target, g.status)
				}
				continue
			}
			if g.status != want || g.body["detail"] != err.Error() {
				t.Errorf("%s %s with %v: %d %s, want %d", r.method, r.target, err, g.status, g.text, want)
			}
			if (g.header.Get("Retry-After") != "") != (want == 503) {
				t.Errorf("%s: Retry-After %q", r.target, g.header.Get("Retry-After"))
			}
		}
	}
}

// TestShape: a refusal has the one shape of the public API, all faults of a document at once.
func TestShape(t *testing.T) {
	g := open(t).send("POST", "/admin/v1/activities", `"faulty"`, "Bearer op")
	for _, name := range []string{"status", "code", "message", "retryable", "next_action", "retry_after_ms", "next_poll_after_ms", "server_time"} {
		if _, ok := g.body[name]; !ok {
			t.Errorf("no %s in %s", name, g.text)
		}
	}
	if want := `"errors":[{"path":"skus[0].stock","message":"must be more"},{"path":"name","message":"is \"bad\""}]`; g.status != 400 || !strings.Contains(g.text, want) {
		t.Errorf("%d %s", g.status, g.text)
	}
}

func TestBodies(t *testing.T) {
	d := open(t)
	if g := d.send("POST", "/admin/v1/activities", strings.Repeat("x", maxDocument), "Bearer op"); g.status != 200 {
		t.Errorf("the longest document: %d %s", g.status, g.text)
	}
	if g := d.send("POST", "/admin/v1/activities", strings.Repeat("x", maxDocument+1), "Bearer op"); g.status != 413 || len(d.asked) != 0 {
		t.Errorf("a byte more: %d, asked %v", g.status, d.asked)
	}
	if g := d.send("POST", "/admin/v1/activities", "", "Bearer op"); g.status != 400 || len(d.asked) != 0 {
		t.Errorf("no document: %d, asked %v", g.status, d.asked)
	}
	for _, body := range []string{
		"", "null", "[]", "{}", "CLOSED", `"CLOSED"`, `{"mode":"closed"}`, `{"mode":""}`, `{"mode":null}`, `{"mode":3}`, `{"Mode":"CLOSED"}`,
		`{"mode":"CLOSED","x":1}`, `{"mode":"NORMAL","mode":"CLOSED"}`, `{"mode":"CLOSED"}{}`, `{"mode":"CLOSED"} x`, `{"mode":"CLOSED"`, `{"mode":{"mode":"CLOSED"}}`,
	} {
		if g := d.send("PUT", "/admin/v1/mode", body, "Bearer op"); g.status != 400 || len(d.asked) != 0 {
			t.Errorf("mode %s: %d %s, asked %v", body, g.status, g.text, d.asked)
		}
	}
	for _, mode := range []string{"NORMAL", "DEGRADED", "QUEUE_ONLY", "CLOSED"} {
		if g := d.send("PUT", "/admin/v1/mode", ` { "mode" : "`+mode+`" } `, "Bearer op"); g.status != 200 || strings.Join(d.asked, "") != "set "+mode {
			t.Errorf("mode %s: %d %s, asked %v", mode, g.status, g.text, d.asked)
		}
	}
}

func TestUnknown(t *testing.T) {
	d := open(t)
	for target, want := range map[string]int{
		"/": 404, "/admin/v1/": 404, "/admin/v1/nothing": 404, "/admin/v1/mode/": 404, "//admin/v1/mode": 404, "/metrics": 404,
		"/admin/v1/activities/10009": 404, "/admin/v1/activities/x/skus/90001/tally": 404, "/admin/v1/activities/10001/skus/0/tally": 404,
		"/admin/v1/activities/10001%2fend": 404, "/admin/v1/pprof/nothing": 404, // pprof says so in plain text
	} {
		if g := d.send("GET", target, "", "Bearer op"); g.status != want || g.body["code"] == nil {
			t.Errorf("%s: %d %s, want %d", target, g.status, g.text, want)
		}
	}
	if g := d.send("PATCH", "/admin/v1/mode", "", "Bearer op"); g.status != 405 || g.header.Get("Allow") == "" {
		t.Errorf("PATCH: %d, Allow %q", g.status, g.header.Get("Allow"))
	}
	d.deps.Rules = func() any { panic("secret") }
	if g := d.send("GET", "/admin/v1/rules", "", "Bearer op"); g.status != 503 || strings.Contains(g.text, "secret") || !strings.Contains(d.log.String(), "secret") {
		t.Errorf("a panic: %d %s", g.status, g.text)
	}
}

// TestParseTokens: what a file may hold, and which line is wrong.
func TestParseTokens(t *testing.T) {
	good := "# people\r\n\n  " + line("operator", "op") + "  \n" + strings.Replace(line("viewer", "look"), " ", "\t", 1) + "\r\n#" + line("viewer", "gone")
	tokens, err := ParseTokens(good)
	if err != nil || tokens.role("op") != RoleOperator || tokens.role("look") != RoleViewer || tokens.role("gone") != RoleNone || tokens.role("") != RoleNone {
		t.Errorf("%v, %v", tokens, err)
	}
	a := line("operator", "op")
	many := strings.Builder{}
	for i := range maxTokens + 1 {
		many.WriteString(line("viewer", fmt.Sprint(i)) + "\n")
	}
	for text, says := range map[string]string{
		"":                                       "no token",
		"# only words\n":                         "no token",
		a + "\nadmin " + a[9:]:                   "line 2: begins with neither",
		"operator":                               "line 1: want",
		"\noperator sha256:":                     "line 2: want",
		"operator " + a[16:]:                     "line 1: want", // no sha256:
		a[:len(a)-1]:                             "line 1: want",
		a + "0":                                  "line 1: want",
		a + " trailing":                          "line 1: want",
		a[:len(a)-1] + "g":                       "line 1: want",
		"Operator" + a[8:]:                       "line 1: begins with neither",
		a + "\n\n" + line("viewer", "op"):        "line 3: is the token of line 1 again",
		line("operator", ""):                     "line 1: is the hash of nothing",
		many.String():                            fmt.Sprintf("line %d: more than %d tokens", maxTokens+1, maxTokens),
		"operator sluice_plain_token_by_mistake": "line 1: want",
	} {
		_, err := ParseTokens(text)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", text, err, says)
		}
		if err != nil && (strings.Contains(err.Error(), a[20:40]) || strings.Contains(err.Error(), "plain_token")) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}
