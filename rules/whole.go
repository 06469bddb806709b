package rules

import (
	"math"
	"math/big"
	"strconv"
	"time"
)

// wholeRate is a rate in whole tokens a period of whole milliseconds, as the limiter store's
// scripts count. The zero value is closed.
type wholeRate struct{ tokens, ms int64 }

// maxProduct bounds tokens x ms: the scripts multiply it by 1000 in numbers that are exact
// up to 2^53, and the half left over is for what they add to it.
const maxProduct = 1 << 52 / 1000

// written is a rate a second as its author wrote it: 0.1 is a tenth, not the binary fraction
// next to it.
func written(perSecond float64) wholeRate {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(perSecond, 'g', -1, 64))
	if !ok || r.Sign() <= 0 { // not a number, or closed
		return wholeRate{}
	}
	return fitting(r.Quo(r, big.NewRat(1000, 1)))
}

// fitting is a rate per ms, above zero and validated: itself where its terms are small
// enough, else one with terms that are, below it by less than one part in a million: of the
// two numbers it is the greater that is rounded.
func fitting(perMS *big.Rat) wholeRate {
	n, d := perMS.Num(), perMS.Denom()
	if new(big.Int).Mul(n, d).Cmp(big.NewInt(maxProduct)) <= 0 {
		return wholeRate{n.Int64(), d.Int64()}
	}
	f, _ := perMS.Float64()
	if f < 1 {
		tokens := max(1, int64(math.Sqrt(maxProduct*f)))
		ms, part := new(big.Int).DivMod(new(big.Int).Mul(big.NewInt(tokens), d), n, new(big.Int))
		if part.Sign() > 0 {
			ms.Add(ms, big.NewInt(1))
		}
		return wholeRate{tokens, ms.Int64()}
	}
	ms := max(1, int64(math.Sqrt(maxProduct/f)))
	tokens := new(big.Int).Div(new(big.Int).Mul(big.NewInt(ms), n), d)
	return wholeRate{tokens.Int64(), ms}
}

// Whole is the rate in whole tokens a period of whole milliseconds: a hot-param rule's own
// threshold and duration, or the decimal that was written, in lowest terms. It is never above
// the rule; where the terms would be too great for the limiter store's scripts it is below
// it, by less than one part in a million. 0 tokens is closed.
func (l Limit) Whole() (tokens int64, period time.Duration) {
	if l.whole.tokens == 0 {
		return 0, time.Second
	}
	return l.whole.tokens, time.Duration(l.whole.ms) * time.Millisecond
}

// NewLimit is a limit that was written as a rate a second.
func NewLimit(perSecond float64, burst int64, rule string) Limit {
	return Limit{PerSecond: perSecond, Burst: burst, Rule: rule, whole: written(perSecond)}
}
