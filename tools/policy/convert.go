package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Converted is a policy made of the rules of another program.
type Converted struct {
	Text  string   `json:"text"`
	Rules int      `json:"rules"`
	Left  []string `json:"left"` // what has no counterpart, and why
}

// Names says which tools stand for the built-in ones of another program. A zero field means its default.
type Names struct {
	Shell string // tool that runs commands; shell.run
	Files string // server of files, as @modelcontextprotocol/server-filesystem names its tools; fs
	Web   string // tools that fetch a URL; http.{get,request}
}

// Programs are those whose rules Convert reads.
var Programs = []string{"claude-code", "opencode", "codex"}

// Convert reads the rules of another program: settings.json of Claude Code, opencode.json, or a .rules file of Codex.
func Convert(program string, data []byte, n Names) (Converted, error) {
	if len(data) > MaxText {
		return Converted{}, agent.Errorf(agent.Invalid, "the file has more than %d bytes", MaxText)
	}
	c := &converter{names: n, defaults: map[string]string{}, left: []string{}}
	for _, d := range []struct {
		field *string
		name  string
	}{{&c.names.Shell, "shell.run"}, {&c.names.Files, "fs"}, {&c.names.Web, "http.{get,request}"}} {
		if *d.field == "" {
			*d.field = d.name
		}
	}
	var err error
	switch program {
	case "claude-code":
		err = c.claude(data)
	case "opencode":
		err = c.opencode(data)
	case "codex":
		err = c.codex(string(data))
	default:
		err = agent.Errorf(agent.Invalid, "rules of %q are not known: there are %s", program, strings.Join(Programs, ", "))
	}
	if err != nil {
		return Converted{}, err
	}
	return c.done(program)
}

type converter struct {
	names    Names
	defaults map[string]string
	lines    []string
	left     []string
}

func (c *converter) skip(what, why string) { c.left = append(c.left, what+": "+why) }

// rule adds a rule if it parses.
func (c *converter) rule(what, line string, extra ...string) {
	if _, err := parseRule(line); err != nil {
		c.skip(what, agent.AsError(err).Msg)
		return
	}
	text := "  - " + quoteYAML(line)
	if len(extra) > 0 {
		text = "  - rule: " + quoteYAML(line) + "\n" + strings.Join(extra, "\n")
	}
	if !slices.Contains(c.lines, text) {
		c.lines = append(c.lines, text)
	}
}

// changes are the effects of tools that do more than read.
var changes = []string{"modify", "modify_execute", "execute"}

// otherwise sets the verdict of tools with those effects that no rule is about.
func (c *converter) otherwise(what, verdict string, effects ...string) {
	var v agent.Verdict
	if v.UnmarshalText([]byte(verdict)) != nil {
		c.skip(what, "it is none of allow, ask and deny")
		return
	}
	for _, e := range effects {
		c.defaults[e] = v.String()
	}
}

func (c *converter) done(program string) (Converted, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made of the rules of %s.\n", program)
	for _, e := range []string{"read", "modify", "modify_execute", "execute"} {
		v := c.defaults[e]
		if v == "" {
			if v = "ask"; e == "read" {
				v = "allow"
			}
		}
		fmt.Fprintf(&b, "%s: %s\n", e, v)
	}
	b.WriteString("\nrules:\n")
	if len(c.lines) == 0 {
		b.WriteString("  []\n")
	}
	for _, l := range c.lines {
		b.WriteString(l + "\n")
	}
	for _, l := range c.left {
		b.WriteString("# not taken over: " + strings.Join(strings.Fields(l), " ") + "\n")
	}
	out := Converted{Text: b.String(), Rules: len(c.lines), Left: c.left}
	if _, err := Parse([]byte(out.Text), "policy"); err != nil {
		return out, agent.Wrap(agent.Internal, err, "what was made of the rules is no policy: "+agent.AsError(err).Msg)
	}
	return out, nil
}

// quoteYAML writes a line so that YAML reads it back.
func quoteYAML(s string) string {
	if strings.Contains(s, ": ") || strings.Contains(s, " #") || strings.HasSuffix(s, ":") || strings.ContainsAny(s[:1], "'\"*&!{[%@`>|?-") || strings.ContainsAny(s, "\n\t") {
		return quoteAlways(s)
	}
	return s
}

// claude reads permissions.{allow,ask,deny} of settings.json.
func (c *converter) claude(data []byte) error {
	var in struct {
		Permissions struct {
			Allow, Ask, Deny      []string
			DefaultMode           string
			AdditionalDirectories []string
		}
		Hooks map[string]json.RawMessage
	}
	if err := json.Unmarshal(plainJSON(data), &in); err != nil {
		return agent.Wrap(agent.Invalid, err, "this is no settings.json of Claude Code: it is an object with permissions")
	}
	for _, l := range []struct {
		verdict string
		rules   []string
	}{{"deny", in.Permissions.Deny}, {"ask", in.Permissions.Ask}, {"allow", in.Permissions.Allow}} {
		for _, r := range l.rules {
			c.claudeRule(l.verdict, r)
		}
	}
	switch m := in.Permissions.DefaultMode; m {
	case "", "default":
	case "acceptEdits":
		c.otherwise("defaultMode "+m, "allow", "modify")
	case "dontAsk":
		c.otherwise("defaultMode "+m, "deny", changes...)
	default:
		c.skip("defaultMode "+m, "there is no counterpart; the defaults ask")
	}
	if len(in.Permissions.AdditionalDirectories) > 0 {
		c.skip("additionalDirectories", "which folders there are is a setting of the server of files")
	}
	if len(in.Hooks) > 0 {
		c.skip("hooks", "they are commands for a shell; write hooks: with a program or a function of an agent")
	}
	return nil
}

func (c *converter) claudeRule(verdict, rule string) {
	tool, spec, has := strings.Cut(strings.TrimSuffix(strings.TrimSpace(rule), ")"), "(")
	what := verdict + " " + rule
	switch tool {
	case "Bash":
		if !has || spec == "*" {
			c.rule(what, verdict+" "+c.names.Shell)
			return
		}
		if begin, ok := strings.CutSuffix(spec, ":*"); ok {
			spec = begin + " *"
		}
		c.rule(what, verdict+" "+c.names.Shell+"("+spec+")")
	case "Read", "Grep", "Glob", "LS":
		c.files(what, verdict, []string{"read_*", "list_*", "search_*", "directory_*", "get_*"}, spec, has)
	case "Edit", "Write", "MultiEdit", "NotebookEdit":
		c.files(what, verdict, []string{"write_*", "edit_*", "create_*", "move_*"}, spec, has)
	case "WebFetch":
		host, ok := strings.CutPrefix(spec, "domain:")
		switch {
		case !has:
			c.rule(what, verdict+" "+c.names.Web)
		case ok:
			c.rule(what, verdict+" "+c.names.Web+"(url=*://"+host+"/**)")
		default:
			c.skip(what, "only domain:HOST is known")
		}
	default:
		if rest, ok := strings.CutPrefix(tool, "mcp__"); ok {
			server, method, ok := strings.Cut(rest, "__")
			if !ok || method == "" {
				method = "*"
			}
			if has {
				c.skip(what, "what stands in the brackets has no counterpart")
				return
			}
			c.rule(what, verdict+" "+server+"."+method)
			return
		}
		c.skip(what, "there is no tool for "+tool)
	}
}

// files adds a rule for tools of files. A path is absolute with two slashes, of home with ~, else of the project.
func (c *converter) files(what, verdict string, methods []string, spec string, has bool) {
	tool := c.names.Files + ".{" + strings.Join(methods, ",") + "}"
	switch {
	case !has:
		c.rule(what, verdict+" "+tool)
	case strings.HasPrefix(spec, "//"):
		c.rule(what, verdict+" "+tool+"(path="+spec[1:]+")")
	case strings.HasPrefix(spec, "~"):
		c.rule(what, verdict+" "+tool+"(path="+spec+")")
	case verdict != "allow":
		c.rule(what, verdict+" "+tool+"(path=**/"+strings.TrimPrefix(strings.TrimLeft(strings.TrimPrefix(spec, "./"), "/"), "**/")+")")
	default:
		c.skip(what, "the path is relative to a project; write the whole path")
	}
}

// plainJSON takes comments and trailing commas off.
func plainJSON(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		switch {
		case data[i] == '"':
			start := i
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			out = append(out, data[start:min(i+1, len(data))]...)
		case data[i] == '/' && i+1 < len(data) && data[i+1] == '/':
			for i < len(data) && data[i] != '\n' {
				i++
			}
		case data[i] == '/' && i+1 < len(data) && data[i+1] == '*':
			for i += 2; i+1 < len(data) && (data[i] != '*' || data[i+1] != '/'); i++ {
			}
			i++
		case data[i] == ',':
			j := i + 1
			for j < len(data) && strings.IndexByte(" \t\r\n", data[j]) >= 0 {
				j++
			}
			if j >= len(data) || data[j] != '}' && data[j] != ']' {
				out = append(out, ',')
			}
		default:
			out = append(out, data[i])
		}
	}
	return out
}
