package postgres

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/collectors"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

var now = time.Date(2026, 11, 11, 0, 0, 1, 0, time.UTC)

func activity() admission.Activity {
	sku := func(id string) admission.SKU {
		return admission.SKU{ID: id, Name: "A", Stock: 100, LimitPerUser: 1, Price: admission.Money{Amount: "1", Currency: "CNY"}}
	}
	return admission.Activity{
		ID: "1", Version: 1, PathID: "path-one", Name: "Sale", OpensAt: now, ClosesAt: now.Add(time.Hour), SKUs: []admission.SKU{sku("1"), sku("2")},
		Fairness: admission.Fairness{Mode: admission.FairnessFIFO}, MaxAttempts: 1, PayWithin: time.Minute, PublishedAt: now,
	}
}

func message(sku, user string) admission.OrderMessage {
	return admission.OrderMessage{
		SchemaVersion: 1, ReservationID: "reservation-" + sku + "-" + user, RequestID: "request-" + user, ActivityID: "1", SKUID: sku,
		UserID: user, Quantity: 1, CreatedAt: now,
	}
}

func prepare(t *testing.T, store *sqlorders.Store) {
	t.Helper()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.PublishActivity(t.Context(), activity()); err != nil {
		t.Fatal(err)
	}
}

// through puts a proxy before the database of the URL.
func through(t *testing.T, address string) (*toxiproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	server.Metrics.ProxyMetrics = collectors.NewProxyMetricCollectors()
	proxy := toxiproxy.NewProxy(server, "postgres", "127.0.0.1:0", u.Host)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	u.Host = proxy.Listen
	return proxy, u.String()
}

// onQuery calls itself before a statement is sent.
type onQuery func(sql string)

func (f onQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	f(d.SQL)
	return ctx
}

func (onQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestCutConnection cuts the connection on the way back of one statement: the server runs it, nobody hears of it.
func TestCutConnection(t *testing.T) {
	for _, c := range []struct {
		statement string
		want      error
		written   bool
	}{
		{"commit", admission.ErrUnknownResult, true},
		{"INSERT INTO orders", admission.ErrUnavailable, false},
		{"BEGIN", admission.ErrUnavailable, false},
	} {
		t.Run(c.statement, func(t *testing.T) {
			t.Parallel()
			address := schema(t)
			direct := openStore(t, address, func(*pgxpool.Config) {})
			prepare(t, direct)
			proxy, proxied := through(t, address)
			var armed atomic.Bool
			store := openStore(t, proxied, func(p *pgxpool.Config) {
				p.ConnConfig.Tracer = onQuery(func(sql string) {
					if strings.HasPrefix(strings.TrimSpace(sql), c.statement) && armed.CompareAndSwap(true, false) {
						cut := `{"name":"cut","type":"timeout","stream":"downstream","attributes":{"timeout":20}}`
						if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(cut)); err != nil {
							t.Error(err)
						}
					}
				})
			})
			batch := []admission.OrderMessage{message("1", "1"), message("2", "1"), message("1", "2")}
			if err := store.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			verdicts, err := store.Decide(t.Context(), batch, now)
			if !errors.Is(err, c.want) || verdicts != nil {
				t.Fatalf("got %v %+v, want %v", err, verdicts, c.want)
			}
			if errors.Is(err, admission.ErrUnavailable) == errors.Is(err, admission.ErrUnknownResult) {
				t.Fatalf("%v is both or neither", err)
			}
			before, err := direct.VerdictOf(t.Context(), batch[0].Ref(), "1", "request-1")
			if written := err == nil; written != c.written {
				t.Fatalf("written: %v, %v", written, err)
			}
			if err := proxy.Toxics.RemoveToxic(t.Context(), "cut"); err != nil {
				t.Fatal(err)
			}
			verdicts, err = store.Decide(t.Context(), batch, now.Add(time.Minute))
			if err != nil || c.written && verdicts[0] != before {
				t.Fatalf("again: %v\n%+v\nbefore %+v", err, verdicts, before)
			}
			third, err := direct.Decide(t.Context(), batch, now)
			if err != nil || !reflect.DeepEqual(third, verdicts) {
				t.Fatalf("%v\n%+v\n%+v", err, third, verdicts)
			}
			if tally, err := direct.Tally(t.Context(), batch[0].Ref()); err != nil || tally.Sold != 2 || tally.Created != 2 {
				t.Fatalf("%+v %v", tally, err)
			}
		})
	}
}

// TestServerAway: a refused connection is known to have done nothing, and is reported at once.
func TestServerAway(t *testing.T) {
	store := openStore(t, "postgres://sluice:sluice@127.0.0.1:1/sluice?sslmode=disable", func(*pgxpool.Config) {})
	_, err := store.Decide(t.Context(), []admission.OrderMessage{message("1", "1")}, now)
	if !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrUnknownResult) {
		t.Fatal(err)
	}
}

// TestMassCancellation: callers who give up while a lock is held leave nothing running on the server.
func TestMassCancellation(t *testing.T) {
	address := schema(t)
	store := openStore(t, address, func(*pgxpool.Config) {})
	prepare(t, store)
	watch, holder := connect(t, address), begin(t, address)
	if _, err := holder.Exec(t.Context(), "SELECT 1 FROM skus FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				_, err := store.Decide(ctx, []admission.OrderMessage{message("1", "1")}, now)
				cancel()
				if !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrUnknownResult) {
					t.Error(err)
				}
			}
		})
	}
	most := 0
	done := make(chan struct{})
	go func() {
		wait.Wait()
		close(done)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		var n int
		err := watch.QueryRow(t.Context(), "SELECT count(*) - 2 FROM pg_stat_get_activity(NULL) WHERE application_name = current_setting('application_name')").Scan(&n) // watch and holder apart
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most == 0 || most > 4 {
		t.Fatalf("%d connections on the server, want 1..4", most)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := store.Decide(t.Context(), []admission.OrderMessage{message("1", "1")}, now); err != nil || v[0].Outcome != admission.VerdictCreated {
		t.Fatalf("afterwards: %+v %v", v, err)
	}
}

// connect opens a connection beside the store.
func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// begin opens a transaction beside the store.
func begin(t *testing.T, address string) pgx.Tx {
	t.Helper()
	tx, err := connect(t, address).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestDeadlock lets somebody lock the SKU rows in the wrong order: the server ends our transaction (40P01), and it is
// run again as a whole. The server may end the other one instead, when the machine is slow; then it is tried again.
func TestDeadlock(t *testing.T) {
	address := schema(t)
	var retries atomic.Int32
	config := Config{Config: sqlorders.Config{Sleep: func(context.Context, time.Duration) error {
		retries.Add(1)
		return nil
	}}}
	store, err := open(address, config, func(*pgxpool.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	prepare(t, store)
	for attempt := range 10 {
		user := strconv.Itoa(attempt + 1)
		rude := begin(t, address)
		if _, err := rude.Exec(t.Context(), "SELECT 1 FROM skus WHERE sku_id = 2 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		decided := make(chan error, 1)
		go func() {
			_, err := store.Decide(t.Context(), []admission.OrderMessage{message("2", user), message("1", user)}, now)
			decided <- err
		}()
		for waiting := 0; waiting == 0; { // until the store holds SKU 1 and waits for SKU 2
			err := rude.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))").Scan(&waiting)
			if err != nil {
				t.Fatal(err)
			}
		}
		_, rudeErr := rude.Exec(t.Context(), "SELECT 1 FROM skus WHERE sku_id = 1 FOR UPDATE")
		if err := rude.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-decided; err != nil {
			t.Fatal(err)
		}
		if rudeErr == nil && retries.Load() == 0 {
			t.Fatal("a deadlock without a victim")
		}
		if retries.Load() > 0 {
			return
		}
	}
	t.Fatal("the server always ended the other transaction")
}

// TestNoPreparedStatements: a pooler would hand a named statement to somebody else.
func TestNoPreparedStatements(t *testing.T) {
	var last *pgx.Conn
	store := openStore(t, schema(t), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { last = conn; return nil }
	})
	prepare(t, store)
	for range 10 {
		if _, err := store.Decide(t.Context(), []admission.OrderMessage{message("1", "1")}, now); err != nil {
			t.Fatal(err)
		}
		if _, err := store.EffectsDue(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := last.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&n); err != nil || n != 0 {
		t.Fatalf("%d prepared statements, %v", n, err)
	}
}

// TestURL: a bad URL is refused without showing its password, and Postgres() of the test servers is a good one.
func TestURL(t *testing.T) {
	_, err := Open("postgres://sluice:secret@host:port/db", Config{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("%v", err)
	}
	store, err := Open(servers.Postgres(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
