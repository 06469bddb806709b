package rules_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	sentinel "github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/hotspot"
	"github.com/alibaba/sentinel-golang/core/isolation"
	"github.com/alibaba/sentinel-golang/core/system"

	"github.com/sluice-io/sluice/rules"
)

// Our rule types have exactly Sentinel's field names, and a few of our own.
func TestSentinelFieldNames(t *testing.T) {
	for _, c := range []struct {
		ours, theirs any
		own          []string
	}{
		{rules.FlowRule{}, flow.Rule{}, []string{"shadow"}},
		{rules.HotspotRule{}, hotspot.Rule{}, []string{"shadow", "engine"}},
		{rules.SystemRule{}, system.Rule{}, []string{"shadow"}},
		{rules.IsolationRule{}, isolation.Rule{}, []string{"shadow"}},
		{rules.BreakerRule{}, circuitbreaker.Rule{}, []string{"shadow"}},
	} {
		want := tags(c.theirs)
		for _, name := range c.own {
			want[name] = true
		}
		if got := tags(c.ours); !reflect.DeepEqual(got, want) {
			t.Errorf("%T has %v, Sentinel %v", c.ours, got, want)
		}
	}
}

func tags(v any) map[string]bool {
	names := map[string]bool{}
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// onSentinel is a bench on Sentinel itself, which is empty again afterwards.
func onSentinel(t *testing.T) *bench {
	b := newBench(t, func(c *rules.Config) { c.Engine = rules.NewSentinelEngine() })
	t.Cleanup(func() {
		err := errors.Join(flow.ClearRules(), hotspot.ClearRules(), system.ClearRules(), isolation.ClearRules(), circuitbreaker.ClearRules())
		if err != nil {
			t.Error(err)
		}
	})
	return b
}

func passes(resource string, args ...any) bool {
	e, blocked := sentinel.Entry(resource, sentinel.WithTrafficType(base.Outbound), sentinel.WithArgs(args...))
	if blocked != nil {
		return false
	}
	e.Exit()
	return true
}

const families = `"sentinel":{"system":"none","flow":[{"id":"other","resource":"seckill.ticket","threshold":%T}],
 "hotspot":[{"id":"users","resource":"seckill.submit","metricType":1,"paramKey":"user","threshold":2,"durationInSec":3600,"engine":"sentinel"},
            {"id":"skus","resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":%S,"durationInSec":3600}]}`

func withThresholds(ticket, sku string) string {
	return strings.NewReplacer("%T", ticket, "%S", sku).Replace(families)
}

// An edit of one rule resets nobody else's counters.
func TestAnEditKeepsTheOthersCounters(t *testing.T) {
	b := onSentinel(t)
	b.must(doc(1, withThresholds("1000", "100")))
	for range 2 {
		if !passes("seckill.submit", "90001", "70000001") {
			t.Fatal("refused below its threshold")
		}
	}
	if passes("seckill.submit", "90001", "70000001") {
		t.Fatal("passed above its threshold")
	}
	b.must(doc(2, withThresholds("900", "100"))) // another resource, another family
	b.must(doc(3, withThresholds("900", "50")))  // the other rule of the same resource
	if passes("seckill.submit", "90002", "70000001") {
		t.Error("the user's counter was reset by an edit of the SKU rule")
	}
	r := strings.Replace(withThresholds("900", "50"), `{"id":"users"`, `{"id":"new","resource":"seckill.submit","metricType":1,"paramKey":"activity","threshold":9,"durationInSec":3600},{"id":"users"`, 1)
	b.must(doc(4, r))
	if passes("seckill.submit", "90002", "70000001", "d", "s", "10001") {
		t.Error("the user's counter was reset by a new rule before it")
	}
}

// A rule that goes does not hand its counters to a neighbour that is edited meanwhile.
func TestARemovalAndAnEditKeepTheCounters(t *testing.T) {
	const sku = `{"id":"skus","resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":100,"durationInSec":3600},`
	const both = `"sentinel":{"system":"none","flow":"none","hotspot":[` + sku +
		`{"id":"users","resource":"seckill.submit","metricType":1,"paramKey":"user","threshold":2,"durationInSec":3600,"engine":"sentinel"}]}`
	b := onSentinel(t)
	b.must(doc(1, both))
	for passes("seckill.submit", "90001", "70000001") {
	}
	b.must(doc(2, strings.NewReplacer(sku, "", `"threshold":2,`, `"threshold":1,`).Replace(both)))
	if passes("seckill.submit", "90001", "70000001") {
		t.Error("the user's counter was reset")
	}
}

const breaker = `"sentinel":{"system":"none","flow":"none","hotspot":"none","circuitbreaker":[{"id":"b","resource":"seckill.reserve","strategy":2,"retryTimeoutMs":%R,"minRequestAmount":1,"statIntervalMs":10000,"threshold":1}]}`

// An open breaker stays open through an edit, which is applied when it closes.
func TestAnOpenBreakerSurvivesAnEdit(t *testing.T) {
	b := onSentinel(t)
	b.must(doc(1, strings.Replace(breaker, "%R", "60000", 1)))
	e, blocked := sentinel.Entry("seckill.reserve")
	if blocked != nil {
		t.Fatal(blocked)
	}
	sentinel.TraceError(e, errors.New("the stock store is ill"))
	e.Exit()
	if passes("seckill.reserve") {
		t.Fatal("the breaker did not open")
	}
	b.must(doc(2, strings.Replace(breaker, "%R", "50000", 1)))
	if passes("seckill.reserve") {
		t.Error("an edit closed an open breaker")
	}
	if got := circuitbreaker.GetRules(); len(got) != 1 || got[0].RetryTimeoutMs != 60000 {
		t.Errorf("Sentinel holds %+v while the breaker is open", got)
	}
}
