package rules

import (
	"net/netip"

	"github.com/sluice-io/sluice/app/admission"
)

// Dimension is what a keyed limiter counts by.
type Dimension = string

// The dimensions that have limits and overrides.
const (
	DimensionSource Dimension = "source"
	DimensionUser   Dimension = "user"
	DimensionDevice Dimension = "device"
	DimensionStatus Dimension = "status" // status queries of a user
	DimensionJoin   Dimension = "join"   // joins of a user
	DimensionTicket Dimension = "ticket" // ticket calls of a user
)

// Limit is one resolved rate. The zero value is closed.
type Limit struct {
	PerSecond float64   // tokens a second; 0 closes
	Burst     int64     // capacity in tokens; 0 closes
	Rule      string    // where it was written, for explain: "limits.user", "sentinel.hotspot[0]"
	whole     wholeRate // PerSecond, exactly; see Whole
}

// Keyed is the limits of one dimension (for users and devices, of one SKU): one for every
// key, and others for a few keys. The shadow is what a rule marked so would enforce; its
// verdict is counted and ignored.
type Keyed struct {
	Limit  Limit
	Shadow *Limit // nil: none

	items       map[string]Limit // specific items of the hot-param rule that Limit comes from
	shadowItems map[string]Limit
	overrides   *overrides // nil: none of this dimension
	ref         admission.SKURef
}

// For returns the limit of one key. It does not allocate.
func (k *Keyed) For(key string) Limit {
	if k.overrides != nil {
		if l, ok := k.overrides.find(key, k.ref, false); ok {
			return l
		}
	}
	if k.items != nil {
		if l, ok := k.items[key]; ok {
			return l
		}
	}
	return k.Limit
}

// ShadowFor returns the shadow limit of one key, and whether there is one.
func (k *Keyed) ShadowFor(key string) (Limit, bool) {
	if k.overrides != nil {
		if l, ok := k.overrides.find(key, k.ref, true); ok {
			return l, true
		}
	}
	if l, ok := k.shadowItems[key]; ok {
		return l, true
	}
	if k.Shadow != nil {
		return *k.Shadow, true
	}
	return Limit{}, false
}

// HasShadow reports whether ShadowFor can ever say yes: the hot path asks this first.
func (k *Keyed) HasShadow() bool {
	return k.Shadow != nil || k.shadowItems != nil || k.overrides != nil && k.overrides.shadows
}

// SourceOverride is the limit of one address (/32, /64) or prefix (/24, /48).
type SourceOverride struct {
	Prefix netip.Prefix
	Limit  Limit
	Shadow bool
}

// overrides of one dimension, by key. At most a few per key.
type overrides struct {
	byKey   map[string][]override
	shadows bool
}

type override struct {
	activity, sku string // "": any
	shadow        bool
	limit         Limit
}

// find takes the most specific one: SKU over activity over any.
func (o *overrides) find(key string, ref admission.SKURef, shadow bool) (Limit, bool) {
	best, found := -1, Limit{}
	for _, v := range o.byKey[key] {
		if v.shadow != shadow || v.activity != "" && v.activity != ref.ActivityID || v.sku != "" && v.sku != ref.SKUID {
			continue
		}
		rank := 0
		if v.activity != "" {
			rank++
		}
		if v.sku != "" {
			rank++
		}
		if rank > best {
			best, found = rank, v.limit
		}
	}
	return found, best >= 0
}

// Switch is the setting of an optional stage.
type Switch uint8

// The settings. The zero value is on, so that what is unknown is enforced.
const (
	On Switch = iota
	Shadow
	Off
)

var switchNames = [...]string{"on", "shadow", "off"}

func (s Switch) String() string { return switchNames[s] }

func parseSwitch(s string) (Switch, bool) {
	for i, n := range switchNames {
		if n == s {
			return Switch(i), true
		}
	}
	return On, false
}
