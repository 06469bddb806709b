package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// onLimiterStores runs a suite on every way to run the limiter store. Database 9 of the
// single server is these tests' own.
func onLimiterStores(t *testing.T, suite func(t *testing.T, c goredis.UniversalClient)) {
	t.Run("embedded", func(t *testing.T) { suite(t, openEmbedded(t)) })
	t.Run("single", func(t *testing.T) {
		servers.Need(t, servers.LimiterRedis())
		suite(t, openStore(t, servers.LimiterRedis()+"/9"))
	})
	t.Run("cluster", func(t *testing.T) {
		servers.Need(t, servers.ClusterRedis())
		suite(t, openStore(t, servers.ClusterRedis()))
	})
}

func openEmbedded(t *testing.T) goredis.UniversalClient {
	t.Helper()
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return openStore(t, s.URL())
}

func openStore(t *testing.T, url string) goredis.UniversalClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), busy)
	defer cancel()
	c, err := Open(ctx, url, Options{Name: "limiter", Timeout: busy, PoolTimeout: busy, DialTimeout: busy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestNonces(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		conformance.Nonces(t, func(*testing.T) admission.Nonces { return NewNonces(c) })
	})
}

func TestLeases(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		conformance.Leases(t, func(*testing.T) conformance.LeaseStore {
			return conformance.LeaseStore{Leases: NewLeases(c), Pass: time.Sleep}
		})
	})
}

func TestRoom(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		conformance.Room(t, func(*testing.T) admission.Room { return NewRoom(c) })
	})
}

func TestFleet(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		// others may read the mark of a shared server: leave it as it was
		before, err := NewFleet(c).HighWater(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Set(context.Background(), highWaterKey, before, 0).Err() })
		conformance.Fleet(t, func(*testing.T) admission.Fleet { return NewFleet(c) })
	})
}

func TestLeadership(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		conformance.Leadership(t, func(*testing.T) admission.Leadership { return NewLeadership(c) })
	})
}

func TestLimiters(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		conformance.Limiters(t, func(*testing.T) conformance.LimiterStore {
			return conformance.LimiterStore{Limiters: NewLimiters(c), Pass: time.Sleep}
		})
	})
}

func TestRoundTrips(t *testing.T) {
	onLimiterStores(t, func(t *testing.T, c goredis.UniversalClient) {
		asks := []admission.LeaseAsk{
			{Ref: leaseRef, InstanceID: "one", Seq: 1, Want: 1, Weight: 1, LeaseFor: time.Second, Ramp: 1},
			{Ref: admission.SKURef{ActivityID: leaseRef.ActivityID}, InstanceID: "one", Seq: 1, Want: 1, Weight: 1, LeaseFor: time.Second, Ramp: 1},
		}
		claim := admission.ClaimArgs{UserID: "1", Nonce: "nonce-01", RequestID: "request1", BodyHash: "x", Ref: leaseRef, TTL: time.Second}
		for range 2 { // the first time the scripts may be unknown
			for what, call := range map[string]struct {
				commands int
				run      func(ctx context.Context) error
			}{
				"claim": {1, func(ctx context.Context) error { _, err := NewNonces(c).Claim(ctx, claim); return err }},
				"ask":   {2, func(ctx context.Context) error { _, err := NewLeases(c).Ask(ctx, asks); return err }},
				"join": {1, func(ctx context.Context) error {
					_, err := NewRoom(c).Join(ctx, "1", admission.Place{UserID: "1", Lane: "default", Sequence: 1}, time.Time{})
					return err
				}},
			} {
				_ = call.run(t.Context())
				ctx, count := CountCommands(t.Context())
				if err := call.run(ctx); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if count.Trips() != 1 || count.Commands() != call.commands {
					t.Errorf("%s: %d commands in %d trips, want %d in 1", what, count.Commands(), count.Trips(), call.commands)
				}
			}
		}
	})
}
