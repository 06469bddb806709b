package redis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// maxActivityLen bounds a stored activity, bytes: MaxSKUs SKUs with full names fit.
const maxActivityLen = 256 << 10

// activityDocument is an activity as the mirror stores it, apart from the domain type so
// that a renamed field there does not change what instances of two releases exchange.
type activityDocument struct {
	Schema           int              `json:"schema_version"` // 1
	ID               string           `json:"activity_id"`
	Version          int64            `json:"activity_version"`
	PathID           string           `json:"path_id"`
	Name             string           `json:"name"`
	OpensAtMs        int64            `json:"opens_at_ms"`
	ClosesAtMs       int64            `json:"closes_at_ms"`
	SKUs             []admission.SKU  `json:"skus"`
	Fairness         fairnessDocument `json:"fairness"`
	RebuyAfterCancel bool             `json:"rebuy_after_cancel"`
	MaxAttempts      int64            `json:"max_attempts"`
	PayWithinMs      int64            `json:"pay_within_ms"`
	PublishedAtMs    int64            `json:"published_at_ms"`
	Ended            bool             `json:"ended"`
}

type fairnessDocument struct {
	Mode               string             `json:"mode"`
	DrawClosesBeforeMs int64              `json:"draw_closes_before_ms"`
	Weights            map[string]float64 `json:"weights,omitempty"`
	Beacon             string             `json:"beacon,omitempty"`
}

// encodeActivity writes times in milliseconds: the stores' clocks know no finer ones.
func encodeActivity(a admission.Activity) ([]byte, error) {
	return json.Marshal(activityDocument{
		Schema: 1, ID: a.ID, Version: a.Version, PathID: a.PathID, Name: a.Name,
		OpensAtMs: a.OpensAt.UnixMilli(), ClosesAtMs: a.ClosesAt.UnixMilli(), SKUs: a.SKUs,
		Fairness: fairnessDocument{
			Mode: string(a.Fairness.Mode), DrawClosesBeforeMs: a.Fairness.DrawClosesBefore.Milliseconds(),
			Weights: a.Fairness.Weights, Beacon: a.Fairness.Beacon,
		},
		RebuyAfterCancel: a.RebuyAfterCancel, MaxAttempts: a.MaxAttempts, PayWithinMs: a.PayWithin.Milliseconds(),
		PublishedAtMs: a.PublishedAt.UnixMilli(), Ended: a.Ended,
	})
}

// decodeActivity is strict: one object, no unknown field, bounded.
func decodeActivity(id string, b []byte) (admission.Activity, error) {
	var d activityDocument
	if len(b) > maxActivityLen {
		return admission.Activity{}, fmt.Errorf("activity %s: %d bytes, at most %d", id, len(b), maxActivityLen)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return admission.Activity{}, fmt.Errorf("activity %s: %w", id, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return admission.Activity{}, fmt.Errorf("activity %s: something follows the document", id)
	}
	switch {
	case d.Schema != 1:
		return admission.Activity{}, fmt.Errorf("activity %s: schema_version %d, want 1", id, d.Schema)
	case d.ID != id:
		return admission.Activity{}, fmt.Errorf("activity %s: the document is of %q", id, d.ID)
	case d.Version < 1:
		return admission.Activity{}, fmt.Errorf("activity %s: activity_version %d", id, d.Version)
	case len(d.SKUs) == 0 || len(d.SKUs) > admission.MaxSKUs:
		return admission.Activity{}, fmt.Errorf("activity %s: %d SKUs, want 1..%d", id, len(d.SKUs), admission.MaxSKUs)
	}
	return admission.Activity{
		ID: d.ID, Version: d.Version, PathID: d.PathID, Name: d.Name,
		OpensAt: time.UnixMilli(d.OpensAtMs), ClosesAt: time.UnixMilli(d.ClosesAtMs), SKUs: d.SKUs,
		Fairness: admission.Fairness{
			Mode:             admission.FairnessMode(d.Fairness.Mode),
			DrawClosesBefore: time.Duration(d.Fairness.DrawClosesBeforeMs) * time.Millisecond,
			Weights:          d.Fairness.Weights, Beacon: d.Fairness.Beacon,
		},
		RebuyAfterCancel: d.RebuyAfterCancel, MaxAttempts: d.MaxAttempts,
		PayWithin:   time.Duration(d.PayWithinMs) * time.Millisecond,
		PublishedAt: time.UnixMilli(d.PublishedAtMs), Ended: d.Ended,
	}, nil
}
