package code

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// Root is the object that scripts find tools on.
const Root = "tools"

// onTools are members of the tools object itself, so that no server is called so in a path.
var onTools = words("call search describe list change")

// onObjects are names that mean something on any object, or to whoever awaits, prints or copies one.
var onObjects = words(`then catch finally toJSON constructor prototype toString toLocaleString valueOf hasOwnProperty isPrototypeOf
	propertyIsEnumerable inspect __proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__`)

// reservedWords cannot name a variable (ECMA-262 12.7.2, strict mode, and await of modules), so that a destructured tool would not
// parse.
var reservedWords = words(`await break case catch class const continue debugger default delete do else enum export extends false finally
	for function if implements import in instanceof interface let new null package private protected public return static super switch
	this throw true try typeof var void while with yield arguments eval undefined NaN Infinity async`)

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// Names is how code writes the names of a list of tools: tools.SERVER.METHOD, where both parts are identifiers. A part that is one
// already stays as it is. In any other, what an identifier may not hold becomes _, and a word that means something of its own gets a _ behind
// it. Of several that would be written alike, the one that needed no change keeps the identifier, and the others, in the order of
// their names, get _2, _3 and so on. So the same list gives the same paths, in whatever order it comes. Names does not change once it is made.
type Names struct {
	servers []*server          // sorted by name
	byName  map[string]*server // as it is, and as its identifier
	paths   map[string]string  // by name of a tool, without Root
}

type server struct {
	name, ident string
	methods     []string          // sorted
	byName      map[string]string // method, as it is and as its identifier, to the method
	idents      map[string]string // by method
}

// NewNames returns the names of tools. Where they are those of an app, give all of them: paths then do not depend on what somebody is
// granted.
func NewNames(tools []agent.Tool) *Names {
	methods := make(map[string][]string)
	for _, t := range tools {
		s, m, _ := agent.SplitTool(t.Name)
		methods[s] = append(methods[s], m)
	}
	names := make([]string, 0, len(methods))
	for s := range methods {
		names = append(names, s)
	}
	slices.Sort(names)

	n := &Names{byName: make(map[string]*server, 2*len(names)), paths: make(map[string]string, len(tools))}
	idents := identifiers(names, onTools)
	for _, name := range names {
		list := methods[name]
		slices.Sort(list)
		list = slices.Compact(list)
		s := &server{name: name, ident: idents[name], methods: list, byName: make(map[string]string, 2*len(list)), idents: identifiers(list, nil)}
		for m, ident := range s.idents {
			s.byName[m], s.byName[ident] = m, m
			n.paths[agent.ToolName(name, m)] = s.ident + "." + ident
		}
		n.servers = append(n.servers, s)
		n.byName[name], n.byName[s.ident] = s, s
	}
	return n
}

// identifiers gives each of names, which are sorted and differ, an identifier that no other has. An identifier that is also one of names
// belongs to that name.
func identifiers(names []string, taken map[string]bool) map[string]string {
	out := make(map[string]string, len(names))
	used := make(map[string]bool, len(names))
	var rest []string
	for _, name := range names {
		if identifier(name, taken) == name {
			out[name], used[name] = name, true
		} else {
			rest = append(rest, name)
		}
	}
	next := make(map[string]int) // so that many alike do not search from 2 each time
	for _, name := range rest {
		base := identifier(name, taken)
		ident, i := base, max(next[base], 1)
		for used[ident] {
			i++
			ident = base + "_" + strconv.Itoa(i)
		}
		next[base] = i
		out[name], used[ident] = ident, true
	}
	return out
}

// maxIdent is how long an identifier gets, in bytes. Longer names are cut, and told apart by number.
const maxIdent = 128

// identifier is name as an identifier of JavaScript that is neither reserved nor one of taken.
func identifier(name string, taken map[string]bool) string {
	var b strings.Builder
	gap := false
	for i, r := range name {
		ok := starts(r) || i > 0 && continues(r)
		switch {
		case ok && b.Len()+len(string(r)) <= maxIdent:
			b.WriteRune(r)
			gap = false
		case ok:
			return b.String()
		case i == 0 && unicode.Is(unicode.Nd, r):
			b.WriteByte('_')
			b.WriteRune(r)
		case !gap && b.Len() < maxIdent:
			b.WriteByte('_')
			gap = true
		}
	}
	s := b.String()
	switch {
	case s == "":
		return "_"
	case taken[s], onObjects[s], reservedWords[s]:
		return s + "_"
	}
	return s
}

// starts says whether an identifier may begin with r (ID_Start of UAX #31, without planes that engines of some age do not know).
func starts(r rune) bool {
	return r == '_' || r == '$' || r <= 0xffff && r != '\u2e2f' && unicode.IsLetter(r)
}

// continues says whether r may stand further on in an identifier.
func continues(r rune) bool {
	return starts(r) || r <= 0xffff && unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc)
}

// Path returns how code writes the name of a tool, as tools.SERVER.METHOD, or "" when it is none of the list.
func (n *Names) Path(name string) string {
	if p, ok := n.paths[name]; ok {
		return Root + "." + p
	}
	return ""
}

// Find returns the name of the tool that is written so: as SERVER.METHOD, with either part as it is or as its identifier, and with or
// without Root before it.
func (n *Names) Find(written string) (name string, ok bool) {
	if name, ok = n.find(written); ok {
		return name, true
	}
	if rest, cut := strings.CutPrefix(written, Root+"."); cut {
		return n.find(rest)
	}
	return "", false
}

func (n *Names) find(written string) (string, bool) {
	sn, mn, ok := agent.SplitTool(written)
	if !ok {
		return "", false
	}
	s, ok := n.byName[sn]
	if !ok {
		return "", false
	}
	m, ok := s.byName[mn]
	return agent.ToolName(s.name, m), ok
}

// maxNear is how many names Near returns.
const maxNear = 3

// Near returns the names of the tools that written may have meant, nearest first, at most three: those that differ in a few letters,
// in case or in separators, and those of the same method on another server.
func (n *Names) Near(written string) []string {
	if phrase.Fold(written) == "" || len(written) > 2*maxIdent {
		return nil
	}
	if rest, ok := strings.CutPrefix(written, Root+"."); ok {
		written = rest
	}
	ws, wm, dotted := agent.SplitTool(written)
	if !dotted {
		ws, wm = "", written
	}
	whole, method := phrase.Fold(written), phrase.Fold(wm)
	type near struct {
		name string
		far  int
	}
	var found []near
	for _, s := range n.servers {
		bonus := 2 // of a tool of another server
		if phrase.Fold(s.name) == phrase.Fold(ws) {
			bonus = 0
		}
		for _, m := range s.methods {
			far := bonus + phrase.Distance(phrase.Fold(m), method, phrase.Typos(method)+1)
			if f := phrase.Distance(phrase.Fold(agent.ToolName(s.name, m)), whole, phrase.Typos(whole)+1); f < far {
				far = f
			}
			if far <= max(phrase.Typos(method), bonus) || strings.Contains(phrase.Fold(m), method) && len(method) > 3 && bonus == 0 {
				found = append(found, near{agent.ToolName(s.name, m), far})
			}
		}
	}
	slices.SortFunc(found, func(a, b near) int { return cmp.Or(cmp.Compare(a.far, b.far), strings.Compare(a.name, b.name)) })
	var out []string
	for _, f := range found[:min(len(found), maxNear)] {
		out = append(out, f.name)
	}
	return out
}
