package wasi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("é", maxLine)
	for _, tc := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"one", []string{"a\n"}, []string{"a"}},
		{"in pieces", []string{"a", "b\nc", "\r\n", "\n", "d"}, []string{"ab", "c", "", "d"}},
		{"not UTF-8", []string{"a\xffb\n"}, []string{"a\uFFFDb"}},
		{"a character in two writes", []string{"\xc3", "\xa9\n"}, []string{"é"}},
		{"as long as can be", []string{long[:maxLine] + "\nx\n"}, []string{long[:maxLine], "x"}},
		{"longer", []string{"x" + long[:maxLine] + "\n"}, []string{"x" + long[:maxLine-2], "é"}},
		{"nothing", []string{""}, nil},
	} {
		var l line
		var got []string
		emit := func(s string) { got = append(got, s) }
		for _, w := range tc.writes {
			l.write([]byte(w), emit)
		}
		l.flush(emit)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

// FuzzLines cuts one text into two writes anywhere; the lines must be the same.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\n\nc", 3)
	f.Add(strings.Repeat("ü", maxLine), 5)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		cut = min(max(cut, 0), len(text))
		var whole, pieces []string
		var a, b line
		a.write([]byte(text), func(s string) { whole = append(whole, s) })
		a.flush(func(s string) { whole = append(whole, s) })
		b.write([]byte(text[:cut]), func(s string) { pieces = append(pieces, s) })
		b.write([]byte(text[cut:]), func(s string) { pieces = append(pieces, s) })
		b.flush(func(s string) { pieces = append(pieces, s) })
		if d := cmp.Diff(whole, pieces); d != "" {
			t.Error(d)
		}
		for _, l := range whole {
			if !utf8.ValidString(l) || strings.Contains(l, "\n") || len(l) > 3*maxLine {
				t.Errorf("line %q", l)
			}
		}
	})
}
