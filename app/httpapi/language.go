package httpapi

import (
	"strconv"
	"strings"
)

// maxLanguages bounds how many members of Accept-Language are looked at.
const maxLanguages = 32

// prefersChinese reports whether Accept-Language weighs Chinese above English. Equal
// weights go to the one that stands first, "*" and silence to English.
func prefersChinese(lines []string) bool {
	chinese, english := 0.0, 0.0
	for _, line := range lines {
		members := 0
		for member := range strings.SplitSeq(line, ",") {
			if members++; members > maxLanguages {
				break
			}
			tag, params, weighted := strings.Cut(member, ";")
			weight := 1.0
			if weighted {
				weight = quality(params)
			}
			tag, _, _ = strings.Cut(strings.TrimSpace(tag), "-")
			switch {
			case strings.EqualFold(tag, "zh"):
				if weight > english {
					chinese = max(chinese, weight)
				}
			case strings.EqualFold(tag, "en"), tag == "*":
				if weight > chinese {
					english = max(english, weight)
				}
			}
		}
	}
	return chinese > english
}

// quality reads "q=0.8"; what is no weight counts as none given.
func quality(params string) float64 {
	name, value, _ := strings.Cut(strings.TrimSpace(params), "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !strings.EqualFold(strings.TrimSpace(name), "q") || err != nil || !(q >= 0 && q <= 1) {
		return 1
	}
	return q
}
