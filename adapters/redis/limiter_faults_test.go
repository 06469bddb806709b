package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

// TestL09UnusualAnswersFailClosed: whatever the limiter store says that is not an answer
// of its script is a fault: nothing is claimed, nothing is granted, and its kind is counted.
func TestL09UnusualAnswersFailClosed(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		kind  Kind
		sure  bool // certainly not done
	}{
		"CROSSSLOT":           {"-CROSSSLOT Keys in request don't hash to the same slot\r\n", KindCrossSlot, true},
		"WRONGTYPE":           {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", KindWrongType, true},
		"LOADING":             {"-LOADING Redis is loading the dataset in memory\r\n", KindLoading, true},
		"OOM":                 {"-OOM command not allowed when used memory > 'maxmemory'\r\n", KindOOM, true},
		"READONLY":            {"-READONLY You can't write against a read only replica.\r\n", KindReadOnly, true},
		"NOSCRIPT twice":      {"-NOSCRIPT No matching script. Please use EVAL.\r\n", KindNoScript, true},
		"NOAUTH":              {"-NOAUTH Authentication required.\r\n", KindAuth, true},
		"BUSY":                {"-BUSY Redis is busy running a script.\r\n", KindBusy, true},
		"MASTERDOWN":          {"-MASTERDOWN Link with MASTER is down\r\n", KindMasterDown, true},
		"an unknown error":    {"-ERR something new\r\n", KindReply, false},
		"three elements":      {"*3\r\n:1\r\n:5\r\n:0\r\n", KindShape, false},
		"one element more":    {"*6\r\n:1\r\n:5\r\n:0\r\n:1\r\n:1\r\n:1\r\n", KindShape, false},
		"no elements":         {"*0\r\n", KindShape, false},
		"strings":             {"*1\r\n$1\r\n1\r\n", KindShape, false},
		"a word":              {"+OK\r\n", KindShape, false},
		"a number":            {":1\r\n", KindShape, false},
		"an unknown code":     {"*1\r\n:9\r\n", KindShape, false},
		"more than asked for": {"*5\r\n:1\r\n:999\r\n:0\r\n:1000\r\n:1\r\n", KindShape, false},
		"a negative grant":    {"*5\r\n:1\r\n:-5\r\n:0\r\n:1000\r\n:1\r\n", KindShape, false},
		"silence":             {"", KindTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			server := startFake(t, func([]string) string {
				if c.reply == "" {
					<-hang
				}
				return c.reply
			})
			t.Cleanup(func() { close(hang) })
			calls := func() int { return server.times("evalsha") + server.times("eval") }
			registry := prometheus.NewRegistry()
			client, err := Open(t.Context(), "redis://"+server.addr(), Options{Name: "limiter", Metrics: NewMetrics(registry), Timeout: busy, DialTimeout: busy, PoolTimeout: busy})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })

			within := busy
			if c.reply == "" {
				within = 100 * time.Millisecond // what silence costs
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			check := func(what string, err error) {
				t.Helper()
				if kind := KindOf(err); kind != c.kind {
					t.Errorf("%s: got %v of kind %q, want %q", what, err, kind, c.kind)
				}
				if errors.Is(err, admission.ErrUnavailable) != c.sure || errors.Is(err, admission.ErrUnknownResult) == c.sure {
					t.Errorf("%s: got %v, certainly not done: want %v", what, err, c.sure)
				}
			}
			claim, err := NewNonces(client).Claim(ctx, admission.ClaimArgs{UserID: "1", Nonce: "nonce-01", RequestID: "request1", BodyHash: "x", Ref: leaseRef, TTL: time.Minute})
			check("claim", err)
			if claim.Claim != admission.ClaimNone {
				t.Errorf("claim: got %+v with a fault", claim)
			}
			claims := calls()

			ask, cancelAsk := context.WithTimeout(t.Context(), within)
			defer cancelAsk()
			answers, err := NewLeases(client).Ask(ask, []admission.LeaseAsk{{
				Ref: leaseRef, InstanceID: "one", Seq: 1, Want: 10, Weight: 1, LeaseFor: 200 * time.Millisecond, Ramp: 1,
			}})
			check("ask", err)
			if len(answers) == 1 && answers[0].Granted != 0 {
				t.Errorf("ask: got %+v with a fault", answers)
			}

			most := 1
			if c.kind == KindNoScript {
				most = 2 // by digest and once by source
			}
			if asks := calls() - claims; claims > most || asks > most {
				t.Errorf("%d and %d calls: a fault must not be retried", claims, asks)
			}
			if strings.HasPrefix(c.reply, "-") {
				n, err := testutil.GatherAndCount(registry, "seckill_redis_errors_total")
				if err != nil || n == 0 || counted(t, registry, c.kind) == 0 {
					t.Errorf("kind %s is not counted (%d series, %v)", c.kind, n, err)
				}
			}
		})
	}
}

func counted(t *testing.T, g prometheus.Gatherer, kind Kind) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "seckill_redis_errors_total" && l.GetName() == "kind" && l.GetValue() == string(kind) {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// TestWrongTypeWritesNothing: the second key of a script holds something else.
func TestWrongTypeWritesNothing(t *testing.T) {
	c := openEmbedded(t)
	ctx := t.Context()
	if err := c.SAdd(ctx, requestKey("1", "request1"), "x").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := NewNonces(c).Claim(ctx, admission.ClaimArgs{UserID: "1", Nonce: "nonce-01", RequestID: "request1", BodyHash: "x", Ref: leaseRef, TTL: time.Minute})
	if err == nil || c.Exists(ctx, replayKey("1", "nonce-01")).Val() != 0 {
		t.Errorf("claim: got %v; the nonce must not be bound", err)
	}
	if err := c.SAdd(ctx, roomLogKey("10001", roomGroup(roomPart("1"))), "x").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRoom(c).Join(ctx, "10001", admission.Place{UserID: "1", Lane: "default", Sequence: 1}, time.Time{}); err == nil || c.Exists(ctx, roomUsersKey("10001", roomPart("1"))).Val() != 0 {
		t.Errorf("join: got %v; no place must be taken", err)
	}
	if err := c.SAdd(ctx, budgetKey(leaseRef), "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := NewLeases(c).SetBudget(ctx, admission.Budget{Ref: leaseRef, Rate: 10, Burst: 10, Term: 1}); err == nil || c.Exists(ctx, leaseKey(leaseRef)).Val() != 0 {
		t.Errorf("budget: got %v; the bucket must not be written", err)
	}
}
