package policy

import (
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/skep-dev/skep/agent"
)

type globKind uint8

const (
	plainGlob globKind = iota // * is any text
	pathGlob                  // * stays within a part of a path, ** does not; the value is cleaned
	urlGlob                   // scheme, host and path are compared each on its own
)

// maxAlternatives is how many patterns the braces of one may stand for.
const maxAlternatives = 64

// glob is a pattern of text: *, ?, {a,b}, and \ before what is meant as it stands.
type glob struct {
	text string
	kind globKind
	any  bool // it is *
	lit  bool // it has no special character
	alts []alternative
}

type alternative struct {
	text, folded       string // folded is without regard to case and to forms of the same letter
	parts, foldedParts []string
}

// newGlob reads a pattern. Kinds are told from its shape: what looks like a path is compared as one.
func newGlob(s string) (*glob, error) { return globOf(shape(s), s) }

func shape(s string) globKind {
	switch {
	case strings.Contains(s, "://"):
		return urlGlob
	case strings.HasPrefix(s, "/"), strings.HasPrefix(s, "~/"), s == "~", strings.HasPrefix(s, "./"), strings.HasPrefix(s, "../"), strings.HasPrefix(s, "**/"),
		strings.HasPrefix(s, "{/"), strings.Contains(s, "/**"), len(s) > 2 && s[1] == ':' && (s[2] == '/' || s[2] == '\\'):
		return pathGlob
	}
	return plainGlob
}

// globOf reads a pattern of the given kind.
func globOf(kind globKind, s string) (*glob, error) {
	g := &glob{text: s, kind: kind, any: s == "*" || s == "**", lit: !strings.ContainsAny(s, `*?{\`)}
	list, err := braces(s, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if g.kind == pathGlob {
			a = strings.TrimPrefix(a, "./")
		}
		alt := alternative{text: a, folded: fold(a)}
		if g.kind == pathGlob {
			alt.parts, alt.foldedParts = parts(alt.text), parts(alt.folded)
		}
		g.alts = append(g.alts, alt)
	}
	return g, nil
}

// braces expands {a,b}.
func braces(s string, depth int) ([]string, error) {
	open := -1
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if s[i] == '{' {
			open = i
			break
		}
	}
	if open < 0 {
		return []string{s}, nil
	}
	level, start := 0, open+1
	var parts []string
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			level++
		case ',':
			if level == 1 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
		case '}':
			if level--; level > 0 {
				continue
			}
			var out []string
			for _, p := range append(parts, s[start:i]) {
				more, err := braces(s[:open]+p+s[i+1:], depth+1)
				if err != nil {
					return nil, err
				}
				if out = append(out, more...); len(out) > maxAlternatives || depth > maxAlternatives {
					return nil, agent.Errorf(agent.Invalid, "the braces of %s stand for more than %d patterns", s, maxAlternatives)
				}
			}
			return out, nil
		}
	}
	return nil, agent.Errorf(agent.Invalid, "a { has no } in %s: write {a,b}, or \\{ where it is meant as it stands", s)
}

// fold makes texts alike that many readers take for the same: case, compatible forms, and characters that are not seen.
func fold(s string) string {
	ascii := true
	for i := range len(s) {
		if s[i] >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(s)
	}
	s = norm.NFKC.String(s)
	s = strings.Map(func(r rune) rune {
		if r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2060 && r <= 0x2064 || r == 0xfeff || r == 0xad || r >= 0xe0000 && r <= 0xe007f || r >= 0xfe00 && r <= 0xfe0f {
			return -1
		}
		return r
	}, s)
	return norm.NFKC.String(strings.ToLower(strings.ToUpper(s)))
}

// plain matches a text as a whole. loose is without regard to case.
func (g *glob) plain(s string, loose bool) bool {
	if g.any {
		return true
	}
	if loose {
		s = fold(s)
	}
	for i := range g.alts {
		p := g.alts[i].text
		if loose {
			p = g.alts[i].folded
		}
		if wild(p, s) {
			return true
		}
	}
	return false
}

// wild matches s by * and ?, in a time that grows with the product of the lengths at most.
func wild(p, s string) bool {
	pi, si := 0, 0
	star, mark := -1, 0
	for si < len(s) {
		if pi < len(p) {
			switch c := p[pi]; {
			case c == '*':
				star, mark = pi, si
				pi++
				continue
			case c == '?':
				pi++
				si += width(s[si:])
				continue
			case c == '\\' && pi+1 < len(p):
				if p[pi+1] == s[si] {
					pi += 2
					si++
					continue
				}
			case c == s[si]:
				pi++
				si++
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		pi, si = star+1, mark
	}
	for pi < len(p) && p[pi] == '*' {
		pi++
	}
	return pi == len(p)
}

func width(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

// wildParts matches a clean path part by part; ** is any number of parts, none included.
func wildParts(p, s []string) bool {
	if len(p) > 0 && p[0] == "**" && len(s) > 0 && s[0] == "" {
		s = s[1:]
	}
	pi, si := 0, 0
	star, mark := -1, 0
	for si < len(s) {
		switch {
		case pi < len(p) && p[pi] == "**":
			star, mark = pi, si
			pi++
			continue
		case pi < len(p) && wild(p[pi], s[si]):
			pi++
			si++
			continue
		case star < 0:
			return false
		}
		mark++
		pi, si = star+1, mark
	}
	for pi < len(p) && p[pi] == "**" {
		pi++
	}
	return pi == len(p)
}

// parts splits a path. An absolute one begins with an empty part.
func parts(p string) []string {
	if p == "/" {
		return []string{""}
	}
	return strings.Split(p, "/")
}

// path matches a clean path.
func (g *glob) path(s string, loose bool) bool {
	if loose {
		s = fold(s)
	}
	have := parts(s)
	for i := range g.alts {
		p := g.alts[i].parts
		if loose {
			p = g.alts[i].foldedParts
		}
		if wildParts(p, have) {
			return true
		}
	}
	return false
}
