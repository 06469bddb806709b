package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// verdict is what the tests read of `sluice demo --json`.
type verdict struct {
	OK         bool   `json:"ok"`
	Activity   string `json:"activity_id"`
	SKU        string `json:"sku_id"`
	Sold       int64  `json:"sold"`
	Orders     int64  `json:"orders"`
	Violations []struct {
		Rule, Example string
		Count         int64
	} `json:"violations"`
}

func (v verdict) ref() admission.SKURef {
	return admission.SKURef{ActivityID: v.Activity, SKUID: v.SKU}
}

// simulation is `sluice demo` on its way.
type simulation struct {
	f     *fleet
	file  string
	ended chan struct{}
	code  int
	out   string
	err   error
}

// simulate starts `sluice demo` against instances. The first one's admin listener publishes.
func (f *fleet) simulate(users, stock int, against []*instance, more ...string) *simulation {
	f.t.Helper()
	var public []string
	for _, i := range against {
		public = append(public, i.ready.Public)
	}
	s := &simulation{f: f, file: filepath.Join(f.dir, "verdict.json"), ended: make(chan struct{})}
	cmd := exec.Command(program(f.t), append([]string{"demo", "--users", strconv.Itoa(users), "--stock", strconv.Itoa(stock), "--hostile", "5",
		"--target", strings.Join(public, ","), "--admin", against[0].ready.Admin, "--admin-token-file", f.tokenFile(),
		"--session-keys", f.settings["session.keys"], "--json", s.file, "--timeout", "3m", "--stall", "40s"}, more...)...)
	cmd.Dir, cmd.Env = f.dir, environment()
	go func() {
		defer close(s.ended)
		s.code, s.out, s.err = finish(cmd, 4*patience)
	}()
	f.t.Cleanup(func() { <-s.ended })
	return s
}

// verdict waits for the end, which must be a sale without a violation.
func (s *simulation) verdict() verdict {
	s.f.t.Helper()
	<-s.ended
	if s.err != nil || s.code != 0 {
		s.f.t.Fatalf("sluice demo: exit %d, %v\n%s", s.code, s.err, s.out)
	}
	raw, err := os.ReadFile(s.file)
	if err != nil {
		s.f.t.Fatal(err)
	}
	var v verdict
	if err := json.Unmarshal(raw, &v); err != nil {
		s.f.t.Fatal(err)
	}
	if !v.OK || len(v.Violations) > 0 {
		s.f.t.Errorf("violations: %v", v.Violations)
	}
	s.f.t.Logf("%s", s.out)
	return v
}

// soldOut demands a settled sale in which every unit went to somebody.
func (f *fleet) soldOut(v verdict, stock int64) {
	f.t.Helper()
	if c := f.conserved(v.ref(), stock, patience); c.orders != stock || c.remaining != 0 {
		f.t.Errorf("every unit sold: %v", c)
	}
}

// TestFleetSale: two instances on Redis, RocketMQ, PostgreSQL and Nacos sell exactly the
// stock to distinct people, counted by the test itself.
func TestFleetSale(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady()
	}
	f.soldOut(f.simulate(1500, 150, pair).verdict(), 150)
	for _, i := range pair {
		i.isReady()
	}
}

// TestFleetRoles: instances of one role each make one sale together.
func TestFleetRoles(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var all []*instance
	for _, role := range []string{"gateway", "orders", "control"} {
		all = append(all, f.launch(role, map[string]string{"roles": role}))
	}
	for _, i := range all {
		i.awaitReady()
	}
	gateway, orders, control := all[0], all[1], all[2]
	f.soldOut(f.simulate(300, 30, []*instance{gateway}).verdict(), 30)
	for _, i := range []*instance{orders, control} {
		if status, body := i.get(i.ready.Public, "/v1/activities/1", ""); status != 404 {
			t.Errorf("%s has no gateway role and answers HTTP %d %s", i.name, status, body)
		}
	}
	if !control.logged("leader_elected") || gateway.logged("leader_elected") || orders.logged("leader_elected") {
		t.Error("want the control instance, and it alone, to have led")
	}
}
