package rows

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/guard"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/order"
	"github.com/sluice-io/sluice/app/session"
	"github.com/sluice-io/sluice/app/soldout"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/rules"
	"github.com/sluice-io/sluice/slots"
)

// unread builds the lines that the service would write.
func unread() *slog.Logger {
	return slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // a discarding handler builds none
}

// funnelStores are what a submit waits for.
type funnelStores struct {
	nonces admission.Nonces
	stock  admission.Stock
}

func redisStores(c goredis.UniversalClient) funnelStores {
	return funnelStores{redis.NewNonces(c), redis.NewStock(c, redis.StockOptions{})}
}

func memoryStores() funnelStores { return funnelStores{firstClaim{}, fullStock{}} }

// fullStock reserves at once.
type fullStock struct{ admission.Stock }

func (fullStock) Reserve(_ context.Context, a admission.ReserveArgs) (admission.ReserveResult, error) {
	return admission.ReserveResult{Code: admission.Reserved, Record: admission.RequestRecord{RequestID: a.RequestID, ReservationID: a.ReservationID}}, nil
}

func (fullStock) MarkSent(context.Context, admission.SKURef, []string, time.Time) error { return nil }

// ackQueue acknowledges at once.
type ackQueue struct{ admission.Queue }

func (ackQueue) Send(context.Context, []string, [][]byte) error { return nil }

// funnel is a service as app wires it, from its public handler down to the stores: what a
// submit does not meet is left out. A lease always has a token.
type funnel struct {
	handler  http.Handler
	session  keys.Key
	ring     *ticket.Ring
	activity *admission.Activity
	close    func()
}

func newFunnel(s submits, k funnelKeys, stores funnelStores) *funnel {
	log := unread()
	if err := rules.InitSentinel(log); err != nil {
		panic(err)
	}
	now := func() time.Time { return time.Now().UTC() }
	f := &funnel{session: k.session}
	f.activity = &admission.Activity{
		ID: sku.ActivityID, Version: 3, PathID: "p_0123456789", OpensAt: now().Add(-time.Hour), ClosesAt: now().Add(time.Hour), MaxAttempts: 1,
		SKUs: []admission.SKU{{ID: sku.SKUID, Stock: 100, LimitPerUser: 1}},
	}
	f.ring = must(ticket.NewRing(must(keys.NewSet(k.ticket)), ticket.Config{}))
	sessions := must(session.NewVerifier(must(keys.NewSet(k.session)), session.Config{}))
	deriver := must(ticket.NewDeriver(k.nonce))
	reg, clock, hasher := prometheus.NewRegistry(), limit.NewClock(), limit.NewHasher()
	refs := []admission.SKURef{sku}
	board := soldout.New(emptyStock{}, func() int64 { return int64(clock.Now()) }, soldout.NewMetrics(reg))
	board.Serve(refs, func(admission.SKURef) time.Duration { return time.Hour })
	if s.soldOut {
		if err := board.Step(context.Background()); err != nil {
			panic(err)
		}
	}
	limiterBreaker, stockBreaker := guard.NewBreaker("limiter", guard.DefaultPolicy()), guard.NewBreaker("stock", guard.DefaultPolicy())
	const long = 5 * time.Second // the callers' processor is the server's too: nobody shall run out of time
	gate := must(slots.NewGate(slots.Config{
		Verify: func(token string, at time.Time) (string, bool) {
			id, reason := sessions.Verify(token, at)
			return id.UserID, reason == session.OK
		},
		Ring: f.ring, Board: board, Nonces: guard.NewNonces(stores.nonces, limiterBreaker), Hasher: hasher, Clock: clock.Now,
		Spend: func(context.Context, admission.SKURef) (func(), admission.Decision) {
			return func() {}, admission.Decision{}
		},
		Budgets:   func() slots.Budgets { return slots.Budgets{Claim: long} },
		SourceKey: func(p netip.Prefix) uint64 { return source.PrefixKey(hasher, p) }, Registerer: reg,
	}))
	applier := rules.NewApplier(rules.Config{InstanceID: "bench"})
	document := chain{user: map[bool]string{true: "0"}[s.limited]}.document()
	if err := applier.Apply(context.Background(), rules.Update{Raw: []byte(document), At: sale}, "bench"); err != nil {
		panic(err)
	}
	gate.Apply(applier.Snapshot(), refs, clock.Now())

	metrics := order.NewMetrics(reg)
	marks := order.NewMarks(stores.stock, order.MarksConfig{}, metrics, log)
	sender := must(order.NewSender(ackQueue{}, order.SenderConfig{}, marks.Add, metrics))
	placer := must(order.NewPlacer(guard.NewStock(stores.stock, stockBreaker), sender, order.PlacerConfig{
		ReservationID: func(ref admission.SKURef, user, request string) string {
			return deriver.ReservationID(ref.ActivityID, ref.SKUID, user, request)
		},
		Budgets: func() order.Budgets { return order.Budgets{Stock: long, Queue: 25 * time.Millisecond, Replicas: long} },
		SoldOut: board.Observe,
	}, metrics, log))
	resolver := must(source.NewResolver(source.Config{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	counted, logs := httpapi.NewMetrics(reg), httpapi.NewLog(log, now, func(user string) string { return user })
	f.handler = httpapi.New(httpapi.Deps{
		Now: now, Mono: func() int64 { return int64(clock.Now()) }, Jitter: rand.Float64, Log: log,
		ByPath: func(path string) *admission.Activity {
			if path == f.activity.PathID {
				return f.activity
			}
			return nil
		},
		Source: func(in *http.Request, out *admission.Request) {
			got := resolver.Resolve(in.RemoteAddr, in.Header["X-Forwarded-For"])
			key := got.Key(hasher)
			out.SourceKey, out.SourcePrefixKey, out.SourceUnparsable = key.ID, key.Prefix, got.Via == source.Unparsable
		},
		GatewayUser: func(*http.Request) string { return "" },
		Budget:      func() time.Duration { return long },
		Enter:       gate.Enter, Reserve: gate.Reserve, Place: placer.Place, Call: gate.Call,
		ChargeSource: gate.ChargeSource, Served: counted.Served,
		Decided: func(call admission.Call, req *admission.Request, d admission.Decision) {
			counted.Decided(call, req, d)
			logs.Decided(call, req, d)
		},
	})

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = sender.Run(ctx) })
	running.Go(func() { _ = marks.Run(ctx) })
	f.close = func() {
		cancel()
		running.Wait()
	}
	return f
}

// requests are submits of so many people, four behind an address, as a browser behind an edge sends them.
func (f *funnel) requests(people int) [][]byte {
	all, now := make([][]byte, people), time.Now()
	for n, i := range rand.Perm(people) {
		user, device := strconv.Itoa(7_000_000+i), "device-of-7000000-"+strconv.Itoa(i)
		id := "req_01J9ZQ4T8M6W2K7X5C" + strconv.Itoa(1_000_000+i)
		signed := must(f.ring.Issue(ticket.Claims{
			ActivityID: f.activity.ID, SKUID: sku.SKUID, UserID: user, DeviceHash: admission.DeviceHash(device), ActivityVersion: f.activity.Version,
			PathID: f.activity.PathID, Nonce: "n_nonce_of_" + user, NotBefore: now.Add(-time.Second), ExpiresAt: now.Add(time.Hour),
		}))
		bearer := must(session.Mint(f.session, session.MintClaims{UserID: user}, time.Hour, now.Add(-time.Second)))
		body := `{"request_id":"` + id + `","activity_id":"10001","sku_id":"90001","quantity":1}`
		all[n] = fmt.Appendf(nil, "POST /s/%s/%s HTTP/1.1\r\nHost: sale.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"+
			"Accept: application/json\r\nAccept-Language: en-GB,en;q=0.9\r\nX-Forwarded-For: 203.%d.%d.%d\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer %s\r\nIdempotency-Key: %s\r\nX-Device-Id: %s\r\nX-Seckill-Ticket: %s\r\nContent-Length: %d\r\n\r\n%s",
			f.activity.PathID, sku.SKUID, i>>18, i>>10&255, i>>2&255, bearer, id, device, signed, len(body), body)
	}
	return all
}

// funnelKeys sign what the requests carry; funnels that share them answer the same requests.
type funnelKeys struct{ ticket, session, nonce keys.Key }

func newFunnelKeys() funnelKeys {
	return funnelKeys{must(keys.NewOct("ticket")), must(keys.NewOct("session")), must(keys.NewOct("nonce"))}
}
