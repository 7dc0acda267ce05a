package agent

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Target is a set of HTTP requests: what a grant allows, or where a secret may go. Its text form is
//
//	[METHOD[,METHOD...] ]SCHEME://HOST[:PORT][/PATH]
//
// without methods any method, without a path any path. HOST is a name, an IP address, "*.NAME" for every name below NAME,
// or "*" for every host; PORT is a number, "*", or the scheme's own. In PATH "*" stands for any text within one segment, and
// "**" at the end for any rest.
type Target struct {
	Methods []string // upper case, sorted; empty means any
	Scheme  string   // "https" or "http"
	Host    string   // lower case; an IPv6 address without brackets
	Port    string   // "443", or "*"
	Path    string   // "" means any
}

// maxTarget is the most bytes of a target's text.
const maxTarget = 2 << 10

var (
	methodRE = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)
	hostRE   = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)
	numberRE = regexp.MustCompile(`^(0x[0-9a-f]*|[0-9]+)$`)
	pathRE   = regexp.MustCompile(`^/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*$`)
)

// ParseTarget reads a target's text form. Its errors are Invalid and say what to write.
func ParseTarget(s string) (Target, error) {
	bad := func(msg, hint string) (Target, error) {
		return Target{}, &Error{Kind: Invalid, Msg: "target " + quote(s) + ": " + msg, Hint: hint}
	}
	if len(s) > maxTarget {
		return bad("is longer than "+strconv.Itoa(maxTarget)+" bytes", "")
	}
	var t Target
	methods, rest, found := strings.Cut(s, " ")
	if !found {
		methods, rest = "", s
	}
	for m := range strings.SplitSeq(methods, ",") {
		if !found {
			break
		}
		if !methodRE.MatchString(m) {
			return bad("method "+quote(m)+" is not valid", `methods are in upper case with commas between them: "GET,POST https://api.example.com"`)
		}
		t.Methods = append(t.Methods, m)
	}
	slices.Sort(t.Methods)
	t.Methods = slices.Compact(t.Methods)

	var authority string
	if t.Scheme, authority, found = strings.Cut(rest, "://"); !found || t.Scheme != "https" && t.Scheme != "http" {
		return bad("has no scheme", `begin it with https:// or http://, such as "https://api.example.com"`)
	}
	if strings.ContainsAny(authority, "?#") {
		return bad("a query or a fragment is not part of a target", `leave out "?" or "#" and what follows: any query is allowed`)
	}
	if i := strings.IndexByte(authority, '/'); i >= 0 {
		authority, t.Path = authority[:i], authority[i:]
	}
	if strings.Contains(authority, "@") { // which is not repeated
		return Target{}, &Error{Kind: Invalid, Msg: "a target holds a user or a password", Hint: "leave them out, and keep them as a secret of kind basic"}
	}
	if !t.setAuthority(authority) {
		return bad("host "+quote(authority)+" is not valid",
			`use a name in lower case (an international one in its xn-- form), an IP address, "*.example.com" or "*", and a port after ":" if it is another than the scheme's`)
	}
	if strings.HasPrefix(t.Host, "*.") && !strings.Contains(t.Host[2:], ".") {
		return bad("host "+quote(t.Host)+" names a whole top-level domain", `write "*" for every host`)
	}
	switch {
	case t.Path == "":
	case t.Path == "/":
		return bad(`the path "/" is one page only`, "leave the path out to mean every path")
	case !pathRE.MatchString(t.Path) || slices.ContainsFunc(strings.Split(t.Path, "/"), isDots) || strings.Contains(strings.TrimSuffix(t.Path, "/**"), "**"):
		return bad("path "+quote(t.Path)+" is not valid", `"*" stands for text within one segment, "**" is for the end only: /repos/*/issues/**`)
	}
	return t, nil
}

func (t *Target) setAuthority(s string) bool {
	t.Port = defaultPort(t.Scheme)
	host, port, found := s, "", false
	if strings.HasPrefix(s, "[") {
		inside, after, closed := strings.Cut(s[1:], "]")
		addr, err := netip.ParseAddr(inside)
		if !closed || err != nil || !addr.Is6() || addr.Is4In6() || addr.Zone() != "" || addr.String() != inside {
			return false
		}
		t.Host = inside
		if after == "" {
			return true
		}
		if _, port, found = strings.Cut(after, ":"); !found || after[0] != ':' {
			return false
		}
	} else {
		host, port, found = strings.Cut(s, ":")
		t.Host = host
		if host != "*" && !isHost(strings.TrimPrefix(host, "*.")) {
			return false
		}
		if !found {
			return true
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "*" && (err != nil || n == 0 || strconv.FormatUint(n, 10) != port) {
		return false
	}
	t.Port = port
	return true
}

// isHost reports whether s is a host name in its ASCII form, or an IPv4 address in its one usual form.
func isHost(s string) bool {
	if len(s) > 253 || !hostRE.MatchString(s) {
		return false
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	if !numberRE.MatchString(last) {
		return true
	}
	addr, err := netip.ParseAddr(s) // a name that ends with a number is an address to some, so it must be one to all
	return err == nil && addr.Is4()
}

func isDots(segment string) bool {
	s := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
	return s == "." || s == ".."
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

// String returns the text form, which ParseTarget reads.
func (t Target) String() string {
	var b strings.Builder
	if len(t.Methods) > 0 {
		b.WriteString(strings.Join(t.Methods, ",") + " ")
	}
	b.WriteString(t.Scheme + "://")
	if strings.Contains(t.Host, ":") {
		b.WriteString("[" + t.Host + "]")
	} else {
		b.WriteString(t.Host)
	}
	if t.Port != defaultPort(t.Scheme) {
		b.WriteString(":" + t.Port)
	}
	b.WriteString(t.Path)
	return b.String()
}

func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
func (t *Target) UnmarshalText(b []byte) (err error) {
	*t, err = ParseTarget(string(b))
	return err
}

// Request is where a request goes, in the canonical form that targets are matched against: scheme and host in lower case and
// ASCII, an IPv6 address without brackets, the port always there, the path escaped, beginning with a slash and without dot
// segments.
type Request struct {
	Method, Scheme, Host, Port, Path string
}

// Has reports whether the request is one of the target's.
func (t Target) Has(r Request) bool {
	return (len(t.Methods) == 0 || slices.Contains(t.Methods, r.Method)) &&
		t.Scheme == r.Scheme && hostHas(t.Host, r.Host) && (t.Port == "*" || t.Port == r.Port) &&
		(t.Path == "" || pathHas(t.Path, r.Path))
}

func hostHas(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	if below, found := strings.CutPrefix(pattern, "*."); found {
		return strings.HasSuffix(host, "."+below) && len(host) > len(below)+1
	}
	return pattern == host
}

// pathHas matches segment by segment. A path with an escaped slash or backslash is matched by "any path" alone, for a server
// may take it for more segments than are seen here.
func pathHas(pattern, path string) bool {
	lower := strings.ToLower(path)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") || strings.Contains(path, `\`) {
		return false
	}
	for {
		p, morePattern, patternOn := strings.Cut(pattern, "/")
		s, morePath, pathOn := strings.Cut(path, "/")
		if p == "**" {
			return true
		}
		if !Glob(p, s) || patternOn != pathOn {
			return false
		}
		if !patternOn {
			return true
		}
		pattern, path = morePattern, morePath
	}
}

// Glob reports whether text is what a pattern says, in which * stands for any text.
func Glob(pattern, text string) bool {
	head, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	if !strings.HasPrefix(text, head) {
		return false
	}
	text = text[len(head):]
	for {
		head, rest, more = strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, head)
		}
		i := strings.Index(text, head)
		if i < 0 {
			return false
		}
		text = text[i+len(head):]
	}
}

// Covers reports whether every request of u is one of t's. It may say no of patterns that are only worded differently.
func (t Target) Covers(u Target) bool {
	if len(t.Methods) > 0 {
		if len(u.Methods) == 0 {
			return false
		}
		for _, m := range u.Methods {
			if !slices.Contains(t.Methods, m) {
				return false
			}
		}
	}
	return t.Scheme == u.Scheme && (t.Port == "*" || t.Port == u.Port) && hostCovers(t.Host, u.Host) && pathCovers(t.Path, u.Path)
}

// meets reports whether a request may be of both targets. It looks at no path, so it may say yes of two that have none in common.
func (t Target) meets(u Target) bool {
	methods := len(t.Methods) == 0 || len(u.Methods) == 0 || slices.ContainsFunc(t.Methods, func(m string) bool { return slices.Contains(u.Methods, m) })
	return methods && t.Scheme == u.Scheme && (t.Port == u.Port || t.Port == "*" || u.Port == "*") &&
		(hostCovers(t.Host, u.Host) || hostCovers(u.Host, t.Host))
}

func hostCovers(t, u string) bool {
	if t == "*" || t == u {
		return true
	}
	below, found := strings.CutPrefix(t, "*.")
	return found && u != "*" && strings.HasSuffix(u, "."+below)
}

func pathCovers(t, u string) bool {
	if t == "" || t == u {
		return true
	}
	before, open := strings.CutSuffix(t, "**")
	return open && !strings.Contains(before, "*") && strings.HasPrefix(u, before) ||
		!strings.Contains(u, "*") && u != "" && pathHas(t, u)
}

// Words says the target in English: "GET and HEAD requests to https://api.example.com, paths /repos/**".
func (t Target) Words() string {
	w := "any request"
	if len(t.Methods) > 0 {
		w = joinWords(t.Methods) + " requests"
	}
	host := Target{Scheme: t.Scheme, Host: t.Host, Port: t.Port}.String()
	switch {
	case t.Host == "*":
		host = "every public host over " + t.Scheme
	case strings.HasPrefix(t.Host, "*."):
		host = "every host below " + t.Host[2:] + " over " + t.Scheme
	}
	if port := t.Port; strings.HasPrefix(t.Host, "*") && port != defaultPort(t.Scheme) {
		host += ", port " + strings.Replace(port, "*", "any", 1)
	}
	w += " to " + host
	if t.Path != "" {
		w += ", path " + t.Path
	}
	return w
}

func joinWords(ws []string) string {
	if len(ws) < 2 {
		return strings.Join(ws, "")
	}
	return strings.Join(ws[:len(ws)-1], ", ") + " and " + ws[len(ws)-1]
}

// Origin returns the request's scheme, host, and port when it is not the scheme's own.
func (r Request) Origin() string {
	return Target{Scheme: r.Scheme, Host: r.Host, Port: r.Port}.String()
}

// URL returns the origin and the path. Nothing that could carry a secret is in it.
func (r Request) URL() string { return r.Origin() + r.Path }
