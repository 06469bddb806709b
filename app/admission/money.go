package admission

import "strings"

// Digits of an amount. With MaxUserUnits units the largest sum is below 2^63.
const (
	moneyDigits   = 11
	moneyDecimals = 4
)

// Times is the price of n units, with as many decimals as m. It is "" when m is no
// valid amount or n is not in 0..MaxUserUnits: never a wrong sum.
func (m Money) Times(n int64) Money {
	units, ok := m.units()
	if !ok || n < 0 || n > MaxUserUnits {
		return Money{Currency: m.Currency}
	}
	_, fraction, _ := strings.Cut(m.Amount, ".")
	return Money{Amount: formatUnits(units*n, len(fraction)), Currency: m.Currency}
}

// Equal reports whether both are the same sum: 19.8 equals 19.80. What is no valid
// amount equals nothing, not even itself.
func (m Money) Equal(o Money) bool {
	a, ok := m.sum()
	b, also := o.sum()
	return ok && also && a == b && m.Currency == o.Currency && validCurrency(m.Currency)
}

// units is the amount of one price in ten-thousandths.
func (m Money) units() (int64, bool) { return parseUnits(m.Amount, moneyDigits) }

// sum is the amount of an order in ten-thousandths; it may have three digits more.
func (m Money) sum() (int64, bool) { return parseUnits(m.Amount, moneyDigits+3) }

func parseUnits(s string, digits int) (int64, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || len(whole) > digits || len(fraction) > moneyDecimals || point && fraction == "" ||
		len(whole) > 1 && whole[0] == '0' {
		return 0, false
	}
	var units int64
	for _, part := range [...]string{whole, fraction + "0000"[len(fraction):]} {
		for i := 0; i < len(part); i++ {
			if part[i] < '0' || part[i] > '9' {
				return 0, false
			}
			units = units*10 + int64(part[i]-'0')
		}
	}
	return units, true
}

func formatUnits(units int64, decimals int) string {
	digits := make([]byte, 0, 24)
	for i := 0; units > 0 || i <= moneyDecimals; i++ {
		if i == moneyDecimals {
			digits = append(digits, '.')
		}
		digits = append(digits, byte('0'+units%10))
		units /= 10
	}
	for i, j := 0, len(digits)-1; i < j; i, j = i+1, j-1 {
		digits[i], digits[j] = digits[j], digits[i]
	}
	s := string(digits[:len(digits)-moneyDecimals+decimals])
	return strings.TrimSuffix(s, ".")
}

func validCurrency(s string) bool {
	if len(s) != 3 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}
