package conformance

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Mirror is the suite of admission.Mirror. The mirror is one for a whole store, so the
// cases look only at activities of their own.
func Mirror(t *testing.T, open func(t *testing.T) admission.Mirror) {
	t.Run("an activity comes back as it was put", func(t *testing.T) { mirrorWhole(t, open(t)) })
	t.Run("a lower version never replaces a greater one", func(t *testing.T) { mirrorVersions(t, open(t)) })
	t.Run("a removed activity is gone, removing again is no fault", func(t *testing.T) { mirrorRemove(t, open(t)) })
}

func mirrorActivity(t *testing.T, m admission.Mirror) admission.Activity {
	t.Helper()
	id := fresh(t)
	t.Cleanup(func() { _ = m.RemoveActivity(context.Background(), id) })
	at := time.UnixMilli(time.Now().UnixMilli())
	return admission.Activity{
		ID: id, Version: 1, PathID: "p_7vKh2P", Name: "夏 <sale> \"1\"", OpensAt: at.Add(time.Minute), ClosesAt: at.Add(time.Hour),
		SKUs: []admission.SKU{{
			ID: "9007199254740993", Name: "phone", Stock: 10000, LimitPerUser: 2,
			Price: admission.Money{Amount: "1999.00", Currency: "CNY"},
		}},
		Fairness: admission.Fairness{
			Mode: admission.FairnessWeighted, DrawClosesBefore: 5 * time.Second,
			Weights: map[string]float64{"vip": 2, "default": 1}, Beacon: "beacon",
		},
		RebuyAfterCancel: true, MaxAttempts: 3, PayWithin: 15 * time.Minute, PublishedAt: at, Ended: true,
	}
}

func mirrored(t *testing.T, m admission.Mirror, id string) (admission.Activity, bool) {
	t.Helper()
	all, err := m.Activities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.ID == id {
			return a, true
		}
	}
	return admission.Activity{}, false
}

func mirrorWhole(t *testing.T, m admission.Mirror) {
	want := mirrorActivity(t, m)
	if err := m.PutActivity(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, ok := mirrored(t, m, want.ID); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func mirrorVersions(t *testing.T, m admission.Mirror) {
	a := mirrorActivity(t, m)
	a.Version, a.Ended = 2, false
	put := func() error { return m.PutActivity(t.Context(), a) }
	if err := put(); err != nil {
		t.Fatal(err)
	}
	a.Ended = true // an activity ends without a new version
	if err := put(); err != nil {
		t.Fatal(err)
	}
	a.Version, a.Ended = 1, false
	if err := put(); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("version 1 after 2: %v, want a conflict", err)
	}
	if got, _ := mirrored(t, m, a.ID); got.Version != 2 || !got.Ended {
		t.Errorf("mirrored version %d, ended %v", got.Version, got.Ended)
	}
}

func mirrorRemove(t *testing.T, m admission.Mirror) {
	a := mirrorActivity(t, m)
	if err := m.PutActivity(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.RemoveActivity(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := mirrored(t, m, a.ID); ok {
		t.Error("it is still there")
	}
	if err := m.PutActivity(t.Context(), a); err != nil {
		t.Errorf("publishing the id anew: %v", err)
	}
}
