package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools/openapi"
)

// serverFlags say what a server of tools is like.
type serverFlags struct {
	url, openapi, agent, dir, description string
	sse, trusted, private                 bool
	env, header, only                     []string
	timeout                               time.Duration
	concurrency                           int
}

func (f *serverFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "url", "", "`URL` of an MCP server; with --openapi, of the API, when not as its document says")
	flags.StringVar(&f.openapi, "openapi", "", "`FILE|URL` of an OpenAPI document")
	flags.StringVar(&f.dir, "dir", "", "`FOLDER` in which the program runs; one of its own unless given")
	flags.StringVar(&f.description, "description", "", "what it is for")
	flags.BoolVar(&f.trusted, "trusted", false, "believe what it says of its tools' effects")
	flags.BoolVar(&f.private, "private", false, "let its URL lead to a private or loopback address")
	flags.StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` of a variable of the program; ${secret:NAME} puts a secret in; may be given more than once")
	flags.StringArrayVar(&f.header, "header", nil, "`NAME=VALUE` of a header of requests; ${secret:NAME} puts a secret in; may be given more than once")
	flags.StringSliceVar(&f.only, "only", nil, "take only this `METHOD`, or those that begin so with * at the end; may be given more than once")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long a call may take; 1m unless given")
	flags.IntVar(&f.concurrency, "concurrency", 0, "calls at once; 8 unless given")
}

// pairs reads NAME=VALUE; a header may be written NAME: VALUE, too.
func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if n, v, colon := strings.Cut(s, ":"); flag == "header" && colon && (!ok || len(n) < len(name)) {
			name, value, ok = n, strings.TrimSpace(v), true
		}
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usageError("--%s %s: write NAME=VALUE", flag, name)
		}
		out[name] = value
	}
	return out, nil
}

// nameAndCommand is for NAME [-- COMMAND ARGS...].
func nameAndCommand(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); len(args) != 1 && dash != 1 {
		return errors.New("give one name, and what belongs to a program behind --")
	}
	return nil
}

func newToolsAdd(c *cli) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "add NAME [-- COMMAND ARGS...]",
		Short: "Add a server of tools, and show what it has",
		Long: `Add a server of tools: a program or a URL that speaks MCP, an HTTP API that an OpenAPI document describes, or an agent of the app whose
plugin declares tools. A program is started without a shell, in a folder of its own and with few variables.

Its tools are graded: as Skep knows them where it is a well-known package, as the server says when it is --trusted, else as nothing, which
counts as execute. Only an owner can add programs, trust servers and let them lead to private addresses.`,
		Example: `  skep tools add fs -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  skep tools add gh --env 'GITHUB_PERSONAL_ACCESS_TOKEN=${secret:github}' -- npx -y @modelcontextprotocol/server-github
  skep tools add docs --url https://mcp.example.com/mcp --trusted
  skep tools add shop --openapi shop.yaml --header 'Authorization=Bearer ${secret:shop}' --trusted
  skep tools add math --agent calculator`,
		Args: nameAndCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.server(cmd.Context(), args)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			added, err := cl.AddToolServer(cmd.Context(), s)
			if err != nil {
				return err
			}
			return c.sayServer(cmd.Context(), cl, added, "added")
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.sse, "sse", false, "the URL is one of an old server, by HTTP and SSE (MCP 2024-11-05)")
	cmd.Flags().StringVar(&f.agent, "agent", "", "`AGENT` of the app whose declared functions are the tools")
	return cmd
}

// server is what the flags and arguments of add say.
func (f *serverFlags) server(ctx context.Context, args []string) (s client.NewToolServer, err error) {
	s = client.NewToolServer{
		Name: args[0], Description: f.description, URL: f.url, Dir: f.dir, Agent: f.agent, Trusted: f.trusted, Private: f.private, Only: f.only,
		Timeout: f.timeout, Concurrency: f.concurrency, Command: args[1:],
	}
	ways := 0
	for _, way := range []struct {
		given bool
		kind  agent.ServerKind
	}{{len(s.Command) > 0, agent.MCPStdio}, {f.url != "" && f.openapi == "", agent.MCPHTTP}, {f.openapi != "", agent.OpenAPI}, {f.agent != "", agent.AgentTools}} {
		if way.given {
			ways++
			s.Kind = way.kind
		}
	}
	if ways != 1 {
		return s, usageError("say which server it is by one of: -- COMMAND ARGS..., --url URL, --openapi FILE|URL, --agent NAME")
	}
	if f.sse {
		if s.Kind != agent.MCPHTTP {
			return s, usageError("--sse belongs to --url")
		}
		s.Kind = agent.MCPSSE
	}
	if s.Env, err = pairs("env", f.env); err != nil {
		return s, err
	}
	if s.Header, err = pairs("header", f.header); err != nil {
		return s, err
	}
	if f.openapi != "" {
		s.Document, s.URL, err = readDocument(ctx, f.openapi, f.url)
	}
	return s, err
}

// readDocument reads an OpenAPI document from a file or a URL. An API whose document says where it is only in part is where the document came from.
func readDocument(ctx context.Context, from, api string) (text, where string, err error) {
	if !strings.HasPrefix(from, "http://") && !strings.HasPrefix(from, "https://") {
		b, err := os.ReadFile(from)
		if err != nil {
			return "", "", agent.Wrap(agent.Invalid, err, "read the OpenAPI document")
		}
		return string(b), api, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", "", usageError("--openapi %s is no URL", from)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", agent.Wrap(agent.Unavailable, err, "the OpenAPI document cannot be fetched")
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, openapi.MaxDocument+1))
	if err != nil {
		return "", "", agent.Wrap(agent.Unavailable, err, "the OpenAPI document cannot be fetched")
	}
	if res.StatusCode != http.StatusOK {
		return "", "", agent.Errorf(agent.Unavailable, "the OpenAPI document cannot be fetched: %s answered %s", from, res.Status)
	}
	if api != "" {
		return string(b), api, nil
	}
	sum, err := openapi.Check(b)
	if err != nil {
		return "", "", err
	}
	if !strings.Contains(sum.URL, "://") { // OpenAPI 3: relative to where the document is, and "/" unless it says
		base, err := url.Parse(from)
		if err != nil {
			return "", "", usageError("--openapi %s is no URL", from)
		}
		ref, err := url.Parse(or(sum.URL, "/"))
		if err != nil {
			return "", "", agent.Errorf(agent.Invalid, "the document's server %q is no URL; say where the API is with --url", sum.URL)
		}
		api = base.ResolveReference(ref).String()
	}
	return string(b), api, nil
}

// sayServer tells what a server has, and what is left to do.
func (c *cli) sayServer(ctx context.Context, cl *client.Client, s client.ToolServer, what string) error {
	s, err := c.started(ctx, cl, s)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(s)
	}
	st := s.Status
	if st.State == agent.ServerFailed || st.State == agent.ServerNeedsAuth {
		c.printf("%s server %s, which is %s\n", what, s.Name, st.State)
		c.notef("%s\n", plain(st.Error))
		if st.Stderr != "" && !strings.Contains(st.Error, strings.TrimSpace(st.Stderr)) {
			c.notef("the end of what it said on standard error:\n%s\n", plainText(st.Stderr))
		}
		if st.Hint != "" {
			c.notef("hint: %s\n", plain(st.Hint))
		}
		return nil
	}
	list, err := toolsOf(ctx, cl, client.ToolFilter{Server: s.Name})
	if err != nil {
		return err
	}
	counts := map[agent.Effect]int{}
	for _, t := range list {
		counts[t.Effect]++
	}
	var parts []string
	for _, e := range []agent.Effect{agent.Read, agent.Modify, agent.ModifyExecute, agent.Execute, agent.Unclassified} {
		if counts[e] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[e], e))
		}
	}
	line := fmt.Sprintf("%s server %s with %s", what, s.Name, countOf(len(list), "tool"))
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	c.printf("%s\n", line)
	for _, n := range st.Notes {
		c.notef("note: %s\n", plain(n))
	}
	for _, h := range s.Hints {
		c.notef("hint: %s\n", plain(h))
	}
	if counts[agent.Unclassified] > 0 {
		c.notef("what is unclassified counts as execute; skep tools classify %s goes through it\n", s.Name)
	}
	return nil
}

// started waits until a server that is starting has started or failed, and returns it as it stands then. The server that this asks gives up in time.
func (c *cli) started(ctx context.Context, cl *client.Client, s client.ToolServer) (client.ToolServer, error) {
	if s.Status.State != agent.ServerStarting {
		return s, nil
	}
	c.notef("%s is still starting, as programs do that are fetched first; waiting for it\n", s.Name)
	for s.Status.State == agent.ServerStarting {
		if _, err := toolsOf(ctx, cl, client.ToolFilter{Server: s.Name}); err != nil { // which waits for it, for a while
			return s, err
		}
		now, err := cl.ToolServer(ctx, s.Name)
		if err != nil {
			return s, err
		}
		now.Hints = s.Hints
		s = now
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
	return s, nil
}

func newToolsUpdate(c *cli) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "update SERVER [-- COMMAND ARGS...]",
		Short: "Change a server of tools; what is not named stays",
		Long: `Change a server of tools. What is not named stays; headers, variables and methods are replaced as a whole. --trusted=false ends the trust.
A server that is reached another way afterwards, or comes to be trusted, is pinned anew.`,
		Example: "  skep tools update docs --trusted\n  skep tools update shop --openapi shop-v2.yaml\n  skep tools update fs -- npx -y @modelcontextprotocol/server-filesystem /srv/other",
		Args:    nameAndCommand,

		ValidArgsFunction: c.complete(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := f.patch(cmd, args)
			if err != nil {
				return err
			}
			if patch == (client.ToolServerPatch{}) {
				return usageError("nothing to change: name what is to be another, such as --trusted")
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.UpdateToolServer(cmd.Context(), args[0], patch)
			if err != nil {
				return err
			}
			return c.sayServer(cmd.Context(), cl, s, "changed")
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *serverFlags) patch(cmd *cobra.Command, args []string) (p client.ToolServerPatch, err error) {
	given := cmd.Flags().Changed
	if len(args) > 1 {
		command := args[1:]
		p.Command = &command
	}
	for name, set := range map[string]func(){
		"url": func() { p.URL = &f.url }, "dir": func() { p.Dir = &f.dir }, "description": func() { p.Description = &f.description },
		"trusted": func() { p.Trusted = &f.trusted }, "private": func() { p.Private = &f.private }, "only": func() { p.Only = &f.only },
		"timeout": func() { p.Timeout = &f.timeout }, "concurrency": func() { p.Concurrency = &f.concurrency },
	} {
		if given(name) {
			set()
		}
	}
	if given("env") {
		env, err := pairs("env", f.env)
		if err != nil {
			return p, err
		}
		p.Env = &env
	}
	if given("header") {
		header, err := pairs("header", f.header)
		if err != nil {
			return p, err
		}
		p.Header = &header
	}
	if given("openapi") {
		text, where, err := readDocument(cmd.Context(), f.openapi, f.url)
		if err != nil {
			return p, err
		}
		if p.Document = &text; where != "" {
			p.URL = &where
		}
	}
	return p, nil
}
