package program

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// part is a piece of a template: a text, or what stands between ${ and }.
type part struct {
	text string
	ref  bool
	open bool // a reference without its }
}

// split takes a template apart as runner.ts does. $${ stands for the characters ${.
func split(s string) (out []part) {
	plain := ""
	for {
		i := strings.Index(s, "${")
		switch {
		case i < 0:
			if plain += s; plain != "" || len(out) == 0 {
				out = append(out, part{text: plain})
			}
			return out
		case i > 0 && s[i-1] == '$':
			plain += s[:i-1] + "${"
			s = s[i+2:]
			continue
		}
		if plain += s[:i]; plain != "" {
			out = append(out, part{text: plain})
		}
		plain = ""
		ref, rest, closed := strings.Cut(s[i+2:], "}")
		out = append(out, part{text: ref, ref: true, open: !closed})
		if s = rest; s == "" {
			return out
		}
	}
}

// referenceRE is NAME.a.0, or NAME and a JSON Pointer (RFC 6901).
var referenceRE = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,63})((\.[^./~{}]+)*|(/([^/~{}]|~[01])*)+)$`)

func (c *checker) reference(p part, at string, in scope) {
	m := referenceRE.FindStringSubmatch(p.text)
	switch {
	case p.open:
		c.fault(at, "expected a } after ${; $${ writes the characters ${")
	case m == nil:
		c.fault(at, "expected a reference such as ${files.0.path} or ${files/0/path}, not ${%.80s}; $${ writes the characters ${", p.text)
	case in[m[1]]:
	case c.inner[m[1]]:
		c.fault(at, "%s has a value only within the block that sets it: set it before that block, too", m[1])
	default:
		c.fault(at, "there is nothing called %s here; there are %s", m[1], strings.Join(slices.Sorted(maps.Keys(in)), ", "))
	}
}
