package slots

import (
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
)

// charge is what a request took from a limiter and may get back.
type charge struct {
	table *limit.Keyed // nil: the prefixes
	id    uint64
	rate  limit.Rate
}

// maxCharges: source, its prefix, user, device.
const maxCharges = 4

// refundable remembers a charge. What user, device and source were charged goes back
// when a later stage says "we are full": it was not they who were too fast.
func (v *visit) refundable(c charge) {
	if v.charged == 0 {
		v.req.AtEnd(v)
	}
	v.charges[v.charged] = c
	v.charged++
}

// refundableShadow remembers what a shadow limit was charged. The enforced limit of the
// same stage registers the refund.
func (v *visit) refundableShadow(c charge) { v.shadows = append(v.shadows, c) }

// Settle refunds, if the request was shed: what has not come back by itself since it came.
func (v *visit) Settle(d admission.Decision) {
	if !d.Outcome.Shed() {
		return
	}
	now, came := v.gate.config.Clock(), limit.Instant(v.req.Mono)
	for _, c := range v.shadows {
		c.refund(now, came, v.gate)
	}
	for _, c := range v.charges[:v.charged] {
		c.refund(now, came, v.gate)
	}
}

func (c *charge) refund(now, came limit.Instant, g *Gate) {
	if c.table == nil {
		g.prefixes.Refund(now, came, c.id, 1, c.rate)
		return
	}
	c.table.Refund(now, came, limit.Key{ID: c.id}, 1, c.rate)
}
