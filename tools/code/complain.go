package code

import (
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/skep-dev/skep/agent"
)

// maxComplaints is how many of the things that are wrong with arguments are told at once.
const maxComplaints = 5

// complaint is one thing that is wrong: where, what, and what to do.
type complaint struct{ path, what, hint string }

func (c complaint) String() string {
	if c.path == "" {
		return c.what
	}
	return c.path + ": " + c.what
}

// complain makes an Invalid error of what was found.
func complain(c *compiled, bad *jsonschema.ValidationError) error {
	list := complaints(c, bad)
	var texts []string
	hint := ""
	for _, x := range head(list, maxComplaints) {
		if s := x.String(); !slices.Contains(texts, s) {
			texts = append(texts, s)
		}
		if hint == "" {
			hint = x.hint
		}
	}
	if more := len(list) - maxComplaints; more > 0 {
		texts = append(texts, "and "+strconv.Itoa(more)+" more")
	}
	return &agent.Error{Kind: agent.Invalid, Msg: "the arguments do not fit: " + strings.Join(texts, "; "), Hint: hint}
}

// atFault says whether it is the schema that is wrong, by a reference to itself.
func atFault(e *jsonschema.ValidationError) bool {
	_, cycle := e.ErrorKind.(*kind.RefCycle)
	return cycle || slices.ContainsFunc(e.Causes, atFault)
}

// complaints are the causes that nothing else explains.
func complaints(c *compiled, e *jsonschema.ValidationError) []complaint {
	at := place(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		return alternatives(c, e)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return []complaint{{path: at, what: "fits more than one of the forms of which it may have one"}}
		}
		return alternatives(c, e)
	case *kind.Required:
		var out []complaint
		for _, name := range k.Missing {
			path := append(slices.Clone(e.InstanceLocation), name)
			what := place(path) + " is missing"
			if want := c.wanted(path); want != "" {
				what += " (" + want + ")"
			}
			out = append(out, complaint{what: what})
		}
		return out
	case *kind.AdditionalProperties:
		var out []complaint
		for _, name := range k.Properties {
			known := c.fields(e.InstanceLocation)
			x := complaint{what: place(append(slices.Clone(e.InstanceLocation), name)) + " is not known", hint: didYouMean(nearest(known, name))}
			if x.hint == "" && len(known) > 0 && len(known) <= 20 {
				x.hint = "known are " + clip(strings.Join(known, ", "), 300)
			}
			out = append(out, x)
		}
		return out
	}
	if len(e.Causes) > 0 {
		var out []complaint
		for _, cause := range e.Causes {
			out = append(out, complaints(c, cause)...)
		}
		return out
	}
	return []complaint{{path: at, what: what(e)}}
}

// alternatives tells of the form that comes nearest: of several the one whose complaint lies deepest, and of those the one with the fewest. Where
// none fits by its type, it tells all types.
func alternatives(c *compiled, e *jsonschema.ValidationError) []complaint {
	var want []string
	got := ""
	var best []complaint
	deepest := -1
	for _, cause := range e.Causes {
		end := leaf(cause)
		if k, ok := end.ErrorKind.(*kind.Type); ok && slices.Equal(end.InstanceLocation, e.InstanceLocation) {
			for _, w := range k.Want {
				if a := withArticle(w); !slices.Contains(want, a) {
					want = append(want, a)
				}
			}
			got = withArticle(k.Got)
			continue
		}
		list := complaints(c, cause)
		depth := 0
		for l := cause; ; l = l.Causes[0] {
			depth = max(depth, len(l.InstanceLocation))
			if len(l.Causes) == 0 {
				break
			}
		}
		if depth > deepest || depth == deepest && len(list) < len(best) {
			deepest, best = depth, list
		}
	}
	if best == nil && len(want) > 0 {
		return []complaint{{path: place(e.InstanceLocation), what: "must be " + or(want) + ", not " + got}}
	}
	return best
}

// leaf is the cause behind e, as far as there is only one.
func leaf(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) == 1 {
		e = e.Causes[0]
	}
	return e
}

// what says what is wrong with a value.
func what(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		var want []string
		for _, w := range k.Want {
			want = append(want, withArticle(w))
		}
		return "must be " + or(want) + ", not " + withArticle(k.Got)
	case *kind.Enum:
		var want, words []string
		for _, w := range k.Want {
			want = append(want, shown(w))
			if s, ok := w.(string); ok {
				words = append(words, s)
			}
		}
		text := "must be " + or(head(want, 12))
		if len(want) > 12 {
			text = "must be one of " + strings.Join(head(want, 12), ", ") + " and " + strconv.Itoa(len(want)-12) + " more"
		}
		if got, ok := k.Got.(string); ok {
			if near := nearest(words, got); len(near) > 0 {
				return text + ", not " + shown(k.Got) + " (" + didYouMean(head(near, 1)) + ")"
			}
		}
		return text + ", not " + shown(k.Got)
	case *kind.Const:
		return "must be " + shown(k.Want) + ", not " + shown(k.Got)
	case *kind.FalseSchema:
		return "may not be there"
	case *kind.Not:
		return "is what it may not be"
	case *kind.Pattern:
		return "must match " + clip(k.Want, 100) + ", and " + shown(k.Got) + " does not"
	}
	return clip(line(e.ErrorKind.LocalizedString(message.NewPrinter(language.English))), 200)
}

// at are the schemas that speak of the value at a path, as far as plain properties and items lead there.
func (c *compiled) at(path []string) []*value {
	list := []*value{c.doc.root}
	for i := 0; ; i++ {
		var all []*value
		seen := make(map[*value]bool)
		var open func(s *value)
		open = func(s *value) {
			if s == nil || seen[s] || len(seen) > 1000 {
				return
			}
			seen[s] = true
			all = append(all, s)
			if ref := refOf(s); ref != "" {
				open(c.doc.resolve(ref))
			}
			for _, key := range []string{"allOf", "anyOf", "oneOf"} {
				for _, part := range s.array(key) {
					open(part)
				}
			}
			open(s.object("then"))
			open(s.object("else"))
		}
		for _, s := range list {
			open(s)
		}
		if i == len(path) {
			return all
		}
		list = nil
		for _, s := range all {
			if p := s.object("properties").get(path[i]); p != nil {
				list = append(list, p)
			} else if items := s.object("items"); items != nil {
				list = append(list, items)
			} else if more := s.object("additionalProperties"); more != nil {
				list = append(list, more)
			}
		}
	}
}

// fields are the names of the properties that the value at a path may have.
func (c *compiled) fields(path []string) []string {
	var names []string
	for _, s := range c.at(path) {
		for _, p := range head(properties(s), 500) {
			if !slices.Contains(names, p.name) {
				names = append(names, p.name)
			}
		}
	}
	return names
}

// wanted is the type of the value at a path, where it can be said in a few words.
func (c *compiled) wanted(path []string) string {
	all := c.at(path)
	if len(all) == 0 {
		return ""
	}
	t := &typer{form: form{depth: 1, fields: 6, values: 8, members: 6}, doc: c.doc, names: make(map[*value]string), isUsed: make(map[*value]bool),
		within: make(map[*value]bool), left: 1000}
	if s := t.root(all[0], "").text; s != unknown && len(s) <= 120 {
		return s
	}
	return ""
}
