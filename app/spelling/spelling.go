// Package spelling finds the name that a mistyped word probably stands for. It is the one
// measure of nearness for settings, variables and flags; it never decides anything.
package spelling

import (
	"iter"
	"unicode/utf8"
)

// maxSlips bounds how far a suggestion may be from what was typed; a short word allows
// fewer: one for each three letters begun.
const maxSlips = 3

// maxWord bounds what is compared, in bytes: no name of ours is half as long.
const maxWord = 100

// Nearest returns the name that word is closest to, the first of equals, and "" when none
// is near or word is itself one of them.
func Nearest(word string, names iter.Seq[string]) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	best, least := "", min(maxSlips, (utf8.RuneCountInString(word)+2)/3)+1
	for name := range names {
		if name == word {
			return ""
		}
		if d := Distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// Distance counts the slips from a to b: letters that are missing, too many or other, and
// neighbours that changed places. Cost: len(a) x len(b).
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	// Three rows of the table: two prefixes ago, one ago, this one.
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			other := 1
			if x[i] == y[j] {
				other = 0
			}
			row[j+1] = min(last[j]+other, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
