package phrase

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 0, ""}, {"tea", 3, "tea"}, {"teas", 3, "tea..."}, {"aé", 2, "a..."}, {"aéb", 3, "aé..."}, {"日本", 3, "日..."}, {"x", 0, "..."},
	} {
		if got := Clip(c.s, c.n); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q to %d: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

func TestNear(t *testing.T) {
	names := []string{"files.read", "files.write", "timeout", "allow", "ask", "pdf-forms", "pdf", "ab", "read"}
	for written, want := range map[string][]string{
		"files.raed": {"files.read"},
		"FILES_READ": {"files.read"},
		"alow":       {"allow"},
		"akk":        {"ask"},
		"timeots":    {"timeout"},
		"pdf-fomrs":  {"pdf-forms"},
		"pdf":        {"pdf"},
		"aks":        {"ask"},
		"a":          nil, // which would be any
		"zzzzzz":     nil,
		"--":         nil,
		"":           nil,
	} {
		got := Near(written, append(names, names...), 3)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", written, d)
		}
	}
	if got := Near("timeou", names, 0); len(got) != 0 {
		t.Errorf("none: %q", got)
	}
	if got := Near(strings.Repeat("a", maxNear+1), names, 3); got != nil {
		t.Errorf("a long one: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 3, 0}, {"tea", "tea", 3, 0}, {"tea", "tae", 3, 1}, {"tea", "te", 3, 1}, {"tea", "sea", 3, 1}, {"tea", "cocoa", 9, 4}, {"tea", "cocoa", 2, 2},
		{"é", "e", 3, 1}, {"éé", "ee", 5, 2}, {"abcdef", "", 3, 3}, {"größe", "grosse", 9, 3}, {"abc", "acb", 1, 1},
	} {
		for range 2 {
			if got := Distance(c.a, c.b, c.limit); got != c.want {
				t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
			}
			c.a, c.b = c.b, c.a
		}
	}
}
