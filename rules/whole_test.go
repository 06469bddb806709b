package rules_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-io/sluice/rules"
)

// TestWhole: a rate as the limiter store counts it is the rule's own, to the token where the
// script can hold it, and never above it.
func TestWhole(t *testing.T) {
	decimal := func(s string, burst int64) string {
		return fmt.Sprintf(`"limits":{"user":{"rate_per_s":%s,"burst":%d}}`, s, burst)
	}
	hotspot := func(threshold, seconds int64) string {
		return fmt.Sprintf(`"sentinel":{"hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"user","threshold":%d,"durationInSec":%d}]}`, threshold, seconds)
	}
	cases := []struct {
		rule string
		rate *big.Rat // a second
		same bool     // exactly
	}{
		{decimal("0", 3), big.NewRat(0, 1), true},
		{decimal("0.5", 3), big.NewRat(1, 2), true},
		{decimal("0.1", 3), big.NewRat(1, 10), true},
		{decimal("2.5", 3), big.NewRat(5, 2), true},
		{decimal("0.0000015", 3), big.NewRat(15, 10_000_000), true},
		{decimal("0.333333333", 3), big.NewRat(333333333, 1_000_000_000), false},
		{decimal("0.3333333333333333", 3), big.NewRat(3333333333333333, 10_000_000_000_000_000), false},
		{decimal("123456.789", 3), big.NewRat(123456789, 1000), false},
		{decimal("999999999.7", 3), big.NewRat(9999999997, 10), false},
		{decimal("1e9", 900719925474), big.NewRat(1_000_000_000, 1), true},
		{decimal("3e-10", 1), big.NewRat(3, 10_000_000_000), false},
		{hotspot(1, 3), big.NewRat(1, 3), true},
		{hotspot(2, 3), big.NewRat(2, 3), true},
		{hotspot(1, 7), big.NewRat(1, 7), true},
		{hotspot(1, 2), big.NewRat(1, 2), true},
		{hotspot(1, 86_400), big.NewRat(1, 86_400), true},
		{hotspot(999_999_999, 86_399), big.NewRat(999_999_999, 86_399), false},
		{hotspot(1_000_000_000, 1), big.NewRat(1_000_000_000, 1), true},
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		s := strconv.FormatFloat(rnd.Float64()*[]float64{1e-9, 1e-4, 1, 1e3, 1e9}[rnd.IntN(5)]+3e-10, 'g', 1+rnd.IntN(17), 64)
		r, _ := new(big.Rat).SetString(s)
		cases = append(cases, struct {
			rule string
			rate *big.Rat
			same bool
		}{decimal(s, 1), r, false})
	}
	for _, c := range cases {
		b, _, err := rules.Decode(doc(1, c.rule))
		if err != nil {
			t.Fatalf("%s: %v", c.rule, err)
		}
		tokens, period := rules.Compile(b).Policy(ref).User.For("7").Whole()
		ms := period.Milliseconds()
		got := new(big.Rat).Mul(big.NewRat(tokens, ms), big.NewRat(1000, 1))
		if got.Cmp(c.rate) > 0 {
			t.Errorf("%s: %d in %d ms is above the rule", c.rule, tokens, ms)
		}
		if c.same && got.Cmp(c.rate) != 0 {
			t.Errorf("%s: %d in %d ms is %v/s", c.rule, tokens, ms, got)
		}
		if low := new(big.Rat).Mul(c.rate, big.NewRat(999_999, 1_000_000)); got.Cmp(low) < 0 {
			t.Errorf("%s: %d in %d ms is more than a millionth below the rule", c.rule, tokens, ms)
		}
		if product := new(big.Int).Mul(big.NewInt(tokens*1000), big.NewInt(ms)); product.Cmp(big.NewInt(1<<53)) > 0 {
			t.Errorf("%s: %d tokens x 1000 x %d ms is above 2^53", c.rule, tokens, ms)
		}
	}
}

// TestWholeOfAPolicy: a policy that gives the burst alone keeps the hot-param rule's own rate.
func TestWholeOfAPolicy(t *testing.T) {
	b, _, err := rules.Decode(doc(1, `"sentinel":{"hotspot":[{"resource":"seckill.submit","metricType":1,"paramKey":"user","threshold":1,"durationInSec":3}]},
		"admission":[{"activity_id":"10001","sku_id":"90001","policy_version":1,"user_burst":9}]`))
	if err != nil {
		t.Fatal(err)
	}
	l := rules.Compile(b).Policy(ref).User.For("7")
	if tokens, period := l.Whole(); l.Burst != 9 || tokens != 1 || period.Milliseconds() != 3000 {
		t.Errorf("burst %d, %d in %v; want 9, 1 in 3 s", l.Burst, tokens, period)
	}
}
