package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FieldError is one fault of a document, with the path of the field that must change.
type FieldError struct {
	Path    string `json:"path"` // "skus[0].price.amount"; "" is the whole document
	Message string `json:"message"`
}

// Error reads "path: message".
func (e FieldError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Bounds of the activity document that activity.go does not name.
const (
	MaxDocumentLen   = 64 << 10            // bytes; 64 SKUs with the longest names are half of it
	MaxFieldErrors   = 100                 // reported at once; what is beyond comes after the first are mended
	MaxActivityLen   = 90 * 24 * time.Hour // opens_at to closes_at: request records live that long in the stock store
	MaxDrawClosing   = 24 * time.Hour
	MinPayWithin     = time.Second
	MaxPayWithin     = 7 * 24 * time.Hour
	MaxLaneLen       = 32         // bytes of [A-Za-z0-9._-]
	MaxLaneWeight    = 1e6        //
	MaxBeaconLen     = 256        // bytes
	minYear, maxYear = 2000, 2199 // milliseconds stay below 2^53
)

// Defaults of the activity document.
const (
	defaultLimitPerUser = 1
	defaultAttempts     = 1
	defaultRebuys       = 3 // attempts, with rebuy_after_cancel
	defaultPayWithin    = 15 * time.Minute
	defaultDrawClosing  = 5 * time.Second
)

// DecodeActivity reads the document that an operator publishes (10-http-api). It is strict (unknown, repeated
// and case-folded keys, null, trailing bytes and wrong types are faults) and reports every fault at once, at most
// MaxFieldErrors. Defaults are filled in; an empty PathID is left for the caller to make. PublishedAt becomes now:
// the store keeps the first version's. The activity is only good when there are no faults.
func DecodeActivity(data []byte, now time.Time) (Activity, []FieldError) {
	a, faults := decodeDocument(data, false)
	if len(faults) > 0 {
		return Activity{}, faults
	}
	if !a.ClosesAt.After(now) {
		return Activity{}, []FieldError{{"closes_at", "has passed"}}
	}
	a.PublishedAt = now.UTC().Truncate(time.Millisecond)
	return a, nil
}

// DecodeStoredActivity is the inverse of EncodeActivity. It is as strict as DecodeActivity, needs published_at and
// ended, and takes a sale that is over.
func DecodeStoredActivity(data []byte) (Activity, error) {
	a, faults := decodeDocument(data, true)
	if len(faults) > 0 {
		errs := make([]error, len(faults))
		for i, f := range faults {
			errs[i] = f
		}
		return Activity{}, fmt.Errorf("stored activity: %w", errors.Join(errs...))
	}
	return a, nil
}

// EncodeActivity writes the activity as SQL rows and the mirror hold it: the published document with every default
// spelled out, published_at and ended. Times are UTC with milliseconds. Equal activities give equal bytes.
func EncodeActivity(a Activity) []byte {
	d := document{
		ID: a.ID, Version: a.Version, PathID: a.PathID, Name: a.Name,
		OpensAt: formatTime(a.OpensAt), ClosesAt: formatTime(a.ClosesAt), SKUs: a.SKUs,
		Fairness:         documentFairness{Mode: a.Fairness.Mode, Weights: a.Fairness.Weights, Beacon: a.Fairness.Beacon},
		RebuyAfterCancel: a.RebuyAfterCancel, MaxAttempts: a.MaxAttempts, PayWithin: formatDuration(a.PayWithin),
		PublishedAt: formatTime(a.PublishedAt), Ended: a.Ended,
	}
	if a.Fairness.Mode != FairnessFIFO {
		d.Fairness.DrawClosesBefore = formatDuration(a.Fairness.DrawClosesBefore)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		panic("admission: an activity that is no JSON: " + err.Error()) // a weight of NaN: never from a decoder
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

type document struct {
	ID               string           `json:"activity_id"`
	Version          int64            `json:"activity_version"`
	PathID           string           `json:"path_id,omitempty"`
	Name             string           `json:"name"`
	OpensAt          string           `json:"opens_at"`
	ClosesAt         string           `json:"closes_at"`
	SKUs             []SKU            `json:"skus"`
	Fairness         documentFairness `json:"fairness"`
	RebuyAfterCancel bool             `json:"rebuy_after_cancel"`
	MaxAttempts      int64            `json:"max_attempts"`
	PayWithin        string           `json:"pay_within"`
	PublishedAt      string           `json:"published_at"`
	Ended            bool             `json:"ended"`
}

type documentFairness struct {
	Mode             FairnessMode       `json:"mode"`
	DrawClosesBefore string             `json:"draw_closes_before,omitempty"`
	Weights          map[string]float64 `json:"weights,omitempty"`
	Beacon           string             `json:"beacon,omitempty"`
}

func decodeDocument(data []byte, stored bool) (Activity, []FieldError) {
	d := &documentReader{}
	root := parseStrict(data, d.fault)
	if root == nil {
		return Activity{}, d.faults
	}
	a := d.activity(fields{d, "", root}, stored)
	return a, d.faults
}

// documentReader walks the parsed document and gathers the faults.
type documentReader struct{ faults []FieldError }

func (d *documentReader) fault(path, format string, args ...any) {
	if len(d.faults) < MaxFieldErrors {
		d.faults = append(d.faults, FieldError{path, fmt.Sprintf(format, args...)})
	}
}

func (d *documentReader) activity(f fields, stored bool) Activity {
	a := Activity{
		MaxAttempts: defaultAttempts,
		PayWithin:   defaultPayWithin,
		Fairness:    Fairness{Mode: FairnessRandom, DrawClosesBefore: defaultDrawClosing},
	}
	known := []string{"activity_id", "activity_version", "path_id", "name", "opens_at", "closes_at", "skus",
		"fairness", "rebuy_after_cancel", "max_attempts", "pay_within"}
	if stored {
		known = append(known, "published_at", "ended")
	}
	if !f.only(known...) {
		return a
	}
	a.ID = f.decimal("activity_id")
	a.Version = f.integer("activity_version", 1, math.MaxInt64>>10, nil)
	a.Name = f.text("name", MaxNameLen)
	if f.has("path_id") {
		if a.PathID = f.string("path_id"); !ValidID(a.PathID) {
			f.fault("path_id", "must be %d..%d of [A-Za-z0-9_-]", MinIDLen, MaxIDLen)
		}
	}
	a.OpensAt, a.ClosesAt = f.time("opens_at"), f.time("closes_at")
	if !a.OpensAt.IsZero() && !a.ClosesAt.IsZero() {
		if length := a.ClosesAt.Sub(a.OpensAt); length <= 0 {
			f.fault("closes_at", "must be after opens_at")
		} else if length > MaxActivityLen {
			f.fault("closes_at", "must be at most %d days after opens_at", MaxActivityLen/(24*time.Hour))
		}
	}
	a.SKUs = d.skus(f)
	if f.has("fairness") {
		a.Fairness = d.fairness(f)
	}
	if f.has("rebuy_after_cancel") {
		a.RebuyAfterCancel = f.boolean("rebuy_after_cancel")
	}
	if a.RebuyAfterCancel {
		a.MaxAttempts = defaultRebuys
	}
	a.MaxAttempts = f.integer("max_attempts", 1, MaxAttemptsCap, &a.MaxAttempts)
	a.PayWithin = f.duration("pay_within", MinPayWithin, MaxPayWithin, a.PayWithin)
	if stored {
		a.PublishedAt = f.time("published_at")
		a.Ended = f.boolean("ended")
	}
	return a
}

func (d *documentReader) skus(f fields) []SKU {
	list, ok := f.array("skus")
	if !ok {
		return nil
	}
	if len(list) == 0 || len(list) > MaxSKUs {
		f.fault("skus", "must have 1..%d entries", MaxSKUs)
		return nil
	}
	skus := make([]SKU, len(list))
	seen := make(map[string]int, len(list))
	for i, v := range list {
		g := fields{d, fmt.Sprintf("skus[%d]", i), v}
		if !g.only("sku_id", "name", "stock", "limit_per_user", "price") {
			continue
		}
		limit := int64(defaultLimitPerUser)
		s := SKU{
			ID:           g.decimal("sku_id"),
			Name:         g.text("name", MaxNameLen),
			Stock:        g.integer("stock", 1, MaxStock, nil),
			LimitPerUser: g.integer("limit_per_user", 1, MaxUserUnits, &limit),
			Price:        d.price(g),
		}
		if first, twice := seen[s.ID]; twice && s.ID != "" {
			g.fault("sku_id", "is that of skus[%d] too", first)
		}
		seen[s.ID] = i
		skus[i] = s
	}
	return skus
}

func (d *documentReader) price(f fields) Money {
	g, ok := f.object("price")
	if !ok || !g.only("amount", "currency") {
		return Money{}
	}
	m := Money{Amount: g.string("amount"), Currency: g.string("currency")}
	if _, ok := m.units(); !ok && g.isString("amount") {
		g.fault("amount", "must be a decimal with at most %d digits before and %d after the point", moneyDigits, moneyDecimals)
	}
	if !validCurrency(m.Currency) && g.isString("currency") {
		g.fault("currency", "must be three capital letters")
	}
	return m
}

func (d *documentReader) fairness(f fields) Fairness {
	r := Fairness{Mode: FairnessRandom}
	g, ok := f.object("fairness")
	if !ok || !g.only("mode", "draw_closes_before", "weights", "beacon") {
		return r
	}
	if g.has("mode") {
		r.Mode = FairnessMode(g.string("mode"))
	}
	switch r.Mode {
	case FairnessFIFO:
		if g.has("draw_closes_before") {
			g.fault("draw_closes_before", "fifo has no draw")
		}
	case FairnessRandom, FairnessLottery, FairnessWeighted, FairnessQuota:
		r.DrawClosesBefore = g.duration("draw_closes_before", 0, MaxDrawClosing, defaultDrawClosing)
	default:
		if !g.has("mode") || g.isString("mode") {
			g.fault("mode", "must be random, fifo, weighted, quota or lottery")
		}
	}
	lanes := r.Mode == FairnessWeighted || r.Mode == FairnessQuota
	switch {
	case lanes && !g.has("weights"):
		g.fault("weights", "is missing: %s needs one for each lane", r.Mode)
	case g.has("weights") && !lanes:
		g.fault("weights", "is only for weighted and quota")
	case lanes:
		r.Weights = d.weights(g)
	}
	if g.has("beacon") {
		r.Beacon = g.text("beacon", MaxBeaconLen)
	}
	return r
}

func (d *documentReader) weights(f fields) map[string]float64 {
	g, ok := f.object("weights")
	if !ok {
		return nil
	}
	if n := len(g.value.members); n == 0 || n > MaxLanes {
		f.fault("weights", "must have 1..%d lanes", MaxLanes)
		return nil
	}
	weights := make(map[string]float64, len(g.value.members))
	for _, m := range g.value.members {
		if !validLane(m.key) {
			g.fault(m.key, "a lane is 1..%d of [A-Za-z0-9._-]", MaxLaneLen)
			continue
		}
		if w, ok := g.number(m.key); ok {
			if !(w > 0 && w <= MaxLaneWeight) {
				g.fault(m.key, "must be above 0 and at most %g", float64(MaxLaneWeight))
				continue
			}
			weights[m.key] = w
		}
	}
	return weights
}

func validLane(s string) bool {
	if len(s) == 0 || len(s) > MaxLaneLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// validText refuses what cannot be shown or was mangled on the way (a lone surrogate reads as U+FFFD).
func validText(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

const timeLayout = "2006-01-02T15:04:05.000Z"

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// formatDuration writes 15m, where String writes 15m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
