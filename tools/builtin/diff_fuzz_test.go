package builtin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// FuzzUnified makes diffs of texts that a model may have given: what they say makes the one text of the other, and counts are right.
func FuzzUnified(f *testing.F) {
	f.Add("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\nx\n5\n6\n7\n8\n9")
	f.Add("", "a\n\nb\\ c\n")
	f.Add("a\n-b\n+c\n@@ -1,1 +1,1 @@\n", "-b\n")
	f.Add("a\n", "a\r\n")
	f.Add(strings.Repeat("a\nb\n", 20)+"x\n"+strings.Repeat("c\n", 7), "y\n"+strings.Repeat("a\nb\n", 20)+strings.Repeat("c\n", 6))
	f.Fuzz(func(t *testing.T, a, b string) {
		text, added, removed := unified("a", "b", a, b)
		if (text == "") != (a == b) {
			t.Fatalf("of %q and %q: %q", a, b, text)
		}
		if text == "" {
			return
		}
		got, plus, minus, err := patched(split(a), strings.SplitAfter(text, "\n")[2:])
		if err != nil || got != b || plus != added || minus != removed {
			t.Fatalf("of %q and %q, with %d and %d lines: %v, %q\n%s", a, b, added, removed, err, got, text)
		}
	})
}

// patched is what hunks make of lines, and how many they add and remove.
func patched(old, hunks []string) (text string, plus, minus int, err error) {
	var out []string
	at := 0
	for len(hunks) > 0 && hunks[0] != "" {
		var fromA, countA, fromB, countB int
		if _, err := fmt.Sscanf(hunks[0], "@@ -%d,%d +%d,%d @@\n", &fromA, &countA, &fromB, &countB); err != nil {
			return "", 0, 0, fmt.Errorf("%q: %w", hunks[0], err)
		}
		hunks = hunks[1:]
		start, startB := fromA-1, fromB-1
		if countA == 0 {
			start++
		}
		if countB == 0 {
			startB++
		}
		if start < at || start > len(old) {
			return "", 0, 0, fmt.Errorf("a hunk begins at line %d of %d, behind %d", start, len(old), at)
		}
		out = append(out, old[at:start]...)
		if at = start; len(out) != startB {
			return "", 0, 0, fmt.Errorf("a hunk begins at line %d of the new text, not at %d", startB, len(out))
		}
		for countA > 0 || countB > 0 {
			kind, line := hunks[0][0], hunks[0][1:]
			hunks = hunks[1:]
			if strings.HasPrefix(hunks[0], `\`) {
				line, hunks = strings.TrimSuffix(line, "\n"), hunks[1:]
			}
			if kind != '+' {
				if at == len(old) || old[at] != line {
					return "", 0, 0, fmt.Errorf("line %d is not %q", at, line)
				}
				at, countA = at+1, countA-1
			}
			if kind != '-' {
				out, countB = append(out, line), countB-1
			}
			switch kind {
			case '+':
				plus++
			case '-':
				minus++
			case ' ':
			default:
				return "", 0, 0, fmt.Errorf("a line of the kind %q", kind)
			}
		}
	}
	return strings.Join(slices.Concat(out, old[at:]), ""), plus, minus, nil
}
