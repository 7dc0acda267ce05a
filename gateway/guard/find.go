package guard

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is what was found: bytes of a text.
type span struct {
	from, to int
	by       *finder
	block    *Found // it must not be there
}

// finder looks for one kind of thing.
type finder struct {
	name string
	// find calls hit with each place. What runs to the end of the text counts as if it ended there.
	find func(text string, hit func(from, to int))
	// open is from where on more text may still make something of the end of text: what is before it is settled. It is len(text) when nothing is open.
	open func(text string) int
	most int // bytes of a match that are waited for; a longer one is taken as it is, and what goes on is left out
	// on reports whether c may go on with a match that was longer than that; nil when none does.
	on func(c rune) bool
}

// Bounds of what is waited for at the end of a text that goes on.
const (
	maxPattern = 256
	maxRun     = 8 << 10 // of keys and tokens
	maxBlock   = 32 << 10
)

var builtin = map[string]*finder{
	"email": {
		find: all(emailRE, nil), open: run(320, func(c rune) bool { return c == '@' || isEmail(c) }), most: 320,
	},
	"card":  {find: cards, open: run(48, func(c rune) bool { return c == ' ' || c == '-' || isDigit(c) }), most: 48},
	"iban":  {find: ibans, open: ibanOpen, most: 48},
	"phone": {find: all(phoneRE, phone), open: run(32, func(c rune) bool { return isDigit(c) || strings.ContainsRune(" ().+-/", c) }), most: 32},
	"ip":    {find: ips, open: run(48, isIP), most: 48},
	"key":   {find: all(keyRE, nil), open: run(maxRun, isToken), most: maxRun, on: isToken},
	"jwt":   {find: all(jwtRE, nil), open: run(maxRun, isToken), most: maxRun, on: isToken},
	"private_key": {
		find: privateKeys, open: privateOpen, most: maxBlock, on: func(c rune) bool { return c != '-' },
	},
}

var (
	emailRE = regexp.MustCompile(`[\p{L}\p{N}._%+'-]{1,64}@(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,62})\.){1,6}\p{L}{2,63}`)
	phoneRE = regexp.MustCompile(`(?:\+|\b00)[1-9](?:[ ().\-/]{0,2}\d){6,14}\b|\(\d{2,5}\)[ .-]?\d{2,5}[ .-]?\d{2,5}(?:[ .-]\d{1,5})?\b|\b\d{3}[ .-]\d{3}[ .-]\d{4}\b`)
	keyRE   = regexp.MustCompile(`\b(?:sk-[A-Za-z0-9_-]{16,}|sk_(?:live|test)_[A-Za-z0-9]{16,}|rk_(?:live|test)_[A-Za-z0-9]{16,}|skep_[A-Za-z0-9_-]{16,}` +
		`|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}` +
		`|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|pypi-[A-Za-z0-9_-]{32,})`)
	jwtRE        = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)*`)
	beginRE      = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
	endRE        = regexp.MustCompile(`-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
	beginningRE  = regexp.MustCompile(`^[A-Z0-9 ]{0,60}-{0,5}$`) // what may follow privateBegin in what is not whole yet
	ipv4RE       = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	ipv6RE       = regexp.MustCompile(`[0-9A-Fa-f:.]{3,45}`)
	privateBegin = "-----BEGIN "
)

func isDigit(c rune) bool { return c >= '0' && c <= '9' }
func isEmail(c rune) bool {
	return c == '.' || c == '_' || c == '%' || c == '+' || c == '-' || c == '\'' || unicode.IsLetter(c) || unicode.IsDigit(c)
}
func isIP(c rune) bool {
	return c == ':' || c == '.' || isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
func isAlnum(c rune) bool { return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isToken(c rune) bool { return c == '-' || c == '_' || c == '.' || isAlnum(c) }

// all is a finder of what re matches and ok, if set, agrees to.
func all(re *regexp.Regexp, ok func(string) bool) func(string, func(int, int)) {
	return func(text string, hit func(int, int)) {
		for _, m := range re.FindAllStringIndex(text, -1) {
			if m[1] > m[0] && (ok == nil || ok(text[m[0]:m[1]])) {
				hit(m[0], m[1])
			}
		}
	}
}

// run is open for what is made of letters that of accepts.
func run(most int, of func(rune) bool) func(string) int {
	return func(text string) int {
		at := len(text)
		for at > 0 {
			c, n := utf8.DecodeLastRuneInString(text[:at])
			if !of(c) && !(c == utf8.RuneError && n == 1) {
				break
			}
			if len(text)-at+n > most {
				break
			}
			at -= n
		}
		return at
	}
}

// before and after are the letters around a place; 0 at the ends.
func before(text string, at int) byte {
	if at == 0 {
		return 0
	}
	return text[at-1]
}

func after(text string, at int) byte {
	if at >= len(text) {
		return 0
	}
	return text[at]
}

func phone(s string) bool {
	n := 0
	for _, c := range s {
		if isDigit(c) {
			n++
		}
	}
	return n >= 7 && n <= 17
}

// cards finds numbers of cards: 13 to 19 digits, in groups or not, whose last digit is right (ISO/IEC 7812).
func cards(text string, hit func(int, int)) {
	for i := 0; i < len(text); {
		if text[i] < '2' || text[i] > '6' || isDigit(rune(before(text, i))) {
			i++
			continue
		}
		var digits [19]byte
		n, end, j := 0, 0, i
		for j < len(text) {
			c := text[j]
			if (c == ' ' || c == '-') && isDigit(rune(before(text, j))) && isDigit(rune(after(text, j+1))) {
				j++
				continue
			}
			if !isDigit(rune(c)) || n == len(digits) {
				break
			}
			digits[n] = c - '0'
			n++
			j++
			if n >= 13 && !isDigit(rune(after(text, j))) && luhn(digits[:n]) {
				end = j
			}
		}
		if end > 0 {
			hit(i, end)
			i = end
			continue
		}
		i++
	}
}

func luhn(digits []byte) bool {
	sum := 0
	for i, d := range digits {
		n := int(d)
		if (len(digits)-i)%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// ibans finds numbers of bank accounts whose check digits are right (ISO 13616).
func ibans(text string, hit func(int, int)) {
	for i := 0; i+15 <= len(text); i++ {
		if !ibanBegins(text, i) {
			continue
		}
		var letters [34]byte
		n, end := 0, 0
		for j := i; j < len(text) && n < len(letters); j++ {
			c := text[j]
			if c == ' ' && j > i && text[j-1] != ' ' {
				continue
			}
			if !isAlnum(rune(c)) {
				break
			}
			letters[n] = c &^ 0x20
			if isDigit(rune(c)) {
				letters[n] = c
			}
			n++
			if n >= 15 && !isAlnum(rune(after(text, j+1))) && mod97(letters[:n]) {
				end = j + 1
			}
		}
		if end > 0 {
			hit(i, end)
			i = end - 1
		}
	}
}

// ibanBegins reports whether an IBAN may begin at a place: two letters and two digits, as far as the text goes.
func ibanBegins(text string, at int) bool {
	if isAlnum(rune(before(text, at))) {
		return false
	}
	for k := range min(4, len(text)-at) {
		if c := rune(text[at+k]); !isAlnum(c) || isDigit(c) != (k >= 2) {
			return false
		}
	}
	return true
}

func mod97(letters []byte) bool {
	rest := 0
	for i := range letters {
		c := letters[(i+4)%len(letters)]
		if c >= 'A' {
			rest = (rest*100 + int(c-'A') + 10) % 97
		} else {
			rest = (rest*10 + int(c-'0')) % 97
		}
	}
	return rest == 1
}

func ibanOpen(text string) int {
	for at := max(len(text)-48, 0); at < len(text); at++ {
		if ibanBegins(text, at) && !strings.ContainsFunc(text[at:], func(c rune) bool { return c != ' ' && !isAlnum(c) }) {
			return at
		}
	}
	return len(text)
}

// ips finds addresses of IPv4 and IPv6.
func ips(text string, hit func(int, int)) {
	for _, m := range ipv4RE.FindAllStringIndex(text, -1) {
		b, a := before(text, m[0]), after(text, m[1])
		if b == '.' || a == '.' && isDigit(rune(after(text, m[1]+1))) || isAlnum(rune(b)) || isAlnum(rune(a)) {
			continue
		}
		if _, err := netip.ParseAddr(text[m[0]:m[1]]); err == nil {
			hit(m[0], m[1])
		}
	}
	for _, m := range ipv6RE.FindAllStringIndex(text, -1) {
		s := strings.TrimRight(text[m[0]:m[1]], ".")
		if strings.Count(s, ":") < 2 || isAlnum(rune(before(text, m[0]))) || isAlnum(rune(after(text, m[0]+len(s)))) {
			continue
		}
		if !strings.HasSuffix(s, "::") {
			s = strings.TrimRight(s, ":")
		}
		if a, err := netip.ParseAddr(s); err == nil && a.Is6() && !a.IsUnspecified() {
			hit(m[0], m[0]+len(s))
		}
	}
}

// privateKeys finds private keys in PEM and the like. One without its end goes to the end of the text.
func privateKeys(text string, hit func(int, int)) {
	for at := 0; at < len(text); {
		m := beginRE.FindStringIndex(text[at:])
		if m == nil {
			return
		}
		from := at + m[0]
		at += m[1]
		if e := endRE.FindStringIndex(text[at:]); e != nil {
			at += e[1]
		} else {
			at = len(text)
		}
		hit(from, at)
	}
}

func privateOpen(text string) int {
	if i := strings.LastIndex(text, privateBegin); i >= 0 && beginningRE.MatchString(text[i+len(privateBegin):]) {
		return i
	}
	for n := min(len(privateBegin), len(text)); n > 0; n-- {
		if strings.HasSuffix(text, privateBegin[:n]) {
			return len(text) - n
		}
	}
	return len(text)
}

// patternFinder finds what a regular expression matches.
func patternFinder(name string, re *regexp.Regexp) *finder {
	return &finder{name: name, find: all(re, nil), open: last(maxPattern - 1), most: maxPattern}
}

// last is open for the last so many bytes.
func last(n int) func(string) int {
	return func(text string) int { return max(len(text)-n, 0) }
}

// wordFinder finds whole words, in any case.
func wordFinder(name string, words []string) *finder {
	longest := 0
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte('|')
		}
		w = strings.TrimSpace(w)
		longest = max(longest, len(w))
		b.WriteString(regexp.QuoteMeta(w))
	}
	re := regexp.MustCompile(`(?i)(?:` + b.String() + `)`)
	re.Longest()
	most := 3*longest + utf8.UTFMax // a letter's other case may be longer
	return &finder{name: name, open: last(most), most: most, find: func(text string, hit func(int, int)) {
		for at := 0; at < len(text); {
			m := re.FindStringIndex(text[at:])
			if m == nil || m[1] == 0 {
				return
			}
			from, to := at+m[0], at+m[1]
			if wordEdge(text, from) && wordEdge(text, to) {
				hit(from, to)
				at = to
				continue
			}
			_, n := utf8.DecodeRuneInString(text[from:])
			at = from + n
		}
	}}
}

// wordEdge reports whether a word may begin or end at a place: not between two letters or digits.
func wordEdge(text string, at int) bool {
	if at == 0 || at == len(text) {
		return true
	}
	b, _ := utf8.DecodeLastRuneInString(text[:at])
	a, _ := utf8.DecodeRuneInString(text[at:])
	in := func(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) }
	return !in(b) || !in(a)
}
