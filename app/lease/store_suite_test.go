package lease_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/app/lease"
)

func TestMemory(t *testing.T) {
	conformance.Leases(t, func(*testing.T) conformance.LeaseStore {
		now := time.UnixMilli(1782388800000)
		return conformance.LeaseStore{
			Leases: lease.NewMemory(func() time.Time { return now }),
			Pass:   func(d time.Duration) { now = now.Add(d) },
		}
	})
}
