package redis

import (
	"context"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

func TestMirrorEmbedded(t *testing.T) { mirrorSuite(t, openEmbeddedStock(t)) }
func TestMirrorRedis(t *testing.T)    { mirrorSuite(t, openStock(t, servers.StockRedis())) }
func TestMirrorCluster(t *testing.T)  { mirrorSuite(t, openStock(t, servers.ClusterRedis())) }

func mirrorSuite(t *testing.T, c goredis.UniversalClient) {
	conformance.Mirror(t, func(*testing.T) admission.Mirror { return NewMirror(c) })
}

// A document that this release cannot read keeps the others from vanishing: the whole
// reading fails, and whoever reads keeps what he has.
func TestMirrorIsStrict(t *testing.T) {
	c := openEmbeddedStock(t)
	for name, document := range map[string]string{
		"an unknown field":    `{"schema_version":1,"activity_id":"1","activity_version":1,"skus":[{}],"colour":"red"}`,
		"two documents":       `{"schema_version":1,"activity_id":"1","activity_version":1,"skus":[{}]}{}`,
		"another schema":      `{"schema_version":2,"activity_id":"1","activity_version":1,"skus":[{}]}`,
		"another activity":    `{"schema_version":1,"activity_id":"2","activity_version":1,"skus":[{}]}`,
		"no version":          `{"schema_version":1,"activity_id":"1","skus":[{}]}`,
		"no SKU":              `{"schema_version":1,"activity_id":"1","activity_version":1}`,
		"nothing":             ``,
		"something that ends": `{"schema_version":1`,
	} {
		if err := c.HSet(t.Context(), activityKey("1"), "version", "1", "document", document).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.SAdd(t.Context(), activityIndex, "1").Err(); err != nil {
			t.Fatal(err)
		}
		if all, err := NewMirror(c).Activities(t.Context()); err == nil {
			t.Errorf("%s was read as %+v", name, all)
		}
	}
}

func TestEventsEmbedded(t *testing.T) { eventsSuite(t, openEmbeddedStock(t), false) }
func TestEventsRedis(t *testing.T)    { eventsSuite(t, openStock(t, servers.StockRedis()), true) }
func TestEventsCluster(t *testing.T)  { eventsSuite(t, openStock(t, servers.ClusterRedis()), true) }

func eventsSuite(t *testing.T, c goredis.UniversalClient, kill bool) {
	conformance.Events(t, func(*testing.T) conformance.EventsBackend {
		return conformance.EventsBackend{
			Events: NewEvents(c, time.Now, slog.New(slog.DiscardHandler)),
			Disconnect: func(ctx context.Context) error {
				if !kill {
					return nil // miniredis has no CLIENT KILL; the real servers show it
				}
				return eachPrimary(ctx, c, func(ctx context.Context, p *goredis.Client) error {
					return p.Do(ctx, "client", "kill", "type", "pubsub").Err()
				})
			},
		}
	})
}

func eachPrimary(ctx context.Context, c goredis.UniversalClient, f func(context.Context, *goredis.Client) error) error {
	if cluster, ok := c.(*goredis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, c.(*goredis.Client))
}

// What crosses zero is told once, with the epoch, and published off the path.
func TestCrossingsAreAnnounced(t *testing.T) {
	c := openEmbeddedStock(t)
	log := slog.New(slog.DiscardHandler)
	events := NewEvents(c, time.Now, log)
	announcer := NewAnnouncer(events, log)
	stock := NewStock(c, StockOptions{Crossed: announcer.Crossed})

	ctx, cancel := context.WithCancel(t.Context())
	heard, done := make(chan admission.Event, 10), make(chan struct{}, 2)
	go func() { _ = announcer.Run(ctx); done <- struct{}{} }()
	go func() { _ = events.Listen(ctx, func(e admission.Event) { heard <- e }); done <- struct{}{} }()
	defer func() { cancel(); <-done; <-done }()
	for listening := false; !listening; {
		n, err := c.PubSubNumSub(ctx, eventChannel).Result()
		if err != nil {
			t.Fatal(err)
		}
		listening = n[eventChannel] > 0
	}

	now := time.Now()
	ref := admission.SKURef{ActivityID: "10001", SKUID: "90001"}
	spec := admission.StockSpec{Ref: ref, Version: 1, Total: 1, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour)}
	if _, err := stock.Warm(ctx, spec); err != nil {
		t.Fatal(err)
	}
	args := admission.ReserveArgs{
		Ref: ref, Version: 1, UserID: "70000001", RequestID: "request_1", ReservationID: "r_1", BodyHash: "h",
		Quantity: 1, MaxAttempts: 1, SendGrace: time.Second, RecordTTL: time.Hour,
	}
	if _, err := stock.Reserve(ctx, args); err != nil {
		t.Fatal(err)
	}
	verdict := admission.Verdict{
		ReservationID: "r_1", Ref: ref, UserID: "70000001", RequestID: "request_1", BodyHash: "h", Quantity: 1, CreatedAt: now,
		Outcome: admission.VerdictCreated, OrderID: "7", OrderStatus: admission.OrderCancelled, ClosesAt: spec.ClosesAt,
	}
	if err := stock.Apply(ctx, []admission.Verdict{verdict, verdict}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind  string
		epoch int64
	}{{admission.EventSoldOut, 1}, {admission.EventReopened, 2}} {
		select {
		case e := <-heard:
			if e.Type != want.kind || e.Epoch != want.epoch || e.Incarnation != 1 || e.Version != 1 || e.SKUID != "90001" || e.EmittedAt.IsZero() {
				t.Errorf("heard %+v, want %s of epoch %d", e, want.kind, want.epoch)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was not heard", want.kind)
		}
	}
	if len(heard) != 0 {
		t.Errorf("heard also %+v", <-heard)
	}
}
