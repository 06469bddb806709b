package slots

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// Each line of the table "Sentinel-Go: what the pinned version does" has its test: those
// about panics, pooled results and exits are in slots_test.go, the rest is here and, for
// what happens when rules are loaded, in package rules.

const wideUser = `"limits":{"user":{"rate_per_s":1000,"burst":1000}}`

// with is a bundle with these Sentinel families alone, and users who are not limited.
func with(families string) string {
	return `{"schema":1,"version":1,"sentinel":{` + families + `},` + wideUser + `}`
}

// count sends requests through the first chain and returns how many passed.
func (b *bed) count(n int, user string) (passed int) {
	b.t.Helper()
	for range n {
		if !b.gate.Enter(b.request(user)).Refused() {
			passed++
		}
	}
	return passed
}

// TestFlowRuleAdmitsItsThreshold and refuses the next as "we are full", until its window
// has moved on.
func TestFlowRuleAdmitsItsThreshold(t *testing.T) {
	b := newBed(t, with(`"flow":[{"resource":"seckill.submit","threshold":10}],"hotspot":"none","system":"none"`))
	b.calm()
	if n := b.count(10, "7"); n != 10 {
		t.Errorf("%d of the first 10 passed", n)
	}
	b.want(b.gate.Enter(b.request("7")), admission.Overloaded, admission.StageFlow)
	b.want(b.gate.Call(admission.CallStatus, b.request("7")), admission.Pass, admission.StageNone)
	sentinelClock.moveOn(2 * time.Second)
	if n := b.count(12, "7"); n != 10 {
		t.Errorf("%d of 12 passed in the next window", n)
	}
}

// TestWarmUpBeginsSlowly: a cold instance admits a third of the threshold.
func TestWarmUpBeginsSlowly(t *testing.T) {
	b := newBed(t, with(`"flow":[{"resource":"seckill.submit","threshold":300,"tokenCalculateStrategy":1,"warmUpPeriodSec":10}],"hotspot":"none","system":"none"`))
	b.calm()
	if n := b.count(300, "7"); n < 90 || n > 110 {
		t.Errorf("%d of 300 passed a cold start, want about 100", n)
	}
}

// TestIsolationOnReserve is advisory: it refuses before the seats do.
func TestIsolationOnReserve(t *testing.T) {
	b := newBed(t, with(`"flow":"none","hotspot":"none","system":"none","isolation":[{"resource":"seckill.reserve","threshold":2}]`))
	first, second := b.inside("1"), b.inside("2")
	third := b.request("3")
	b.want(b.gate.Enter(third), admission.Pass, admission.StageNone)
	b.want(b.gate.Reserve(t.Context(), third), admission.Overloaded, admission.StageIsolation)
	first.End(admission.Decision{Outcome: admission.Queued})
	b.want(b.gate.Reserve(t.Context(), third), admission.Pass, admission.StageNone)
	second.End(admission.Decision{Outcome: admission.Queued})
	third.End(admission.Decision{Outcome: admission.Queued})
}

// TestBreakerOnReserve opens on DEPENDENCY_UNAVAILABLE alone, probes with one request, and
// closes when that ends well.
func TestBreakerOnReserve(t *testing.T) {
	b := newBed(t, with(`"flow":"none","hotspot":"none","system":"none","circuitbreaker":[
		{"resource":"seckill.reserve","strategy":1,"retryTimeoutMs":1000,"minRequestAmount":4,"statIntervalMs":1000,"threshold":0.5}]`))
	b.calm()
	end := func(user string, o admission.Outcome) { b.inside(user).End(admission.Decision{Outcome: o}) }
	for i := range 8 { // refusals that are no fault of a dependency
		end(fmt.Sprint(i+1), admission.SoldOut)
	}
	sentinelClock.moveOn(2 * time.Second)
	for i := range 4 {
		end(fmt.Sprint(i+1), admission.DependencyUnavailable)
	}
	blocked := func(user string) {
		t.Helper()
		req := b.request(user)
		b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
		d := b.gate.Reserve(t.Context(), req)
		b.want(d, admission.DependencyUnavailable, admission.StageBreaker)
		if d.RetryAfter <= 0 {
			t.Error("no wait")
		}
		req.End(d)
	}
	claims := b.claims.Load()
	blocked("9")
	if b.claims.Load() != claims {
		t.Error("an open breaker let a call out")
	}
	sentinelClock.moveOn(1100 * time.Millisecond)
	probe := b.inside("1") // half open
	blocked("2")
	probe.End(admission.Decision{Outcome: admission.DependencyUnavailable})
	blocked("3")
	sentinelClock.moveOn(1100 * time.Millisecond)
	end("1", admission.Queued)
	end("2", admission.Queued) // closed
}

// TestHotParamEngines: users, devices and sources count on Sentinel's slot where the rule
// says so, whatever parameter it names, and are "you are too fast".
func TestHotParamEngines(t *testing.T) {
	rule := func(engine, param string) string {
		return with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"` + param +
			`","threshold":3,"durationInSec":3600,"engine":"` + engine + `"}]`)
	}
	for param, stage := range map[string]admission.Stage{
		"user": admission.StageUser, "source": admission.StageSource, "device": admission.StageDevice,
	} {
		t.Run(param, func(t *testing.T) {
			b := newBed(t, rule("sentinel", param))
			if got := b.count(5, "7"); got != 3 {
				t.Errorf("%d of 5 passed a threshold of 3", got)
			}
			b.want(b.gate.Enter(b.request("7")), admission.RateLimited, stage)
			b.want(b.gate.Enter(b.request("8")), admission.Pass, admission.StageNone)
		})
	}
	t.Run("bounded", func(t *testing.T) {
		doc := strings.Replace(rule("bounded", "user"), `,`+wideUser, "", 1)
		b := newBed(t, doc)
		if got := b.count(5, "7"); got != 3 {
			t.Errorf("%d of 5 passed a threshold of 3", got)
		}
		b.want(b.gate.Enter(b.request("7")), admission.RateLimited, admission.StageUser)
	})
	t.Run("on another resource", func(t *testing.T) {
		b := newBed(t, strings.Replace(rule("sentinel", "user"), "seckill.submit", "seckill.status", 1))
		for i := range 4 {
			d := b.gate.Call(admission.CallStatus, b.request("7"))
			if d.Refused() != (i == 3) {
				t.Errorf("call %d: %+v", i, d)
			}
		}
	})
}

// TestT01SourceItems: an address that a rule names is found behind the hash that requests carry.
func TestT01SourceItems(t *testing.T) {
	b := newBed(t, with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"source",
		"threshold":100,"durationInSec":3600,"engine":"sentinel","specificItems":[{"valKind":1,"valStr":"192.0.2.7","threshold":2}]}]`))
	passed := 0
	for range 5 {
		req := b.request("7")
		req.SourceKey = b.gate.config.SourceKey(prefix(t, "192.0.2.7/32"))
		if !b.gate.Enter(req).Refused() {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d of 5 passed an override of 2", passed)
	}
}

// TestSourceOverrides: an address and a /24 with limits of their own have them, and polls
// of results do not share them with submits.
func TestSourceOverrides(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":1000,"burst":1000},"overrides":[
		{"dimension":"source","key":"192.0.2.7","rate_per_s":0.001,"burst":2},
		{"dimension":"source","key":"198.51.100.0/24","rate_per_s":0.001,"burst":3}]}`))
	from := func(address, network string) *admission.Request {
		req := b.request("7")
		req.SourceKey, req.SourcePrefixKey = b.gate.config.SourceKey(prefix(t, address)), b.gate.config.SourceKey(prefix(t, network))
		return req
	}
	for i, c := range []struct {
		address, network string
		reason           admission.Reason
		passes           int
	}{
		{"192.0.2.7/32", "192.0.2.0/24", admission.ReasonSourceRate, 2},
		{"198.51.100.9/32", "198.51.100.0/24", admission.ReasonSourcePrefixRate, 3},
		{"198.51.100.10/32", "198.51.100.0/24", admission.ReasonSourcePrefixRate, 0},
	} {
		passed := 0
		for range 5 {
			d := b.gate.Enter(from(c.address, c.network))
			if !d.Refused() {
				passed++
			} else if d.Reason != c.reason {
				t.Errorf("case %d: %+v", i, d)
			}
		}
		if passed != c.passes {
			t.Errorf("case %d: %d passed, want %d", i, passed, c.passes)
		}
		b.want(b.gate.Call(admission.CallStatus, from(c.address, "203.0.113.0/24")), admission.Pass, admission.StageNone)
	}
}

// TestT01EveryTypeOfItem: a rule's author may write a number or a string; what is compared
// is a string.
func TestT01EveryTypeOfItem(t *testing.T) {
	for _, kind := range []string{"0", "1"} {
		for _, engine := range []string{"", `"engine":"sentinel",`} {
			b := newBed(t, quiet("")) // without the former rule's counters
			b.apply(with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku",` + engine + `
				"threshold":100,"durationInSec":3600,"specificItems":[{"valKind":` + kind + `,"valStr":"90001","threshold":2}]}]`))
			if got := b.count(10, "7"); got != 2 {
				t.Errorf("valKind %s %s: %d of 10 passed an override of 2", kind, engine, got)
			}
		}
	}
}

// TestT01MissingArgumentRefuses: Sentinel lets a request pass that lacks a rule's argument.
func TestT01MissingArgumentRefuses(t *testing.T) {
	b := newBed(t, with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"device","threshold":100,"durationInSec":1,"engine":"sentinel"}]`))
	v := b.gate.visit(b.request("7"))
	v.req.DeviceHash = ""
	chain, _ := b.gate.newChain(v.view, admission.CallSubmit, false)
	chain.hotParams(usesOf(&v.view.snapshot.Sentinel, "seckill.submit"))
	if enter(chain, v) {
		t.Error("a request without the argument passed")
	}
	b.want(v.decision, admission.DependencyUnavailable, admission.StageSKU)
	if v.decision.Reason != admission.ReasonMissingParameter {
		t.Errorf("reason %q", v.decision.Reason)
	}
}

// TestT02NothingClearsTheChains: what is empty, null or deleted leaves the rules in force
// where they work.
func TestT02NothingClearsTheChains(t *testing.T) {
	b := newBed(t, quiet(""))
	b.calm()
	a := rules.NewApplier(rules.Config{InstanceID: "test"})
	put := func(u rules.Update) error {
		u.At = time.Now()
		err := a.Apply(t.Context(), u, "test")
		b.gate.Apply(a.Snapshot(), []admission.SKURef{{ActivityID: "10001", SKUID: "90001"}}, b.clock)
		return err
	}
	if err := put(rules.Update{Raw: []byte(with(`"flow":[{"resource":"seckill.submit","threshold":10}],"hotspot":"none","system":"none"`))}); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"", " \n", "null", "[]", "{}"} {
		if put(rules.Update{Raw: []byte(raw)}) == nil {
			t.Errorf("%q was accepted", raw)
		}
	}
	if put(rules.Update{Absent: true}) == nil {
		t.Error("a deletion was accepted")
	}
	if n := b.count(20, "7"); n != 10 {
		t.Errorf("%d of 20 passed a flow rule of 10", n)
	}
}

// TestT05BatchAfterIdleAndABlockIsNever200 (c, d): after idling there is no burst beyond
// the threshold, and a block is an answer of 429 or 503 with a wait.
func TestT05BatchAfterIdleAndABlockIsNever200(t *testing.T) {
	b := newBed(t, with(`"flow":[{"resource":"seckill.submit","threshold":10}],"hotspot":"none","system":"none"`))
	b.calm()
	sentinelClock.moveOn(3 * time.Second)
	blocked := 0
	for range 3000 {
		d := b.gate.Enter(b.request("7"))
		if !d.Refused() {
			continue
		}
		blocked++
		if row := d.Outcome.Row(); row.HTTP != 429 && row.HTTP != 503 || d.RetryAfter <= 0 {
			t.Fatalf("blocked with %d and a wait of %v", row.HTTP, d.RetryAfter)
		}
	}
	if passed := 3000 - blocked; passed < 10 || passed > 40 { // 10 a second, in the second or two that this takes
		t.Errorf("%d of 3000 passed", passed)
	}
}

// TestShadowRules: rules of Sentinel and limits marked so are evaluated and counted, and
// refuse nobody.
func TestShadowRules(t *testing.T) {
	counted := func(b *bed, s admission.Stage) int {
		return int(testutil.ToFloat64(b.gate.metrics.shadows[s]))
	}
	for name, c := range map[string]struct {
		document string
		stage    admission.Stage
		want     int // of 10
	}{
		"flow":       {with(`"hotspot":"none","system":"none","flow":[{"resource":"seckill.submit","threshold":4,"shadow":true}]`), admission.StageFlow, 6},
		"hotspot":    {with(`"flow":"none","system":"none","hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":4,"durationInSec":3600,"shadow":true}]`), admission.StageSKU, 6},
		"user limit": {quiet(`"limits":{"user":{"rate_per_s":0.001,"burst":3,"shadow":true},"overrides":[{"dimension":"user","key":"7","rate_per_s":1000,"burst":1000}]}`), admission.StageUser, 7},
		"device":     {quiet(wideUser[:len(wideUser)-1] + `,"device":{"rate_per_s":0.001,"burst":4,"shadow":true}}`), admission.StageDevice, 6},
		"source":     {quiet(wideUser[:len(wideUser)-1] + `,"source":{"rate_per_s":0.001,"burst":2,"shadow":true}}`), admission.StageSource, 8},
		"override":   {quiet(wideUser[:len(wideUser)-1] + `,"overrides":[{"dimension":"user","key":"7","rate_per_s":0.001,"burst":1,"shadow":true}]}`), admission.StageUser, 9},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.document)
			b.calm()
			if n := b.count(10, "7"); n != 10 {
				t.Errorf("%d of 10 passed: a shadow refused", n)
			}
			if got := counted(b, c.stage); got != c.want {
				t.Errorf("%d would have been refused, want %d", got, c.want)
			}
		})
	}
	t.Run("what was shed is given back", func(t *testing.T) {
		b := newBed(t, quiet(`"limits":{"overrides":[{"dimension":"user","key":"7","rate_per_s":0.001,"burst":1,"shadow":true}]}`))
		for range 3 {
			req := b.request("7")
			b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
			req.End(admission.Decision{Outcome: admission.Overloaded})
		}
		if got := counted(b, admission.StageUser); got != 0 {
			t.Errorf("%d counted, want none", got)
		}
	})
	t.Run("breaker and isolation", func(t *testing.T) {
		b := newBed(t, with(`"flow":"none","hotspot":"none","system":"none","isolation":[{"resource":"seckill.reserve","threshold":1,"shadow":true}],
			"circuitbreaker":[{"resource":"seckill.reserve","strategy":2,"retryTimeoutMs":60000,"minRequestAmount":1,"statIntervalMs":10000,"threshold":1,"shadow":true}]`))
		first := b.inside("1")
		b.inside("2").End(admission.Decision{Outcome: admission.Queued})
		if got := counted(b, admission.StageIsolation); got != 1 {
			t.Errorf("isolation counted %d, want 1", got)
		}
		first.End(admission.Decision{Outcome: admission.DependencyUnavailable})
		b.inside("3").End(admission.Decision{Outcome: admission.Queued})
		if got := counted(b, admission.StageBreaker); got != 1 {
			t.Errorf("the breaker counted %d, want 1", got)
		}
	})
}

// TestHazardNoFilesNoGoroutines: Sentinel by itself writes below the home directory and
// starts collectors. A process of its own, with an empty home, shows that ours does not.
func TestHazardNoFilesNoGoroutines(t *testing.T) {
	const role = "SLUICE_TEST_NO_FILES"
	if os.Getenv(role) != "" {
		b := newBed(t, rulesWithEverything)
		b.inside("7").End(admission.Decision{Outcome: admission.Queued})
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := strings.Count(string(stacks), "created by github.com/alibaba/sentinel-golang"); n != 0 {
			t.Errorf("%d goroutines of Sentinel's:\n%s", n, stacks)
		}
		return
	}
	home := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHazardNoFilesNoGoroutines$")
	child.Dir = home
	child.Env = append(os.Environ(), role+"=1", "HOME="+home)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	left, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("it wrote %s", f.Name())
	}
}

const rulesWithEverything = `{"schema":1,"version":1,"sentinel":{
	"flow":[{"resource":"seckill.submit","threshold":1000}],
	"hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":1000,"durationInSec":1}],
	"system":[{"metricType":4,"triggerCount":0.75},{"metricType":0,"triggerCount":100,"strategy":1}],
	"isolation":[{"resource":"seckill.reserve","threshold":100}],
	"circuitbreaker":[{"resource":"seckill.reserve","strategy":1,"retryTimeoutMs":1000,"minRequestAmount":4,"statIntervalMs":1000,"threshold":0.5}]}}`

// TestHazardClock: Sentinel's own clock follows the wall, and a step back opens a flow rule
// wide. The clock that InitSentinel installs cannot step: package rules tests that.
func TestHazardClock(t *testing.T) {
	b := newBed(t, with(`"flow":[{"resource":"seckill.submit","threshold":10}],"hotspot":"none","system":"none"`))
	b.calm()
	if n := b.count(30, "7"); n != 10 {
		t.Fatalf("%d of 30 passed a flow rule of 10", n)
	}
	sentinelClock.moveOn(-time.Hour)
	defer sentinelClock.moveOn(time.Hour)
	if n := b.count(30, "7"); n < 30 {
		t.Errorf("%d of 30 passed after a step back: the hazard is gone, and with it the reason for a clock of our own", n)
	}
}

func prefix(t *testing.T, s string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
