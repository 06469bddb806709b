package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// busy is what a call may take where time is not what is tested: the machine may be busy.
const busy = 20 * time.Second

func someArgs() admission.ReserveArgs {
	return admission.ReserveArgs{
		Ref: admission.SKURef{ActivityID: "10001", SKUID: "90001"}, Version: 1, UserID: "70000001", RequestID: "request_1",
		ReservationID: "r_1", BodyHash: "h", Quantity: 1, MaxAttempts: 1, SendGrace: time.Second, RecordTTL: time.Hour,
	}
}

// What Redis answers in bad hours refuses the purchase and says whether it may have happened.
func TestBadRepliesAreFaults(t *testing.T) {
	const done, unknown = "unavailable", "unknown"
	for reply, want := range map[string]struct {
		kind Kind
		is   string
	}{
		"-LOADING Redis is loading the dataset in memory":                              {KindLoading, done},
		"-READONLY You can't write against a read only replica.":                       {KindReadOnly, done},
		"-OOM command not allowed when used memory > 'maxmemory'.":                     {KindOOM, done},
		"-NOAUTH Authentication required.":                                             {KindAuth, done},
		"-WRONGPASS invalid username-password pair or user is disabled.":               {KindAuth, done},
		"-NOPERM this user has no permissions to run the 'evalsha' command":            {KindAuth, done},
		"-WRONGTYPE Operation against a key holding the wrong kind of value":           {KindWrongType, done},
		"-ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation": {KindWrongType, done},
		"-BUSY Redis is busy running a script.":                                        {KindBusy, done},
		"-TRYAGAIN Multiple keys request during rehashing of slot":                     {KindTryAgain, done},
		"-CLUSTERDOWN Hash slot not served":                                            {KindClusterDown, done},
		"-MASTERDOWN Link with MASTER is down":                                         {KindMasterDown, done},
		"-NOREPLICAS Not enough good replicas to write.":                               {KindNoReplicas, done},
		"-MISCONF Redis is configured to save RDB snapshots":                           {KindMisconf, done},
		"-CROSSSLOT Keys in request don't hash to the same slot":                       {KindCrossSlot, done},
		"-MOVED 1 127.0.0.1:1":                                                         {KindRedirect, done},
		"-ERR max number of clients reached":                                           {KindMaxClients, done},
		"-BADARGS reserve: want 8 keys and 9 arguments":                                {KindArguments, done},
		"-ERR user_script:12: attempt to compare number with nil":                      {KindReply, unknown},
		"-SOMETHING new":             {KindReply, unknown},
		"+OK":                        {KindShape, unknown},
		":1":                         {KindShape, unknown},
		"*0":                         {KindShape, unknown},
		"*1\r\n:1":                   {KindShape, unknown},
		"*2\r\n$8\r\nRESERVED\r\n:1": {KindShape, unknown},
		"$10\r\nRESERVED|1":          {KindShape, unknown},
		"$18\r\nRESERVED|1|2|3|four": {KindShape, unknown},
		"*1\r\n$5\r\nMAYBE":          {KindShape, unknown},
		"*2\r\n$7\r\nMISSING\r\n:1":  {KindShape, unknown},
		"":                           {KindConnection, unknown},
	} {
		t.Run(reply, func(t *testing.T) {
			f := startFake(t, func([]string) string {
				if reply == "" {
					return "" // closes the connection
				}
				return reply + "\r\n"
			})
			metrics := NewMetrics(prometheus.NewRegistry())
			c, err := Open(t.Context(), "redis://"+f.addr(), Options{Name: "stock", Metrics: metrics, Timeout: busy, DialTimeout: busy, PoolTimeout: busy})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			r, err := NewStock(c, StockOptions{}).Reserve(t.Context(), someArgs())
			if r.Code != admission.ReserveNone {
				t.Errorf("code %d: a fault is no answer", r.Code)
			}
			sentinel := admission.ErrUnavailable
			if want.is == unknown {
				sentinel = admission.ErrUnknownResult
			}
			if !errors.Is(err, sentinel) || KindOf(err) != want.kind {
				t.Errorf("got %v, want %v of kind %s", err, sentinel, want.kind)
			}
			if n := f.times("evalsha") + f.times("eval"); n != 1 {
				t.Errorf("sent %d times, want once", n)
			}
			if want.kind != KindShape { // a shape is seen above the driver
				if n := testutil.ToFloat64(metrics.errors.WithLabelValues("stock", string(want.kind))); n != 1 {
					t.Errorf("kind %s is counted %v times, want once", want.kind, n)
				}
			}
		})
	}
}

// On Cluster too a script whose reply was lost, or that the server refused for now, is sent
// once: the cluster client alone would send it four times.
func TestClusterSendsAScriptOnce(t *testing.T) {
	for reply, sentinel := range map[string]error{
		"": admission.ErrUnknownResult,
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n": admission.ErrUnavailable,
		"-CLUSTERDOWN Hash slot not served\r\n":                        admission.ErrUnavailable,
		"-LOADING Redis is loading the dataset in memory\r\n":          admission.ErrUnavailable,
	} {
		f := startFake(t, func([]string) string { return reply })
		s := NewStock(openURL(t, "redis+cluster://"+f.addr()), StockOptions{})
		if _, err := s.Reserve(t.Context(), someArgs()); !errors.Is(err, sentinel) {
			t.Errorf("%q: got %v, want %v", reply, err, sentinel)
		}
		if n := f.times("evalsha"); n != 1 {
			t.Errorf("%q: reserve was sent %d times, want once", reply, n)
		}
		verdict := admission.Verdict{
			Ref: someArgs().Ref, ReservationID: "r_1", UserID: "1", RequestID: "request_1", BodyHash: "h", Quantity: 1,
			CreatedAt: time.Now(), Outcome: admission.VerdictCreated, OrderStatus: admission.OrderCreated, ClosesAt: time.Now(),
		}
		if err := s.Apply(t.Context(), []admission.Verdict{verdict}); !errors.Is(err, sentinel) {
			t.Errorf("%q: got %v, want %v", reply, err, sentinel)
		}
		if n := f.times("evalsha"); n != 2 {
			t.Errorf("%q: the effect was sent %d times, want once", reply, n-1)
		}
		if err := s.Postpone(t.Context(), someArgs().Ref, "r_1", time.Now()); !errors.Is(err, sentinel) {
			t.Errorf("%q: got %v, want %v", reply, err, sentinel)
		}
		if n := f.times("zadd"); n != 1 {
			t.Errorf("%q: postpone was sent %d times, want once", reply, n)
		}
	}
}

// MOVED and ASK say that nothing was done: they are followed.
func TestClusterFollowsRedirects(t *testing.T) {
	there := startFake(t, func(cmd []string) string {
		if strings.EqualFold(cmd[0], "asking") {
			return "+OK\r\n"
		}
		return "*1\r\n$7\r\nVERSION\r\n"
	})
	for _, word := range []string{"MOVED", "ASK"} {
		before := there.times("evalsha")
		here := startFake(t, func([]string) string { return fmt.Sprintf("-%s 1 %s\r\n", word, there.addr()) })
		s := NewStock(openURL(t, "redis+cluster://"+here.addr()), StockOptions{})
		if r, err := s.Reserve(t.Context(), someArgs()); err != nil || r.Code != admission.ReserveVersion {
			t.Errorf("%s: %+v, %v", word, r, err)
		}
		if n := there.times("evalsha") - before; n != 1 {
			t.Errorf("%s: executed %d times, want once", word, n)
		}
	}
	if there.times("asking") != 1 {
		t.Error("ASK was not followed by ASKING")
	}
}

func TestNobodyThereIsUnavailable(t *testing.T) {
	addr := servers.Reserve(t).String()
	if _, err := Open(t.Context(), "redis://user:secret@"+addr, Options{DialTimeout: busy}); !errors.Is(err, admission.ErrUnavailable) ||
		KindOf(err) != KindDial || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	f := startFake(t, func([]string) string { return "*1\r\n$7\r\nVERSION\r\n" })
	s := NewStock(openURL(t, "redis://"+f.addr()), StockOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Reserve(ctx, someArgs()); !errors.Is(err, admission.ErrUnavailable) || KindOf(err) != KindExpired {
		t.Errorf("got %v", err)
	}
	if f.times("evalsha") != 0 {
		t.Error("it was sent all the same")
	}
}

// R04: NOSCRIPT is answered by one EVAL, also for some commands of a pipeline.
func TestR04ForgottenScripts(t *testing.T) {
	for _, url := range []string{servers.StockRedis(), servers.ClusterRedis()} {
		c := openStock(t, url)
		s := NewStock(c, StockOptions{})
		verdicts := make([]admission.Verdict, 6)
		for i := range verdicts { // SKUs of several nodes in one pipeline
			spec := freshSpec(10)
			if _, err := s.Warm(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Remove(context.Background(), spec.Ref) })
			verdicts[i] = admission.Verdict{
				Ref: spec.Ref, ReservationID: "r_1", UserID: "70000001", RequestID: "request_1", BodyHash: "h", Quantity: 1,
				CreatedAt: time.Now(), Outcome: admission.VerdictCreated, OrderStatus: admission.OrderCreated, OrderID: "7",
				ClosesAt: spec.ClosesAt,
			}
		}
		forget := func() {
			if err := eachPrimary(t.Context(), c, func(ctx context.Context, p *goredis.Client) error {
				return p.ScriptFlush(ctx).Err()
			}); err != nil {
				t.Fatal(err)
			}
		}
		forget()
		if err := s.Apply(t.Context(), verdicts); err != nil {
			t.Errorf("%s: pipeline after SCRIPT FLUSH: %v", url, err)
		}
		forget()
		for _, v := range verdicts {
			a := someArgs()
			a.Ref, a.UserID, a.ReservationID = v.Ref, "70000002", "r_2"
			if r, err := s.Reserve(t.Context(), a); err != nil || r.Code != admission.Reserved {
				t.Errorf("%s: reserve after SCRIPT FLUSH: %+v, %v", url, r, err)
			}
			if n, err := s.Tally(t.Context(), v.Ref); err != nil || n.Remaining != 8 || !n.Conserved() {
				t.Errorf("%s: %+v, %v", url, n, err)
			}
		}
	}
}

// freshSpec is an open SKU of an activity that nobody else uses.
func freshSpec(total int64) admission.StockSpec {
	now := time.Now()
	return admission.StockSpec{
		Ref:     admission.SKURef{ActivityID: fmt.Sprint(now.UnixNano()), SKUID: "90001"},
		Version: 1, Total: total, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour),
	}
}

// R06: a stalled Redis costs every caller its own deadline and no more, and the pool's
// queue and the goroutines stay bounded.
func TestR06StalledRedis(t *testing.T) {
	url := servers.StockRedis()
	servers.Need(t, url)
	proxy := toxiproxy.NewProxy(
		toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop()),
		"stock", "127.0.0.1:0", strings.TrimPrefix(url, "redis://"))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	c, err := Open(t.Context(), "redis://"+proxy.Listen, Options{PoolSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s := NewStock(c, StockOptions{})
	spec := freshSpec(1000)
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Remove(context.Background(), spec.Ref) }()
	toxic := strings.NewReader(`{"type":"latency","stream":"downstream","attributes":{"latency":400}}`)
	if _, err := proxy.Toxics.AddToxicJson(toxic); err != nil {
		t.Fatal(err)
	}

	const callers, budget, slack = 200, 50 * time.Millisecond, 150 * time.Millisecond
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var worst, plain time.Duration // plain: of as many beside them who only wait for the same budget
	most := 0
	for i := range callers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			start := time.Now()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			plain = max(plain, time.Since(start))
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			a := someArgs()
			a.Ref, a.UserID, a.ReservationID = spec.Ref, fmt.Sprintf("7%07d", i), fmt.Sprintf("r_%d", i)
			start := time.Now()
			_, err := s.Reserve(ctx, a)
			took := time.Since(start)
			if !errors.Is(err, admission.ErrUnavailable) && !errors.Is(err, admission.ErrUnknownResult) {
				t.Errorf("caller %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			worst, most = max(worst, took), max(most, runtime.NumGoroutine())
		})
	}
	wg.Wait()
	t.Logf("%d callers of %v: the slowest took %v, who only waited %v, at most %d goroutines more", callers, budget, worst, plain, most-before)
	if worst > max(budget, plain)+slack { // how late a busy machine wakes anybody is not ours
		t.Errorf("the slowest caller took %v of %v, where waiting alone took %v", worst, budget, plain)
	}
	if most-before > 4*callers {
		t.Errorf("%d goroutines for %d callers", most-before, callers)
	}
	// Nobody's script ran twice, and what ran unseen is found by the same request_id.
	if err := proxy.Toxics.RemoveToxic(t.Context(), "latency_downstream"); err != nil {
		t.Fatal(err)
	}
	n, err := s.Tally(t.Context(), spec.Ref)
	if err != nil || !n.Conserved() || n.Reservations > callers || n.Reservations != n.Buyers {
		t.Errorf("%+v, %v", n, err)
	}
}

// A submit's reservation is one command and one round trip; tests and the demonstration
// count by the same hook.
func TestReserveCostsOneRoundTrip(t *testing.T) {
	c := openEmbeddedStock(t)
	s := NewStock(c, StockOptions{})
	spec := freshSpec(1)
	if _, err := s.Warm(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	a := someArgs()
	a.Ref = spec.Ref
	if _, err := s.Reserve(t.Context(), a); err != nil { // loads the script
		t.Fatal(err)
	}
	ctx, count := CountCommands(t.Context())
	a.UserID, a.ReservationID = "70000002", "r_2"
	if r, err := s.Reserve(ctx, a); err != nil || r.Code != admission.ReserveSoldOut {
		t.Fatalf("%+v, %v", r, err)
	}
	if count.Commands() != 1 || count.Trips() != 1 {
		t.Errorf("%d commands in %d round trips, want 1 in 1", count.Commands(), count.Trips())
	}
	_, other := CountCommands(t.Context())
	if other.Commands() != 0 || other.Trips() != 0 {
		t.Error("another request's count moved")
	}
}
