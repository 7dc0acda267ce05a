package skill

import (
	"slices"
	"strings"
)

// near returns up to three of names that one may have meant by name, the likeliest first.
func near(name string, names []string) []string {
	const most, maxLen = 3, 4 * MaxName
	if len(name) > maxLen {
		return nil
	}
	name = strings.ToLower(name)
	rank := map[string]int{}
	var like []string
	for _, n := range names {
		d := distance(name, n)
		if d > 1+len(name)/3 {
			if len(name) < 3 || !strings.Contains(n, name) && !strings.Contains(name, n) {
				continue
			}
			d = MaxName
		}
		rank[n] = d
		like = append(like, n)
	}
	slices.SortStableFunc(like, func(a, b string) int { return rank[a] - rank[b] })
	return like[:min(most, len(like))]
}

// distance is how many bytes have to be put in, taken out or changed to make b of a (Wagner and Fischer 1974).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
