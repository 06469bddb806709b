package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/sqlite"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

func open(t *testing.T) admission.Orders {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "orders #1 100%?.db"), sqlorders.Config{DeadLetters: conformance.OrdersDeadLetters})
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

func TestOrders(t *testing.T) { conformance.Orders(t, open) }

// TestMigrateRefusesAnotherSchema: an older program must not write into a newer schema, nor one over a schema that
// was changed by hand.
func TestMigrateRefusesAnotherSchema(t *testing.T) {
	for name, change := range map[string]string{
		"a newer one":   "INSERT INTO schema_migrations VALUES (1000, 'later.sql', 'x')",
		"an edited one": "UPDATE schema_migrations SET digest = 'x'",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.db")
			store, err := sqlite.Open(path, sqlorders.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := db.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if err := store.Migrate(t.Context()); !errors.Is(err, admission.ErrConflict) {
				t.Fatal(err)
			}
		})
	}
}

// TestOpenNowhere: a file that cannot be made is a fault at once, not at the first order.
func TestOpenNowhere(t *testing.T) {
	_, err := sqlite.Open(filepath.Join(t.TempDir(), "no", "such", "folder.db"), sqlorders.Config{})
	if !errors.Is(err, admission.ErrUnavailable) {
		t.Fatal(err)
	}
}

// TestSurvivesReopening: what was committed is there for the next process.
func TestSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.db")
	var last int64
	for range 3 {
		store, err := sqlite.Open(path, sqlorders.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		term, err := store.NextTerm(t.Context())
		if err != nil || term != last+1 {
			t.Fatalf("term %d after %d: %v", term, last, err)
		}
		last = term
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
