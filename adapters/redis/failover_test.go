package redis

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// sold reserves for users from..to-1 and returns the verdicts that SQL would have for them.
func sold(t *testing.T, s *Stock, spec admission.StockSpec, from, to int) []admission.Verdict {
	t.Helper()
	var verdicts []admission.Verdict
	for i := from; i < to; i++ {
		a := someArgs()
		a.Ref, a.UserID, a.ReservationID = spec.Ref, fmt.Sprintf("7%07d", i), fmt.Sprintf("r_%d", i)
		if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.Reserved {
			t.Fatalf("user %d: %+v, %v", i, r, err)
		}
		verdicts = append(verdicts, admission.Verdict{
			Ref: spec.Ref, ReservationID: a.ReservationID, UserID: a.UserID, RequestID: a.RequestID, BodyHash: a.BodyHash,
			Quantity: 1, CreatedAt: time.Now(), Outcome: admission.VerdictCreated, OrderID: strconv.Itoa(i),
			OrderStatus: admission.OrderCreated, ClosesAt: spec.ClosesAt,
		})
	}
	return verdicts
}

// R01: a replica that is promoted without the last writes closes the SKU by its run_id;
// SQL's verdicts bring it back, and never more is sold than there is.
func TestR01FailoverLosesWrites(t *testing.T) {
	primary, replica := servers.StartOwnRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartOwnRedis(t)
	s := NewStock(openURL(t, primary.URL()), StockOptions{})
	promoted := openURL(t, replica.URL())
	if err := promoted.(*goredis.Client).ReplicaOf(t.Context(), "127.0.0.1", strconv.Itoa(primary.Port)).Err(); err != nil {
		t.Fatal(err)
	}
	spec := freshSpec(100)
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	verdicts := sold(t, s, spec, 0, 40)
	await(t, "the replica to hold what was written", func() bool {
		return s.Replicas(t.Context(), spec.Ref, 1, 100*time.Millisecond) == nil
	})
	if err := promoted.(*goredis.Client).ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil { // cut off
		t.Fatal(err)
	}
	if err := s.Replicas(t.Context(), spec.Ref, 1, 50*time.Millisecond); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("without a replica: %v", err)
	}
	verdicts = append(verdicts, sold(t, s, spec, 40, 60)...) // acknowledged, and lost
	primary.Kill()

	s = NewStock(promoted, StockOptions{})
	a := someArgs()
	a.Ref, a.UserID, a.ReservationID = spec.Ref, "79999999", "r_new"
	if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.ReserveClosed {
		t.Fatalf("after the failover: %+v, %v; want closed", r, err)
	}
	if n, err := s.Snapshot(t.Context(), spec.Ref); err != nil || n.Open || n.Remaining != 60 {
		t.Fatalf("after the failover: %+v, %v", n, err)
	}
	closed, err := s.CloseSKU(t.Context(), spec)
	if err != nil || time.Since(closed).Abs() > time.Minute {
		t.Fatalf("close: %v, %v", closed, err)
	}
	if err := s.Apply(t.Context(), verdicts); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context(), spec.Ref, 0); err != nil {
		t.Fatal(err)
	}
	n, err := s.Tally(t.Context(), spec.Ref)
	if err != nil || !n.Conserved() || n.Remaining != 40 || n.Created != 60 {
		t.Fatalf("restored: %+v, %v", n, err)
	}
	if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.Reserved {
		t.Errorf("reopened: %+v, %v", r, err)
	}
	if n, _ := s.Snapshot(t.Context(), spec.Ref); n.Incarnation != 2 {
		t.Errorf("incarnation %d, want 2", n.Incarnation)
	}
}

// R02: a store that evicts is refused, and one that is full refuses to write.
func TestR02EvictingStoreIsRefused(t *testing.T) {
	own := servers.StartOwnRedis(t)
	c := openURL(t, own.URL())
	s := NewStock(c, StockOptions{})
	if err := s.Policy(t.Context()); err != nil {
		t.Errorf("noeviction: %v", err)
	}
	spec := freshSpec(10)
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	sold(t, s, spec, 0, 3)
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil { // full, whatever its buffers come to
		t.Fatal(err)
	}
	a := someArgs()
	a.Ref, a.UserID, a.ReservationID = spec.Ref, "79999999", "r_new"
	if r, err := s.Reserve(t.Context(), a); !errors.Is(err, admission.ErrUnavailable) || KindOf(err) != KindOOM {
		t.Errorf("full: %+v, %v", r, err)
	}
	if n, err := s.Tally(t.Context(), spec.Ref); err != nil || !n.Conserved() || n.Live != 3 || n.Remaining != 7 {
		t.Errorf("full: %+v, %v", n, err)
	}
	if err := c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Policy(t.Context()); !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("allkeys-lru: %v, want a refusal that names it", err)
	}
}

// R07: the end of a large activity is removed in parts: no single command holds the
// server's thread, so that the other sales go on.
func TestR07RemovingManyBuyersBlocksNobody(t *testing.T) {
	const buyers = 300_000
	const slow = 150 * time.Millisecond // DEL of these takes three times as long
	own := servers.StartOwnRedis(t, "--slowlog-log-slower-than", strconv.FormatInt(slow.Microseconds(), 10))
	c := openURL(t, own.URL()).(*goredis.Client)
	const rounds = 3 // others may stop the server in the middle of a command, once or twice
	for round := 1; ; round++ {
		held := heldByRemoving(t, c, buyers)
		if len(held) == 0 {
			return
		}
		if round == rounds {
			t.Fatalf("in each of %d rounds something held the server for %v; in the last: %v", rounds, slow, held)
		}
	}
}

// heldByRemoving fills an activity, removes it, and returns what was slow at that.
func heldByRemoving(t *testing.T, c *goredis.Client, buyers int) (held []string) {
	t.Helper()
	const part = 10_000
	s := NewStock(c, StockOptions{})
	spec := freshSpec(int64(buyers))
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	k := keysOf(spec.Ref)
	for i := 0; i < buyers; {
		pipe := c.Pipeline()
		for range part {
			user, id := fmt.Sprintf("7%07d", i), fmt.Sprintf("r_%022d", i)
			pipe.HSet(t.Context(), k.buyers(), user, id)
			pipe.HSet(t.Context(), k.rsv(), id, "CREATED|"+user+"|request_1|1|1|7|h")
			pipe.RPush(t.Context(), k.log(), "reserved|"+user+"|request_1|h|"+id+"||SECKILL_QUEUED|1|0")
			i++
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Do(t.Context(), "slowlog", "reset").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), spec.Ref); err != nil {
		t.Fatal(err)
	}
	if n, err := c.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
	entries, err := c.SlowLogGet(t.Context(), 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		held = append(held, fmt.Sprintf("%v for %v", e.Args[0], e.Duration))
	}
	return held
}

func TestPolicyOfSharedStores(t *testing.T) {
	for _, url := range []string{servers.StockRedis(), servers.ClusterRedis()} {
		if err := NewStock(openStock(t, url), StockOptions{}).Policy(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := NewStock(openEmbeddedStock(t), StockOptions{}).Policy(t.Context()); err != nil {
		t.Errorf("embedded: %v", err)
	}
}

// R05: a primary of a cluster dies: its slots are served again by its replica, the SKU is
// closed until restored, and nothing was deducted twice. A slot that is being moved answers
// TRYAGAIN or is followed.
func TestR05ClusterFailoverAndResharding(t *testing.T) {
	const nodeTimeout = 1500 * time.Millisecond
	var nodes []*servers.OwnRedis
	var addrs []string
	for range 6 {
		n := servers.StartOwnRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", "--cluster-require-full-coverage", "no")
		nodes, addrs = append(nodes, n), append(addrs, n.Addr())
	}
	create := append([]string{"--cluster", "create"}, addrs...)
	redisCLI(t, append(create, "--cluster-replicas", "1", "--cluster-yes")...)
	url := "redis+cluster://" + strings.Join(addrs, ",")
	await(t, "the cluster", func() bool {
		for _, n := range nodes {
			out, _ := exec.Command("redis-cli", "-p", strconv.Itoa(n.Port), "cluster", "nodes").Output()
			if strings.Count(string(out), "slave") != 3 || strings.Contains(string(out), "handshake") {
				return false
			}
		}
		return true
	})
	c := openURL(t, url).(*goredis.ClusterClient)
	s := NewStock(c, StockOptions{})
	spec := freshSpec(1000)
	await(t, "the first write", func() bool {
		_, err := s.Warm(t.Context(), spec)
		return err == nil
	})
	sold(t, s, spec, 0, 5)

	// The slot is half moved: scripts are answered TRYAGAIN or follow ASK, and nothing is taken twice.
	slot := int(c.ClusterKeySlot(t.Context(), keysOf(spec.Ref).stock()).Val())
	from, err := c.MasterForKey(t.Context(), keysOf(spec.Ref).stock())
	if err != nil {
		t.Fatal(err)
	}
	var to *goredis.Client
	for _, n := range nodes {
		p := openURL(t, n.URL()).(*goredis.Client)
		role, _ := p.Do(t.Context(), "role").Slice()
		if len(role) > 0 && role[0] == "master" && n.Addr() != from.Options().Addr {
			to = p
		}
	}
	id := func(p *goredis.Client) string { return p.Do(t.Context(), "cluster", "myid").Val().(string) }
	must := func(p *goredis.Client, args ...any) {
		t.Helper()
		if err := p.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	must(to, "cluster", "setslot", slot, "importing", id(from))
	must(from, "cluster", "setslot", slot, "migrating", id(to))
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	must(from, "migrate", host, port, keysOf(spec.Ref).stock(), 0, 5000) // one key of eight
	a := someArgs()
	a.Ref, a.UserID, a.ReservationID = spec.Ref, "78888888", "r_moving"
	if r, err := s.Reserve(t.Context(), a); !errors.Is(err, admission.ErrUnavailable) || KindOf(err) != KindTryAgain {
		t.Errorf("half moved: %+v, %v; want TRYAGAIN as unavailable", r, err)
	}
	for {
		keys, err := from.ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			must(from, "migrate", host, port, k, 0, 5000)
		}
	}
	must(to, "cluster", "setslot", slot, "node", id(to))
	must(from, "cluster", "setslot", slot, "node", id(to))
	// Another primary answers: another run_id. The SKU waits for a restore, then sells on.
	if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.ReserveClosed {
		t.Errorf("moved: %+v, %v; want closed", r, err)
	}
	reopen := func() {
		t.Helper()
		if _, err := s.CloseSKU(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if err := s.Reopen(t.Context(), spec.Ref, 0); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.Reserved {
		t.Errorf("moved and reopened: %+v, %v", r, err)
	}
	if n, err := s.Tally(t.Context(), spec.Ref); err != nil || !n.Conserved() || n.Live != 6 {
		t.Fatalf("moved: %+v, %v", n, err)
	}

	// kill -9 of the primary that has it now.
	await(t, "its replica to hold everything", func() bool { return s.Replicas(t.Context(), spec.Ref, 1, time.Second) == nil })
	for _, n := range nodes {
		if n.Addr() == to.Options().Addr {
			n.Kill()
		}
	}
	killed := time.Now()
	a.UserID, a.ReservationID = "78888889", "r_after"
	await(t, "an answer after the kill", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		r, err := s.Reserve(ctx, a)
		if err == nil && r.Code != admission.ReserveClosed {
			t.Fatalf("after the kill: %+v; want closed until restored", r)
		}
		return err == nil
	})
	t.Logf("answers %v after the kill, node timeout %v", time.Since(killed).Round(10*time.Millisecond), nodeTimeout)
	reopen()
	if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.Reserved {
		t.Errorf("restored: %+v, %v", r, err)
	}
	if n, err := s.Tally(t.Context(), spec.Ref); err != nil || !n.Conserved() || n.Live != 7 {
		t.Errorf("restored: %+v, %v", n, err)
	}
}

func redisCLI(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
	}
}

// await asks until it is so: another process, which nothing tells about.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Through Sentinel the client finds the primary, and the new one after a failover.
func TestSentinelFailover(t *testing.T) {
	primary, replica := servers.StartOwnRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartOwnRedis(t)
	watch := servers.StartOwnSentinel(t, primary)
	if err := openURL(t, replica.URL()).(*goredis.Client).ReplicaOf(t.Context(), "127.0.0.1", strconv.Itoa(primary.Port)).Err(); err != nil {
		t.Fatal(err)
	}
	s := NewStock(openURL(t, "redis+sentinel://"+watch.Addr()+"/mymaster"), StockOptions{})
	spec := freshSpec(10)
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := s.Policy(t.Context()); err != nil {
		t.Error(err)
	}
	sold(t, s, spec, 0, 3)
	await(t, "the replica", func() bool { return s.Replicas(t.Context(), spec.Ref, 1, time.Second) == nil })
	look := openURL(t, watch.URL())
	await(t, "the sentinel to know the replica", func() bool {
		replicas, err := look.(*goredis.Client).Do(t.Context(), "sentinel", "replicas", "mymaster").Slice()
		return err == nil && len(replicas) == 1
	})
	primary.Kill()
	killed := time.Now()
	a := someArgs()
	a.Ref, a.UserID, a.ReservationID = spec.Ref, "79999999", "r_new"
	await(t, "an answer of the new primary", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r, err := s.Reserve(ctx, a)
		if err == nil && r.Code != admission.ReserveClosed {
			t.Fatalf("after the failover: %+v, want closed until restored", r)
		}
		return err == nil
	})
	t.Logf("answers %v after the kill", time.Since(killed).Round(10*time.Millisecond))
	if n, err := s.Tally(t.Context(), spec.Ref); err != nil || !n.Conserved() || n.Live != 3 {
		t.Errorf("%+v, %v", n, err)
	}
}
