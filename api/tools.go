package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// catalogue returns the tools of all apps.
func (s *Server) catalogue() (*tools.Catalogue, error) {
	if s.o.Tools == nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "this server has no tools"}
	}
	return s.o.Tools, nil
}

type listToolsRequest struct {
	pageQuery
	Server string `query:"server" doc:"only tools of this server"`
	Effect string `query:"effect" doc:"only tools of this effect: read, modify, modify_execute, execute or unclassified"`
	Q      string `query:"q" doc:"only tools that these words speak of, best first; then there are no pages"`
}

// toolList is one page of tools, and the servers whose tools are not among them.
type toolList struct {
	Items   []agent.Tool       `json:"items"`
	Next    string             `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
	Missing []agent.ToolStatus `json:"missing,omitempty" doc:"servers that have not said what they have, and why; on the first page"`
}

func (s *Server) listTools(ctx context.Context, q listToolsRequest) (toolList, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolList{}, err
	}
	limit, err := limitOf(q.Limit)
	if err != nil {
		return toolList{}, err
	}
	var effect agent.Effect
	if q.Effect != "" {
		if err := effect.UnmarshalText([]byte(q.Effect)); err != nil {
			return toolList{}, err
		}
	}
	all, err := c.Tools(ctx, appOf(ctx))
	if err != nil {
		return toolList{}, err
	}
	if q.Q != "" {
		if all, err = searched(ctx, c, all, q, limit); err != nil {
			return toolList{}, err
		}
	}
	out := toolList{Items: []agent.Tool{}}
	for _, t := range all {
		switch {
		case q.Q == "" && q.After != "" && t.Name <= q.After, q.Server != "" && t.Server != q.Server, q.Effect != "" && t.Effect != effect:
		case len(out.Items) == limit:
			out.Next = out.Items[limit-1].Name
			return out, nil
		default:
			out.Items = append(out.Items, t)
		}
	}
	if q.After == "" {
		out.Missing, err = s.missing(ctx, c, q.Server)
	}
	return out, err
}

// searched are the tools that the words of a query speak of, best first.
func searched(ctx context.Context, c *tools.Catalogue, all []agent.Tool, q listToolsRequest, limit int) ([]agent.Tool, error) {
	found, err := c.Search(ctx, appOf(ctx), abi.ToolQuery{Query: q.Q, Server: q.Server, Limit: limit}, nil)
	if err != nil {
		return nil, err
	}
	out := make([]agent.Tool, 0, len(found.Tools))
	for _, f := range found.Tools {
		if i, ok := slices.BinarySearchFunc(all, f.Name, func(t agent.Tool, n string) int { return strings.Compare(t.Name, n) }); ok {
			out = append(out, all[i])
		}
	}
	return out, nil
}

// missing lists the servers that have no list now.
func (s *Server) missing(ctx context.Context, c *tools.Catalogue, only string) ([]agent.ToolStatus, error) {
	servers, err := c.Servers(ctx, appOf(ctx))
	var out []agent.ToolStatus
	for _, r := range servers {
		if only != "" && r.Name != only {
			continue
		}
		st, err := c.Status(ctx, appOf(ctx), r.Name)
		if err == nil && (st.State != agent.ServerReady && st.Tools == 0 || st.State == agent.ServerFailed) {
			out = append(out, st)
		}
	}
	return out, err
}

func limitOf(n int) (int, error) {
	if n < 0 || n > agent.MaxPage {
		return 0, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", n, agent.MaxPage)
	}
	return cmp.Or(n, 50), nil
}

type toolRequest struct {
	Name string `path:"name"`
}

// toolHints are what a server says of a tool's effect (MCP, ToolAnnotations).
type toolHints struct {
	ReadOnly    *bool `json:"read_only,omitempty"`
	Destructive *bool `json:"destructive,omitempty"`
	Idempotent  *bool `json:"idempotent,omitempty"`
	OpenWorld   *bool `json:"open_world,omitempty"`
}

// toolDetail is a tool, and what helps to classify it.
type toolDetail struct {
	agent.Tool
	Path    string       `json:"path" doc:"how code writes it"`
	Hints   *toolHints   `json:"hints,omitempty" doc:"what its server says of its effect; believed only of a trusted one"`
	Suggest agent.Effect `json:"suggest,omitempty" doc:"what its effect may be; believed by nobody"`
	Why     string       `json:"why,omitempty" doc:"it may be that"`
}

func (s *Server) getTool(ctx context.Context, q toolRequest) (toolDetail, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolDetail{}, err
	}
	d, err := c.Detail(ctx, appOf(ctx), q.Name)
	if err != nil {
		return toolDetail{}, err
	}
	return toolDetail{d.Tool, d.Path, (*toolHints)(d.Hints), d.Suggest, d.Why}, nil
}

// toolEffect is what an operator says of a tool.
type toolEffect struct {
	Tool   string       `json:"tool" doc:"SERVER.METHOD"`
	Effect agent.Effect `json:"effect" doc:"unclassified takes back what was said before"`
}

type classifyRequest struct {
	Body []toolEffect `body:"json"`
}

// changedTools are tools as they are after a change.
type changedTools struct {
	Items []agent.Tool `json:"items"`
}

func (s *Server) classifyTools(ctx context.Context, q classifyRequest) (changedTools, error) {
	c, err := s.catalogue()
	if err != nil {
		return changedTools{}, err
	}
	if len(q.Body) == 0 || len(q.Body) > agent.MaxPage {
		return changedTools{}, agent.Errorf(agent.Invalid, "the body is an array of 1 to %d objects {tool, effect}", agent.MaxPage)
	}
	list := make([]tools.Classified, len(q.Body))
	for i, e := range q.Body {
		list[i] = tools.Classified(e)
	}
	out, err := c.Classify(ctx, appOf(ctx), list)
	if err != nil {
		return changedTools{}, err
	}
	for _, e := range list {
		if err := s.audit(ctx, "tool.classify", e.Tool, e.Effect.String()); err != nil {
			return changedTools{}, err
		}
	}
	return changedTools{out}, nil
}

type toolNames struct {
	Tools []string `json:"tools" doc:"names, or SERVER.* for all of a server"`
}

type pinToolsRequest struct {
	Body toolNames `body:"json"`
}

func (s *Server) pinTools(ctx context.Context, q pinToolsRequest) (changedTools, error) {
	c, err := s.catalogue()
	if err != nil {
		return changedTools{}, err
	}
	if len(q.Body.Tools) == 0 || len(q.Body.Tools) > agent.MaxPage {
		return changedTools{}, agent.Errorf(agent.Invalid, "tools has 1 to %d names", agent.MaxPage)
	}
	out, err := c.Pin(ctx, appOf(ctx), q.Body.Tools)
	if err != nil {
		return changedTools{}, err
	}
	for _, name := range q.Body.Tools {
		if err := s.audit(ctx, "tool.pin", name, ""); err != nil {
			return changedTools{}, err
		}
	}
	return changedTools{append([]agent.Tool{}, out...)}, nil
}

// toolCall asks for one call of a tool.
type toolCall struct {
	Args    json.RawMessage `json:"args,omitempty" doc:"an object; {} unless given"`
	Agent   string          `json:"agent,omitempty" doc:"for whom it is called, whose grants hold; code, which is made when it is needed, unless given"`
	Session agent.SessionID `json:"session,omitempty" doc:"a session of that agent; a new one unless given"`
	Wait    *int            `json:"wait,omitempty" doc:"for how many seconds the answer may wait for the result, 0 to 300; 60 unless given. It also comes when a person is asked"`
}

type callToolRequest struct {
	Once store.Once `once:"-"`
	Name string     `path:"name"`
	Body toolCall   `body:"json" default:"{}"`
}

// callTool starts a run that calls a tool. It answers with its result, or while the run goes on or a person is asked with what it waits for.
func (s *Server) callTool(ctx context.Context, q callToolRequest) (any, error) {
	wait, err := codeWait(q.Body.Wait)
	if err != nil {
		return nil, err
	}
	run, _, err := s.rt.StartTool(ctx, appOf(ctx), runtime.ToolRun{
		Agent: q.Body.Agent, Tool: q.Name, Args: q.Body.Args, Session: q.Body.Session,
	}, q.Once)
	if err != nil {
		return nil, err
	}
	return s.followCode(ctx, run, wait, 0, "")
}

type declarationsRequest struct {
	Level  string `query:"level" doc:"how much they say: names, signatures, compact or full; compact unless given"`
	Server string `query:"server" doc:"only tools of this server"`
	Effect string `query:"effect" doc:"only tools up to this effect"`
	Agent  string `query:"agent" doc:"only tools that this agent is granted"`
}

// declared is declarations of tools.
type declared struct {
	Text  string `json:"text" doc:"TypeScript"`
	Bytes int    `json:"bytes"`
}

func (s *Server) toolDeclarations(ctx context.Context, q declarationsRequest) (declared, error) {
	c, err := s.catalogue()
	if err != nil {
		return declared{}, err
	}
	var may func(string) bool
	if q.Agent != "" {
		a, err := s.st.Agent(ctx, appOf(ctx), q.Agent)
		if err != nil {
			return declared{}, err
		}
		may = func(name string) bool {
			return slices.ContainsFunc(a.Grants.Tools, func(g agent.NamedGrant) bool { return g.Has(name) })
		}
	}
	text, err := c.Describe(ctx, appOf(ctx), abi.ToolQuery{Level: q.Level, Server: q.Server, Effect: q.Effect}, may)
	return declared{text, len(text)}, err
}

// serverWords says of a server what an audit log keeps.
func serverWords(s agent.ToolServer) string {
	words := []string{s.Kind.String()}
	switch {
	case len(s.Command) > 0:
		words = append(words, fmt.Sprintf("%q", s.Command))
	case s.URL != "":
		words = append(words, strings.SplitN(s.URL, "?", 2)[0])
	case s.Agent != "":
		words = append(words, "of agent "+s.Agent)
	}
	for word, is := range map[string]bool{"trusted": s.Trusted, "to private addresses": s.Private} {
		if is {
			words = append(words, word)
		}
	}
	slices.Sort(words[1:])
	return strings.Join(words, ", ")
}
