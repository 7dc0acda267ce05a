// Package guard looks at what goes to models and comes from them, as guardrails say, and takes out or refuses what they find: in texts, in JSON that is
// passed on, whose other bytes stay as they are, in requests and answers in canonical form, and in streams, of which it holds back what may still become
// something that is looked for.
//
// What is found is what is spelled out. Images and files are not looked at, nor opaque data of providers, nor what is hidden on purpose.
package guard

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// rule is a guardrail made ready.
type rule struct {
	agent.Guardrail
	finders []*finder
}

// Set is the guardrails of an app. It is immutable; a nil one has none.
type Set struct{ rules []*rule }

// New makes guardrails ready. The order in which they are given decides which one a refusal names.
func New(list []agent.Guardrail) (*Set, error) {
	s := &Set{}
	for _, g := range list {
		r := &rule{Guardrail: g}
		for _, name := range g.Find {
			f := builtin[name]
			if f == nil {
				return nil, agent.Errorf(agent.Internal, "the guardrail %s looks for %.80q, which this server does not know", g.Name, name)
			}
			named := *f
			named.name = name
			r.finders = append(r.finders, &named)
		}
		for _, p := range g.Patterns {
			re, err := regexp.Compile(p)
			if err != nil {
				return nil, agent.Wrap(agent.Internal, err, "the guardrail "+g.Name+" has a pattern that cannot be read")
			}
			r.finders = append(r.finders, patternFinder(g.Name, re))
		}
		if len(g.Words) > 0 {
			r.finders = append(r.finders, wordFinder(g.Name, g.Words))
		}
		s.rules = append(s.rules, r)
	}
	return s, nil
}

// Guard is what is looked for in one direction. It is immutable and safe for concurrent use; a nil one finds nothing.
type Guard struct{ rules []*rule }

// Pick returns those guardrails that look at prompts, or at answers, of calls by an agent to one of the names (@ROUTE, PROVIDER/MODEL). It is nil when there
// are none. glob matches names with patterns.
func (s *Set) Pick(prompt bool, who string, names []string, glob func(pattern, text string) bool) *Guard {
	if s == nil {
		return nil
	}
	var g *Guard
	for _, r := range s.rules {
		if prompt && !r.Prompt || !prompt && !r.Response {
			continue
		}
		if len(r.Agents) > 0 && !slices.ContainsFunc(r.Agents, func(p string) bool { return glob(p, who) }) {
			continue
		}
		if len(r.Models) > 0 && !slices.ContainsFunc(r.Models, func(p string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return glob(p, n) })
		}) {
			continue
		}
		if g == nil {
			g = &Guard{}
		}
		g.rules = append(g.rules, r)
	}
	return g
}

// Mark tells one Guard from another: the names and revisions of its guardrails.
func (g *Guard) Mark() string {
	if g == nil {
		return ""
	}
	var b strings.Builder
	for _, r := range g.rules {
		fmt.Fprintf(&b, "%s %d %d;", r.Name, r.Revision, r.Created.UnixNano())
	}
	return b.String()
}

// Found is that something was found which must not be there.
type Found struct {
	Guardrail string
	As        string // what it is: the name of a finder, or of the guardrail
}

func (f *Found) Error() string {
	what := "what it looks for"
	if f.As != f.Guardrail {
		what = f.As
	}
	return "the guardrail " + f.Guardrail + " found " + what
}

// spans returns what is found in text, in order and without overlaps.
func (g *Guard) spans(text string) (list []span) {
	if g == nil || text == "" {
		return nil
	}
	for _, r := range g.rules {
		for _, f := range r.finders {
			f.find(text, func(from, to int) {
				s := span{from: from, to: to, by: f}
				if r.Block {
					s.block = &Found{r.Name, f.name}
				}
				list = append(list, s)
			})
		}
	}
	return merge(list)
}

// merge puts spans in order, and those that overlap into one, which is called as the first of them.
func merge(list []span) []span {
	if len(list) < 2 {
		return list
	}
	slices.SortStableFunc(list, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	out := list[:1]
	for _, s := range list[1:] {
		top := &out[len(out)-1]
		if s.from >= top.to {
			out = append(out, s)
			continue
		}
		top.to = max(top.to, s.to)
		if top.block == nil {
			top.block = s.block
		}
	}
	return out
}

// Text returns text with what is found replaced by its name in brackets, or what must not be in it.
func (g *Guard) Text(text string) (string, *Found) {
	list := g.spans(text)
	for _, s := range list {
		if s.block != nil {
			return "", s.block
		}
	}
	if len(list) == 0 {
		return text, nil
	}
	return replace(text, list), nil
}

func replace(text string, list []span) string {
	var b strings.Builder
	at := 0
	for _, s := range list {
		b.WriteString(text[at:s.from])
		b.WriteString("[" + s.by.name + "]")
		at = s.to
	}
	b.WriteString(text[at:])
	return b.String()
}

// context is how many bytes that have gone are kept, for what a pattern says of the bytes before it.
const context = 64

// tail looks at a text that comes in pieces.
type tail struct {
	g    *Guard
	text string // what has gone, at most context bytes, and what is held back
	gone int    // bytes of text that have gone
	drop func(rune) bool
}

// write takes a piece, and returns what may go.
func (t *tail) write(piece string) (string, *Found) {
	if t.drop != nil {
		i := strings.IndexFunc(piece, func(c rune) bool { return !t.drop(c) })
		if i < 0 {
			return "", nil
		}
		piece, t.drop = piece[i:], nil
	}
	t.text += piece
	cut := len(t.text)
	for _, r := range t.g.rules {
		for _, f := range r.finders {
			cut = min(cut, f.open(t.text))
		}
	}
	return t.settle(max(cut, t.gone), false)
}

// flush ends the text.
func (t *tail) flush() (string, *Found) { return t.settle(len(t.text), true) }

// settle lets go what is before cut, and holds what a place that is found goes over.
func (t *tail) settle(cut int, end bool) (string, *Found) {
	if cut > t.gone && !end {
		for cut > t.gone && !utf8.RuneStart(after(t.text, cut)) && cut < len(t.text) {
			cut--
		}
	}
	list := t.g.spans(t.text)
	var out strings.Builder
	at := t.gone
	for _, s := range list {
		if s.to <= at {
			continue
		}
		s.from = max(s.from, at)
		if s.from >= cut {
			break
		}
		if s.to > cut || s.to == len(t.text) && !end {
			if s.to-s.from <= s.by.most { // it may grow
				cut = s.from
				break
			}
			cut = max(cut, s.to)
			if s.to == len(t.text) {
				t.drop = s.by.on
			}
		}
		if s.block != nil {
			return "", s.block
		}
		out.WriteString(t.text[at:s.from])
		out.WriteString("[" + s.by.name + "]")
		at = s.to
	}
	if cut > at {
		out.WriteString(t.text[at:cut])
		at = cut
	}
	keep := max(at-context, 0)
	for keep > 0 && keep < len(t.text) && !utf8.RuneStart(t.text[keep]) {
		keep--
	}
	t.text, t.gone = t.text[keep:], at-keep
	return out.String(), nil
}
