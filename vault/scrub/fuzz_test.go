package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oracle says by regular expression what a Scrubber of an ASCII value finds.
func oracle(v string) *regexp.Regexp {
	var whole strings.Builder
	for _, c := range []byte(v) {
		whole.WriteString(anyOf(c, plain))
	}
	forms := []string{whole.String()}
	add := func(text string, a unit) {
		if len(text) < shortest {
			return
		}
		var f strings.Builder
		for i, c := range []byte(text) {
			if a == anySixty && i > 0 {
				f.WriteString(`(?:` + anyOf('\n', plain) + `|` + anyOf('\r', plain) + `){0,2}`)
			}
			f.WriteString(anyOf(c, a))
		}
		forms = append(forms, f.String())
	}
	add(hex.EncodeToString([]byte(v)), anyCase)
	for n, cut := range []int{0, 2, 3} {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", n) + v))
		if (n+len(v))%3 != 0 {
			text = text[:len(text)-1]
		}
		add(text[min(cut, len(text)):], anySixty)
	}
	return regexp.MustCompile(`(?s)` + strings.Join(forms, "|"))
}

// anyOf matches every escape of c, or of what stands for c in an alphabet.
func anyOf(c byte, a unit) string {
	same := []byte{c}
	switch {
	case a == anyCase && c >= 'a':
		same = append(same, c-0x20)
	case a == anySixty && c == '+':
		same = append(same, '-')
	case a == anySixty && c == '/':
		same = append(same, '_')
	}
	var alts []string
	for _, c := range same {
		alts = append(alts,
			regexp.QuoteMeta(string(rune(c))), fmt.Sprintf(`\x00%s`, regexp.QuoteMeta(string(rune(c)))),
			fmt.Sprintf(`%%(?:25){0,2}(?i:%02x)`, c), fmt.Sprintf(`\\{1,8}u00(?i:%02x)`, c),
			fmt.Sprintf(`\\{1,8}U000000(?i:%02x)`, c), fmt.Sprintf(`\\{1,8}x(?i:%02x)`, c),
			fmt.Sprintf(`&(?:amp;){0,2}#[xX](?i:0{0,5}%02x|0{0,6}%x);`, c, c), fmt.Sprintf(`&(?:amp;){0,2}#0{0,%d}%d;`, 7-len(fmt.Sprint(c)), c))
		if c >= 16 {
			alts[len(alts)-2] = fmt.Sprintf(`&(?:amp;){0,2}#[xX]0{0,5}(?i:%02x);`, c)
		}
		for _, e := range entities {
			if e.c == c {
				alts = append(alts, "&(?:amp;){0,2}"+e.name)
			}
		}
		for e, r := range escapes {
			if r == c && r != 0 {
				alts = append(alts, fmt.Sprintf(`\\{1,8}%c`, e))
			}
		}
		switch c {
		case '\\':
			alts = append(alts, `\\{2}`, `\\{4}`, `\\{8}`)
		case ' ':
			alts = append(alts, `\+`, `%(?:25){0,2}2[bB]`)
		}
	}
	return "(?:" + strings.Join(alts, "|") + ")"
}

// muddle returns a text of pieces that come near to spelling v, and sometimes do.
func muddle(r *rand.Rand, v string) string {
	var b strings.Builder
	texts := []string{v, hex.EncodeToString([]byte(v)), base64.StdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte("x" + v)),
		base64.StdEncoding.EncodeToString([]byte("xy" + v + "z"))}
	for range r.IntN(4) + 1 {
		text := texts[r.IntN(len(texts))]
		for i := range len(text) {
			c := text[i]
			switch r.IntN(40) {
			case 0, 1:
				fmt.Fprintf(&b, "%%%02x", c)
			case 2:
				fmt.Fprintf(&b, "%%25%02X", c)
			case 3, 4:
				fmt.Fprintf(&b, `\u%04x`, c)
			case 5:
				fmt.Fprintf(&b, `\\u%04x`, c)
			case 6:
				fmt.Fprintf(&b, `\x%02x`, c)
			case 7:
				fmt.Fprintf(&b, "&#%d;", c)
			case 8:
				fmt.Fprintf(&b, "&amp;#x%x;", c)
			case 9, 10:
				fmt.Fprintf(&b, `\%c`, c)
			case 11:
				b.WriteString([]string{"\n", "\r\n", `\n`, "%0A", `\\r`, "\n\n\n"}[r.IntN(6)])
				b.WriteByte(c)
			case 12:
				b.Write([]byte{0, c})
			case 13:
				if r.IntN(3) == 0 {
					b.WriteString([]string{`\`, "%", "&", "%2", `\u`, "&amp;", "\x00", "+"}[r.IntN(8)])
				}
				b.WriteByte(c)
			default:
				b.WriteByte(c)
			}
		}
		b.WriteString([]string{"", " ", "\\", text[:r.IntN(len(text))]}[r.IntN(4)])
	}
	return b.String()
}

// inPieces reads text through a Scrubber in pieces of sizes that seed decides.
func inPieces(s *Scrubber, text string, seed uint64) (string, error) {
	r := rand.New(rand.NewPCG(seed, 7))
	src := &pieces{err: io.EOF}
	for text != "" {
		n := min(len(text), r.IntN(12))
		src.list, text = append(src.list, text[:n]), text[n:]
	}
	got, err := io.ReadAll(s.Reader(src))
	return string(got), err
}

func agree(t *testing.T, s *Scrubber, o *regexp.Regexp, text string, seed uint64) {
	t.Helper()
	if found, want := s.In([]byte(text)), o.MatchString(text); found != want {
		t.Fatalf("found %v, want %v in %q", found, want, text)
	}
	whole := s.String(text)
	if cut, err := inPieces(s, text, seed); err != nil || cut != whole {
		t.Fatalf("in pieces: %q, %v; whole: %q; of %q", cut, err, whole, text)
	}
	for _, part := range strings.Split(whole, Mark) {
		if s.In([]byte(part)) || !strings.Contains(text, part) {
			t.Fatalf("%q is left of %q", part, text)
		}
	}
}

var awkward = []string{"abcdef", `a\"b\\`, `a%41\u0041`, "&amp;&lt;", "+ +a+", "aaaaaa", "abcabcab", "\n\r\n\t/x", "%25%2525", `\\\\u`, "////////", "nnnnnn", "key-123456"}

func TestAgainstOracle(t *testing.T) {
	for i, v := range awkward {
		s, o := New([]byte(v)), oracle(v)
		r := rand.New(rand.NewPCG(uint64(i), 3))
		for n := range 25 {
			agree(t, s, o, muddle(r, v), uint64(n))
		}
	}
}

// FuzzSpellings fuzzes what texts a value of ASCII is found in, against the oracle.
func FuzzSpellings(f *testing.F) {
	for i, v := range awkward {
		f.Add(v, "", uint64(i))
		f.Add(v, `a`+v+`\u0061`+v, uint64(i))
	}
	f.Fuzz(func(t *testing.T, v, text string, seed uint64) {
		if len(v) < 4 || len(v) > 8 || strings.ContainsFunc(v, func(r rune) bool { return r >= 0x80 || r == 0 }) || len(text) > 1000 {
			t.Skip()
		}
		s, o := New([]byte(v)), oracle(v)
		agree(t, s, o, text, seed)
		agree(t, s, o, muddle(rand.New(rand.NewPCG(seed, 3)), v), seed)
	})
}

// FuzzReader fuzzes values that may be any bytes: nothing of one is left, and how a text was cut does not show.
func FuzzReader(f *testing.F) {
	f.Add([]byte(value), []byte("hunter2-Staple"), []byte(value+"hunter2-Staple"), uint64(1))
	f.Add([]byte("\xff\x00\xff\x00"), []byte("\x00"), []byte("\xff\x00\xff\x00\\xff"), uint64(2))
	f.Fuzz(func(t *testing.T, a, b, text []byte, seed uint64) {
		s := New(a, b)
		if s == nil {
			return
		}
		text = slices.Concat(text, a, []byte(hex.EncodeToString(b)), a)
		whole := s.Bytes(text)
		cut, err := inPieces(s, string(text), seed)
		if err != nil || cut != string(whole) {
			t.Fatalf("in pieces: %q, %v; whole: %q; of %q", cut, err, whole, text)
		}
		if found := byFinder(s, string(text), seed); found != string(whole) {
			t.Fatalf("by a Finder: %q; whole: %q; of %q", found, whole, text)
		}
		for _, part := range bytes.Split(whole, []byte(Mark)) {
			if len(a) > 0 && bytes.Contains(part, a) || len(b) > 0 && bytes.Contains(part, b) {
				t.Fatalf("a value is left: %q", whole)
			}
		}
	})
}

// byFinder takes values out of a text by a Finder, which gets it in pieces. What is before Open must not change any more.
func byFinder(s *Scrubber, text string, seed uint64) string {
	rnd := rand.New(rand.NewPCG(seed, 7))
	f := s.Finder()
	var out strings.Builder
	at := 0
	take := func() {
		open := f.Open()
		for _, p := range f.Found() {
			out.WriteString(text[at:p.From] + Mark)
			at = p.To
		}
		out.WriteString(text[at:open])
		at = open
	}
	for i := 0; i < len(text); {
		n := min(1+rnd.IntN(9), len(text)-i)
		f.Add(text[i : i+n])
		i += n
		take()
	}
	f.End()
	take()
	return out.String()
}
