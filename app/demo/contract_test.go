package demo

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/client"
)

// answerOf is an exchange that is exactly the outcome's row.
func answerOf(call client.Call, o admission.Outcome, change map[string]any) client.Exchange {
	r := o.Row()
	m := map[string]any{
		"request_id": "req-00000001", "status": string(r.Status), "code": r.Code, "message": r.English, "retryable": r.Retryable,
		"next_action": string(r.NextAction), "next_poll_after_ms": 0, "retry_after_ms": 0, "server_time": "2026-11-11T00:00:00.000Z",
		"reservation_id": "r_1", "order_id": "9", "existing_request_id": "req-00000002",
	}
	h := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Cache-Control": {"no-store"}}
	if r.Retryable || r.HTTP == 503 { // CLOSED says when to look again, too
		m["retry_after_ms"] = 1200
		h.Set("Retry-After", "2")
	}
	if o == admission.Replayed {
		m["status"] = "QUEUED"
	}
	maps.Copy(m, change)
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
	}
	body, _ := json.Marshal(m)
	return client.Exchange{Call: call, RequestID: "req-00000001", HTTP: r.HTTP, Header: h, Body: body}
}

func callOf(o admission.Outcome) client.Call {
	switch {
	case poll(o):
		return client.CallRequest
	case o == admission.QueueWaiting:
		return client.CallTicket
	default:
		return client.CallSubmit
	}
}

func TestContractTakesEveryRow(t *testing.T) {
	c := newContract()
	for o := admission.Pass + 1; o < admission.Outcomes; o++ {
		row, wrong := c.check(answerOf(callOf(o), o, nil))
		if wrong != "" || row.Row() != o.Row() {
			t.Errorf("outcome %d %v: read as %v, %q", o, o, row, wrong)
		}
	}
}

func TestContractRefuses(t *testing.T) {
	c := newContract()
	with := func(x client.Exchange, f func(*client.Exchange)) client.Exchange { f(&x); return x }
	header := func(name, value string) func(*client.Exchange) {
		return func(x *client.Exchange) { x.Header.Set(name, value) }
	}
	queued, limited := answerOf(client.CallSubmit, admission.Queued, nil), func() client.Exchange { return answerOf(client.CallSubmit, admission.RateLimited, nil) }
	for name, x := range map[string]client.Exchange{
		"wrong HTTP":           with(queued, func(x *client.Exchange) { x.HTTP = 200 }),
		"wrong status":         answerOf(client.CallSubmit, admission.Queued, map[string]any{"status": "SOLD_OUT"}),
		"wrong action":         answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"next_action": "POLL"}),
		"wrong retryable":      answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"retryable": true}),
		"unknown code":         answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"code": "GONE"}),
		"no retryable":         answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"retryable": nil}),
		"no message":           answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"message": ""}),
		"no server_time":       answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"server_time": nil}),
		"a number as code":     answerOf(client.CallSubmit, admission.SoldOut, map[string]any{"code": 7}),
		"no reservation":       answerOf(client.CallSubmit, admission.Queued, map[string]any{"reservation_id": nil}),
		"someone else's id":    answerOf(client.CallSubmit, admission.Queued, map[string]any{"request_id": "req-99999999"}),
		"replayed waiting":     answerOf(client.CallSubmit, admission.Replayed, map[string]any{"status": "WAITING"}),
		"replay without which": answerOf(client.CallSubmit, admission.ReplayRejected, map[string]any{"existing_request_id": nil}),
		"bought without which": answerOf(client.CallSubmit, admission.AlreadyPurchased, map[string]any{"existing_request_id": nil}),
		"order without id":     answerOf(client.CallRequest, admission.PollOrderCreated, map[string]any{"order_id": nil}),
		"a 202 on a poll":      answerOf(client.CallRequest, admission.Queued, nil),
		"a poll on a submit":   answerOf(client.CallSubmit, admission.PollOrderCreated, nil),
		"waiting on a submit":  answerOf(client.CallSubmit, admission.QueueWaiting, nil),
		"429 without a wait":   with(limited(), func(x *client.Exchange) { x.Header.Del("Retry-After") }),
		"wait too short":       with(limited(), header("Retry-After", "1")),
		"wait of zero":         with(limited(), header("Retry-After", "0")),
		"wait of a fraction":   with(limited(), header("Retry-After", "1.5")),
		"cacheable":            with(limited(), header("Cache-Control", "public, max-age=60")),
		"not JSON":             with(limited(), header("Content-Type", "text/html")),
		"HTML":                 with(limited(), func(x *client.Exchange) { x.Body = []byte("<html>") }),
		"a pass without lane":  {Call: client.CallJoin, HTTP: 200, Header: limited().Header, Body: []byte(`{"pass":"p","state":"OPEN","joined_ms":1,"next_poll_after_ms":1}`)},
	} {
		if _, wrong := c.check(x); wrong == "" {
			t.Errorf("%s was taken: %s", name, x.Body)
		}
	}
}

func TestLedgerTellsWhatItHeard(t *testing.T) {
	l, p := newLedger(), &person{kind: Honest, Person: client.Person{UserID: "1"}}
	tell := func(user, request, rsv, order string, o admission.Outcome) {
		x := answerOf(callOf(o), o, map[string]any{"request_id": request, "reservation_id": rsv, "order_id": order})
		x.UserID, x.RequestID = user, request
		l.observe(p, x)
	}
	tell("1", "req-00000001", "r_1", "", admission.Queued)
	tell("1", "req-00000001", "r_1", "", admission.Replayed)
	tell("1", "req-00000001", "r_1", "9", admission.PollOrderCreated)
	tell("2", "req-00000002", "r_2", "", admission.Queued)
	if v := l.violations(); len(v) != 0 {
		t.Fatalf("violations of a good sale: %+v", v)
	}
	if open := l.open(); len(open) != 1 || open[0].requestID != "req-00000002" {
		t.Errorf("open: %+v, want the second alone", open)
	}
	tell("2", "req-00000002", "r_2", "", admission.Queued) // the twin
	tell("3", "req-00000003", "r_2", "9", admission.PollOrderCreated)
	var rules []string
	for _, v := range l.violations() {
		rules = append(rules, v.Rule)
	}
	if got := strings.Join(rules, "\n"); !strings.Contains(got, "one 202") || !strings.Contains(got, "a reservation belongs") || !strings.Contains(got, "an order belongs") {
		t.Errorf("violations:\n%s", got)
	}
}

func TestJudge(t *testing.T) {
	good := func() seen {
		s := seen{stock: 2, holders: map[string]map[string]string{}, orders: map[string]map[string]bool{}}
		for i := range 2 {
			user := fmt.Sprint(i + 1)
			s.accepted = append(s.accepted, accepted{person: client.Person{UserID: user}, requestID: "q" + user, answer: client.Answer{Status: client.StatusOrderCreated}})
			s.holders[user] = map[string]string{"r_" + user: "q" + user}
			s.orders[user] = map[string]bool{"o" + user: true}
		}
		s.tally.Stock = admission.StockTally{Total: 2, Created: 2}
		s.tally.Orders = admission.OrderTally{Total: 2, Sold: 2, Created: 2, Users: 2}
		s.tally.Conserved = true
		return s
	}
	if v := judge(good()); len(v) != 0 {
		t.Fatalf("a good sale is judged %+v", v)
	}
	for rule, breakIt := range map[string]func(*seen){
		"one reservation per person": func(s *seen) { s.holders["1"]["r_9"] = "q9" },
		"one order per person":       func(s *seen) { s.orders["1"]["o9"] = true },
		"no oversell": func(s *seen) {
			s.accepted = append(s.accepted, accepted{answer: client.Answer{Status: client.StatusPaid}})
		},
		"every reservation comes to an end": func(s *seen) { s.accepted[0].answer.Status = client.StatusQueued },
		"the stores can be counted":         func(s *seen) { s.tallyFailed = http.ErrServerClosed },
		"conservation":                      func(s *seen) { s.tally.Stock.Remaining = 1 },
		"stock store and SQL agree":         func(s *seen) { s.tally.Orders.Created, s.tally.Orders.Users = 1, 1; s.orders = nil },
		"an order that somebody was told of is in SQL": func(s *seen) {
			s.tally.Orders.Created, s.tally.Orders.Users = 1, 1
		},
		"units are sold while people wait": func(s *seen) {
			s.waiting, s.tally.Stock.Remaining, s.tally.Stock.Created = 5, 1, 1
		},
	} {
		s := good()
		breakIt(&s)
		found := false
		for _, v := range judge(s) {
			found = found || v.Rule == rule
		}
		if !found {
			t.Errorf("%s: not seen in %+v", rule, judge(s))
		}
	}
	failed := good()
	failed.accepted = append(failed.accepted, accepted{answer: client.Answer{Status: client.StatusFailed, Code: "NO_CAPACITY"}})
	if v := judge(failed); len(v) != 0 {
		t.Errorf("a documented failure is judged %+v", v)
	}
}

func TestParseCounters(t *testing.T) {
	got := parseCounters("# HELP a_total x\na_total{r=\"x\"} 2\na_total{r=\"} 9\"} 3\na_total_more 7\nb 4.5\n", "a_total", "b")
	if got["a_total"] != 5 || got["b"] != 4.5 {
		t.Errorf("%v", got)
	}
}

func TestCrowd(t *testing.T) {
	c := newCrowd(7, 50_000, 5)
	users, addresses, kinds := map[string]bool{}, map[string]bool{}, map[Kind]int{}
	left := 0
	for i := range c.users {
		p := c.person(i)
		users[p.UserID], addresses[p.Address] = true, true
		kinds[p.kind]++
		if p.leave != "" {
			left++
		}
		if !admission.ValidDecimal(p.UserID) || !admission.ValidDeviceID(p.Device) || len(p.UserID) != 19 {
			t.Fatalf("%+v", p.Person)
		}
	}
	if len(users) != c.users || len(addresses) != c.users {
		t.Errorf("%d users at %d addresses, want %d of each", len(users), len(addresses), c.users)
	}
	if kinds[Honest] != 47_500 || kinds[Forger] != 313 || kinds[Hammer] != 312 {
		t.Errorf("kinds %v", kinds)
	}
	if left < 2_000 || left > 2_800 {
		t.Errorf("%d walk away, want about 5 %%", left)
	}
	if a, b := c.person(9), newCrowd(7, 50_000, 5).person(9); a.UserID != b.UserID || a.Device != b.Device || a.leave != b.leave {
		t.Error("the same seed makes another crowd")
	}
	if n := int64(maxUsers); newCrowd(1<<63, maxUsers, 0).first+n < 0 {
		t.Error("user ids overflow")
	}
}
