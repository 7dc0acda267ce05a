package code

import "strings"

// expr is a type of TypeScript. op is what binds it together last: '|', '&' or 0.
type expr struct {
	text string
	op   byte
}

const (
	unknown = "unknown"
	never   = "never"
	itself  = "\x00" // the type that is being written: it adds nothing to a union or an intersection
)

func plain(text string) expr { return expr{text: text} }

// union is what any of es is.
func union(es []expr) expr {
	var out []string
	seen := make(map[string]bool, len(es))
	for _, e := range es {
		if e.text == unknown {
			return plain(unknown)
		}
		if e.text == never || e.text == itself || seen[e.text] {
			continue
		}
		seen[e.text] = true
		out = append(out, e.text)
	}
	if seen["true"] && seen["false"] {
		return union(append([]expr{plain("boolean")}, without(es, "true", "false")...))
	}
	switch len(out) {
	case 0:
		return plain(never)
	case 1:
		for _, e := range es {
			if e.text == out[0] {
				return e
			}
		}
	}
	return expr{strings.Join(out, " | "), '|'}
}

func without(es []expr, texts ...string) []expr {
	var out []expr
	for _, e := range es {
		keep := true
		for _, t := range texts {
			keep = keep && e.text != t
		}
		if keep {
			out = append(out, e)
		}
	}
	return out
}

// both is what is all of es.
func both(es []expr) expr {
	var out []string
	var last expr
	self := false
	seen := make(map[string]bool, len(es))
	for _, e := range es {
		self = self || e.text == itself
		if e.text == unknown || e.text == itself || seen[e.text] {
			continue
		}
		seen[e.text] = true
		last = e
		if e.op == '|' {
			e.text = "(" + e.text + ")"
		}
		out = append(out, e.text)
	}
	switch len(out) {
	case 0:
		if self {
			return plain(itself)
		}
		return plain(unknown)
	case 1:
		return last
	}
	return expr{strings.Join(out, " & "), '&'}
}

// arrayOf is an array of e.
func arrayOf(e expr) expr {
	if e.op != 0 {
		return plain("(" + e.text + ")[]")
	}
	return plain(e.text + "[]")
}
