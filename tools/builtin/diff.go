package builtin

import (
	"fmt"
	"slices"
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
	lineA, lineB, done := 1, 1, 0
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
		beforeA, beforeB := count(edits[done:from])
		lineA, lineB, done = lineA+beforeA, lineB+beforeB, min(to, len(edits))
		hunk(&out, edits[from:done], lineA, lineB)
		inA, inB := count(edits[from:done])
		lineA, lineB = lineA+inA, lineB+inB
		i = to
	}
	return out.String(), added, removed
}

// count is how many lines of either text there are.
func count(edits []edit) (a, b int) {
	for _, e := range edits {
		if e.kind != '+' {
			a++
		}
		if e.kind != '-' {
			b++
		}
	}
	return a, b
}

// hunk writes changes and what is around them, which begin at these lines.
func hunk(out *strings.Builder, edits []edit, lineA, lineB int) {
	countA, countB := count(edits)
	if countA == 0 {
		lineA--
	}
	if countB == 0 {
		lineB--
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", lineA, countA, lineB, countB)
	for _, e := range edits {
		out.WriteByte(e.kind)
		out.WriteString(strings.TrimSuffix(e.line, "\n"))
		out.WriteByte('\n')
		if !strings.HasSuffix(e.line, "\n") {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
}

func split(s string) []string {
	return slices.Collect(strings.Lines(s))
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
	slices.Reverse(tail)
	return append(head, tail...)
}

// middle is Myers' greedy search, which keeps the furthest points of each number of edits to find the way back: of d edits those on the diagonals
// from -d-1 to d+1.
func middle(a, b []string) []edit {
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	zero := most + 1 // where the diagonal 0 is in v
	v := make([]int32, 2*zero+1)
	var trace [][]int32
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(v[zero-d-1:zero+d+2]))
		for k := -d; k <= d; k += 2 {
			at := zero + k
			x := int(v[at-1]) + 1
			if k == -d || k != d && v[at-1] < v[at+1] {
				x = int(v[at+1])
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			if v[at] = int32(x); x >= n && y >= m {
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

func way(trace [][]int32, a, b []string) []edit {
	var back []edit
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		v, k := trace[d], x-y
		prev, zero := k-1, d+1
		if k == -d || k != d && v[zero+k-1] < v[zero+k+1] {
			prev = k + 1
		}
		px := int(v[zero+prev])
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
	slices.Reverse(back)
	return back
}
