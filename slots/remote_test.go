package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// remoteLimits answers as told and counts.
type remoteLimits struct {
	takes []admission.Take
	taken admission.Taken
	err   error
}

func (l *remoteLimits) Take(_ context.Context, takes []admission.Take) ([]admission.Taken, error) {
	l.takes = append(l.takes, takes...)
	return []admission.Taken{l.taken}, l.err
}

const remoteOn = `"stages":{"remote_user":"on"},` + wideUser

func TestRemoteUser(t *testing.T) {
	for name, c := range map[string]struct {
		document string
		limits   remoteLimits
		outcome  admission.Outcome
		stage    admission.Stage
		claims   int64
		takes    int
		given    int64 // lease tokens
	}{
		"off unless switched on": {quiet(""), remoteLimits{}, admission.Pass, admission.StageNone, 1, 0, 0},
		"allowed":                {quiet(remoteOn), remoteLimits{taken: admission.Taken{OK: true}}, admission.Pass, admission.StageNone, 1, 1, 0},
		"refused":                {quiet(remoteOn), remoteLimits{taken: admission.Taken{RetryAfter: 3 * time.Second}}, admission.RateLimited, admission.StageRemoteUser, 0, 1, 1},
		"store away":             {quiet(remoteOn), remoteLimits{err: admission.ErrUnavailable}, admission.DependencyUnavailable, admission.StageRemoteUser, 0, 1, 0},
		"its answer is an error": {quiet(remoteOn), remoteLimits{taken: admission.Taken{OK: true, Err: errors.New("WRONGTYPE")}}, admission.DependencyUnavailable, admission.StageRemoteUser, 0, 1, 0},
		"shadow":                 {quiet(`"stages":{"remote_user":"shadow"},` + wideUser), remoteLimits{taken: admission.Taken{}}, admission.Pass, admission.StageNone, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.document)
			b.gate.config.Limiters = &c.limits
			req := b.request("7")
			b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
			d := b.gate.Reserve(t.Context(), req)
			b.want(d, c.outcome, c.stage)
			req.End(d)
			if b.claims.Load() != c.claims || len(c.limits.takes) != c.takes || b.given.Load() != c.given {
				t.Errorf("%d claims, %d takes, %d tokens given back; want %d, %d, %d", b.claims.Load(), len(c.limits.takes), b.given.Load(), c.claims, c.takes, c.given)
			}
			if name == "refused" && (d.RetryAfter != 3*time.Second || d.Outcome.Row().HTTP != 429) {
				t.Errorf("%+v", d)
			}
			if shadows := testutil.ToFloat64(b.gate.metrics.shadows[admission.StageRemoteUser]); (shadows == 1) != (name == "shadow") {
				t.Errorf("%v shadow refusals", shadows)
			}
		})
	}
}

func TestRemoteTake(t *testing.T) {
	b := newBed(t, quiet(""))
	for _, c := range []struct {
		rate   float64
		tokens int64
		period time.Duration
	}{
		{0, 0, time.Second}, {0.5, 1, 2 * time.Second}, {1, 1, time.Second}, {2.5, 1, 400 * time.Millisecond}, {1e9, 1e6, time.Millisecond},
	} {
		req := b.request("7")
		req.UserID = "7"
		got := remoteTake(req, rules.NewLimit(c.rate, 3, ""))
		if got.Tokens != c.tokens || got.Period != c.period || got.Capacity != 3 || got.Cost != 1 || got.Key != "rl:user:{u:7}:a:10001:s:90001" {
			t.Errorf("%v/s: %+v", c.rate, got)
		}
	}
}

// TestRemoteUserCostsOneRoundTrip through the real script: two instances share one bucket,
// and each submit that asks sends one command more.
func TestRemoteUserCostsOneRoundTrip(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := redis.Open(t.Context(), server.URL(), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := redis.Preload(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	const document = `"stages":{"remote_user":"on"},"limits":{"user":{"rate_per_s":0.001,"burst":3}}`
	counter := &counted{Limiters: redis.NewLimiters(client)}
	var passed int
	for range 2 {
		b := newBed(t, quiet(document))
		b.gate.config.Limiters = counter
		b.gate.config.Budgets = func() Budgets { return Budgets{Claim: 5 * time.Second} }
		for range 3 {
			req := b.request("7")
			b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
			d := b.gate.Reserve(t.Context(), req)
			if !d.Refused() {
				passed++
			} else {
				b.want(d, admission.RateLimited, admission.StageRemoteUser)
			}
			req.End(d)
		}
	}
	if passed != 3 || counter.calls != 6 {
		t.Errorf("%d passed in %d round trips on two instances; want the burst of 3 in 6", passed, counter.calls)
	}
}

// TestRemoteUserAtOddRates: whatever rate and burst the rules let through, the script can
// count. The buckets are an hour's or a moment's, and each user's own.
func TestRemoteUserAtOddRates(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for name, url := range map[string]string{"embedded": server.URL(), "redis": servers.LimiterRedis()} {
		t.Run(name, func(t *testing.T) {
			if name == "redis" {
				servers.Need(t, url)
			}
			testOddRates(t, url)
		})
	}
}

func testOddRates(t *testing.T, url string) {
	client, err := redis.Open(t.Context(), url, redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := redis.Preload(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	hotspot := func(threshold, seconds int) string {
		return fmt.Sprintf(`{"schema":1,"version":1,"stages":{"remote_user":"on"},"sentinel":{"flow":"none","system":"none","isolation":"none","circuitbreaker":"none",
			"hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"user","threshold":%d,"durationInSec":%d}]}}`, threshold, seconds)
	}
	decimal := func(rate, burst string) string {
		return quiet(`"stages":{"remote_user":"on"},"limits":{"user":{"rate_per_s":` + rate + `,"burst":` + burst + `}}`)
	}
	for _, c := range []struct {
		document string
		burst    int           // above 5: more than we take
		wait     time.Duration // of whoever comes when the bucket is empty, at most; 0: none comes
	}{
		{hotspot(1, 3600), 1, 3600 * time.Second},
		{hotspot(1, 7001), 1, maxRetryAfter},
		{hotspot(2, 3601), 2, 1801 * time.Second},
		{hotspot(1, 3), 9, 0}, {hotspot(2, 3), 9, 0}, {hotspot(1, 7), 9, 0}, {hotspot(1, 2), 9, 0}, {hotspot(999_999_999, 86_399), 9, 0},
		{decimal("0.00033333333333333", "2"), 2, 3001 * time.Second},
		{decimal("3e-10", "1"), 1, maxRetryAfter},
		{decimal("0.333333333333", "900719925"), 9, 0}, {decimal("123456.789", "900719925474"), 9, 0},
		{decimal("999999999.9", "900719925474"), 9, 0}, {decimal("1e9", "900719925474"), 9, 0},
	} {
		user := strconv.FormatInt(rand.Int64N(1<<62)+1, 10)
		for i := range min(c.burst, 5) + 1 {
			if c.wait == 0 && i > 0 {
				break
			}
			b := newBed(t, c.document) // another instance: its own bucket is full
			b.gate.config.Limiters = redis.NewLimiters(client)
			b.gate.config.Budgets = func() Budgets { return Budgets{Claim: 5 * time.Second} }
			req := b.request(user)
			b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
			d := b.gate.Reserve(t.Context(), req)
			if i < c.burst {
				if d.Refused() {
					t.Fatalf("%s: request %d: %v at %v (%v, %v)", c.document, i, d.Outcome, d.Stage, d.Reason, d.Cause)
				}
			} else if b.want(d, admission.RateLimited, admission.StageRemoteUser); d.RetryAfter > c.wait || d.RetryAfter < c.wait-time.Minute {
				t.Errorf("%s: come back in %v, want %v and not much less", c.document, d.RetryAfter, c.wait)
			}
			req.End(d)
		}
	}
}

type counted struct {
	admission.Limiters
	calls int
}

func (c *counted) Take(ctx context.Context, takes []admission.Take) ([]admission.Taken, error) {
	c.calls++
	return c.Limiters.Take(ctx, takes)
}

func TestTop(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"source":{"rate_per_s":10000,"burst":10000}}`))
	for i := range 5000 {
		user := "7"
		if i%5 == 0 {
			user = "8"
		}
		b.clock += 1_700_013 // arrivals, ns
		b.gate.Enter(b.request(user))
	}
	top := b.gate.Top(5)
	if len(top.Users) != 2 || len(top.Sources) != 2 || len(top.SKUs) != 1 || top.SKUs[0].Key != "10001:90001" {
		t.Fatalf("%+v", top)
	}
	// 250 of 4000 are counted; within five standard deviations
	if n := top.Users[0].Requests; n < 2800 || n > 5200 || top.Users[0].Key == "7" || top.Users[0].Key != b.gate.config.HashUser("7") {
		t.Errorf("%+v, want about 4000 of user 7, hashed", top.Users[0])
	}
	if top.Sources[0].Key != sourceHash(b.request("7").SourceKey) {
		t.Errorf("%+v", top.Sources[0])
	}
	if top := b.gate.Top(1); len(top.Users) != 1 || len(top.Sources) != 1 {
		t.Errorf("%+v", top)
	}
}

// TestQuota is what the RateLimit headers say of a user's bucket.
func TestQuota(t *testing.T) {
	b := newBed(t, quiet(`"limits":{"user":{"rate_per_s":0.5,"burst":3}}`))
	for i, want := range []admission.Quota{
		{Limit: 3, Window: 6 * time.Second, Remaining: 2, Reset: 2 * time.Second},
		{Limit: 3, Window: 6 * time.Second, Remaining: 1, Reset: 4 * time.Second},
		{Limit: 3, Window: 6 * time.Second, Remaining: 0, Reset: 6 * time.Second},
		{Limit: 3, Window: 6 * time.Second, Remaining: 0, Reset: 6 * time.Second},
	} {
		req := b.request("7")
		d := b.gate.Enter(req)
		if req.Quota != want {
			t.Errorf("call %d: %+v, want %+v", i+1, req.Quota, want)
		}
		if refused := i == 3; d.Refused() != refused || refused && d.RetryAfter != 2*time.Second {
			t.Errorf("call %d: %+v", i+1, d)
		}
	}
	req := b.request("8")
	req.Ticket = "forged" // nobody's bucket was asked
	b.gate.Enter(req)
	if req.Quota != (admission.Quota{}) {
		t.Errorf("%+v of nobody", req.Quota)
	}
	status := b.request("9")
	if b.gate.Call(admission.CallStatus, status); status.Quota.Limit != 10 || status.Quota.Remaining != 9 {
		t.Errorf("%+v of a status query", status.Quota)
	}
}
