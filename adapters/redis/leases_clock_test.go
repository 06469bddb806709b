package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/sluice-io/sluice/app/admission"
)

var leaseRef = admission.SKURef{ActivityID: "10001", SKUID: "90001"}

// openVirtualLeases is a budget store whose clock moves only when a test says so.
func openVirtualLeases(t *testing.T, rate float64, burst int64) (*Leases, *virtual) {
	t.Helper()
	v := openVirtual(t)
	v.redis.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("# Server\r\nrun_id:primary1\r\n")
		}
		return cmd == "INFO"
	})
	l := NewLeases(v.limiters.client)
	if err := l.SetBudget(t.Context(), admission.Budget{Ref: leaseRef, Rate: rate, Burst: burst, Term: 1, EmittedAt: v.now}); err != nil {
		t.Fatal(err)
	}
	return l, v
}

func askOne(t *testing.T, l *Leases, instance string, seq uint64, want int64) admission.LeaseAnswer {
	t.Helper()
	answers, err := l.Ask(t.Context(), []admission.LeaseAsk{{
		Ref: leaseRef, InstanceID: instance, Seq: seq, Want: want, Weight: 1, LeaseFor: 200 * time.Millisecond, Ramp: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return answers[0]
}

func TestR01AnotherPrimaryBeginsEmpty(t *testing.T) {
	l, v := openVirtualLeases(t, 1000, 500)
	v.pass(time.Second)
	if got := askOne(t, l, "one", 1, 100); got.Granted != 100 {
		t.Fatalf("got %+v, want 100 of 500", got)
	}
	v.redis.HSet(leaseKey(leaseRef), "run_id", "primary0") // the hash came from elsewhere
	v.pass(50 * time.Millisecond)
	if got := askOne(t, l, "one", 2, 100); got.Granted != 0 {
		t.Errorf("after a failover: got %+v, want nothing", got)
	}
	v.pass(50 * time.Millisecond)
	if got := askOne(t, l, "one", 3, 100); got.Granted != 50 {
		t.Errorf("50 ms later: got %+v, want what has come in since", got)
	}
	v.redis.HSet(leaseKey(leaseRef), "run_id", "primary0")
	if err := l.SetBudget(t.Context(), admission.Budget{Ref: leaseRef, Rate: 1000, Burst: 500, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if got := askOne(t, l, "one", 4, 100); got.Granted != 0 {
		t.Errorf("a budget written after a failover: got %+v, want nothing", got)
	}
}

func TestAClockThatGoesBackCreditsNothing(t *testing.T) {
	l, v := openVirtualLeases(t, 1000, 500)
	v.pass(100 * time.Millisecond)
	askOne(t, l, "one", 1, 1000)
	askOne(t, l, "two", 1, 1000)
	v.pass(-time.Hour)
	if got := askOne(t, l, "one", 2, 1000); got.Granted != 0 {
		t.Errorf("an hour back: got %+v, want nothing", got)
	}
	v.pass(30 * time.Millisecond)
	if got := askOne(t, l, "one", 3, 1000); got.Granted != 30 && got.Granted != 15 {
		t.Errorf("30 ms later: got %+v, want it to go on from there", got)
	}
	v.pass(401 * time.Millisecond) // "two" was dated back too, and is forgotten now
	askOne(t, l, "one", 4, 1)
	if v.redis.HGet(leaseKey(leaseRef), "i:two") != "" {
		t.Error("an instance that asked before the step is remembered beyond two leases")
	}
}

func TestTheDeadAreForgottenAfterTwoLeases(t *testing.T) {
	l, v := openVirtualLeases(t, 100000, 100000)
	for i := range 50 {
		askOne(t, l, fmt.Sprint("boot", i), 1, 1)
	}
	if keys, _ := v.redis.HKeys(leaseKey(leaseRef)); len(keys) < 50 {
		t.Fatalf("%d fields, want 50 instances", len(keys))
	}
	v.pass(401 * time.Millisecond)
	askOne(t, l, "last", 1, 1)
	if keys, _ := v.redis.HKeys(leaseKey(leaseRef)); len(keys) != 7 {
		t.Errorf("after two leases: %v, want one instance", keys)
	}
	// an instance that slept is new again, with a sequence of its own choosing
	if got := askOne(t, l, "boot0", 1, 7); got.Granted != 7 {
		t.Errorf("got %+v, want 7", got)
	}
}

func TestInstancesAreBounded(t *testing.T) {
	l, v := openVirtualLeases(t, 1e6, 1e6)
	v.pass(time.Second)
	for i := range maxAskers { // as the script writes them
		v.redis.HSet(leaseKey(leaseRef), fmt.Sprint("i:boot", i), fmt.Sprintf("1000 1 %d 1 0", v.now.UnixMilli()))
	}
	if got := askOne(t, l, "one-too-many", 1, 5); got.Granted != 0 || got.RetryAfter != 200*time.Millisecond {
		t.Errorf("got %+v, want the newcomer refused", got)
	}
	if got := askOne(t, l, "boot7", 2, 5); got.Granted == 0 {
		t.Errorf("got %+v, want a known one served", got)
	}
}

func TestR04FirstCallsAfterAScriptFlush(t *testing.T) {
	c := openEmbedded(t)
	l, n, r := NewLeases(c), NewNonces(c), NewRoom(c)
	ref := leaseRef
	if err := l.SetBudget(t.Context(), admission.Budget{Ref: ref, Rate: 1e6, Burst: 1000, Term: 1}); err != nil {
		t.Fatal(err)
	}
	activity := admission.SKURef{ActivityID: ref.ActivityID}
	for round := range 2 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		answers, err := l.Ask(t.Context(), []admission.LeaseAsk{
			{Ref: ref, InstanceID: "one", Seq: uint64(round + 1), Want: 1, Weight: 1, LeaseFor: time.Second, Ramp: 1},
			{Ref: activity, InstanceID: "one", Seq: uint64(round + 1), Want: 1, Weight: 1, LeaseFor: time.Second, Ramp: 1},
		})
		if err != nil || answers[0].Err != nil || answers[1].Err != nil {
			t.Errorf("ask: %+v, %v", answers, err)
		}
		if _, err := n.Claim(t.Context(), admission.ClaimArgs{UserID: "1", Nonce: "nonce-01", RequestID: "request1", BodyHash: "x", Ref: ref, TTL: time.Minute}); err != nil {
			t.Errorf("claim: %v", err)
		}
		if _, err := r.Join(t.Context(), "10001", admission.Place{UserID: "1", Lane: "default", Sequence: 1}, time.Time{}); err != nil {
			t.Errorf("join: %v", err)
		}
	}
}
