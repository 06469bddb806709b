package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/rules"
)

// look reads an instance's GET /admin/v1/rules.
func (f *fleet) look(i *instance) (s rules.Status, ok bool) {
	token, err := os.ReadFile(f.tokenFile())
	if err != nil {
		return s, false
	}
	code, body := i.get(i.ready.Admin, "/admin/v1/rules", string(token))
	return s, code == http.StatusOK && json.Unmarshal(body, &s) == nil
}

// sight is when something was seen for the first time; zero: not within the time.
type sight struct {
	mu sync.Mutex
	at time.Time // guarded by mu
}

// watch looks every few milliseconds until see, on a goroutine that ends with all.
func watch(all *sync.WaitGroup, within time.Duration, see func() bool) *sight {
	s := &sight{}
	all.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for began := time.Now(); time.Since(began) < within; <-tick.C {
			if see() {
				s.mu.Lock()
				s.at = time.Now()
				s.mu.Unlock()
				return
			}
		}
	})
	return s
}

// pushed does act, which publishes, waits until every instance shows what see looks for, and
// returns how long after Nacos itself showed the document with that mark in it the last did.
func (f *fleet) pushed(what, mark string, all []*instance, see func(rules.Status) bool, act func()) (slowest time.Duration) {
	f.t.Helper()
	const within = patience
	var watching sync.WaitGroup
	held := watch(&watching, within, func() bool { return strings.Contains(f.nacos(http.MethodGet, url.Values{}), mark) })
	seen := make([]*sight, len(all))
	for n, i := range all {
		seen[n] = watch(&watching, within, func() bool { s, ok := f.look(i); return ok && see(s) })
	}
	act()
	watching.Wait()
	if held.at.IsZero() {
		f.t.Fatalf("%s: nacos does not show %s", what, mark)
	}
	for n, i := range all {
		if seen[n].at.IsZero() {
			s, _ := f.look(i)
			f.t.Fatalf("%s: not at %s within %v: %+v", what, i.name, within, s)
		}
		took := seen[n].at.Sub(held.at)
		f.t.Logf("%s: in force on %s after %v", what, i.name, took.Round(time.Millisecond))
		slowest = max(slowest, took)
	}
	return slowest
}

// bundle is a whole document: the shipped one with another version, comment and join rate.
func bundle(version int64, comment string, joins float64) *rules.Bundle {
	b := rules.Default().At(version)
	b.Comment = comment
	b.Limits.Join = &rules.Rate{PerSecond: joins, Burst: 5}
	return b
}

func inForce(version int64) func(rules.Status) bool {
	return func(s rules.Status) bool { return s.Version == version && s.LastError == nil }
}

// TestRulePushReachesEveryInstanceWithinASecond: by `sluice rules push` and by any other
// client of Nacos; a broken document changes nothing and its error is seen everywhere; a
// rollback is one command; drift is named.
func TestRulePushReachesEveryInstanceWithinASecond(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	in, out := "", "" // ids inside and outside a canary of half the fleet
	for n := 1; in == "" || out == ""; n++ {
		if id := fmt.Sprintf("i-%d", n); rules.InCanary(id, 50) {
			in = id
		} else {
			out = id
		}
	}
	pair := []*instance{f.launch(in, nil), f.launch(out, nil)}
	for _, i := range pair {
		i.awaitReady()
	}
	admin := []string{"--admin", pair[0].ready.Admin}
	rulesCommand := func(code int, args ...string) string {
		t.Helper()
		return f.want(code, append(append([]string{"rules"}, args...), admin...)...)
	}
	eventually(t, patience, "both in the fleet's status", func() bool {
		var s struct{ Instances []any }
		_, said := f.command(append([]string{"rules", "status", "--json"}, admin...)...)
		return json.NewDecoder(strings.NewReader(said)).Decode(&s) == nil && len(s.Instances) == 2
	})

	f.pushed("push", "by the command", pair, inForce(2), func() {
		path := f.file("two.json", string(bundle(2, "by the command", 3).Indent()))
		if said := rulesCommand(0, "push", path); !strings.Contains(said, "in force on 2 instances") {
			t.Errorf("push says:\n%s", said)
		}
	})
	f.pushed("publish", "by another client", pair, inForce(3), func() { f.publish(bundle(3, "by another client", 4).Indent()) })

	// Broken: what was in force stays, and everybody says where the fault is.
	before, _ := f.look(pair[0])
	const fault = "$.limits.join.rate_per_s"
	broken := strings.Replace(string(bundle(4, "a slip of the hand", 7).Indent()), `"rate_per_s": 7`, `"rate_per_s": -7`, 1)
	f.pushed("broken", "slip of the hand", pair, func(s rules.Status) bool {
		return s.Version == 3 && s.Hash == before.Hash && s.LastError != nil && s.LastError.Path == fault && s.LastError.Version == 4
	}, func() { f.publish([]byte(broken)) })
	eventually(t, patience, "the error of both in the fleet's status", func() bool {
		return strings.Count(rulesCommand(0, "status", "--json"), fault) == 2
	})
	for _, i := range pair {
		if _, metrics := i.get(i.ready.Internal, "/metrics", ""); !strings.Contains(string(metrics), `seckill_rules_rejected_total{reason="validate"} 1`) {
			t.Errorf("%s does not count one refusal", i.name)
		}
	}
	if said := rulesCommand(1, "push", f.file("broken.json", broken)); !strings.Contains(said, fault) {
		t.Errorf("push of a broken file says:\n%s", said)
	}

	f.pushed("rollback", "rollback to version 2", pair, inForce(4), func() { rulesCommand(0, "rollback", "2") })
	var running struct{ Limits rules.Limits }
	f.admin(pair[1], "/admin/v1/rules/bundle", &running)
	if r := running.Limits.Join; r == nil || r.PerSecond != 3 {
		t.Errorf("after the rollback joins are limited to %+v, want 3 a second", r)
	}

	// A canary is drift that has a name; promoting it ends it.
	// Pushed without --admin: the instances are found in the limiter store.
	if said := f.want(0, "rules", "push", "--canary", "50", f.file("canary.json", string(bundle(5, "canary", 5).Indent()))); !strings.Contains(said, "the canary runs on 1 of 2 instances") {
		t.Errorf("push of a canary says:\n%s", said)
	}
	var s struct {
		Version   int64
		Drift     bool
		Instances []rules.Status
	}
	eventually(t, patience, "drift", func() bool {
		_, said := f.command(append([]string{"rules", "status", "--json"}, admin...)...)
		return json.NewDecoder(strings.NewReader(said)).Decode(&s) == nil && s.Drift
	})
	if len(s.Instances) != 2 || s.Instances[0].Hash == s.Instances[1].Hash || s.Instances[0].Canary == s.Instances[1].Canary || s.Version != 5 {
		t.Errorf("status of a canary: %+v", s)
	}
	if said := rulesCommand(1, "status"); !strings.Contains(said, "DRIFT") {
		t.Errorf("status in words:\n%s", said)
	}
	f.pushed("promotion", "promoted: canary", pair, inForce(6), func() { rulesCommand(0, "promote") })
	eventually(t, patience, "no drift", func() bool {
		code, _ := f.command(append([]string{"rules", "status"}, admin...)...)
		return code == 0
	})

	// For 8 s after the start the source also reads every 400 ms, later every 3 s. Each of
	// these is published when the last one was just seen: without the push the next read is
	// nearly 3 s away, and three in a row within a second are pushes. Others may hold
	// the machine up now and then.
	eventually(t, patience, "the eager reads are over", func() bool { return time.Since(pair[1].started.Add(pair[1].readyIn)) > 9*time.Second })
	const inARow, tries = 3, 20
	good := 0
	for version := int64(7); good < inARow; version++ {
		if version == 7+tries {
			t.Fatalf("of %d publishes no %d in a row were in force everywhere within a second", tries, inARow)
		}
		if took := f.pushed("publish", fmt.Sprintf("number %d", version), pair, inForce(version), func() {
			f.publish(bundle(version, fmt.Sprintf("number %d", version), 4).Indent())
		}); took <= time.Second {
			good++
		} else {
			good = 0
		}
	}
}
