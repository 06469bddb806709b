package lease

import "sync/atomic"

// grant is the tokens of one answered ask.
type grant struct {
	left atomic.Int64
	sent Instant // when the ask was sent, not when it was answered
	life int64   // ns
	low  int64   // at this many left the next ask is due; -1: only with a request in hand
}

// alive reports whether both clocks agree that the lease runs.
func (g *grant) alive(now Instant) bool {
	return now.Mono-g.sent.Mono < g.life && now.Wall-g.sent.Wall < g.life
}

// lowWater is the part of an ask at which the next one is due.
const lowWater = 0.12

// due reports that less than 12 % of the ask can still be spent: because no more is left,
// or because at the demand that the ask was made for the rest will die.
func (g *grant) due(left int64, now Instant) bool {
	return left <= g.low || g.low >= 0 && float64(now.Mono-g.sent.Mono) >= (1-lowWater)*float64(g.life)
}

// take spends one token and returns how many are left, -1 when there was none.
func (g *grant) take() int64 {
	for {
		n := g.left.Load()
		if n <= 0 {
			return -1
		}
		if g.left.CompareAndSwap(n, n-1) {
			return n - 1
		}
	}
}

// giveBack implements holder: a token goes back to its own lease while that lives.
func (g *grant) giveBack(now Instant) {
	if g.alive(now) {
		g.left.Add(1)
	}
}

// holder is where a spent token came from.
type holder interface {
	giveBack(now Instant)
}

// Token is one admission, spent. The zero value is none, and returning it does nothing.
type Token struct {
	sku, activity holder
}

func (t Token) giveBack(now Instant) {
	if t.sku != nil {
		t.sku.giveBack(now)
	}
	if t.activity != nil {
		t.activity.giveBack(now)
	}
}
