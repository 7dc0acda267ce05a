package tools

import (
	"encoding/json"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestIdentity(t *testing.T) {
	const fs = "npm:@modelcontextprotocol/server-filesystem"
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "/tmp"}, fs},
		{[]string{"npx", "--yes", "@modelcontextprotocol/server-filesystem@2026.8.31"}, fs},
		{[]string{"/usr/bin/npx", "@modelcontextprotocol/server-filesystem"}, fs},
		{[]string{"npm", "exec", "--", "@modelcontextprotocol/server-filesystem"}, fs},
		{[]string{"node", "/x/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"}, fs},
		{[]string{"/x/node_modules/.bin/mcp-server-filesystem", "/tmp"}, "bin:mcp-server-filesystem"},
		{[]string{"uvx", "mcp-server-git", "--repository", "/x"}, "pypi:mcp-server-git"},
		{[]string{"uvx", "mcp_server_git==1.2"}, "pypi:mcp-server-git"},
		{[]string{"python", "-m", "mcp_server_time"}, "pypi:mcp-server-time"},
		{[]string{"docker", "run", "-i", "--rm", "-e", "A=b", "--mount", "type=bind", "mcp/filesystem:latest", "/p"}, "oci:mcp/filesystem"},

		// What looks like it, and may be something else.
		{[]string{"npx", "--registry", "https://evil.example", "@modelcontextprotocol/server-filesystem"}, ""},
		{[]string{"npx", "-p", "evil", "@modelcontextprotocol/server-filesystem"}, ""},
		{[]string{"npx", "-c", "@modelcontextprotocol/server-filesystem"}, ""},
		{[]string{"npx", "@modelcontextprotocol/server-filesystem@npm:evil"}, ""},
		{[]string{"npx", "@modelcontextprotocol/server-filesystem@https://evil.example/x.tgz"}, ""},
		{[]string{"npx", "evil/server-filesystem"}, ""},
		{[]string{"npx", "@evil/server-filesystem"}, "npm:@evil/server-filesystem"},
		{[]string{"node", "-r", "./evil.js", "/x/node_modules/@modelcontextprotocol/server-filesystem/index.js"}, ""},
		{[]string{"node", "/x/node_modules/@modelcontextprotocol/server-filesystem/../../evil/index.js"}, ""},
		{[]string{"node", "/x/my_node_modules/.bin/mcp-server-filesystem"}, ""},
		{[]string{"mcp-server-filesystem"}, ""},
		{[]string{"sh", "-c", "npx @modelcontextprotocol/server-filesystem"}, ""},
		{[]string{"docker", "run", "--entrypoint", "sh", "mcp/filesystem"}, ""},
		{[]string{"docker", "run", "evil.example/mcp/filesystem"}, "oci:evil.example/mcp/filesystem"},
		{nil, ""},
	} {
		if got := identity(c.command); got != c.want {
			t.Errorf("%q: %q, want %q", c.command, got, c.want)
		}
	}
}

func TestShipped(t *testing.T) {
	var file map[string][]map[string][]string
	if err := json.Unmarshal(classification, &file); err != nil {
		t.Fatal(err)
	}
	if len(shipped()) < 30 {
		t.Errorf("%d identities", len(shipped()))
	}
	for _, s := range file["servers"] {
		seen := map[string]bool{}
		for _, level := range []string{"read", "modify", "modify_execute", "execute"} {
			for _, m := range s[level] {
				if seen[m] {
					t.Errorf("%v: %s is there twice", s["is"], m)
				}
				seen[m] = true
			}
		}
		for _, m := range s["again"] {
			if !seen[m] {
				t.Errorf("%v: %s is not classified", s["is"], m)
			}
		}
	}
}

func TestGrade(t *testing.T) {
	fs := []string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "/x"}
	for _, c := range []struct {
		name   string
		s      agent.ToolServer
		o      Offer
		effect agent.Effect
		by     agent.EffectFrom
	}{
		{"shipped", agent.ToolServer{Kind: agent.MCPStdio, Command: fs}, offerOf("read_file", nil), agent.Read, agent.FromCatalogue},
		{"shipped, and worse by hints", agent.ToolServer{Kind: agent.MCPStdio, Command: fs}, offerOf("read_file", &Hints{Destructive: yes()}), agent.ModifyExecute, agent.FromHints},
		{"not shipped, hints are nobody's", agent.ToolServer{Kind: agent.MCPStdio, Command: fs}, offerOf("new", &Hints{ReadOnly: yes()}), agent.Unclassified, agent.FromNobody},
		{"calls itself so", agent.ToolServer{Kind: agent.MCPStdio, Name: "filesystem", Command: []string{"node", "evil.js"}}, offerOf("read_file", &Hints{ReadOnly: yes()}), agent.Unclassified, agent.FromNobody},
		{"is elsewhere", agent.ToolServer{Kind: agent.MCPHTTP, Name: "filesystem", Command: fs}, offerOf("read_file", nil), agent.Unclassified, agent.FromNobody},
		{"trusted", agent.ToolServer{Kind: agent.MCPStdio, Trusted: true}, offerOf("a", &Hints{ReadOnly: yes()}), agent.Read, agent.FromHints},
		{"trusted, additive", agent.ToolServer{Kind: agent.MCPStdio, Trusted: true}, offerOf("a", &Hints{ReadOnly: no(), Destructive: no()}), agent.Modify, agent.FromHints},
		{"trusted, says not whether it destroys", agent.ToolServer{Kind: agent.MCPStdio, Trusted: true}, offerOf("a", &Hints{ReadOnly: no()}), agent.ModifyExecute, agent.FromHints},
		{"trusted, says nothing", agent.ToolServer{Kind: agent.MCPStdio, Trusted: true}, offerOf("a", &Hints{OpenWorld: yes()}), agent.Unclassified, agent.FromNobody},
		{"a server declares nothing", agent.ToolServer{Kind: agent.MCPStdio}, Offer{Tool: agent.Tool{Method: "a"}, Declared: agent.Read}, agent.Unclassified, agent.FromNobody},
		{"manifest", agent.ToolServer{Kind: agent.AgentTools}, Offer{Tool: agent.Tool{Method: "a"}, Declared: agent.Modify}, agent.Modify, agent.FromManifest},
		{"operator", agent.ToolServer{Kind: agent.MCPStdio, Command: fs, Effects: map[string]agent.Effect{"read_file": agent.Execute}}, offerOf("read_file", nil), agent.Execute, agent.FromOperator},
	} {
		e, by, _ := grade(c.s, offer{Offer: c.o}, shippedFor(c.s))
		if e != c.effect || by != c.by {
			t.Errorf("%s: %s by %s, want %s by %s", c.name, e, by, c.effect, c.by)
		}
	}
}
