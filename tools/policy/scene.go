package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/shell"
)

// scene is a call as it is judged: what was worked out of it once.
type scene struct {
	policy *Policy
	call   Call
	name   string
	ascii  bool
	effect agent.Effect // grade
	args   value
	bad    error // why the arguments cannot be judged

	line       *commandLine
	lineKnown  bool
	lines      int  // commands that were found
	positional bool // a rule looks at the command

	schema      map[string]json.RawMessage // properties
	schemaKnown bool
	knows       bool // the tool's schema lists its arguments
}

func (p *Policy) scene(c Call) *scene {
	s := &scene{policy: p, call: c, name: c.Tool.Name, ascii: ascii(c.Tool.Name), effect: c.Tool.Effect.Grade()}
	s.args, s.bad = decode(c.Args)
	return s
}

// properties reads the schema of the arguments.
func (s *scene) properties() map[string]json.RawMessage {
	if !s.schemaKnown {
		s.schemaKnown = true
		var in struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if len(s.call.Tool.Input) > 0 && json.Unmarshal(s.call.Tool.Input, &in) == nil && in.Properties != nil {
			s.schema, s.knows = in.Properties, true
		}
	}
	return s.schema
}

// declares tells whether the tool may have an argument: it lists it, or does not list its arguments.
func (s *scene) declares(name string) bool {
	list := s.properties()
	if !s.knows {
		return true
	}
	for k := range list {
		if strings.EqualFold(k, name) {
			return true
		}
	}
	return false
}

// lacks tells whether an argument that is missing surely has no value that the condition refuses: the tool lists its arguments, and gives this
// one no default that it does.
func (s *scene) lacks(p *pred) bool {
	list := s.properties()
	if !s.knows {
		return false
	}
	for k, raw := range list {
		if !strings.EqualFold(k, p.path[0]) {
			continue
		}
		var schema struct {
			Default json.RawMessage `json:"default"`
		}
		if json.Unmarshal(raw, &schema) != nil || len(p.path) > 1 {
			return false
		}
		if len(schema.Default) > 0 {
			d := decoder{b: schema.Default}
			v, err := d.value(0)
			if err != nil || p.compare(&v, true) != yes {
				return false
			}
		}
	}
	return true
}

// commandLine is the command that a call carries.
type commandLine struct {
	script *shell.Script
	from   string // the argument
	forced bool   // the policy says that it is one
}

// commandNames are the arguments that count as commands.
var commandNames = [...]string{"command", "cmd", "script", "commandline", "command_line", "shell_command", "bash_command", "shell", "commands", "bash"}

// commandArg says which argument of which tools is a command; "" for none.
type commandArg struct {
	tool *glob
	name string
}

func (s *scene) takesCommand() bool {
	for k := range s.properties() {
		if isCommand(k) {
			return true
		}
	}
	return false
}

func isCommand(key string) bool {
	for _, n := range commandNames {
		if len(key) == len(n) && strings.EqualFold(key, n) {
			return true
		}
	}
	return false
}

// command takes the call's command apart; nil when it carries none.
func (s *scene) command() *commandLine {
	if s.lineKnown {
		return s.line
	}
	s.lineKnown = true
	s.properties()
	for _, c := range s.policy.commands {
		if !c.tool.plain(s.name, true) {
			continue
		}
		if c.name == "" {
			return nil
		}
		for i, k := range s.args.keys {
			if strings.EqualFold(k, c.name) {
				s.addCommand(k, &s.args.list[i], &s.args, true)
			}
		}
		return s.line
	}
	s.commandsIn(&s.args, 0)
	return s.line
}

// commandsIn finds commands at the top, and in objects a few levels down.
func (s *scene) commandsIn(v *value, depth int) {
	if depth > 4 {
		return
	}
	for i := range v.list {
		if s.lines > maxLines {
			return
		}
		e := &v.list[i]
		if v.kind == object && isCommand(v.keys[i]) {
			s.addCommand(v.keys[i], e, v, false)
		} else if e.kind == object || e.kind == array {
			s.commandsIn(e, depth+1)
		}
	}
}

// addCommand adds what an argument of the object beside carries: a command, its words, or several commands.
func (s *scene) addCommand(key string, v, beside *value, forced bool) {
	var script *shell.Script
	s.lines++
	switch {
	case s.lines > maxLines:
		script = opaque(fmt.Sprintf("the call carries more than %d commands", maxLines))
	case v.kind == text:
		script = shell.Parse(v.text + furtherWords(beside))
	case v.kind == array && strings.EqualFold(key, "commands"):
		var all []string
		for _, e := range v.list {
			all = append(all, e.text)
		}
		script = shell.Parse(strings.Join(all, "\n"))
	case v.kind == array:
		words := make([]string, len(v.list))
		for i, e := range v.list {
			words[i] = e.text
			if e.kind != text && e.kind != number {
				words[i] = "$()"
			}
		}
		script = shell.Argv(words)
	case v.kind == null:
		return
	default:
		script = opaque("the command is no text")
	}
	if s.line == nil {
		s.line = &commandLine{script: script, from: key, forced: forced}
		return
	}
	s.line.script.Add(script)
}

// maxLines is how many commands of one call are taken apart.
const maxLines = 64

func opaque(reason string) *shell.Script {
	return &shell.Script{Doubts: []shell.Doubt{{Kind: shell.Opaque, Command: -1, Reason: reason}}}
}

// furtherWords are those of an argument beside the command: {"command": "rm", "args": ["-rf", "/"]}.
func furtherWords(in *value) string {
	var b strings.Builder
	for i, k := range in.keys {
		if !strings.EqualFold(k, "args") && !strings.EqualFold(k, "arguments") && !strings.EqualFold(k, "argv") {
			continue
		}
		switch v := &in.list[i]; v.kind {
		case text:
			b.WriteByte(' ')
			b.WriteString(v.text)
		case array:
			for _, e := range v.list {
				b.WriteByte(' ')
				b.WriteString(shell.Quote(e.text))
			}
		}
	}
	return b.String()
}
