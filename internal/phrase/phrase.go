// Package phrase cuts texts to what a message may hold, and finds names that come near to one that is not there.
package phrase

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// Clip returns s, or when it is longer than n bytes its beginning, without half a character, and three dots.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// maxNear is how long a name may be that others come near to.
const maxNear = 256

// Near returns up to most of names that somebody may have meant who wrote another: those that differ in a few letters, the nearest first.
func Near(written string, names []string, most int) []string {
	word := Fold(written)
	if word == "" || len(written) > maxNear {
		return nil
	}
	far := map[string]int{}
	var found []string
	for _, name := range names {
		if _, seen := far[name]; seen {
			continue
		}
		if d := Distance(Fold(name), word, Typos(word)+1); d <= Typos(word) && d < len(word) {
			far[name] = d
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(far[a], far[b]), strings.Compare(a, b)) })
	return found[:min(len(found), most)]
}

// Typos is how many letters of a word may be wrong for it to be taken as another.
func Typos(word string) int { return 1 + len(word)/4 }

// Fold drops what people get wrong without meaning another name: case and separators.
func Fold(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// Distance is how many letters differ between a and b, a swap of neighbours counting as one (optimal string alignment), or limit when that many do.
func Distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d >= limit || -d >= limit {
		return limit
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least >= limit {
			return limit
		}
		before, last, row = last, row, before
	}
	return min(last[len(y)], limit)
}
