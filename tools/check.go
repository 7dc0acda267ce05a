package tools

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Bounds of a record.
const (
	maxEntries = 200 // arguments, variables, headers, methods
	maxText    = 8 << 10
	maxTime    = time.Hour
	maxAtOnce  = 1000
)

// check returns an Invalid error that says what is wrong with a record.
func (c *Catalogue) check(s agent.ToolServer) error {
	bad := func(hint, format string, args ...any) error {
		return &agent.Error{Kind: agent.Invalid, Msg: "server of tools " + s.Name + ": " + fmt.Sprintf(format, args...), Hint: hint}
	}
	if err := agent.CheckName("server of tools", s.Name); err != nil {
		return err
	}
	if strings.Contains(s.Name, ".") {
		return bad("a tool is called SERVER.METHOD", "a name of a server has no dots")
	}
	if slices.Contains(c.opts.BuiltIns, s.Name) && s.Kind != agent.BuiltIn {
		return bad("give it another name", "%s is the name of a built-in server", s.Name)
	}
	only := func(kinds ...agent.ServerKind) bool { return slices.Contains(kinds, s.Kind) }
	for _, f := range []struct {
		field string
		given bool
		ok    bool
	}{
		{"command", len(s.Command) > 0, only(agent.MCPStdio)}, {"env", len(s.Env) > 0, only(agent.MCPStdio)}, {"dir", s.Dir != "", only(agent.MCPStdio)},
		{"url", s.URL != "", only(agent.MCPHTTP, agent.MCPSSE, agent.OpenAPI)}, {"header", len(s.Header) > 0, only(agent.MCPHTTP, agent.MCPSSE, agent.OpenAPI)},
		{"private", s.Private, only(agent.MCPHTTP, agent.MCPSSE, agent.OpenAPI)}, {"oauth", s.OAuth != nil, only(agent.MCPHTTP, agent.MCPSSE)},
		{"document", s.Document != "", only(agent.OpenAPI)}, {"agent", s.Agent != "", only(agent.AgentTools)},
	} {
		if f.given && !f.ok {
			return bad("", "%s is nothing that a server of kind %s has", f.field, s.Kind)
		}
	}
	switch s.Kind {
	case agent.MCPStdio:
		if len(s.Command) == 0 || s.Command[0] == "" {
			return bad("give the program and its arguments: skep tools add "+s.Name+" -- npx -y PACKAGE", "it has no command")
		}
	case agent.MCPHTTP, agent.MCPSSE:
		if err := checkURL(s.URL); err != nil {
			return bad("write it whole: https://mcp.example.com/mcp", "%s", err)
		}
	case agent.OpenAPI:
		if s.Document == "" {
			return bad("give it with --openapi FILE|URL", "it has no document")
		}
		if s.URL != "" {
			if err := checkURL(s.URL); err != nil {
				return bad("write it whole: https://api.example.com/v1", "%s", err)
			}
		}
	case agent.AgentTools:
		if err := agent.CheckName("agent", s.Agent); err != nil {
			return err
		}
	case agent.BuiltIn:
	default:
		return bad("use stdio, http, sse, openapi or agent", "it has no kind")
	}
	return c.checkSizes(s, bad)
}

func (c *Catalogue) checkSizes(s agent.ToolServer, bad func(hint, format string, args ...any) error) error {
	if len(s.Command) > maxEntries || len(s.Env) > maxEntries || len(s.Header) > maxEntries || len(s.Only) > maxEntries {
		return bad("", "a list of it has more than %d entries", maxEntries)
	}
	texts := append(slices.Clone(s.Command), s.Description, s.Dir, s.URL)
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return bad("", "%.80q cannot be the name of a variable", k)
		}
		texts = append(texts, k, v)
	}
	for k, v := range s.Header {
		if k == "" || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) || strings.ContainsAny(v, "\r\n\x00") {
			return bad("", "the header %.80q is not valid", k)
		}
		texts = append(texts, k, v)
	}
	for _, t := range texts {
		if len(t) > maxText || strings.Contains(t, "\x00") {
			return bad("", "a text of it has more than %d bytes, or a zero byte", maxText)
		}
	}
	for _, m := range s.Only {
		if !isMethod(strings.TrimSuffix(m, "*") + "x") {
			return bad("write a method's name, or its beginning and *", "only: %.80q is no method", m)
		}
	}
	if s.Timeout < 0 || s.Timeout > maxTime || s.Concurrency < 0 || s.Concurrency > maxAtOnce {
		return bad("", "timeout goes up to %s, concurrency up to %d", maxTime, maxAtOnce)
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return agent.Errorf(agent.Invalid, "it has no URL")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return agent.Errorf(agent.Invalid, "%.80q is no URL of a server", text)
	case u.User != nil:
		return agent.Errorf(agent.Invalid, "its URL holds a user or a password; keep it as a secret, and send the header Authorization: ${secret:NAME}")
	case u.Fragment != "":
		return agent.Errorf(agent.Invalid, "its URL has a fragment")
	}
	return nil
}
