package visible

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "rm -rf /tmp/a", "rm -rf /tmp/a"},
		{"letters", "Grüße, 世界, 👍", "Grüße, 世界, 👍"},
		{"escape sequence", "a\x1b[2Kb", `a\u001b[2Kb`},
		{"line breaks", "a\r\n\tb", `a\r\n\tb`},
		{"bidi override", "a\u202eb\u202c", `a\u202eb\u202c`},
		{"bidi isolate", "\u2066x\u2069", `\u2066x\u2069`},
		{"zero width", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"tags", "ok\U000e0041\U000e0042", `ok\u{e0041}\u{e0042}`},
		{"variation selectors", "a\ufe0f\U000e0101", `a\ufe0f\u{e0101}`},
		{"other spaces", "a\u00a0b\u3000c\u2028d", `a\u00a0b\u3000c\u2028d`},
		{"blank letters", "a\u3164b\u2800", `a\u3164b\u2800`},
		{"private use", "\ue000", `\ue000`},
		{"not UTF-8", "a\xffb", `a\xffb`},
		{"C1", "a\u009bb", `a\u009bb`},
	} {
		if got := Text(tt.in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestJSONKeepsTheBytes(t *testing.T) {
	got := JSON([]byte(`{"b":1,"a":{"x":"\u202e","y":"` + "\u202e" + `"},"b":2}`))
	want := "{\n  \"b\": 1,\n  \"a\": {\n    \"x\": \"\\u202e\",\n    \"y\": \"\\u202e\"\n  },\n  \"b\": 2\n}"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := JSON([]byte("{\"a\":\x1b")); got != `{"a":\u001b` {
		t.Errorf("%q", got)
	}
	if got := Line([]byte("{\n \"a\": \"bcdefgh\"}"), 9); got != `{"a":"...` {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2K\u202e\U000e0041\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if strings.ContainsFunc(got, hidden) || !utf8.ValidString(got) || Text(got) != got {
			t.Errorf("%q becomes %q", s, got)
		}
		JSON([]byte(s))
	})
}
