package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// opencode reads the permission map of opencode.json. There, the last entry that matches wins; here deny does, then ask: what that changes is told.
func (c *converter) opencode(data []byte) error {
	var in struct {
		Permission json.RawMessage `json:"permission"`
	}
	if err := json.Unmarshal(plainJSON(data), &in); err != nil {
		return agent.Wrap(agent.Invalid, err, "this is no opencode.json: it is an object with permission")
	}
	if len(in.Permission) == 0 {
		return agent.Errorf(agent.Invalid, "the file has no permission")
	}
	d := decoder{b: in.Permission}
	v, err := d.value(0)
	if err != nil {
		return agent.Errorf(agent.Invalid, "permission cannot be read: %s", err)
	}
	if v.kind == text {
		c.otherwise("permission "+v.text, v.text, changes...)
		return nil
	}
	if v.kind != object {
		return agent.Errorf(agent.Invalid, "permission is a map of tools")
	}
	for i, key := range v.keys {
		c.opencodeTool(key, &v.list[i])
	}
	return nil
}

func (c *converter) opencodeTool(key string, v *value) {
	tool := ""
	switch key {
	case "bash":
		tool = c.names.Shell
	case "edit", "write", "patch":
		tool = c.names.Files + ".{write_*,edit_*,create_*,move_*}"
	case "read", "glob", "grep", "list":
		tool = c.names.Files + ".{read_*,list_*,search_*,directory_*,get_*}"
	case "webfetch":
		tool = c.names.Web
	case "*":
		if v.kind == text {
			c.otherwise("* "+v.text, v.text, changes...)
			return
		}
	case "external_directory", "doom_loop", "websearch", "task", "skill", "todowrite", "todoread", "question", "lsp", "codesearch":
		c.skip(key, "there is no tool for it")
		return
	default:
		if server, method, ok := strings.Cut(key, "_"); ok { // SERVER_TOOL
			tool = server + "." + method
		}
	}
	if tool == "" {
		c.skip(key, "there is no tool for it")
		return
	}
	if v.kind == text {
		c.rule(key, v.text+" "+tool)
		return
	}
	if v.kind != object {
		c.skip(key, "it is neither a verdict nor a map")
		return
	}
	for i, pattern := range v.keys {
		verdict := v.list[i].text
		what := fmt.Sprintf("%s %s %s", key, pattern, verdict)
		switch {
		case pattern == "*" && key == "bash":
			c.otherwise(what, verdict, "execute")
		case pattern == "*":
			c.skip(what, "a rule for all would win over narrower ones that allow; the default by effect holds")
		case key == "bash":
			c.rule(what, verdict+" "+tool+"("+pattern+")")
		case key == "webfetch":
			c.rule(what, verdict+" "+tool+"(url="+pattern+")")
		default:
			c.rule(what, verdict+" "+tool+"(path="+pattern+")")
		}
		for j := range i {
			if earlier := v.list[j].text; v.keys[j] != "*" && rank(earlier) < rank(verdict) {
				if g, err := newGlob(pattern); err == nil && g.plain(v.keys[j], false) {
					c.skip(what, fmt.Sprintf("it comes last, but %s %s wins here", earlier, v.keys[j]))
				}
			}
		}
	}
}

func rank(verdict string) int {
	switch verdict {
	case "deny":
		return 0
	case "ask":
		return 1
	}
	return 2
}

// codex reads the calls of prefix_rule of a .rules file, which is Starlark.
func (c *converter) codex(src string) error {
	found := 0
	for line := 1; src != ""; {
		i := strings.Index(src, "prefix_rule")
		if i < 0 {
			break
		}
		line += strings.Count(src[:i], "\n")
		begun := src[strings.LastIndexByte(src[:i], '\n')+1 : i]
		src = src[i+len("prefix_rule"):]
		if strings.ContainsRune(begun, '#') {
			continue
		}
		p := &starlark{s: src}
		args, err := p.call()
		if err != nil {
			return agent.Errorf(agent.Invalid, "line %d: prefix_rule cannot be read: %s", line, err)
		}
		line += strings.Count(src[:p.i], "\n")
		src = src[p.i:]
		found++
		c.codexRule(args)
	}
	if found == 0 {
		return agent.Errorf(agent.Invalid, "the file has no prefix_rule(pattern=[...], decision=...)")
	}
	return nil
}

func (c *converter) codexRule(args map[string]any) {
	list, _ := args["pattern"].([]any)
	var words []string
	for _, e := range list {
		switch e := e.(type) {
		case string:
			words = append(words, quoteWord(e))
		case []any:
			var alts []string
			for _, a := range e {
				s, _ := a.(string)
				alts = append(alts, s)
			}
			words = append(words, "{"+strings.Join(alts, ",")+"}")
		}
	}
	pattern := strings.Join(words, " ")
	verdict, ok := map[string]string{"": "allow", "allow": "allow", "prompt": "ask", "forbidden": "deny"}[textOf(args["decision"])]
	what := "prefix_rule " + pattern
	if !ok || pattern == "" {
		c.skip(what, "its pattern or decision is not known")
		return
	}
	var extra []string
	if j := textOf(args["justification"]); j != "" {
		extra = append(extra, "    because: "+quoteAlways(j))
	}
	for _, m := range []string{"match", "not_match"} {
		examples, _ := args[m].([]any)
		if len(examples) == 0 {
			continue
		}
		extra = append(extra, "    "+m+":")
		for _, e := range examples {
			text, _ := e.(string)
			if l, ok := e.([]any); ok {
				var w []string
				for _, s := range l {
					w = append(w, quoteWord(textOf(s)))
				}
				text = strings.Join(w, " ")
			}
			extra = append(extra, "      - "+c.names.Shell+": "+quoteAlways(text))
		}
	}
	c.rule(what, verdict+" "+c.names.Shell+"("+pattern+" *)", extra...)
}

func textOf(v any) string { s, _ := v.(string); return s }

func quoteAlways(s string) string { q, _ := json.Marshal(s); return string(q) }

func quoteWord(s string) string {
	if s == "" || strings.ContainsAny(s, " \t'\"\\*?{},()") {
		return "'" + strings.ReplaceAll(s, "'", "") + "'"
	}
	return s
}

// starlark reads the literals of a call: NAME = "text" or [list], ...
type starlark struct {
	s string
	i int
}

func (p *starlark) space() {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.i++
		case c == '#':
			for p.i < len(p.s) && p.s[p.i] != '\n' {
				p.i++
			}
		default:
			return
		}
	}
}

func (p *starlark) take(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *starlark) call() (map[string]any, error) {
	if !p.take('(') {
		return nil, fmt.Errorf("a ( is missing")
	}
	out := map[string]any{}
	for !p.take(')') {
		p.space()
		start := p.i
		for p.i < len(p.s) && (p.s[p.i] == '_' || p.s[p.i] >= 'a' && p.s[p.i] <= 'z') {
			p.i++
		}
		name := p.s[start:p.i]
		if name == "" || !p.take('=') {
			return nil, fmt.Errorf("NAME = VALUE is missing")
		}
		v, err := p.value(0)
		if err != nil {
			return nil, err
		}
		out[name] = v
		if !p.take(',') {
			if !p.take(')') {
				return nil, fmt.Errorf("a ) is missing")
			}
			break
		}
	}
	return out, nil
}

func (p *starlark) value(depth int) (any, error) {
	p.space()
	if p.i >= len(p.s) || depth > 4 {
		return nil, fmt.Errorf("a value is missing")
	}
	switch q := p.s[p.i]; q {
	case '"', '\'':
		var b strings.Builder
		for p.i++; p.i < len(p.s) && p.s[p.i] != q; p.i++ {
			if p.s[p.i] == '\\' && p.i+1 < len(p.s) {
				p.i++
			}
			b.WriteByte(p.s[p.i])
		}
		if p.i >= len(p.s) {
			return nil, fmt.Errorf("a quote is not closed")
		}
		p.i++
		return b.String(), nil
	case '[':
		p.i++
		out := []any{}
		for !p.take(']') {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
			if !p.take(',') {
				if !p.take(']') {
					return nil, fmt.Errorf("a ] is missing")
				}
				break
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("only texts and lists can be read, not %q", clip(p.s[p.i:min(p.i+20, len(p.s))]))
}
