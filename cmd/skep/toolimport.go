package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// mcpFile is the configuration of MCP servers as Claude, Cursor and others write it: mcpServers, or servers in VS Code.
type mcpFile struct {
	MCPServers map[string]mcpEntry `json:"mcpServers"`
	Servers    map[string]mcpEntry `json:"servers"`
}

type mcpEntry struct {
	Type      string            `json:"type"`      // stdio, http, sse; also streamable-http
	Transport string            `json:"transport"` // the same
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	Dir       string            `json:"cwd"`
	URL       string            `json:"url"`
	ServerURL string            `json:"serverUrl"`
	Headers   map[string]string `json:"headers"`
	Disabled  bool              `json:"disabled"`
}

func newToolsImport(c *cli) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Add the MCP servers of a configuration file of another program",
		Long: `Add the MCP servers that a configuration file names, such as .mcp.json, claude_desktop_config.json, .cursor/mcp.json or .vscode/mcp.json:
an object mcpServers or servers. Variables such as ${API_KEY} and ${input:api-key} become secrets of that name, which are to be set. Servers
that are there already and those that are disabled are left out. FILE may be - for standard input.`,
		Example: "  skep tools import ~/.cursor/mcp.json\n  skep tools import .mcp.json --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := c.readMCPFile(args[0])
			if err != nil {
				return err
			}
			if dry && c.json {
				return c.printJSON(list)
			}
			cl, err := c.client()
			if err != nil && !dry {
				return err
			}
			added := []client.ToolServer{}
			for _, s := range list {
				for _, name := range secretNames(s) {
					c.notef("server %s uses the secret %s: skep secret set %s\n", s.Name, name, name)
				}
				if dry {
					c.printf("would add server %s: %s\n", s.Name, strings.Join(append(slices.Clone(s.Command), s.URL), " "))
					continue
				}
				got, err := cl.AddToolServer(cmd.Context(), s)
				if agent.KindOf(err) == agent.Exists {
					c.notef("there is a server %s already\n", s.Name)
					continue
				}
				if err != nil {
					return err
				}
				if added = append(added, got); c.json {
					continue
				}
				if err := c.sayServer(cmd.Context(), cl, got, "added"); err != nil {
					return err
				}
			}
			if c.json {
				return c.printJSON(added)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "only show what would be added")
	return cmd
}

// maxMCPFile is the most bytes of a configuration file.
const maxMCPFile = 1 << 20

func (c *cli) readMCPFile(name string) ([]client.NewToolServer, error) {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "read the configuration")
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxMCPFile))
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "read the configuration")
	}
	return parseMCPFile(b)
}

func parseMCPFile(b []byte) ([]client.NewToolServer, error) {
	var file mcpFile
	if err := json.Unmarshal(withoutComments(b), &file); err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the configuration is no JSON")
	}
	all := file.MCPServers
	if all == nil {
		all = file.Servers
	}
	if len(all) == 0 {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the configuration names no MCP servers", Hint: `it has to have an object "mcpServers" or "servers"`}
	}
	var out []client.NewToolServer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		if e.Disabled {
			continue
		}
		s := client.NewToolServer{Name: serverName(name), Dir: e.Dir, URL: or(e.URL, e.ServerURL)}
		switch kind := strings.ToLower(or(e.Type, e.Transport)); {
		case e.Command != "":
			s.Kind, s.Command = agent.MCPStdio, append([]string{e.Command}, e.Args...)
		case kind == "sse":
			s.Kind = agent.MCPSSE
		case s.URL != "":
			s.Kind = agent.MCPHTTP
		default:
			return nil, agent.Errorf(agent.Invalid, "the server %q of the configuration has neither a command nor a url", name)
		}
		s.Env, s.Header = withSecrets(e.Env), withSecrets(e.Headers)
		out = append(out, s)
	}
	return out, nil
}

var notInServerName = regexp.MustCompile(`[^a-z0-9_-]+`)

// serverName makes a name of a server of what another program calls it.
func serverName(s string) string {
	return strings.Trim(notInServerName.ReplaceAllString(strings.ToLower(s), "-"), "-_")
}

var variable = regexp.MustCompile(`\$\{(?:env:|input:)?([A-Za-z][A-Za-z0-9_-]*)(?::-[^}]*)?\}`)

// withSecrets puts secrets in the place of variables.
func withSecrets(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = variable.ReplaceAllStringFunc(v, func(found string) string {
			return "${secret:" + serverName(variable.FindStringSubmatch(found)[1]) + "}"
		})
	}
	return out
}

var secretRef = regexp.MustCompile(`\$\{secret:([^}]+)\}`)

func secretNames(s client.NewToolServer) (out []string) {
	for _, m := range []map[string]string{s.Env, s.Header} {
		for _, v := range m {
			for _, found := range secretRef.FindAllStringSubmatch(v, -1) {
				out = append(out, found[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// withoutComments drops comments from // to the end of the line and from /* to */ outside of strings, which some of these files have.
func withoutComments(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i, quoted := 0, false; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\' && i+1 < len(b):
			out = append(out, b[i])
			i++
		case b[i] == '"':
			quoted = !quoted
		case !quoted && b[i] == '/' && i+1 < len(b) && b[i+1] == '/':
			for i < len(b) && b[i] != '\n' {
				i++
			}
			if i == len(b) {
				return out
			}
		case !quoted && b[i] == '/' && i+1 < len(b) && b[i+1] == '*':
			for i += 2; i+1 < len(b) && (b[i] != '*' || b[i+1] != '/'); i++ {
			}
			i++
			continue
		}
		out = append(out, b[i])
	}
	return out
}
