package policy

import (
	"encoding/json"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/skep-dev/skep/agent"
)

// hooks reads lines such as "before shell.*: agent guard.check".
func (r *reader) hooks(n ast.Node) *fault {
	list, f := r.items(n, "hooks")
	if f != nil {
		return f
	}
	for _, e := range list {
		body, f := r.pairs(e, "a hook")
		if f != nil {
			return f
		}
		h := Hook{Timeout: DefaultHookTimeout, From: r.from(e)}
		for _, kv := range body {
			if kv.key == "timeout" {
				if h.Timeout, f = r.duration(kv.value, "timeout", MaxHookTimeout); f != nil {
					return f
				}
				continue
			}
			if h.When != 0 {
				return r.at(kv.at, "a hook is one line, with timeout: below it: begin another with a -")
			}
			text, f := r.text(kv.value, "what a hook calls")
			if f != nil {
				return f
			}
			if err := h.target(kv.key, text); err != nil {
				return r.wrong(kv.at, err)
			}
		}
		if h.When == 0 {
			return r.at(e, "a hook is missing: write before PATTERN: agent NAME.FUNCTION, or after PATTERN: command [\"/PROGRAM\"]")
		}
		r.p.hooks = append(r.p.hooks, h)
	}
	return nil
}

// target reads on which calls a hook runs, and what.
func (h *Hook) target(key, does string) error {
	when, pattern, _ := strings.Cut(strings.TrimSpace(key), " ")
	switch when {
	case "before":
		h.When = Before
	case "after":
		h.When = After
	default:
		return agent.Errorf(agent.Invalid, "a hook begins with before or after, not with %q", clip(when))
	}
	p, rest, err := parsePattern(pattern)
	if err != nil {
		return err
	}
	if strings.TrimSpace(rest) != "" {
		return agent.Errorf(agent.Invalid, "%s follows the pattern %s of a hook", clip(rest), p.text)
	}
	h.on = p
	kind, what, _ := strings.Cut(strings.TrimSpace(does), " ")
	what = strings.TrimSpace(what)
	h.Text = when + " " + p.text + ": " + clip(does)
	switch kind {
	case "agent":
		name, function, ok := strings.Cut(what, ".")
		if !ok || name == "" || function == "" || strings.ContainsAny(what, " \t") {
			return agent.Errorf(agent.Invalid, "agent %s is no function of an agent: write agent NAME.FUNCTION", clip(what))
		}
		h.Agent, h.Function = name, function
	case "command":
		if json.Unmarshal([]byte(what), &h.Command) != nil || len(h.Command) == 0 || !strings.HasPrefix(h.Command[0], "/") {
			return agent.Errorf(agent.Invalid, "command %s is no list with the whole path of a program: write command [\"/usr/local/bin/check\", \"--strict\"]", clip(what))
		}
		h.Text = when + " " + p.text + ": command " + h.Command[0] // its words may be long, and are nothing for the code that is refused
	default:
		return agent.Errorf(agent.Invalid, "a hook calls agent NAME.FUNCTION or command [\"/PROGRAM\", \"ARGUMENT\"], not %q", clip(does))
	}
	return nil
}
