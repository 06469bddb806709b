package sqlite_test

import (
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
