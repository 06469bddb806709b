package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

func TestOrders(t *testing.T) {
	conformance.Orders(t, func(t *testing.T) admission.Orders {
		return openStore(t, schema(t), func(*pgxpool.Config) {})
	})
}

// TestOrdersBehindAPooler forgets everything that a session can hold whenever a connection comes back, as if the next
// transaction ran on another server connection.
func TestOrdersBehindAPooler(t *testing.T) {
	conformance.Orders(t, func(t *testing.T) admission.Orders {
		return openStore(t, schema(t), func(c *pgxpool.Config) {
			c.AfterRelease = func(conn *pgx.Conn) bool {
				ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
				defer cancel()
				_, err := conn.Exec(ctx, "DISCARD ALL")
				return err == nil
			}
		})
	})
}

// schema makes a schema of the test's own and returns the URL of the database with it.
func schema(t testing.TB) string {
	t.Helper()
	servers.Need(t, servers.Postgres())
	name := "orders_" + strings.ToLower(rand.Text())
	statement(t, "CREATE SCHEMA "+name)
	t.Cleanup(func() { statement(t, "DROP SCHEMA "+name+" CASCADE") })
	u, err := url.Parse(servers.Postgres())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	q.Set("application_name", name)
	q.Set("synchronous_commit", "off") // what is tested here does not outlive a crash of the server
	u.RawQuery = q.Encode()
	return u.String()
}

// statement runs one statement on a connection of its own.
func statement(t testing.TB, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), servers.Postgres())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
}

func openStore(t testing.TB, url string, adjust func(*pgxpool.Config)) *sqlorders.Store {
	t.Helper()
	store, err := open(url, Config{Config: sqlorders.Config{DeadLetters: conformance.OrdersDeadLetters}, MaxConns: 4}, adjust)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
