package policy

import (
	"encoding/json"
	"iter"
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// Pattern names calls: tools, and what their arguments have to be, as in fs.write_file(path=/tmp/**) or shell.run(git push *).
type Pattern struct {
	text    string
	tool    *glob
	effect  agent.Effect // of effect:NAME, in place of a tool
	graded  bool         // it is effect:NAME
	orMore  bool         // or effect:NAME+
	preds   []pred
	command *commandPattern
}

// MaxPattern is the most bytes of a pattern.
const MaxPattern = 4 << 10

// ParsePattern reads a pattern of a tool, as a standing answer has it. An error is Invalid and says what to write instead.
func ParsePattern(s string) (Pattern, error) {
	p, rest, err := parsePattern(s)
	switch {
	case err != nil:
		return Pattern{}, err
	case strings.TrimSpace(rest) != "":
		return Pattern{}, agent.Errorf(agent.Invalid, "%q follows the pattern %s: a pattern is TOOL or TOOL(ARGUMENT=VALUE, ...)", strings.TrimSpace(rest), p.text)
	case p.graded:
		return Pattern{}, agent.Errorf(agent.Invalid, "%s is no pattern of a tool: write SERVER.TOOL or SERVER.*", p.text)
	}
	return p, nil
}

func (p Pattern) String() string { return p.text }

// Match tells whether a call surely matches: what cannot be told does not. Of a command every part has to match, and none may do more than its
// name says.
func (p Pattern) Match(tool string, args json.RawMessage) bool {
	return p.MatchCall(nil, Call{Tool: agent.Tool{Name: tool}, Args: args})
}

// MatchCall is Match with what a policy says of the arguments that are commands; a nil one says nothing.
func (p Pattern) MatchCall(of *Policy, c Call) bool {
	if p.tool == nil && !p.graded {
		return false
	}
	if of == nil {
		of = &Policy{}
	}
	s := of.scene(c)
	if s.bad != nil || p.eval(s, agent.Allow) != yes {
		return false
	}
	if p.command == nil {
		return true
	}
	cover := s.cover([]*rule{{verdict: agent.Allow, pattern: p}})
	return len(cover.missing) == 0 && len(cover.raised) == 0
}

var (
	toolText = regexp.MustCompile(`^[\pL\pN_.*?{},/:\\+\-]+$`)
	claude   = regexp.MustCompile(`^mcp__([\w-]+)__([\w-]+)$`)
)

// parsePattern reads a pattern from the beginning of a text, and returns what follows it.
func parsePattern(s string) (p Pattern, rest string, err error) {
	s = strings.TrimLeft(s, " \t")
	if len(s) > MaxPattern {
		return p, "", agent.Errorf(agent.Invalid, "a pattern has up to %d bytes", MaxPattern)
	}
	end := strings.IndexAny(s, "( \t")
	if end < 0 {
		end = len(s)
	}
	name := s[:end]
	rest = s[end:]
	inside := ""
	if strings.HasPrefix(rest, "(") {
		n := closing(rest)
		if n < 0 {
			return p, "", &agent.Error{Kind: agent.Invalid, Msg: "the ( of " + clip(s) + " has no )", Hint: "close it; in a policy, a # after a blank begins a comment, so put such a rule in quotes"}
		}
		inside, rest = rest[1:n], rest[n+1:]
		if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			return p, "", agent.Errorf(agent.Invalid, "%s follows a ) at once: put a blank between", clip(rest))
		}
	}
	p.text = s[:len(s)-len(rest)]
	if err := p.named(name); err != nil {
		return p, "", err
	}
	if strings.HasPrefix(s[end:], "(") {
		err = p.arguments(inside)
	}
	return p, rest, err
}

// named reads the part of a pattern that says which tools.
func (p *Pattern) named(name string) (err error) {
	if effect, ok := strings.CutPrefix(name, "effect:"); ok {
		p.graded = true
		if effect, p.orMore = strings.CutSuffix(effect, "+"); p.effect.UnmarshalText([]byte(effect)) != nil {
			return agent.Errorf(agent.Invalid, "there is no effect %q: write effect:read, effect:modify, effect:modify_execute, effect:execute or effect:unclassified, with + for that or more", effect)
		}
		return nil
	}
	switch m := claude.FindStringSubmatch(name); {
	case name == "":
		return agent.Errorf(agent.Invalid, "a tool is missing: write SERVER.TOOL, SERVER.* or *")
	case m != nil:
		return agent.Errorf(agent.Invalid, "tools are written SERVER.TOOL: write %s.%s", m[1], m[2])
	case !toolText.MatchString(name):
		return agent.Errorf(agent.Invalid, "%s is no name of a tool: write SERVER.TOOL, SERVER.* or *", clip(name))
	case !strings.ContainsAny(name, ".*"):
		return agent.Errorf(agent.Invalid, "%s names no tool: write %s.* for all of a server's, or SERVER.%s", clip(name), clip(name), clip(name))
	}
	p.tool, err = newGlob(name)
	if err == nil {
		p.tool.kind = plainGlob
	}
	return err
}

// unquoted goes through the bytes of s that stand in no quotes and behind no backslash, with where they are.
func unquoted(s string) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		var quote byte
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case c == '\\':
				i++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '\'' || c == '"':
				quote = c
			case !yield(i, c):
				return
			}
		}
	}
}

// closing returns where the bracket that s begins with is closed.
func closing(s string) int {
	depth := 0
	for i, c := range unquoted(s) {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// arguments reads what stands in the brackets.
func (p *Pattern) arguments(s string) error {
	if strings.TrimSpace(s) == "" {
		return agent.Errorf(agent.Invalid, "the brackets of %s are empty: leave them out, or write what an argument has to be", p.text)
	}
	var positional []string
	for _, part := range commas(s) {
		pr, ok, err := parsePred(part)
		switch {
		case err != nil:
			return err
		case ok:
			p.preds = append(p.preds, pr)
		case len(p.preds) > 0:
			return agent.Errorf(agent.Invalid, "%s is no condition on an argument: write NAME=VALUE, NAME!=VALUE, NAME>NUMBER or the like, with a value in quotes when it holds a comma", clip(part))
		default:
			positional = append(positional, part)
		}
	}
	if len(positional) == 0 {
		return nil
	}
	c, err := newCommandPattern(strings.Join(positional, ","))
	p.command = c
	return err
}

// commas splits at commas that stand in no quotes and no braces.
func commas(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, c := range unquoted(s) {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' && depth <= 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// eval tells whether a call matches, for a rule of the given verdict. The command is left out for a rule that allows: cover looks at that.
func (p *Pattern) eval(s *scene, verdict agent.Verdict) truth {
	if !p.names(s, verdict) {
		return no
	}
	t := yes
	for i := range p.preds {
		if t = min(t, p.preds[i].eval(s, verdict)); t == no {
			return no
		}
	}
	if p.command == nil {
		return t
	}
	s.positional = true
	line := s.command()
	switch {
	case line == nil && verdict == agent.Allow:
		return no
	case line == nil:
		if s.knows && !s.takesCommand() {
			return no
		}
		return min(t, maybe)
	case verdict == agent.Allow:
		return t
	}
	return min(t, p.command.within(line.script))
}

// names tells whether a pattern is about the tool.
func (p *Pattern) names(s *scene, verdict agent.Verdict) bool {
	switch {
	case p.graded && p.effect == agent.Unclassified:
		return s.call.Tool.Effect == agent.Unclassified
	case p.graded && p.orMore:
		return s.effect >= p.effect
	case p.graded:
		return s.effect == p.effect
	case p.tool.any:
		return true
	case p.tool.lit && verdict == agent.Allow:
		return p.tool.text == s.name
	case p.tool.lit:
		return len(p.tool.text) == len(s.name) && strings.EqualFold(p.tool.text, s.name) || !s.ascii && p.tool.plain(s.name, true)
	case verdict == agent.Allow:
		return p.tool.plain(s.name, false)
	}
	return p.tool.plain(s.name, true)
}

func clip(s string) string { return phrase.Clip(strings.TrimSpace(s), 60) }
