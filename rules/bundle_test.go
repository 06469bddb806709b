package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

func TestDefaultBundle(t *testing.T) {
	b := rules.Default()
	s := rules.Compile(b)

	p := s.Policy(ref)
	for _, c := range []struct {
		name  string
		limit rules.Limit
		rate  float64
		burst int64
	}{
		{"source", s.SourceLimit.Limit, 1000, 2000},
		{"prefix", s.PrefixLimit, 10_000, 20_000},
		{"user", p.User.For("70000001"), 0.5, 3},
		{"status", s.StatusLimit.For("70000001"), 4, 10},
		{"join", s.JoinLimit.For("70000001"), 2, 5},
		{"ticket", s.TicketLimit.For("70000001"), 2, 5},
	} {
		if c.limit.PerSecond != c.rate || c.limit.Burst != c.burst {
			t.Errorf("%s: %v/s burst %d, want %v/s burst %d", c.name, c.limit.PerSecond, c.limit.Burst, c.rate, c.burst)
		}
	}
	if got := s.Overload.MaxStale; got != 30*time.Minute {
		t.Errorf("max_stale %v", got)
	}
	if s.Guards.Budgets.Total() != 100*time.Millisecond {
		t.Errorf("budgets %v", s.Guards.Budgets.Total())
	}
	if len(s.Sentinel.System) != 2 || len(s.Sentinel.Flow) == 0 {
		t.Errorf("sentinel: %+v", s.Sentinel)
	}
	if s.Stage(admission.StageRemoteUser) != rules.Off || s.Stage(admission.StageDevice) != rules.On || s.Stage(admission.StageUser) != rules.On {
		t.Error("stages")
	}
	again, _, err := rules.Decode(b.Indent())
	if err != nil {
		t.Fatalf("what is shown does not decode: %v", err)
	}
	if again.Hash() != b.Hash() {
		t.Error("the hash does not survive show")
	}
}

// The test vector of the admission rate.
func TestAdmissionRateVector(t *testing.T) {
	b, _, err := rules.Decode([]byte(`{"schema":1,"version":2,"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,
	  "max_origin_qps":50000,"terms":{"gateway":{"capacity":60000,"safety":0.75},"stock":{"capacity":60000,"safety":0.7},
	  "mq":{"capacity":50000,"safety":0.8},"overload":{"capacity":45000},"ticket":{"capacity":39000}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := rules.Compile(b).Policy(admission.SKURef{ActivityID: "10001", SKUID: "90001"})
	if got := p.RSys(); got.Rate != 40_000 || got.Binding != "mq" {
		t.Errorf("RSys = %+v, want 40000 bound by mq", got)
	}
	if got := p.RAdmit(); got.Rate != 39_000 || got.Binding != "ticket" {
		t.Errorf("RAdmit = %+v: issuing is bound by the ticket term too", got)
	}
	if got := p.RSys(rules.NamedTerm{Name: "overload", Rate: 1000}, rules.NamedTerm{Name: "wave", Rate: 1}); got.Rate != 1000 || got.Binding != "overload" {
		t.Errorf("with live terms: %+v", got)
	}
}

var ref = admission.SKURef{ActivityID: "10001", SKUID: "90001"}

var otherRef = admission.SKURef{ActivityID: "10002", SKUID: "90001"}

func policyRate(v int) string {
	return fmt.Sprintf(`"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":%d,"max_origin_qps":%d}]`, v, v)
}

// TestChallengeBits: off unless asked for, and said when people could not do the work in time.
func TestChallengeBits(t *testing.T) {
	for _, c := range []struct {
		field string
		bits  int
		warns int
	}{{``, 0, 0}, {`,"challenge_bits":0`, 0, 0}, {`,"challenge_bits":18`, 18, 0}, {`,"challenge_bits":19`, 19, 1}, {`,"challenge_bits":24`, 24, 1}} {
		b, warnings, err := rules.Decode([]byte(`{"schema":1,"version":1,"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1` + c.field + `}]}`))
		if err != nil || len(warnings) != c.warns {
			t.Fatalf("%q: %v, %v", c.field, err, warnings)
		}
		s := rules.Compile(b)
		if got := s.Policy(admission.SKURef{ActivityID: "10001", SKUID: "90001"}).ChallengeBits; got != c.bits {
			t.Errorf("%q: %d bits, want %d", c.field, got, c.bits)
		}
		if got := s.Policy(admission.SKURef{ActivityID: "10002", SKUID: "90001"}).ChallengeBits; got != 0 {
			t.Errorf("%q: %d bits of an activity that is not named", c.field, got)
		}
	}
}
