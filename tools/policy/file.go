package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/skep-dev/skep/agent"
)

// Bounds of a policy.
const (
	MaxText  = 256 << 10 // bytes
	MaxRules = 2000      // rules, hooks and examples, each
)

// DefaultTimeout is how long a question stands unless the policy says otherwise; MaxTimeout the most it can say. maxHold is the longest that an
// approval can hold.
const (
	DefaultTimeout = time.Hour
	MaxTimeout     = 30 * 24 * time.Hour
	maxHold        = 30 * 24 * time.Hour
)

// fault is a mistake at a place of the text.
type fault struct {
	line, column int
	err          error
}

// reader reads the tree of a policy. The first mistake ends it.
type reader struct {
	file string
	p    *Policy
}

// Parse reads a policy. An error is Invalid, names file:line:column and what to write instead. file is how the text is called in errors and
// decisions, such as "policy".
func Parse(text []byte, file string) (*Policy, error) {
	r := &reader{file: file, p: &Policy{file: file, unattended: agent.Deny, timeout: DefaultTimeout}}
	d := &r.p.defaults
	d.verdict = [5]agent.Verdict{agent.Ask, agent.Allow, agent.Ask, agent.Ask, agent.Ask}
	if f := r.read(text); f != nil {
		out := &agent.Error{Kind: agent.Invalid, Msg: f.err.Error()}
		if e, ok := errors.AsType[*agent.Error](f.err); ok {
			out.Msg, out.Hint = e.Msg, e.Hint
		}
		out.Msg = fmt.Sprintf("%s:%d:%d: %s", file, f.line, f.column, out.Msg)
		return nil, out
	}
	return r.p, nil
}

var yamlPlace = regexp.MustCompile(`^\[(\d+):(\d+)\] ([^\n]*)`)

func (r *reader) read(text []byte) (f *fault) {
	if len(text) > MaxText {
		return &fault{1, 1, agent.Errorf(agent.Invalid, "a policy has up to %d bytes, and this has %d", MaxText, len(text))}
	}
	if f := nested(text); f != nil {
		return f
	}
	file, err := parseYAML(text)
	if err != nil {
		f := &fault{1, 1, agent.Errorf(agent.Invalid, "this is no YAML: %s", err)}
		if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil {
			fmt.Sscan(m[1], &f.line)
			fmt.Sscan(m[2], &f.column)
			f.err = &agent.Error{Kind: agent.Invalid, Msg: "this is no YAML: " + m[3], Hint: `put a rule in quotes when it has ": ", " #", or begins with * & ! or a quote`}
		}
		return f
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return r.at(d.Body, "a policy is one document: take the --- out")
		}
		body = d.Body
	}
	if body == nil || body.Type() == ast.CommentType || body.Type() == ast.NullType {
		return nil
	}
	return r.top(body)
}

// parseYAML guards the foreign parser: what would end it is a mistake of the text.
func parseYAML(text []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, fmt.Errorf("the parser gave up")
		}
	}()
	return parser.ParseBytes(text, 0)
}

// nested refuses brackets in brackets and deep indents, which a policy has no use for.
func nested(text []byte) *fault {
	for i, line := range bytes.Split(text, []byte("\n")) {
		depth := 0
		for j, c := range line {
			switch c {
			case '[', '{', '(':
				if depth++; depth > 64 {
					return &fault{i + 1, j + 1, agent.Errorf(agent.Invalid, "brackets are nested more than 64 deep")}
				}
			case ']', '}', ')':
				depth = max(0, depth-1)
			}
		}
		if n := len(line) - len(bytes.TrimLeft(line, " -?:\t")); n > 200 {
			return &fault{i + 1, 200, agent.Errorf(agent.Invalid, "the line is indented by more than 200")}
		}
	}
	return nil
}

func place(n ast.Node) (line, column int) {
	if n != nil {
		if t := n.GetToken(); t != nil && t.Position != nil {
			return t.Position.Line, t.Position.Column
		}
	}
	return 1, 1
}

func (r *reader) at(n ast.Node, format string, args ...any) *fault {
	return r.wrong(n, agent.Errorf(agent.Invalid, format, args...))
}

func (r *reader) wrong(n ast.Node, err error) *fault {
	if err == nil {
		return nil
	}
	line, column := place(n)
	return &fault{line, column, err}
}

func (r *reader) from(n ast.Node) string {
	line, _ := place(n)
	return fmt.Sprintf("%s:%d", r.file, line)
}

// pair is a key and what it stands for.
type pair struct {
	key   string
	at    ast.Node
	value ast.Node
}

// pairs reads a map with text keys.
func (r *reader) pairs(n ast.Node, what string) ([]pair, *fault) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return nil, nil
	default:
		return nil, r.at(n, "%s is a list of NAME: VALUE lines", what)
	}
	seen := map[string]bool{}
	var out []pair
	for _, v := range values {
		k, f := r.text(v.Key, "a key")
		if f != nil {
			return nil, f
		}
		if seen[k] {
			return nil, r.at(v.Key, "%s is there twice: keep one", k)
		}
		seen[k] = true
		out = append(out, pair{k, v.Key, v.Value})
	}
	return out, nil
}

func (r *reader) items(n ast.Node, what string) ([]ast.Node, *fault) {
	switch n := n.(type) {
	case *ast.SequenceNode:
		if len(n.Values) > MaxRules {
			return nil, r.at(n, "%s has %d lines, above %d", what, len(n.Values), MaxRules)
		}
		return n.Values, nil
	case *ast.NullNode:
		return nil, nil
	}
	return nil, r.at(n, "%s is a list: begin each line with a -", what)
}

// text reads a scalar as it is written.
func (r *reader) text(n ast.Node, what string) (string, *fault) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.MappingNode, *ast.MappingValueNode:
		return "", r.wrong(n, &agent.Error{Kind: agent.Invalid, Msg: what + " is one line of text, and this is a map", Hint: `put the line in quotes when it has ": " in it`})
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return "", r.wrong(n, &agent.Error{Kind: agent.Invalid, Msg: "a policy has no anchors, aliases and tags of YAML", Hint: "put what begins with *, & or ! in quotes"})
	case nil:
		return "", &fault{1, 1, agent.Errorf(agent.Invalid, "%s is missing", what)}
	}
	return "", r.at(n, "%s is one line of text", what)
}

var topKeys = []string{"read", "modify", "modify_execute", "execute", "unclassified", "unattended", "timeout", "writes", "commands", "rules", "budgets", "agents", "hooks", "tests"}

func (r *reader) top(n ast.Node) *fault {
	list, f := r.pairs(n, "a policy")
	if f != nil {
		return f
	}
	for _, kv := range list {
		if f := r.entry(kv); f != nil {
			return f
		}
	}
	return nil
}

func (r *reader) entry(kv pair) (f *fault) {
	if done, f := r.effect(kv, &r.p.defaults); done || f != nil {
		return f
	}
	switch kv.key {
	case "unattended":
		var text string
		if text, f = r.text(kv.value, "unattended"); f == nil && text != "deny" && text != "ask" {
			f = r.at(kv.value, "unattended is deny, or ask for what waits until somebody answers; not %q", text)
		}
		if text == "ask" {
			r.p.unattended = agent.Ask
		}
	case "timeout":
		r.p.timeout, f = r.duration(kv.value, "timeout", MaxTimeout)
	case "writes":
		r.p.writes, f = r.globs(kv.value)
	case "commands":
		f = r.commands(kv.value)
	case "rules":
		r.p.rules, f = r.rules(kv.value)
	case "budgets":
		r.p.budgets, f = r.budgets(kv.value)
	case "agents":
		f = r.agents(kv.value)
	case "hooks":
		f = r.hooks(kv.value)
	case "tests":
		f = r.tests(kv.value)
	default:
		f = r.unknown(kv, topKeys)
	}
	return f
}

func (r *reader) unknown(kv pair, known []string) *fault {
	hint := "there are " + strings.Join(known, ", ")
	if near := nearest(kv.key, known); near != "" {
		hint = "write " + near
	}
	return r.at(kv.at, "there is no key %s: %s", clip(kv.key), hint)
}

// effect reads a default.
func (r *reader) effect(kv pair, d *defaults) (done bool, f *fault) {
	var e agent.Effect
	if e.UnmarshalText([]byte(kv.key)) != nil {
		return false, nil
	}
	text, f := r.text(kv.value, kv.key)
	if f != nil {
		return true, f
	}
	if d.verdict[e].UnmarshalText([]byte(text)) != nil {
		return true, r.at(kv.value, "%s is allow, ask or deny, not %q", kv.key, clip(text))
	}
	d.has[e] = true
	return true, nil
}

func (r *reader) duration(n ast.Node, what string, most time.Duration) (time.Duration, *fault) {
	text, f := r.text(n, what)
	if f != nil {
		return 0, f
	}
	d, err := duration(text, most)
	return d, r.wrong(n, err)
}

func (r *reader) globs(n ast.Node) (out []*glob, f *fault) {
	list, f := r.items(n, "writes")
	for _, e := range list {
		text, f := r.text(e, "a path")
		if f != nil {
			return nil, f
		}
		g, err := newGlob(text)
		if err == nil && g.kind != pathGlob {
			err = agent.Errorf(agent.Invalid, "%s is no path: write /tmp/** or the like", clip(text))
		}
		if err != nil {
			return nil, r.wrong(e, err)
		}
		out = append(out, g)
	}
	return out, f
}

func (r *reader) commands(n ast.Node) *fault {
	list, f := r.pairs(n, "commands")
	for _, kv := range list {
		text, f := r.text(kv.value, "the name of an argument")
		if f != nil {
			return f
		}
		var p Pattern
		if err := p.named(kv.key); err != nil || p.graded {
			return r.at(kv.at, "%s is no tool: write SERVER.TOOL: ARGUMENT, or SERVER.TOOL: none", clip(kv.key))
		}
		if text == "none" {
			text = ""
		}
		r.p.commands = append(r.p.commands, commandArg{p.tool, text})
	}
	return f
}

func (r *reader) rules(n ast.Node) (out []*rule, f *fault) {
	list, f := r.items(n, "rules")
	for _, e := range list {
		one, f := r.rule(e)
		if f != nil {
			return nil, f
		}
		out = append(out, one)
	}
	return out, f
}

func (r *reader) rule(n ast.Node) (*rule, *fault) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return r.ruleWith(n)
	}
	text, f := r.text(n, "a rule")
	if f != nil {
		return nil, f
	}
	one, err := parseRule(text)
	if err != nil {
		return nil, r.wrong(n, err)
	}
	one.from = r.from(n)
	return one, nil
}

// ruleWith reads a rule with examples.
func (r *reader) ruleWith(n ast.Node) (one *rule, f *fault) {
	list, f := r.pairs(n, "a rule")
	if f != nil {
		return nil, f
	}
	for _, kv := range list {
		if kv.key == "rule" {
			if one, f = r.rule(kv.value); f != nil {
				return nil, f
			}
		}
	}
	if one == nil {
		return nil, r.wrong(n, &agent.Error{Kind: agent.Invalid, Msg: "a rule is a line, or a map with the keys rule, because, match and not_match", Hint: `put the line in quotes when it has ": " in it`})
	}
	for _, kv := range list {
		if kv.key == "rule" {
			continue
		}
		if f := r.about(one, kv, "rule"); f != nil {
			return nil, f
		}
	}
	return one, nil
}

func (r *reader) agents(n ast.Node) *fault {
	list, f := r.pairs(n, "agents")
	if f != nil {
		return f
	}
	for _, kv := range list {
		g, err := globOf(plainGlob, kv.key)
		if err != nil {
			return r.wrong(kv.at, err)
		}
		sec := section{name: g, text: kv.key}
		body, f := r.pairs(kv.value, "an agent")
		if f != nil {
			return f
		}
		for _, in := range body {
			if done, f := r.effect(in, &sec.defaults); f != nil {
				return f
			} else if done {
				continue
			}
			switch in.key {
			case "rules":
				sec.rules, f = r.rules(in.value)
			case "budgets":
				sec.budgets, f = r.budgets(in.value)
			default:
				f = r.unknown(in, append(topKeys[:5:5], "rules", "budgets"))
			}
			if f != nil {
				return f
			}
		}
		r.p.agents = append(r.p.agents, sec)
	}
	return nil
}

// jsonOf writes a node as JSON, for the arguments of an example.
func (r *reader) jsonOf(n ast.Node) (json.RawMessage, *fault) {
	v, f := r.anyOf(n)
	if f != nil {
		return nil, f
	}
	b, err := json.Marshal(v)
	return b, r.wrong(n, err)
}

func (r *reader) anyOf(n ast.Node) (any, *fault) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		list, f := r.pairs(n, "arguments")
		out := map[string]any{}
		for _, kv := range list {
			v, f := r.anyOf(kv.value)
			if f != nil {
				return nil, f
			}
			out[kv.key] = v
		}
		return out, f
	case *ast.SequenceNode:
		out := make([]any, 0, len(n.Values))
		for _, e := range n.Values {
			v, f := r.anyOf(e)
			if f != nil {
				return nil, f
			}
			out = append(out, v)
		}
		return out, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.IntegerNode:
		return n.Value, nil
	case *ast.FloatNode:
		return n.Value, nil
	case *ast.BoolNode:
		return n.Value, nil
	}
	return r.text(n, "a value")
}
