package order_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/postgres"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/rocketmq"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
	"github.com/sluice-io/sluice/adapters/sqlite"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// system is one sale of one SKU on real adapters, with faults that a test may inject
// between its parts.
type system struct {
	stock    faultyStock
	orders   faultyOrders
	queue    faultyQueue
	client   goredis.UniversalClient // of the stock store, to break things by hand
	spec     admission.StockSpec
	activity admission.Activity
	metrics  *order.Metrics
}

// everywhere runs a test on the embedded adapters and, unless -short, on the real servers.
func everywhere(t *testing.T, total int64, f func(t *testing.T, s *system)) {
	t.Run("embedded", func(t *testing.T) { f(t, openEmbedded(t, total)) })
	t.Run("servers", func(t *testing.T) { f(t, openServers(t, total)) })
}

func openEmbedded(t *testing.T, total int64) *system {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	orders, err := sqlite.Open(filepath.Join(t.TempDir(), "orders.db"), sqlorders.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := openRedis(t, server.URL())
	queue, err := redis.NewQueue(client, redis.QueueConfig{Consumer: rand.Text(), SendTimeout: busy}, discard())
	if err != nil {
		t.Fatal(err)
	}
	return open(t, client, queue, orders, total)
}

func openServers(t *testing.T, total int64) *system {
	t.Helper()
	for _, a := range []string{servers.StockRedis(), servers.RocketMQ(), servers.Postgres()} {
		servers.Need(t, a)
	}
	id := rand.Text()
	c := rocketmq.Config{
		NameServers: strings.Split(servers.RocketMQ(), ","), SendTimeout: busy,
		Topic: "test_sale_" + id, Group: "test_sale_consumer_" + id,
	}
	if err := errors.Join(
		rocketmqadmin.CreateTopic(servers.RocketMQ(), c.Topic, 4),
		rocketmqadmin.CreateGroup(servers.RocketMQ(), c.Group)); err != nil {
		t.Fatal(err)
	}
	queue, err := rocketmq.Open(c, discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	orders, err := postgres.Open(schema(t), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, openRedis(t, servers.StockRedis()), queue, orders, total)
}

func openRedis(t *testing.T, url string) goredis.UniversalClient {
	t.Helper()
	c, err := redis.Open(t.Context(), url, redis.Options{Name: "stock", Timeout: busy, PoolTimeout: busy, DialTimeout: busy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// schema makes an empty schema and returns the URL that works in it.
func schema(t *testing.T) string {
	t.Helper()
	name := "order_" + strings.ToLower(rand.Text())
	run := func(statement string) error {
		conn, err := pgx.Connect(context.Background(), servers.Postgres())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(context.Background(), statement)
		return err
	}
	if err := run("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run("DROP SCHEMA " + name + " CASCADE") })
	u, err := url.Parse(servers.Postgres())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

func open(t *testing.T, client goredis.UniversalClient, queue admission.Queue, orders admission.Orders, total int64) *system {
	t.Helper()
	t.Cleanup(func() { _ = orders.Close() })
	ctx, now := t.Context(), time.Now().Truncate(time.Millisecond)
	id := strconv.FormatInt(1e17+mathrand.Int64N(8e17), 10)
	a := admission.Activity{
		ID: id, Version: 1, PathID: "path_" + id, Name: "a sale",
		OpensAt: now.Add(-time.Minute), ClosesAt: now.Add(time.Hour), PublishedAt: now,
		SKUs: []admission.SKU{{
			ID: "90001", Name: "a thing", Stock: total, LimitPerUser: 5, Price: admission.Money{Amount: "9.90", Currency: "CNY"},
		}},
		Fairness:         admission.Fairness{Mode: admission.FairnessFIFO},
		RebuyAfterCancel: true, MaxAttempts: 3, PayWithin: 15 * time.Minute,
	}
	stock := redis.NewStock(client, redis.StockOptions{})
	s := &system{
		stock: faultyStock{Stock: stock}, orders: faultyOrders{Orders: orders}, queue: faultyQueue{Queue: queue},
		client: client, activity: a, metrics: order.NewMetrics(nil),
		spec: admission.StockSpec{
			Ref: admission.SKURef{ActivityID: id, SKUID: "90001"}, Version: 1, Total: total, OpensAt: a.OpensAt, ClosesAt: a.ClosesAt,
		},
	}
	if err := orders.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := orders.PublishActivity(ctx, a); err != nil {
		t.Fatal(err)
	}
	if _, err := stock.Warm(ctx, s.spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stock.Remove(context.Background(), s.spec.Ref) })
	if err := queue.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// ref is the SKU on sale.
func (s *system) ref() admission.SKURef { return s.spec.Ref }

// placer runs a Sender, its Marks and a Placer until the test ends.
func (s *system) placer(t *testing.T, change func(*order.PlacerConfig)) *order.Placer {
	t.Helper()
	marks := order.NewMarks(&s.stock, order.MarksConfig{}, s.metrics, discard())
	sender, err := order.NewSender(&s.queue, order.SenderConfig{}, marks.Add, s.metrics)
	if err != nil {
		t.Fatal(err)
	}
	c := order.PlacerConfig{ReservationID: reservationID, Budgets: slow}
	if change != nil {
		change(&c)
	}
	p, err := order.NewPlacer(&s.stock, sender, c, s.metrics, discard())
	if err != nil {
		t.Fatal(err)
	}
	background(t, marks.Run)
	background(t, sender.Run)
	return p
}

// busy is what a call of a store or queue may take here: the machine may be busy, and these
// tests do not test time.
const busy = 20 * time.Second

// slow are budgets for the same reason.
func slow() order.Budgets {
	return order.Budgets{Stock: busy, Queue: busy, Replicas: time.Second}
}

// consume runs the consumer until the test ends or stop is called.
func (s *system) consume(t *testing.T, c order.ConsumerConfig) (stop func()) {
	t.Helper()
	consumer := order.NewConsumer(&s.orders, &s.stock, c, s.metrics, discard())
	return background(t, func(ctx context.Context) error { return consumer.Run(ctx, &s.queue) })
}

func (s *system) recovery() *order.Recovery {
	return order.NewRecovery(&s.stock, &s.orders, &s.queue, order.RecoveryConfig{}, s.metrics, discard())
}

// recover steps at now until nothing is due, as the leader does every second.
func (s *system) recover(t *testing.T, now time.Time) order.RecoveryReport {
	t.Helper()
	var sum order.RecoveryReport
	r := s.recovery()
	for range 20 {
		got, err := r.Step(t.Context(), now, []admission.Activity{s.activity})
		if err != nil {
			t.Fatal(err)
		}
		sum.Resent, sum.Decided, sum.Effects, sum.Unpaid = sum.Resent+got.Resent, sum.Decided+got.Decided, sum.Effects+got.Effects, sum.Unpaid+got.Unpaid
		if got.Resent+got.Decided+got.Effects+got.Unpaid == 0 {
			return sum
		}
		now = now.Add(time.Second)
	}
	t.Fatal("recovery does not come to rest")
	return sum
}

// settled is later than any reservation made so far needs.
func settled() time.Time { return time.Now().Add(30 * time.Second) }

func (s *system) results() *order.Results {
	return order.NewResults(&s.stock, &s.orders, func(admission.SKURef) order.Look { return order.Look{Selling: true, Open: true} })
}

func (s *system) service() *order.Service {
	return order.NewService(&s.orders, &s.stock, time.Now, s.metrics, discard())
}

// request is the nth user's submit.
func (s *system) request(user, try int, quantity int64) *admission.Request {
	r := &admission.Request{
		Now: time.Now(), Activity: &s.activity, SKU: &s.activity.SKUs[0],
		UserID: strconv.Itoa(70000000 + user), RequestID: fmt.Sprintf("q_%06d_%d", user, try), Quantity: quantity,
	}
	r.BodyHash = "sha256:" + hexSum(r.Activity.ID, r.SKU.ID, r.UserID, strconv.FormatInt(quantity, 10))
	return r
}

// tallies are both sides' counts; it fails the test when units were lost or invented.
func (s *system) tallies(t *testing.T) (admission.StockTally, admission.OrderTally) {
	t.Helper()
	stock, err := s.stock.Tally(t.Context(), s.ref())
	if err != nil {
		t.Fatal(err)
	}
	sql, err := s.orders.Tally(t.Context(), s.ref())
	if err != nil {
		t.Fatal(err)
	}
	if !stock.Conserved() {
		t.Errorf("units lost or invented: total %d, remaining %d, live %d, created %d, paid %d",
			stock.Total, stock.Remaining, stock.Live, stock.Created, stock.Paid)
	}
	if sql.Sold > sql.Total {
		t.Errorf("oversold: %d of %d", sql.Sold, sql.Total)
	}
	return stock, sql
}

// agree demands that stock and SQL say the same.
func (s *system) agree(t *testing.T) (admission.StockTally, admission.OrderTally) {
	t.Helper()
	stock, sql := s.tallies(t)
	for _, d := range order.Compare(s.ref(), stock, sql) {
		t.Errorf("differs: %s", d)
	}
	return stock, sql
}

// status is what a request came to, as its owner polls it.
func (s *system) status(t *testing.T, r *admission.Request) admission.Outcome {
	t.Helper()
	record, d := s.results().Request(t.Context(), r.UserID, r.RequestID, s.ref())
	if d.Refused() {
		return d.Outcome
	}
	return record.Outcome
}

// faultyStock, faultyOrders and faultyQueue are the adapters with a fault before or
// after a call: what a crash between two steps looks like from outside.
type faultyStock struct {
	admission.Stock
	apply func([]admission.Verdict) error // before; nil: none
	marks func() error
}

func (f *faultyStock) Apply(ctx context.Context, v []admission.Verdict) error {
	if f.apply != nil {
		if err := f.apply(v); err != nil {
			return err
		}
	}
	return f.Stock.Apply(ctx, v)
}

func (f *faultyStock) MarkSent(ctx context.Context, ref admission.SKURef, ids []string, due time.Time) error {
	if f.marks != nil {
		if err := f.marks(); err != nil {
			return err
		}
	}
	return f.Stock.MarkSent(ctx, ref, ids, due)
}

type faultyOrders struct {
	admission.Orders
	decide func([]admission.OrderMessage) error // before
	after  func() error                         // after: committed, the answer lost
}

func (f *faultyOrders) Decide(ctx context.Context, m []admission.OrderMessage, now time.Time) ([]admission.Verdict, error) {
	if f.decide != nil {
		if err := f.decide(m); err != nil {
			return nil, err
		}
	}
	v, err := f.Orders.Decide(ctx, m, now)
	if f.after != nil && err == nil {
		if err := f.after(); err != nil {
			return nil, err
		}
	}
	return v, err
}

type faultyQueue struct {
	admission.Queue
	send func(send func() error) error // around; nil: plain
}

func (f *faultyQueue) Send(ctx context.Context, keys []string, bodies [][]byte) error {
	plain := func() error { return f.Queue.Send(ctx, keys, bodies) }
	if f.send == nil {
		return plain()
	}
	return f.send(plain)
}

// chance is a seeded coin, safe for several goroutines.
type chance struct {
	mu   sync.Mutex
	r    *mathrand.Rand
	calm bool // no more bad luck
}

func newChance(seed uint64) *chance {
	return &chance{r: mathrand.New(mathrand.NewPCG(seed, seed))} //nolint:gosec // a test
}

func (c *chance) percent(p int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(100) < p && !c.calm
}

func (c *chance) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = true
}

// background runs f until the test ends or stop is called.
func background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("background: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually polls: what is waited for happens in a server, which has no clock of ours.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, within)
		}
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func reservationID(ref admission.SKURef, userID, requestID string) string {
	sum := sha256.Sum256([]byte(ref.Tag() + "|" + userID + "|" + requestID))
	return "r_" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

func hexSum(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "|")))
	return hex.EncodeToString(sum[:])
}
