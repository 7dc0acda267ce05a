package policy

import (
	"net/url"
	"path"
	"strings"
)

// maxCompared is the longest text that is compared as a path or a URL, in bytes.
const maxCompared = 8 << 10

// truth is what is known of whether a rule is about a call. The order is that of certainty.
type truth uint8

const (
	no      truth = iota
	maybe         // the call does not say: an argument is missing, or a part of a command is known only when it runs
	unclear       // the call says it in a way that cannot be compared
	yes
)

// surely compares for a rule that allows: every way to read the value has to match.
func (g *glob) surely(s string) bool {
	if g.any {
		return true
	}
	if strings.ContainsRune(s, 0) || strings.ContainsRune(s, '\ufffd') {
		return false
	}
	switch g.kind {
	case pathGlob:
		list, clear := readPath(s)
		if !clear || climbs(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return false
		}
		for _, r := range list {
			if !g.path(r, false) {
				return false
			}
		}
		return true
	case urlGlob:
		return g.url(s, false) == yes
	}
	return g.plain(s, false)
}

// perhaps compares for a rule that denies or asks: any way to read the value will do.
func (g *glob) perhaps(s string) truth {
	if g.any {
		return yes
	}
	t := no
	if strings.ContainsRune(s, 0) || strings.ContainsRune(s, '\ufffd') {
		t = unclear
	}
	switch g.kind {
	case pathGlob:
		list, clear := readPath(s)
		for _, r := range list {
			if g.path(r, true) {
				return yes
			}
		}
		if !clear {
			t = unclear
		}
		if g.home(list) {
			return yes
		}
		return t
	case urlGlob:
		return max(t, g.url(s, true))
	}
	if g.plain(s, true) || g.plain(strings.TrimSpace(s), true) {
		return yes
	}
	return t
}

// home compares patterns that begin with ~/ to the usual home folders.
func (g *glob) home(list []string) bool {
	if !strings.HasPrefix(g.text, "~") {
		return false
	}
	for _, r := range list {
		p := parts(r)
		switch {
		case len(p) >= 2 && p[0] == "" && p[1] == "root":
			r = "~/" + strings.Join(p[2:], "/")
		case len(p) >= 3 && p[0] == "" && (strings.EqualFold(p[1], "home") || strings.EqualFold(p[1], "users")):
			r = "~/" + strings.Join(p[3:], "/")
		case len(p) >= 4 && p[0] == "" && p[1] == "var" && p[2] == "home":
			r = "~/" + strings.Join(p[4:], "/")
		default:
			continue
		}
		if g.path(strings.TrimSuffix(r, "/"), true) {
			return true
		}
	}
	return false
}

// climbs tells whether a path has a part "..": what that leads to depends on links that are not known here.
func climbs(s string) bool {
	if !strings.Contains(s, "..") && !strings.ContainsRune(s, '%') {
		return false
	}
	for _, p := range strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' }) {
		if p == ".." {
			return true
		}
	}
	if d, err := url.PathUnescape(s); err == nil && d != s {
		return climbs(d)
	}
	return false
}

// readPath returns the clean paths that a text may stand for. clear is false where it may stand for others, too: a relative one that climbs
// out of a folder that is not known, or a link of /proc.
func readPath(s string) (list []string, clear bool) {
	if len(s) > maxCompared {
		return nil, false
	}
	if s != "" && s[0] == '/' && plainPath(s) { // nearly all
		if len(s) > 1 && s[len(s)-1] == '/' {
			s = s[:len(s)-1]
		}
		return []string{s}, true
	}
	raw := []string{s}
	add := func(v string) {
		for _, have := range raw {
			if have == v {
				return
			}
		}
		if len(raw) < 16 {
			raw = append(raw, v)
		}
	}
	if t := strings.TrimSpace(s); t != s {
		add(t)
	}
	for i := 0; i < len(raw); i++ { // grows as it goes
		v := raw[i]
		if len(v) > 5 && strings.EqualFold(v[:5], "file:") {
			rest := strings.TrimPrefix(v[5:], "//")
			if host, p, ok := strings.Cut(rest, "/"); ok && (host == "" || strings.EqualFold(host, "localhost")) {
				rest = "/" + p
			}
			add(rest)
		}
		if strings.ContainsRune(v, '%') {
			if d, err := url.PathUnescape(v); err == nil {
				add(d)
			}
		}
		if strings.ContainsRune(v, '\\') {
			add(strings.ReplaceAll(v, `\`, "/"))
		}
		if rest, ok := strings.CutPrefix(v, "${HOME}"); ok {
			add("~" + rest)
		} else if rest, ok := strings.CutPrefix(v, "$HOME"); ok {
			add("~" + rest)
		}
	}
	clear = len(raw) < 16
	for _, v := range raw {
		c, ok := cleanPath(v)
		clear = clear && ok
		list = append(list, c)
		if t := trimParts(c); t != c {
			list = append(list, t)
		}
		if rest, ok := strings.CutPrefix(c, "/private/"); ok {
			list = append(list, "/"+rest)
		}
	}
	return list, clear
}

// plainPath tells whether an absolute path is clean and can be read in one way only.
func plainPath(s string) bool {
	part := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '/':
			if i > 0 && part == 0 || i > 0 && (s[i-1] == '.' || s[i-1] == ' ') {
				return false
			}
			part = 0
			continue
		case c == '%' || c == '\\' || c == '~' || c == '$' || c == ':' || c >= 0x80 || c < ' ':
			return false
		}
		part++
	}
	last := s[len(s)-1]
	return last != '.' && last != ' ' && !strings.HasPrefix(s, "/proc") && !strings.HasPrefix(s, "/dev/fd") && !strings.HasPrefix(s, "/private") && !strings.HasPrefix(s, "/PROC")
}

func cleanPath(s string) (clean string, clear bool) {
	if s == "" {
		return "", true
	}
	clean = path.Clean(s)
	clear = clean != ".." && !strings.HasPrefix(clean, "../")
	if strings.HasPrefix(s, "~") && !strings.HasPrefix(clean, "~") {
		clear = false
	}
	p := parts(clean)
	if len(p) >= 4 && p[0] == "" && strings.EqualFold(p[1], "proc") {
		switch strings.ToLower(p[3]) {
		case "root":
			return cleanPath("/" + strings.Join(p[4:], "/"))
		case "cwd", "fd", "exe", "map_files":
			return clean, false
		case "task":
			return clean, len(p) < 6
		}
	}
	if len(p) >= 3 && p[0] == "" && p[1] == "dev" && p[2] == "fd" {
		return clean, false
	}
	return clean, clear
}

// trimParts takes off what Windows takes off: dots and blanks at the end of each part, and the names of streams.
func trimParts(s string) string {
	p := parts(s)
	changed := false
	for i, part := range p {
		if part == "." || part == ".." {
			continue
		}
		t := strings.TrimRight(part, ". ")
		if name, _, ok := strings.Cut(t, ":"); ok && len(name) > 1 {
			t = name
		}
		if t != part && t != "" {
			p[i], changed = t, true
		}
	}
	if !changed {
		return s
	}
	return strings.Join(p, "/")
}

// url compares scheme, host and path, each on its own: nothing of one can pass for a part of another. A query is not looked at.
func (g *glob) url(s string, loose bool) truth {
	t := strings.TrimSpace(s)
	u, err := url.Parse(t)
	if err != nil || len(s) > maxCompared || t != s && !loose || u.Scheme == "" || u.Host == "" || u.User != nil || strings.ContainsAny(t, "\\\t\r\n") || !ascii(u.Host) || strings.ContainsRune(u.Host, '%') {
		return unclear
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	port := u.Port()
	scheme := strings.ToLower(u.Scheme)
	if port == "443" && scheme == "https" || port == "80" && scheme == "http" {
		port = ""
	}
	p, clear := cleanPath("/" + strings.TrimPrefix(u.Path, "/"))
	if climbs(u.EscapedPath()) || strings.ContainsRune(u.Path, '%') {
		clear = false
	}
	for i := range g.alts {
		want := g.alts[i].folded
		ws, rest, _ := strings.Cut(want, "://")
		wh, wp, hasPath := strings.Cut(rest, "/")
		if hasPath && !loose {
			_, wp, _ = strings.Cut(g.alts[i].text[len(ws)+3:], "/")
		}
		wport := ""
		if j := strings.LastIndexByte(wh, ':'); j >= 0 && !strings.HasSuffix(wh, "]") {
			wh, wport = wh[:j], wh[j+1:]
		}
		have := p
		if loose {
			have = fold(p)
		}
		if !wild(ws, scheme) || !wild(wh, host) || wport != port && wport != "*" && !(loose && wport == "") {
			continue
		}
		if !hasPath || wp == "**" {
			return yes
		}
		if !clear {
			return unclear
		}
		if wildParts(parts("/"+wp), parts(have)) {
			return yes
		}
	}
	return no
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
