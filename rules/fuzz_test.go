package rules_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

// Whatever arrives, the decoder answers; what it accepts compiles, survives its own encoding
// with the same hash, and holds no limit that a limiter would refuse.
func FuzzDecode(f *testing.F) {
	f.Add(rules.DefaultDocument())
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Add([]byte(full))
	f.Fuzz(func(t *testing.T, doc []byte) {
		b, _, err := rules.Decode(doc)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("a refusal without words")
			}
			return
		}
		s := rules.Compile(b)
		again, _, err := rules.Decode(b.Encode())
		if err != nil {
			t.Fatalf("our own encoding is refused: %v\n%s", err, b.Encode())
		}
		if again.Hash() != b.Hash() {
			t.Fatalf("the hash moved:\n%s\n%s", b.Encode(), again.Encode())
		}
		for _, l := range []rules.Limit{s.SourceLimit.Limit, s.PrefixLimit, s.StatusLimit.Limit, s.Policy(ref).User.Limit} {
			if !(l.PerSecond >= 0 && l.PerSecond <= 1e9) || l.Burst < 0 {
				t.Fatalf("%+v", l)
			}
		}
		if r := s.Policy(ref).RAdmit().Rate; !(r >= 0) {
			t.Fatalf("rate %v", r)
		}
	})
}

// full uses every part of a bundle.
const full = `{"schema":1,"version":42,"comment":"all of it",
 "sentinel":{"flow":[{"id":"f","resource":"seckill.submit","threshold":1000,"tokenCalculateStrategy":1,"warmUpPeriodSec":10}],
  "hotspot":[{"resource":"seckill.submit","metricType":1,"paramIndex":1,"threshold":6,"burstCount":3,"durationInSec":2,"specificItems":[{"valKind":0,"valStr":"70000001","threshold":60}]},
   {"resource":"seckill.submit","metricType":1,"paramKey":"sku","threshold":500,"durationInSec":1}],
  "system":[{"metricType":0,"triggerCount":4.8,"strategy":1},{"metricType":3,"triggerCount":1000}],
  "isolation":[{"resource":"seckill.reserve","threshold":300}],
  "circuitbreaker":[{"resource":"seckill.reserve","strategy":1,"retryTimeoutMs":1000,"minRequestAmount":20,"statIntervalMs":1000,"threshold":0.5}]},
 "stages":{"device":"shadow","remote_user":"on"},
 "limits":{"source":{"rate_per_s":1000,"burst":2000},"overrides":[{"dimension":"user","key":"70000009","activity_id":"10001","rate_per_s":5,"burst":9},{"dimension":"source","key":"192.0.2.0/24","rate_per_s":9,"burst":9}],
  "penalty_refusals":100,"penalty_window_ms":10000,"penalty_ms":5000},
 "admission":[{"activity_id":"10001","sku_id":"90001","policy_version":17,"mode":"NORMAL","max_origin_qps":40000,"max_in_flight":2000,
  "ticket_ttl_ms":30000,"wave_size":2000,"wave_interval_ms":300,"local_sold_out_ttl_ms":1000,"challenge_bits":16,"device_rate_per_s":1,"device_burst":5,
  "lease":{"strategy":"lease","lease_ms":200,"activity_max_qps":50000},"terms":{"mq":{"capacity":50000,"safety":0.8}},"fairness":{"show_up_prior":0.7}}],
 "overload":{"signals":{"cpu":{"enter":0.5,"severe":0.6,"exit":0.4}}},"guards":{"budgets_ms":{"stock":15}},"ticket":{"active_key_id":"k1"},
 "canary":{"percent":10,"bundle":{"schema":1,"version":42}}}`

// The precedence of limits: override > admission policy > hot-param rule > limits.
func TestPrecedence(t *testing.T) {
	b, _, err := rules.Decode([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	s := rules.Compile(b)
	user := s.Policy(ref).User
	for key, want := range map[string]rules.Limit{
		"70000009": {PerSecond: 5, Burst: 9, Rule: "limits.overrides[0]"},
		"70000001": {PerSecond: 30, Burst: 63, Rule: "sentinel.hotspot[0]"},
		"70000002": {PerSecond: 3, Burst: 9, Rule: "sentinel.hotspot[0]"},
	} {
		if got := user.For(key); got.PerSecond != want.PerSecond || got.Burst != want.Burst || got.Rule != want.Rule {
			t.Errorf("user %s: %+v, want %+v", key, got, want)
		}
	}
	if got := s.Policy(ref).Device.For("x"); got.PerSecond != 1 || got.Rule != "admission[0].device_rate_per_s" {
		t.Errorf("device: %+v", got)
	}
	other := s.Policy(otherRef).User
	if got := other.For("70000009"); got.Rule != "sentinel.hotspot[0]" {
		t.Errorf("an override of another activity: %+v", got)
	}
	if len(s.Sentinel.Hotspot) != 1 || s.Sentinel.Hotspot[0].ParamIndex != 0 {
		t.Errorf("only the SKU rule is Sentinel's: %+v", s.Sentinel.Hotspot)
	}
	if qps, ok := s.ActivityQPS("10001"); !ok || qps != 50000 {
		t.Errorf("activity: %v %v", qps, ok)
	}
	if n := testing.AllocsPerRun(100, func() { p := s.Policy(ref); _ = p.User.For("70000009"); _ = s.StatusLimit.For("1") }); n != 0 {
		t.Errorf("a look-up allocates %v times", n)
	}
}

// Readers of the snapshot never see a part of one while it is swapped under them.
func TestSnapshotSwapUnderReaders(t *testing.T) {
	b := newBench(t, nil)
	b.must(doc(1, policyRate(1)))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) * 2 {
		readers.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := b.Snapshot()
				p := s.Policy(ref)
				if int64(p.MaxOriginQPS) != s.Version || p.PolicyVersion != s.Version || s.Version < last {
					t.Errorf("version %d holds policy %d at %v after %d", s.Version, p.PolicyVersion, p.MaxOriginQPS, last)
					return
				}
				last = s.Version
			}
		})
	}
	for v := 2; v <= 200; v++ {
		b.must(doc(v, policyRate(v)))
	}
	close(stop)
	readers.Wait()
}
