package slots

import (
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
)

// charge is what a request took from a limiter and may get back.
type charge struct {
	table *limit.Keyed // nil: the prefixes
	key   limit.Key
	rate  limit.Rate
}

// maxCharges: source, its prefix, user, device.
const maxCharges = 4

// refundable remembers a charge. What user, device and source were charged goes back
// when a later stage says "we are full": it was not they who were too fast.
func (v *visit) refundable(g *Gate, c charge) {
	if v.charged == 0 {
		v.req.OnEnd(func(d admission.Decision) { v.refund(g, d) })
	}
	v.charges[v.charged] = c
	v.charged++
}

// refundableShadow remembers what a shadow limit was charged. The enforced limit of the
// same stage registers the refund.
func (v *visit) refundableShadow(c charge) { v.shadows = append(v.shadows, c) }

func (v *visit) refund(g *Gate, d admission.Decision) {
	if !d.Outcome.Shed() {
		return
	}
	now := limit.Instant(v.req.Mono)
	for _, c := range v.shadows {
		c.table.Refund(now, c.key, 1, c.rate)
	}
	for _, c := range v.charges[:v.charged] {
		if c.table != nil {
			c.table.Refund(now, c.key, 1, c.rate)
		} else {
			g.prefixes.Refund(now, c.key.ID, 1)
		}
	}
	v.charged, v.shadows = 0, nil
}
