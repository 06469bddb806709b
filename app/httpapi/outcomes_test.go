package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-io/sluice/app/admission"
)

// tableRow is a line of an outcome table in a document.
type tableRow struct {
	http              int
	code, status, act string
	retryable         bool
}

// markdownRows reads the outcome table of a document. A line with several codes is as many rows.
func markdownRows(t *testing.T, text string) []tableRow {
	t.Helper()
	_, table, found := strings.Cut(text, "| HTTP | code | status |")
	if !found {
		t.Fatal("no outcome table")
	}
	var rows []tableRow
	for i, line := range strings.Split(table, "\n") {
		if i < 2 { // the rest of the heading, the rule
			continue
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if len(cells) != 6 {
			t.Fatalf("row of %d cells: %s", len(cells), line)
		}
		codes := strings.Split(cells[1], ", ")
		statuses := strings.Fields(cells[0])
		if len(codes) != len(statuses) {
			t.Fatalf("%d codes for %d statuses: %s", len(codes), len(statuses), line)
		}
		for j, code := range codes {
			status, err := strconv.Atoi(statuses[j])
			if err != nil {
				t.Fatal(err)
			}
			row := tableRow{status, code, cells[2], cells[4], cells[5] == "yes"}
			if row.status == "the request's current status" {
				row.status = ""
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// arrayRows is the outcome array as a table.
func arrayRows() []tableRow {
	var rows []tableRow
	for o := admission.Pass + 1; o < admission.Outcomes; o++ {
		r := o.Row()
		rows = append(rows, tableRow{r.HTTP, r.Code, string(r.Status), string(r.NextAction), r.Retryable})
	}
	return rows
}

func compareRows(t *testing.T, name string, want, have []tableRow) {
	t.Helper()
	key := func(a, b tableRow) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(want, key)
	slices.SortFunc(have, key)
	for _, r := range want {
		if !slices.Contains(have, r) {
			t.Errorf("%s has a row that no outcome has: %+v", name, r)
		}
	}
	for _, r := range have {
		if !slices.Contains(want, r) {
			t.Errorf("an outcome is not in %s: %+v", name, r)
		}
	}
	if len(want) != len(have) {
		t.Errorf("%s has %d rows, the array %d", name, len(want), len(have))
	}
}

// TestOutcomesAreTheReadmesTable ties the array to what people read.
func TestOutcomesAreTheReadmesTable(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	compareRows(t, "README.md", markdownRows(t, string(text)), arrayRows())
}

// TestOutcomesAreTheSpecifications compares with the wire contract, where it lies beside the tree.
func TestOutcomesAreTheSpecifications(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../../shared/spec/10-http-api.md"))
	if os.IsNotExist(err) {
		t.Skip("the specification is not beside this tree; README.md has the same table")
	}
	if err != nil {
		t.Fatal(err)
	}
	rows := markdownRows(t, string(text))
	_, polls, found := strings.Cut(string(text), "Poll rows, all 200 (status / code / next_action): ")
	if !found {
		t.Fatal("no poll rows")
	}
	line := regexp.MustCompile(`([A-Z_]+) / ([A-Z_]+) / ([A-Z_]+)`)
	for _, m := range line.FindAllStringSubmatch(polls, 6) {
		rows = append(rows, tableRow{200, m[2], m[1], m[3], false})
	}
	compareRows(t, "10-http-api.md", rows, arrayRows())
}

// TestEveryOutcomeRendered: each row reaches the wire as it stands in the array, private,
// with the waits that belong to it.
func TestEveryOutcomeRendered(t *testing.T) {
	r := NewRenderer(func() time.Time { return noon }, func() float64 { return 0.999 })
	for o := admission.Pass + 1; o < admission.Outcomes; o++ {
		row := o.Row()
		t.Run(fmt.Sprint(o, "/", row.NextAction), func(t *testing.T) {
			if row.English == "" || row.Chinese == "" {
				t.Error("a message is missing")
			}
			w := httptest.NewRecorder()
			r.Write(w, httptest.NewRequest("POST", "/", nil), Answer{Outcome: o, RequestID: goodRequest, Current: admission.PollOrderPaid})
			g := read(t, w.Result())
			status := string(row.Status)
			if o == admission.Replayed {
				status = "PAID"
			}
			if g.HTTP != row.HTTP || g.str("code") != row.Code || g.str("status") != status || g.str("next_action") != string(row.NextAction) || g.JSON["retryable"] != row.Retryable {
				t.Errorf("got %d %s", g.HTTP, g.Body)
			}
			if g.str("message") != row.English || g.str("request_id") != goodRequest || g.str("server_time") != "2026-11-11T12:00:00.123Z" {
				t.Errorf("got %s", g.Body)
			}
			if g.Header.Get("Cache-Control") != "no-store" || g.Header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("headers %v", g.Header)
			}
			if scheme := g.Header.Get("WWW-Authenticate"); (scheme == "Bearer") != (row.HTTP == 401) {
				t.Errorf("WWW-Authenticate %q", scheme)
			}
			for _, absent := range []string{"existing_request_id", "reservation_id", "order_id", "rank", "wait_ms", "unlikely", "challenge", "field", "errors"} {
				if _, ok := g.JSON[absent]; ok {
					t.Errorf("%s is there though empty", absent)
				}
			}
			ms := g.num("retry_after_ms")
			wantHeader := ""
			if ms > 0 {
				wantHeader = strconv.FormatInt((ms+999)/1000, 10)
			}
			if h := g.Header.Get("Retry-After"); h != wantHeader {
				t.Errorf("Retry-After %q for %d ms", h, ms)
			}
			mayWait := row.HTTP == 429 || row.HTTP == 503 || o == admission.ActivityNotOpen || o == admission.QueueWaiting
			if mayWait != (ms > 0) {
				t.Errorf("retry_after_ms %d", ms)
			}
		})
	}
}

// TestL02RetryAfter: whole seconds, at least one, never less than the true wait; spread
// for those who were refused together; thirty flat when closed.
func TestL02RetryAfter(t *testing.T) {
	for _, c := range []struct {
		outcome admission.Outcome
		wait    time.Duration
		jitter  float64
		ms      int64
		header  string
	}{
		{admission.RateLimited, 1, 0, 1, "1"},                                    // a nanosecond is a millisecond, is a second
		{admission.RateLimited, time.Second, 0, 1000, "1"},                       //
		{admission.RateLimited, time.Second + 1, 0, 1001, "2"},                   // rounded up, twice
		{admission.RateLimited, time.Second, 0.5, 1050, "2"},                     // a tenth, half of it
		{admission.RateLimited, 10 * time.Millisecond, 0.5, 35, "1"},             // 50 ms at the least
		{admission.Overloaded, 0, 0, 1000, "1"},                                  // knows no time
		{admission.Overloaded, 10 * time.Second, 0.9, 10900, "11"},               //
		{admission.ActivityNotOpen, time.Hour, 0.99, 3600000 + 1980, "3602"},     // nobody comes minutes late
		{admission.OverloadedClosed, 0, 0.9, 30000, "30"},                        //
		{admission.OverloadedClosed, time.Second, 0.9, 30000, "30"},              //
		{admission.DependencyUnavailable, 1500 * time.Millisecond, 0, 1500, "2"}, //
		{admission.SoldOut, 0, 0.9, 0, ""},                                       //
		{admission.RateLimited, -time.Second, 0, 1000, "1"},                      // never negative
		{admission.RateLimited, 1<<63 - 1, 0.9, 7776000000 + 1800, "7776002"},    // nor does it wrap
	} {
		w := httptest.NewRecorder()
		NewRenderer(func() time.Time { return noon }, func() float64 { return c.jitter }).
			Write(w, httptest.NewRequest("GET", "/", nil), Answer{Outcome: c.outcome, RetryAfter: c.wait})
		if g := read(t, w.Result()); g.num("retry_after_ms") != c.ms || g.Header.Get("Retry-After") != c.header {
			t.Errorf("%s after %s, jitter %v: %d ms, header %q; want %d, %q", c.outcome, c.wait, c.jitter, g.num("retry_after_ms"), g.Header.Get("Retry-After"), c.ms, c.header)
		}
	}
}

func TestLanguage(t *testing.T) {
	for header, chinese := range map[string]bool{
		"": false, "zh": true, "zh-CN,zh;q=0.9,en;q=0.8": true, "en,zh": false, "zh,en": true, "en;q=0.5, zh": true, "zh;q=0.1,en": false,
		"fr, zh-Hans;q=0.3": true, "fr": false, "*": false, "*, zh;q=0.5": false, "ZH-tw": true, "zh;q=0": false, "zhx": false, "zh;q=nan, en": true,
		"zh;q=2": true, ",,,": false, "en-GB;q=0.7, zh;q=0.7": false,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		if header != "" {
			r.Header.Set("Accept-Language", header)
		}
		NewRenderer(func() time.Time { return noon }, func() float64 { return 0 }).Write(w, r, Answer{Outcome: admission.SoldOut})
		want := admission.SoldOut.Row().English
		if chinese {
			want = admission.SoldOut.Row().Chinese
		}
		if g := read(t, w.Result()); g.str("message") != want {
			t.Errorf("Accept-Language %q: %s", header, g.str("message"))
		}
	}
}

// TestStandings: a rank comes with a wait, or with "unlikely" and no wait; without a draw
// there is neither.
func TestStandings(t *testing.T) {
	for _, c := range []struct {
		standing admission.Standing
		want     string
	}{
		{admission.Standing{}, ``},
		{admission.Standing{Drawn: true, Rank: 1<<53 - 1, Place: 3, WaitLow: time.Second, WaitHigh: 2500 * time.Millisecond}, `"rank":9007199254740991,"place":3,"wait_ms":{"low":1000,"high":2500},`},
		{admission.Standing{Drawn: true, Rank: 5}, `"rank":5,"place":0,"wait_ms":{"low":0,"high":0},`},
		{admission.Standing{Drawn: true, Rank: 5, Place: 9, Unlikely: true}, `"rank":5,"place":9,"unlikely":true,`},
	} {
		if b := string(appendStanding(nil, c.standing)); b != c.want {
			t.Errorf("%+v: %s, want %s", c.standing, b, c.want)
		}
	}
}

// TestPaceGrowsWithPollers: with ten times as many pollers as wanted everybody is told
// ten times as long, within a second, and the hint comes back when they leave.
func TestPaceGrowsWithPollers(t *testing.T) {
	var p pace
	const pollers = 4 * pollsPerSecond * int(firstPoll/(100*time.Millisecond)) / 10 // 2 times at the first hint
	hint, now := firstPoll, noon
	for range 20 { // seconds
		polls := int(float64(pollers) * float64(time.Second) / float64(hint))
		var first time.Duration
		for i := range polls {
			if h := p.next(now); i == 0 {
				first = h
			}
		}
		hint, now = first, now.Add(time.Second)
	}
	perSecond := float64(pollers) * float64(time.Second) / float64(hint)
	if perSecond > 1.1*pollsPerSecond || hint <= firstPoll {
		t.Errorf("%d pollers settle at a hint of %s: %.0f polls a second, want %d", pollers, hint, perSecond, pollsPerSecond)
	}
	if h := p.next(now.Add(time.Minute)); h != firstPoll {
		t.Errorf("after a quiet minute the hint is %s, want %s", h, firstPoll)
	}
	for range 100 * pollsPerSecond {
		if h := p.next(now.Add(time.Minute)); h > longestPoll {
			t.Fatalf("a hint of %s", h)
		}
	}
}

// FuzzAppendString: what is written reads back as what it was, whatever it was.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", `"quoted"\`, "a\nb\x00\x7f", "</script>&", "汉字\u2028", "\xff\xfe", "\U0001f600"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%q became %s: %v", s, b, err)
		}
		if utf8.ValidString(s) && back != s {
			t.Errorf("%q came back as %q", s, back)
		}
		if strings.ContainsAny(string(b), "<>&\x00\n\u2028\u2029") {
			t.Errorf("%q is written as %s", s, b)
		}
	})
}
