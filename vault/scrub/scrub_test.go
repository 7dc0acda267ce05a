package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

const value = `sk-9"fJ/é+ü <q>&'x\y%41😀 end7`

// spellings are what well known encoders make of a value.
func spellings(v string) map[string]string {
	std, web := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) }
	minimal := func(s string) string {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(s)
		return b.String()[1 : b.Len()-2]
	}
	each := func(format string) string {
		var b strings.Builder
		for i := range len(v) {
			fmt.Fprintf(&b, format, v[i])
		}
		return b.String()
	}
	units := func(format string) string {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(v)) {
			fmt.Fprintf(&b, format, u)
		}
		return b.String()
	}
	var wide, narrow strings.Builder
	for _, u := range []byte(v) {
		wide.Write([]byte{0, u})
		narrow.Write([]byte{u, 0})
	}
	wrapped := std([]byte("user:" + v))
	wrapped = wrapped[:12] + "\r\n" + wrapped[12:24] + "\n" + wrapped[24:]
	return map[string]string{
		"itself":                    v,
		"JSON, minimal":             minimal(v),
		"JSON, for HTML":            quoted(v),
		"JSON, all escaped":         units(`\u%04x`),
		"JSON, all escaped, upper":  units(`\u%04X`),
		"JSON, slashes escaped":     strings.ReplaceAll(minimal(v), "/", `\/`),
		"JSON in JSON":              minimal(minimal(v)),
		"JSON in JSON in JSON":      minimal(minimal(minimal(v))),
		"JSON in JSON, all escaped": units(`\\u%04x`),
		"Go quoted":                 strings.Trim(fmt.Sprintf("%+q", v), `"`),
		"JavaScript bytes":          each(`\x%02x`),
		"query":                     url.QueryEscape(v),
		"path":                      url.PathEscape(v),
		"query, lower":              strings.ToLower(url.QueryEscape("")) + lowerPercent(url.QueryEscape(v)),
		"every byte percent":        each("%%%02X"),
		"every byte percent, lower": each("%%%02x"),
		"query in a query":          url.QueryEscape(url.QueryEscape(v)),
		"query thrice":              url.QueryEscape(url.QueryEscape(url.QueryEscape(v))),
		"HTML":                      html.EscapeString(v),
		"HTML twice":                html.EscapeString(html.EscapeString(v)),
		"HTML, named":               strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(v),
		"HTML, all decimal":         runes(v, "&#%d;"),
		"HTML, all hexadecimal":     runes(v, "&#x%x;"),
		"HTML in JSON":              minimal(html.EscapeString(v)),
		"hexadecimal":               hex.EncodeToString([]byte(v)),
		"hexadecimal, upper":        strings.ToUpper(hex.EncodeToString([]byte(v))),
		"hexadecimal, mixed":        mixed(hex.EncodeToString([]byte(v))),
		"base64":                    std([]byte(v)),
		"base64 after one":          std([]byte("a" + v)),
		"base64 after two":          std([]byte("ab" + v)),
		"base64 after many":         std([]byte("user:" + v + " and more")),
		"base64 for URLs":           web([]byte(v)),
		"base64 for URLs after two": web([]byte("ab" + v)),
		"base64 in JSON":            strings.ReplaceAll(std([]byte(v)), "/", `\/`),
		"base64 in a query":         url.QueryEscape(std([]byte(v))),
		"base64 in lines":           wrapped,
		"base64 in lines in JSON":   quoted(wrapped),
		"UTF-16, big end first":     wide.String(),
		"UTF-16, little end first":  narrow.String(),
	}
}

func lowerPercent(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

func mixed(s string) string {
	b := []byte(s)
	for i := range b {
		if i%3 == 0 {
			b[i] = bytes.ToUpper(b[i : i+1])[0]
		}
	}
	return string(b)
}

func runes(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, format, r)
	}
	return b.String()
}

// left returns what of a scrubbed spelling is no mark: at most the edges of base64, which other bytes have a part in.
func left(t *testing.T, out string) string {
	t.Helper()
	before, after, found := strings.Cut(out, Mark)
	if !found || strings.Contains(after, Mark) {
		t.Fatalf("scrubbed: %q", out)
	}
	return before + after
}

func TestSpellings(t *testing.T) {
	s := New([]byte(value))
	for name, text := range spellings(value) {
		t.Run(name, func(t *testing.T) {
			rest := left(t, s.String(text))
			if edge := 12; !strings.HasPrefix(name, "base64") && !strings.HasPrefix(name, "UTF-16") && rest != "" ||
				len(rest) > edge && !strings.Contains(name, "many") && !strings.Contains(name, "lines") {
				t.Errorf("%q is left of %q", rest, text)
			}
			for _, around := range []string{"", `{"a":"`, "x=1&y=", "% ", `\`, "&", "&#", "%2", `\u00`, "s", "sk-", "\x00"} {
				got := s.String(around + text + around)
				if rest := left(t, got); len(rest) > 2*len(around)+len(name)*20 || s.In([]byte(got)) {
					t.Errorf("between %q: %q", around, got)
				}
			}
			for _, r := range []io.Reader{iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text))} {
				got, err := io.ReadAll(s.Reader(r))
				if want := s.String(text); err != nil || string(got) != want {
					t.Errorf("in pieces: %q, %v; want %q", got, err, want)
				}
			}
		})
	}
}

func TestUnchanged(t *testing.T) {
	s := New([]byte(value), []byte("hunter2hunter2"), []byte("-----BEGIN"))
	for _, text := range []string{
		"", "s", "sk-", value[:len(value)-1], value[1:], `\`, `\\\\\\\\\\\\\\\\\\\\\\`, "%", "%%%%", "%2", "%25%25%25", "&", "&amp;amp;amp;amp;amp;amp;",
		`\u`, `\ud83d`, `\ud83d\u`, `\ud83d\n`, "&#;", "&#x;", "&#99999999;", "&#xfffffff;", "\x00", "\x00\x00", "hunter2 hunter2", "Hunter2hunter2",
		"hunter2\nhunter2", strings.Repeat("hunter2", 1), "----BEGIN-----BEGI", "\xff\xfe\xfd", string(make([]byte, 100)),
	} {
		if got := s.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
		got, err := io.ReadAll(s.Reader(iotest.OneByteReader(strings.NewReader(text))))
		if err != nil || string(got) != text {
			t.Errorf("in pieces, %q became %q, %v", text, got, err)
		}
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		values     []string
		text, want string
	}{
		{[]string{"abcdef", "abcdefghij"}, "abcdefghij abcdefghi", "[secret] [secret]ghi"},
		{[]string{"abcdef", "defghi"}, "abcdefghi", "[secret]"},
		{[]string{"abcdef", "cd"}, "abcdef", "[secret]"},
		{[]string{"abcdef"}, "abcdefabcdef", "[secret][secret]"},
		{[]string{"ababab"}, "xabababab", "x[secret]"},
		{[]string{"aaaa"}, strings.Repeat("a", 1000), "[secret]"},
		{[]string{"a"}, "banana", "b[secret]n[secret]n[secret]"},
		{[]string{"[secret]"}, "[secret]", "[secret]"},
		{[]string{"", "x!"}, "x!", "[secret]"},
	} {
		var vs [][]byte
		for _, v := range c.values {
			vs = append(vs, []byte(v))
		}
		if got := New(vs...).String(c.text); got != c.want {
			t.Errorf("%q in %.40q: %.80q, want %q", c.values, c.text, got, c.want)
		}
	}
}

// A value that repeats itself must neither cost the square of its length nor come through.
func TestRepeating(t *testing.T) {
	v := strings.Repeat("a", 20_000)
	s := New([]byte(v))
	text := strings.Repeat("a", 50_000) + "b" + strings.Repeat("%61", 30_000) + strings.Repeat(`\u0061a`, 15_000)
	out := s.String(text)
	if strings.Contains(out, v) || strings.Contains(out, strings.Repeat("%61", 20_000)) || !strings.Contains(out, "b") || s.In([]byte(out)) {
		t.Error("the value is left")
	}
	if n := len(out); n > len(text)/2 {
		t.Errorf("%d bytes of %d are left", n, len(text))
	}
}

func TestNothing(t *testing.T) {
	for _, s := range []*Scrubber{nil, New(), New(nil, []byte{}), Merge(), Merge(nil, nil)} {
		if s != nil {
			t.Error("a Scrubber of no values")
		}
		if b := []byte("text"); s.String("text") != "text" || &s.Bytes(b)[0] != &b[0] || s.In(b) {
			t.Error("nothing was found, and something")
		}
		src := strings.NewReader("text")
		if s.Reader(src) != io.Reader(src) || s.Guard(src, io.EOF) != io.Reader(src) {
			t.Error("a reader that finds nothing")
		}
	}
	var set Set
	set.Add(nil)
	if set.String("text") != "text" {
		t.Error("an empty set finds something")
	}
}

func TestMergeAndSet(t *testing.T) {
	a, b := New([]byte("first-value")), New([]byte("second-value"))
	const text = "first-value second-value"
	if got := Merge(a, nil, b, a).String(text); got != "[secret] [secret]" {
		t.Errorf("merged: %q", got)
	}
	if Merge(nil, a, a) != a {
		t.Error("merging with nothing made another")
	}
	var set Set
	set.Add(a)
	if got := set.String(text); got != "[secret] second-value" {
		t.Errorf("set of one: %q", got)
	}
	set.Add(b)
	before := set.Scrubber()
	set.Add(a)
	if got := set.String(text); got != "[secret] [secret]" || set.Scrubber() != before {
		t.Errorf("set of two: %q", got)
	}
}

// pieces returns what it is given, a string for each Read, and fails the test when asked for more than there is.
type pieces struct {
	t    *testing.T
	list []string
	err  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.list) == 0 {
		if p.err == nil {
			p.t.Fatal("it reads on while it holds what cannot be a value")
		}
		return 0, p.err
	}
	n := copy(b, p.list[0])
	p.list = p.list[1:]
	return n, nil
}

func TestReaderDoesNotStall(t *testing.T) {
	s := New([]byte("hunter2-Staple"))
	buf := make([]byte, 100)
	for text, want := range map[string]string{
		"data: 1\n\n":     "data: 1\n\n",
		"data: hunter3":   "data: hunter3",
		"data: hunt":      "data: ",
		"data: 100%":      "data: 100",
		"data: hunt%65":   "data: ",
		"hunter2-Staple.": "[secret].",
		"hunter2-Staple":  "[secret]",
		"hunthunter2":     "hunt",
	} {
		n, err := s.Reader(&pieces{t: t, list: []string{text}}).Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("%q: %q, %v; want %q at once", text, buf[:n], err, want)
		}
	}
}

func TestReaderPassesOnErrors(t *testing.T) {
	s := New([]byte("hunter2hunter2"))
	broken := errors.New("broken")
	got, err := io.ReadAll(s.Reader(&pieces{list: []string{"a hunter2", "hunter2 hunt"}, err: broken}))
	if string(got) != "a [secret] hunt" || err != broken {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := io.ReadAll(s.Reader(&pieces{list: make([]string, 1000), err: io.EOF})); err != io.ErrNoProgress {
		t.Errorf("a source that gives nothing: %v", err)
	}
	refused := errors.New("refused")
	got, err = io.ReadAll(s.Guard(iotest.OneByteReader(strings.NewReader("a hunter2hunter2 b")), refused))
	if string(got) != "a " || err != refused {
		t.Errorf("guarded: %q, %v", got, err)
	}
	got, err = io.ReadAll(s.Guard(strings.NewReader("a hunter2"), refused))
	if string(got) != "a hunter2" || err != nil {
		t.Errorf("guarded: %q, %v", got, err)
	}
}

func BenchmarkReader(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var values [][]byte
	for range 10 {
		v := make([]byte, 30)
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		values = append(values, []byte(base64.RawURLEncoding.EncodeToString(v)))
	}
	s := New(values...)
	var js, prose bytes.Buffer
	for js.Len() < 1<<20 {
		fmt.Fprintf(&js, `{"id":%d,"name":"Repository %x","url":"https:\/\/api.example.com\/repos\/%d","text":"It said \"no\".\nThen it went on."},`, r.Uint32(), r.Uint64(), r.Uint32())
		fmt.Fprintf(&prose, "In the %d years since, the %x of the town has changed its name & its place; nobody asked why. ", r.IntN(100), r.Uint32())
	}
	binary := make([]byte, 1<<20)
	for i := range binary {
		binary[i] = byte(r.Uint32())
	}
	for name, text := range map[string][]byte{"json": js.Bytes(), "prose": prose.Bytes(), "binary": binary, "base64": []byte(base64.StdEncoding.EncodeToString(binary))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				n, err := io.Copy(io.Discard, s.Reader(bytes.NewReader(text)))
				if err != nil || n != int64(len(text)) {
					b.Fatal(n, err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	v := []byte("github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ")
	for b.Loop() {
		New(v)
	}
}
