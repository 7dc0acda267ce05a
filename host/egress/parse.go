package egress

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// maxURL bounds what Parse reads; Do may be given less.
const maxURL = 64 << 10

// Parse puts a request into its one canonical form: the URL that is sent, and what is judged, which say the same. A method is
// put in upper case; "" means GET. Of a URL the scheme and the host go to lower case, an international name to its ASCII form,
// the scheme's own port, the fragment and dot segments (escaped ones too) away, and bytes that a URL cannot hold are escaped.
// What servers and clients are known to read in different ways is Invalid: user and password, backslashes, blanks, odd forms
// of addresses, zones, empty labels.
func Parse(method, rawURL string) (*url.URL, agent.Request, error) {
	m, err := parseMethod(method)
	if err != nil {
		return nil, agent.Request{}, err
	}
	if len(rawURL) > maxURL {
		return nil, agent.Request{}, agent.Exceeded(agent.LimitHTTP, "the URL has %d bytes, more than %d", len(rawURL), maxURL)
	}
	if err := checkText(rawURL); err != nil {
		return nil, agent.Request{}, err
	}
	scheme, rest, found := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return nil, agent.Request{}, badURL("the URL does not begin with https:// or http://", "write the whole URL, such as https://api.example.com/v1")
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority, path, query, hasQuery := rest, "/", "", false
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
		path, query, hasQuery = strings.Cut(rest[i:], "?")
	}
	if path == "" {
		path = "/"
	}
	host, port, err := parseAuthority(scheme, authority)
	if err != nil {
		return nil, agent.Request{}, err
	}
	escaped, err := cleanPath(path)
	if err != nil {
		return nil, agent.Request{}, err
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, agent.Request{}, badURL(`the URL's path has a "%" without two hexadecimal digits after it`, `write "%25" for the character itself`)
	}
	r := agent.Request{Method: m, Scheme: scheme, Host: host, Port: port, Path: escaped}
	u := &url.URL{Scheme: scheme, Host: hostport(r), Path: plain, RawPath: escaped, RawQuery: escapeQuery(query)}
	u.ForceQuery = hasQuery && query == ""
	if strings.Contains(escaped, "%") && u.EscapedPath() != escaped {
		return nil, agent.Request{}, badURL("the URL's path cannot be written in one form only", "")
	}
	return u, r, nil
}

// urlText is u.String(), for what Parse returned.
func urlText(u *url.URL, r agent.Request) string {
	if u.RawQuery == "" && !u.ForceQuery {
		return u.Scheme + "://" + u.Host + r.Path
	}
	return u.Scheme + "://" + u.Host + r.Path + "?" + u.RawQuery
}

func badURL(msg, hint string) error { return &agent.Error{Kind: agent.Invalid, Msg: msg, Hint: hint} }

// checkText refuses what makes two readers of a URL see two URLs.
func checkText(s string) error {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			return badURL("the URL holds a control character", "write it as %XX, or leave it out")
		case c == ' ':
			return badURL("the URL holds a blank", `write it as "%20"`)
		case c == '\\':
			return badURL("the URL holds a backslash", `some take it for a slash: write "/" or "%5C"`)
		}
	}
	if !utf8.ValidString(s) {
		return badURL("the URL is not UTF-8", "escape such bytes as %XX")
	}
	return nil
}

func parseMethod(s string) (string, error) {
	if s == "" {
		return "GET", nil
	}
	if len(s) > 32 || !isToken(s) {
		return "", agent.Errorf(agent.Invalid, "%.40q is not a method of HTTP", s)
	}
	m := strings.ToUpper(s)
	switch m {
	case "CONNECT", "TRACE", "TRACK":
		return "", agent.Errorf(agent.Invalid, "the method %s is not for requests of agents", m)
	}
	return m, nil
}

// cleanPath removes dot segments and escapes what a path cannot hold. Segments that some servers take for dot segments, and
// others not, are refused: doubly escaped ones, and those with parameters, such as "..;a".
func cleanPath(p string) (string, error) {
	plain := true // as most paths are
	for i := range len(p) {
		if c := p[i]; c == '%' || c == ';' || !pathByte[c] || c == '.' && p[i-1] == '/' {
			plain = false
			break
		}
	}
	if plain {
		return p, nil
	}
	var out []string
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch dots(s) {
		case noDots:
			out = append(out, escapePath(s))
		case oneDot:
			if last {
				out = append(out, "")
			}
		case twoDots:
			out = out[:max(len(out)-1, 0)]
			if last {
				out = append(out, "")
			}
		case oddDots:
			return "", badURL("the URL's path has a segment that some servers take for \"..\"", "leave it out")
		}
	}
	return "/" + strings.Join(out, "/"), nil
}

type dotKind uint8

const (
	noDots dotKind = iota
	oneDot
	twoDots
	oddDots
)

// dots says whether a segment means the same or the upper directory.
func dots(s string) dotKind {
	if !strings.ContainsAny(s, ".%;") {
		return noDots
	}
	once := strings.ReplaceAll(strings.ReplaceAll(s, "%2e", "."), "%2E", ".")
	switch once {
	case ".":
		return oneDot
	case "..":
		return twoDots
	}
	for range 4 {
		name, _, _ := strings.Cut(once, ";")
		name = strings.ReplaceAll(name, "\xc0\xae", ".") // an overlong form
		if name == ".." || name == "." {
			return oddDots
		}
		next, err := url.PathUnescape(once)
		if err != nil || next == once {
			break
		}
		once = next
	}
	return noDots
}

const hexDigits = "0123456789ABCDEF"

// pathByte and queryByte are the bytes that stand for themselves (RFC 3986, section 3.3; in a query also what browsers leave).
var pathByte, queryByte = byteSet("%"), byteSet(`%/?[]\^{|}` + "`")

func byteSet(more string) (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/" + more) {
		set[c] = true
	}
	return set
}

func escapePath(s string) string  { return escape(s, &pathByte) }
func escapeQuery(s string) string { return escape(s, &queryByte) }

func escape(s string, as *[256]bool) string {
	n := 0
	for i := range len(s) {
		if !as[s[i]] {
			n++
		}
	}
	if n == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; as[c] {
			out = append(out, c)
		} else {
			out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(out)
}
