package admission

import "time"

// SKURef names one SKU of one activity.
type SKURef struct {
	ActivityID string
	SKUID      string
}

// Tag is the one spelling of a SKU's Redis hash tag, so that all its keys share a slot.
func (r SKURef) Tag() string { return "{a:" + r.ActivityID + ":s:" + r.SKUID + "}" }

// ActivityTag is the hash tag of what belongs to a whole activity.
func ActivityTag(activityID string) string { return "{a:" + activityID + "}" }

// UserTag is the hash tag of what belongs to one user across activities.
func UserTag(userID string) string { return "{u:" + userID + "}" }

// Money is an amount as a decimal string, never a float.
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// SKU is one thing on sale.
type SKU struct {
	ID           string `json:"sku_id"`
	Name         string `json:"name"`
	Stock        int64  `json:"stock"`          // units; fixed for the life of the activity
	LimitPerUser int64  `json:"limit_per_user"` // largest quantity of a user's one purchase
	Price        Money  `json:"price"`
}

// FairnessMode is how the waiting room orders people.
type FairnessMode string

// The modes of 70-waiting-room.
const (
	FairnessRandom   FairnessMode = "random"
	FairnessFIFO     FairnessMode = "fifo"
	FairnessWeighted FairnessMode = "weighted"
	FairnessQuota    FairnessMode = "quota"
	FairnessLottery  FairnessMode = "lottery"
)

// Fairness is the activity's disclosed rule of order. It never changes after the first version.
type Fairness struct {
	Mode             FairnessMode
	DrawClosesBefore time.Duration      // before the opening; random and lottery only
	Weights          map[string]float64 // lane -> weight (weighted) or share (quota); at most 16 lanes
	Beacon           string             // public value, unknown before joining closes; empty: "trust the operator"
}

// Activity is one published version of a sale. It is immutable: a new version is a new value.
type Activity struct {
	ID               string
	Version          int64 // 1.., moves only by publishing
	PathID           string
	Name             string
	OpensAt          time.Time
	ClosesAt         time.Time
	SKUs             []SKU // at most MaxSKUs
	Fairness         Fairness
	RebuyAfterCancel bool
	MaxAttempts      int64 // reservations one user may ever make
	PayWithin        time.Duration
	PublishedAt      time.Time // of the first version; joining begins here
	Ended            bool
}

// Bounds of an activity document.
const (
	MaxSKUs        = 64
	MaxLanes       = 16
	MaxStock       = 1 << 40
	MaxNameLen     = 200 // bytes
	MaxActivities  = 256 // live at once on one instance
	MaxUserUnits   = 1000
	MaxAttemptsCap = 16
)

// SKU returns the SKU with that id, nil if the activity does not sell it.
func (a *Activity) SKU(id string) *SKU {
	for i := range a.SKUs {
		if a.SKUs[i].ID == id {
			return &a.SKUs[i]
		}
	}
	return nil
}

// DrawClosesAt is when joining for the draw ends.
func (a *Activity) DrawClosesAt() time.Time { return a.OpensAt.Add(-a.Fairness.DrawClosesBefore) }
