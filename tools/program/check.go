package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parse checks a program. What it finds wrong is an Invalid error that names the places by JSON Pointers and says what is expected there.
func Parse(text []byte) (*Program, error) {
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	c := &checker{inner: scope{}}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, mistakes([]string{"its top: expected an object with steps, not " + kindOf(v)}, schemaHint)
	}
	c.fields(root, "", []string{"steps"}, []string{"title"})
	if title, ok := root["title"]; ok {
		c.plain(title, "/title", 200)
	}
	if steps, ok := root["steps"]; ok {
		c.block(steps, "/steps", scope{"input": true}, 1)
	}
	if err := mistakes(c.wrong, schemaHint); err != nil {
		return nil, err
	}
	return &Program{text: slices.Clone(text), calls: c.calls, written: c.written}, nil
}

const schemaHint = "skep program schema, and GET /v1/programs/schema, say what a program looks like"

// scope has the names that a reference may begin with.
type scope map[string]bool

type checker struct {
	wrong   []string
	calls   []Call
	written int
	inner   scope // names of blocks that have ended
}

func (c *checker) fault(at, format string, args ...any) {
	c.wrong = append(c.wrong, at+": "+fmt.Sprintf(format, args...))
}

// kinds are the steps, with the fields that each must and may have besides step and note.
var kinds = map[string]struct{ must, may []string }{
	"list":        {[]string{"tool"}, []string{"args", "as", "limit"}},
	"search":      {[]string{"tool"}, []string{"args", "as", "limit"}},
	"read":        {[]string{"tool"}, []string{"args", "as"}},
	"call":        {[]string{"tool"}, []string{"args", "as"}},
	"diff":        {[]string{"before", "after"}, []string{"as", "name"}},
	"set":         {[]string{"name"}, []string{"value", "append"}},
	"repeat":      {[]string{"steps"}, []string{"over", "times", "as"}},
	"if_contains": {[]string{"value", "text", "then"}, []string{"else"}},
	"change_set":  {[]string{"title", "calls"}, []string{"as"}},
	"return":      {nil, []string{"value"}},
}

func (c *checker) block(v any, at string, in scope, depth int) {
	steps, ok := v.([]any)
	switch {
	case !ok:
		c.fault(at, "expected a list of steps, not %s", kindOf(v))
		return
	case len(steps) == 0:
		c.fault(at, "expected at least one step")
		return
	case depth > MaxDepth:
		c.fault(at, "blocks are nested more than %d deep", MaxDepth)
		return
	}
	for i, s := range steps {
		if c.written++; c.written > MaxWritten {
			if c.written == MaxWritten+1 {
				c.fault(at+"/"+strconv.Itoa(i), "the program has more than %d steps", MaxWritten)
			}
			return
		}
		c.step(s, at+"/"+strconv.Itoa(i), in, depth)
		if m, _ := s.(map[string]any); m["step"] == "return" && i < len(steps)-1 {
			c.fault(at+"/"+strconv.Itoa(i+1), "no step can follow a return")
		}
	}
}

func (c *checker) step(v any, at string, in scope, depth int) {
	s, ok := v.(map[string]any)
	if !ok {
		c.fault(at, "expected a step, which is an object, not %s", kindOf(v))
		return
	}
	name, _ := s["step"].(string)
	kind, known := kinds[name]
	if !known {
		c.fault(at+"/step", "expected one of %s", strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
		return
	}
	c.fields(s, at, append([]string{"step"}, kind.must...), append([]string{"note"}, kind.may...))
	if note, ok := s["note"]; ok {
		c.plain(note, at+"/note", 2000)
	}
	inner := maps.Clone(in)
	switch name {
	case "list", "search", "read", "call":
		c.call(s, at, in, false)
		if n, ok := s["limit"]; ok {
			c.number(n, at+"/limit", 1, 10_000)
		}
	case "diff":
		c.valueIn(s, "before", at, in)
		c.valueIn(s, "after", at, in)
		c.textIn(s, "name", at, in)
	case "set":
		c.set(s, at, in)
	case "repeat":
		c.over(s, at, in, true)
		inner["index"] = true
		c.as(s, at, inner)
		c.blockIn(s, "steps", at, inner, depth)
		return
	case "if_contains":
		c.valueIn(s, "value", at, in)
		c.textIn(s, "text", at, in)
		if s["text"] == "" {
			c.fault(at+"/text", "expected a text to look for, not an empty one")
		}
		c.blockIn(s, "then", at, inner, depth)
		c.blockIn(s, "else", at, maps.Clone(in), depth)
	case "change_set":
		c.textIn(s, "title", at, in)
		if s["title"] == "" {
			c.fault(at+"/title", "expected a title, which the person who is asked reads")
		}
		if calls, ok := s["calls"]; ok {
			c.changes(calls, at+"/calls", in)
		}
	case "return":
		c.valueIn(s, "value", at, in)
	}
	c.as(s, at, in)
}

// blockIn checks a block within a step. What gets a name there has none outside.
func (c *checker) blockIn(s map[string]any, field, at string, in scope, depth int) {
	if v, ok := s[field]; ok {
		c.block(v, at+"/"+field, in, depth+1)
	}
	maps.Copy(c.inner, in)
}

// fields notes fields that are missing, and those that are not known.
func (c *checker) fields(m map[string]any, at string, must, may []string) {
	for _, name := range must {
		if _, ok := m[name]; !ok {
			c.fault(at+"/"+name, "this is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(must, name) && !slices.Contains(may, name) {
			c.fault(at+"/"+escape(name), "there is no such field here; there are %s", strings.Join(append(slices.Clone(must), may...), ", "))
		}
	}
}

var (
	nameRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	toolRE = regexp.MustCompile(`^[^\s.$]+\.[^\s$]+$`)
)

// as notes the name that a step gives to its result.
func (c *checker) as(s map[string]any, at string, in scope) {
	v, ok := s["as"]
	if !ok {
		return
	}
	name, _ := v.(string)
	switch {
	case !nameRE.MatchString(name):
		c.fault(at+"/as", "expected a name: letters, digits and _, beginning with no digit")
	case name == "index" || in[name]:
		c.fault(at+"/as", "%s is the name of something else here", name)
	default:
		in[name] = true
	}
}

func (c *checker) call(s map[string]any, at string, in scope, change bool) {
	name, ok := s["tool"]
	if !ok {
		return // told before
	}
	tool, _ := name.(string)
	if !toolRE.MatchString(tool) || len(tool) > 200 {
		c.fault(at+"/tool", "expected the name of a tool, SERVER.METHOD, without references")
		return
	}
	c.calls = append(c.calls, Call{At: at, Tool: tool, Change: change})
	if args, ok := s["args"]; ok {
		if _, ok := args.(map[string]any); !ok {
			c.fault(at+"/args", "expected an object, not %s", kindOf(args))
		}
		c.value(args, at+"/args", in)
	}
}

func (c *checker) set(s map[string]any, at string, in scope) {
	name, _ := s["name"].(string)
	_, value := s["value"]
	_, more := s["append"]
	switch {
	case s["name"] != nil && !nameRE.MatchString(name):
		c.fault(at+"/name", "expected a name: letters, digits and _, beginning with no digit")
	case name == "input" || name == "index":
		c.fault(at+"/name", "%s cannot be set", name)
	case value == more:
		c.fault(at, "expected either value or append")
	}
	c.valueIn(s, "value", at, in)
	c.valueIn(s, "append", at, in)
	if nameRE.MatchString(name) {
		in[name] = true
	}
}

// over checks what a repeat, or a call of a change set, goes through.
func (c *checker) over(s map[string]any, at string, in scope, needed bool) {
	over, ok := s["over"]
	times, counted := s["times"]
	if counted {
		c.number(times, at+"/times", 0, MaxRounds)
	}
	if needed && ok == counted {
		c.fault(at, "expected either over or times")
	}
	if !ok {
		return
	}
	switch v := over.(type) {
	case []any:
		if needed && len(v) > MaxRounds {
			c.fault(at+"/over", "the list has %d items, and a repeat has at most %d rounds", len(v), MaxRounds)
		}
	case string:
		if parts := split(v); len(parts) != 1 || !parts[0].ref {
			c.fault(at+"/over", "expected one reference to a list, such as ${files}, and nothing around it")
		}
	default:
		c.fault(at+"/over", "expected a list or a reference to one, not %s", kindOf(over))
	}
	c.value(over, at+"/over", in)
}

func (c *checker) changes(v any, at string, in scope) {
	calls, ok := v.([]any)
	if !ok || len(calls) == 0 || len(calls) > MaxCalls {
		c.fault(at, "expected a list of 1 to %d calls", MaxCalls)
		return
	}
	for i, v := range calls {
		here := at + "/" + strconv.Itoa(i)
		m, ok := v.(map[string]any)
		if !ok {
			c.fault(here, "expected a call, which is an object, not %s", kindOf(v))
			continue
		}
		c.fields(m, here, []string{"tool"}, []string{"args", "undo", "over", "as"})
		inner := maps.Clone(in)
		if _, ok := m["over"]; ok {
			c.over(m, here, in, false)
			inner["index"] = true
			c.as(m, here, inner)
		} else if _, ok := m["as"]; ok {
			c.fault(here+"/as", "expected over beside it: it names one of its items")
		}
		c.call(m, here, inner, true)
		if undo, ok := m["undo"]; ok {
			u, ok := undo.(map[string]any)
			if !ok {
				c.fault(here+"/undo", "expected a call, which is an object, not %s", kindOf(undo))
				continue
			}
			c.fields(u, here+"/undo", []string{"tool"}, []string{"args"})
			c.call(u, here+"/undo", inner, true)
		}
	}
}

func (c *checker) number(v any, at string, least, most int64) {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	if !ok || err != nil || i < least || i > most {
		c.fault(at, "expected a whole number from %d to %d", least, most)
	}
}

// plain checks a text in which nothing is replaced.
func (c *checker) plain(v any, at string, most int) {
	if s, ok := v.(string); !ok || len(s) > most {
		c.fault(at, "expected a text of up to %d bytes", most)
	}
}

func (c *checker) textIn(s map[string]any, field, at string, in scope) {
	if v, ok := s[field]; ok {
		if _, ok := v.(string); !ok {
			c.fault(at+"/"+field, "expected a text, not %s", kindOf(v))
		}
		c.value(v, at+"/"+field, in)
	}
}

func (c *checker) valueIn(s map[string]any, field, at string, in scope) {
	if v, ok := s[field]; ok {
		c.value(v, at+"/"+field, in)
	}
}

// value checks the references in all texts of a value.
func (c *checker) value(v any, at string, in scope) {
	switch v := v.(type) {
	case string:
		for _, p := range split(v) {
			if p.ref {
				c.reference(p, at, in)
			}
		}
	case []any:
		for i, item := range v {
			c.value(item, at+"/"+strconv.Itoa(i), in)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			c.value(v[name], at+"/"+escape(name), in)
		}
	}
}
