package builtin

import (
	"fmt"
	"strings"
)

// maxEdits is how many lines may differ for the shortest way from one text to the other to be looked for (Myers 1986, O(ND)). Beyond, all between the
// common beginning and the common end is replaced.
const maxEdits = 2000

// edit is a line of both texts, or of one of them.
type edit struct {
	kind byte // ' ', '-' or '+'
	line string
}

// unified is the unified diff of two texts, with three lines around each change.
func unified(nameA, nameB, a, b string) (text string, added, removed int) {
	edits := editsOf(split(a), split(b))
	for _, e := range edits {
		switch e.kind {
		case '+':
			added++
		case '-':
			removed++
		}
	}
	if added+removed == 0 {
		return "", 0, 0
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", nameA, nameB)
	const around = 3
	for i := 0; i < len(edits); {
		if edits[i].kind == ' ' {
			i++
			continue
		}
		from, to := max(i-around, 0), i
		for quiet := 0; to < len(edits) && quiet <= 2*around; to++ {
			quiet++
			if edits[to].kind != ' ' {
				quiet = 0
			}
		}
		for end := to; end > i && edits[end-1].kind == ' '; end-- {
			to = min(to, end-1+around)
		}
		hunk(&out, edits, from, min(to, len(edits)))
		i = to
	}
	return out.String(), added, removed
}

func hunk(out *strings.Builder, edits []edit, from, to int) {
	lineA, lineB := 1, 1
	for _, e := range edits[:from] {
		if e.kind != '+' {
			lineA++
		}
		if e.kind != '-' {
			lineB++
		}
	}
	countA, countB := 0, 0
	for _, e := range edits[from:to] {
		if e.kind != '+' {
			countA++
		}
		if e.kind != '-' {
			countB++
		}
	}
	if countA == 0 {
		lineA--
	}
	if countB == 0 {
		lineB--
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", lineA, countA, lineB, countB)
	for _, e := range edits[from:to] {
		out.WriteByte(e.kind)
		out.WriteString(strings.TrimSuffix(e.line, "\n"))
		out.WriteByte('\n')
		if !strings.HasSuffix(e.line, "\n") {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
}

func split(s string) []string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, line)
	}
	return out
}

func editsOf(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	head = append(head, middle(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		head = append(head, tail[i])
	}
	return head
}

// middle is Myers' greedy search, which keeps the furthest points of each number of edits to find the way back.
func middle(a, b []string) []edit {
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	v := map[int]int{1: 0}
	var trace []map[int]int
	for d := 0; d <= most; d++ {
		at := make(map[int]int, len(v))
		for k, x := range v {
			at[k] = x
		}
		trace = append(trace, at)
		for k := -d; k <= d; k += 2 {
			x := v[k-1] + 1
			if k == -d || k != d && v[k-1] < v[k+1] {
				x = v[k+1]
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			if v[k] = x; x >= n && y >= m {
				return way(trace, a, b)
			}
		}
	}
	var out []edit
	for _, line := range a {
		out = append(out, edit{'-', line})
	}
	for _, line := range b {
		out = append(out, edit{'+', line})
	}
	return out
}

func way(trace []map[int]int, a, b []string) []edit {
	var back []edit
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		v, k := trace[d], x-y
		prev := k - 1
		if k == -d || k != d && v[k-1] < v[k+1] {
			prev = k + 1
		}
		px := v[prev]
		py := px - prev
		for x > px && y > py && x > 0 && y > 0 {
			x, y = x-1, y-1
			back = append(back, edit{' ', a[x]})
		}
		if d > 0 {
			if x == px {
				y--
				back = append(back, edit{'+', b[y]})
			} else {
				x--
				back = append(back, edit{'-', a[x]})
			}
		}
	}
	out := make([]edit, 0, len(back))
	for i := len(back) - 1; i >= 0; i-- {
		out = append(out, back[i])
	}
	return out
}
