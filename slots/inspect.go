package slots

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
)

// LimiterView is what an operator sees of one key.
type LimiterView struct {
	Dimension string  `json:"dimension"`
	Key       string  `json:"key"`
	Hash      string  `json:"hash,omitempty"` // of a source, as the top list names it
	Tracked   bool    `json:"tracked"`        // false: absent, as good as full
	Remaining int64   `json:"remaining"`
	FullInMS  int64   `json:"full_in_ms"`
	PerSecond float64 `json:"rate_per_s"`
	Burst     int64   `json:"burst"`
	PenaltyMS int64   `json:"penalty_ms"` // left of a penalty
}

// Hasher is the hasher that this gate's keys come from.
func (g *Gate) Hasher() limit.Hasher { return g.config.Hasher }

// InspectLimiter reads one key's bucket and changes nothing. Keys: source: an address;
// user, device: activity:sku:id; status, join, ticket: a user id.
func (g *Gate) InspectLimiter(dimension, key string) (any, error) {
	t, err := g.bucketOf(dimension, key)
	if err != nil {
		return nil, err
	}
	now := g.config.Clock()
	v := t.table.Inspect(now, limit.Key{ID: t.id}, t.rate)
	hash := ""
	if dimension == "source" {
		hash = sourceHash(t.id)
	}
	return LimiterView{
		Hash:      hash,
		Dimension: dimension, Key: key, Tracked: v.Tracked, Remaining: v.Remaining, FullInMS: v.FullIn.Milliseconds(),
		PerSecond: t.rate.PerSecond(), Burst: t.rate.Burst(), PenaltyMS: g.penalties.Serving(now, t.id).Milliseconds(),
	}, nil
}

// ResetLimiter forgets one key: its caller has one fresh burst and no penalty.
func (g *Gate) ResetLimiter(dimension, key string) error {
	t, err := g.bucketOf(dimension, key)
	if err != nil {
		return err
	}
	if dimension == "source" {
		t.table.Reset(limit.Key{ID: t.id ^ pollSalt}) // its polls have a bucket apart
	}
	tracked, punished := t.table.Reset(limit.Key{ID: t.id}), g.penalties.Pardon(t.id)
	if !tracked && !punished {
		return fmt.Errorf("limiter %s has no key %s: %w", dimension, key, admission.ErrNotFound)
	}
	return nil
}

func (g *Gate) bucketOf(dimension, key string) (charge, error) {
	w := g.view.Load()
	if w == nil {
		return charge{}, fmt.Errorf("no rules in force: %w", admission.ErrUnavailable)
	}
	h := g.config.Hasher
	call := func(c admission.Call) (charge, error) {
		if !admission.ValidDecimal(key) {
			return charge{}, fmt.Errorf("%s is no user id: %w", key, admission.ErrNotFound)
		}
		return charge{table: g.callers, id: h.Join(c.String(), key), rate: w.callRate(c, key)}, nil
	}
	switch dimension {
	case "source":
		addr, err := netip.ParseAddr(key)
		if err != nil {
			return charge{}, fmt.Errorf("%s is no address: %w", key, admission.ErrNotFound)
		}
		own, _ := source.Prefixes(addr)
		id := g.config.SourceKey(own)
		rate := w.source
		if r, ok := w.sourceOverrides[id]; ok {
			rate = r
		}
		return charge{table: g.sources, id: id, rate: rate}, nil
	case "user", "device":
		parts := strings.SplitN(key, ":", 3)
		if len(parts) != 3 {
			return charge{}, fmt.Errorf("the key of a %s is activity:sku:%s: %w", dimension, dimension, admission.ErrNotFound)
		}
		p := w.policy(admission.SKURef{ActivityID: parts[0], SKUID: parts[1]})
		id := h.Join(parts...)
		if dimension == "device" {
			return charge{table: g.devices, id: id, rate: p.deviceRate(parts[2])}, nil
		}
		return charge{table: g.users, id: id, rate: p.userRate(parts[2])}, nil
	case "status":
		return call(admission.CallStatus)
	case "join":
		return call(admission.CallJoin)
	case "ticket":
		return call(admission.CallTicket)
	}
	return charge{}, fmt.Errorf("no limiter %q; there are source, user, device, status, join, ticket: %w", dimension, admission.ErrNotFound)
}
