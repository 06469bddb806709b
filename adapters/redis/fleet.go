package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// maxInstances bounds the registry. Ids are random per boot, so a fleet that restarts
	// often fills it until the control plane forgets the dead.
	maxInstances = 4096
	// fleetTTL removes the registry of a fleet that is gone.
	fleetTTL = 24 * time.Hour
)

// Fleet implements admission.Fleet: one hash of lines that every instance renews each
// second. When the store is away an instance reads as dead after five.
type Fleet struct {
	client goredis.UniversalClient
	report *Script
	raise  *Script
}

// NewFleet keeps the registry in the limiter store.
func NewFleet(c goredis.UniversalClient) *Fleet {
	return &Fleet{client: c, report: NewScript("fleet_report"), raise: NewScript("fleet_high_water")}
}

// Report writes this instance's line, ErrConflict when the registry is full.
func (f *Fleet) Report(ctx context.Context, instanceID string, line json.RawMessage) error {
	values, err := f.report.Run(ctx, f.client, []string{instancesKey},
		instanceID, []byte(line), maxInstances, fleetTTL.Milliseconds())
	if err != nil {
		return err
	}
	r := fields{op: f.report.Name(), left: values}
	done := r.int()
	if err := r.end(); err != nil {
		return err
	}
	if done != 1 {
		return fmt.Errorf("instance %s: the registry holds %d lines already: %w", instanceID, maxInstances, admission.ErrConflict)
	}
	return nil
}

// Instances reads every line, those of the dead included.
func (f *Fleet) Instances(ctx context.Context) (map[string]json.RawMessage, error) {
	h, err := f.client.HGetAll(ctx, instancesKey).Result()
	if err != nil {
		return nil, Classify("fleet instances", err)
	}
	lines := make(map[string]json.RawMessage, len(h))
	for id, line := range h {
		lines[id] = json.RawMessage(line)
	}
	return lines, nil
}

// Forget removes a line.
func (f *Fleet) Forget(ctx context.Context, instanceID string) error {
	return Classify("fleet forget", f.client.HDel(ctx, instancesKey, instanceID).Err())
}

// HighWater raises the greatest rule version and returns it; 0 reads only.
func (f *Fleet) HighWater(ctx context.Context, version int64) (int64, error) {
	values, err := f.raise.Run(ctx, f.client, []string{highWaterKey}, version)
	if err != nil {
		return 0, err
	}
	r := fields{op: f.raise.Name(), left: values}
	greatest := r.int()
	return greatest, r.end()
}
