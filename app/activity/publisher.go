// Package activity publishes sales: SQL first, which decides on versions; then the
// stock, which must know a version before anybody submits under it; then the mirror
// that every instance reads.
//
// Every step is idempotent. When a dependency dies in between, publishing the same
// document again goes on from where it stopped; until then instances see the version
// before, whole.
package activity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Publisher publishes and ends activities.
type Publisher struct {
	Orders  admission.Orders
	Stock   admission.Stock
	Mirror  admission.Mirror
	Events  admission.Events
	Now     func() time.Time
	NewPath func(random io.Reader) (string, error) // makes a path_id
	Random  io.Reader
}

// Publish puts a version on sale. faults name the fields of the document that are wrong;
// err is a dependency's fault, or ErrConflict with the reason in words.
func (p *Publisher) Publish(ctx context.Context, document []byte) (a admission.Activity, faults []admission.FieldError, err error) {
	a, faults = admission.DecodeActivity(document, p.Now())
	if len(faults) == 0 {
		faults = unserved(a)
	}
	if len(faults) > 0 {
		return a, faults, nil
	}
	before, known, err := p.find(ctx, a.ID)
	if err != nil {
		return a, nil, err
	}
	switch {
	case a.PathID != "":
	case known:
		a.PathID = before.PathID // tickets under way keep their path; naming another changes it
	default:
		if a.PathID, err = p.NewPath(p.Random); err != nil {
			return a, nil, fmt.Errorf("make a path for activity %s: %w", a.ID, err)
		}
	}
	stored, err := p.Orders.PublishActivity(ctx, a) // PublishedAt is now: SQL compares it with the draw's closing
	same := a
	same.PublishedAt = before.PublishedAt
	if errors.Is(err, admission.ErrConflict) && known && bytes.Equal(admission.EncodeActivity(before), admission.EncodeActivity(same)) {
		stored, err = before, nil // published before: go on with the steps that may be missing
	}
	if err != nil {
		return a, nil, fmt.Errorf("version %d: %w", a.Version, err) // which names the activity
	}
	a = stored
	for i := range a.SKUs {
		ref := admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID}
		if known && !p.Now().Before(before.OpensAt) {
			// A stock that is gone from a sale under way was lost, with what it had sold: the
			// leader restores it from SQL. Warming would sell it a second time.
			if _, err := p.Stock.Snapshot(ctx, ref); errors.Is(err, admission.ErrNotFound) {
				continue
			}
		}
		_, err := p.Stock.Warm(ctx, admission.StockSpec{
			Ref: ref, Version: a.Version,
			Total: a.SKUs[i].Stock, OpensAt: a.OpensAt, ClosesAt: a.ClosesAt,
		})
		if err != nil {
			return a, nil, fmt.Errorf("warm stock of SKU %s: %w", a.SKUs[i].ID, err)
		}
	}
	return a, nil, p.show(ctx, a)
}

// unserved refuses what the document allows and this version's waiting room does not
// serve: an activity must not promise an order that nobody keeps.
func unserved(a admission.Activity) []admission.FieldError {
	switch a.Fairness.Mode {
	case admission.FairnessRandom, admission.FairnessFIFO:
		return nil
	default:
		return []admission.FieldError{{Path: "fairness.mode", Message: fmt.Sprintf("%s is not served by this version; use random or fifo", a.Fairness.Mode)}}
	}
}

// End stops an activity for good. Nothing that was sold changes.
func (p *Publisher) End(ctx context.Context, activityID string) (admission.Activity, error) {
	if err := p.Orders.EndActivity(ctx, activityID); err != nil {
		return admission.Activity{}, fmt.Errorf("end activity %s: %w", activityID, err)
	}
	a, known, err := p.find(ctx, activityID)
	if err != nil || !known {
		return a, err
	}
	return a, p.show(ctx, a)
}

// List returns the newest version of every activity.
func (p *Publisher) List(ctx context.Context) ([]admission.Activity, error) {
	return p.Orders.Activities(ctx)
}

// Show mirrors what SQL holds: instances read the mirror, and it may have been lost.
func (p *Publisher) Show(ctx context.Context) error {
	list, err := p.Orders.Activities(ctx)
	if err != nil {
		return err
	}
	for _, a := range list {
		if err := p.Mirror.PutActivity(ctx, a); err != nil && !errors.Is(err, admission.ErrConflict) {
			return fmt.Errorf("mirror activity %s: %w", a.ID, err)
		}
	}
	return nil
}

func (p *Publisher) show(ctx context.Context, a admission.Activity) error {
	if err := p.Mirror.PutActivity(ctx, a); err != nil {
		return fmt.Errorf("mirror activity %s: %w", a.ID, err)
	}
	// A lost event costs instances a second: they reread anyway.
	_ = p.Events.Publish(ctx, admission.Event{
		SchemaVersion: 1, MessageID: "msg_activity_" + a.ID, Type: admission.EventActivity,
		ActivityID: a.ID, Version: a.Version, EmittedAt: p.Now(),
	})
	return nil
}

func (p *Publisher) find(ctx context.Context, id string) (admission.Activity, bool, error) {
	list, err := p.Orders.Activities(ctx)
	if err != nil {
		return admission.Activity{}, false, err
	}
	for _, a := range list {
		if a.ID == id {
			return a, true, nil
		}
	}
	return admission.Activity{}, false, nil
}
