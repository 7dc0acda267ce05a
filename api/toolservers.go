package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/openapi"
)

// maxToolServer is the most bytes of a request that may hold a document, which is escaped there.
const maxToolServer = 2*openapi.MaxDocument + maxJSON

// newToolServer is what a caller says of a server of tools to add.
type newToolServer struct {
	Name        string            `json:"name" doc:"as CheckName takes it, without dots: tools are called NAME.METHOD"`
	Kind        agent.ServerKind  `json:"kind" doc:"stdio, http, sse, openapi or agent"`
	Description string            `json:"description,omitempty"`
	Command     []string          `json:"command,omitempty" doc:"stdio: program and arguments; no shell is used"`
	Env         map[string]string `json:"env,omitempty" doc:"stdio; a value may hold ${secret:NAME}"`
	Dir         string            `json:"dir,omitempty" doc:"stdio: where it runs; a folder of its own unless given"`
	URL         string            `json:"url,omitempty" doc:"http, sse; openapi: of the API, unless its document says"`
	Header      map[string]string `json:"header,omitempty" doc:"http, sse, openapi; a value may hold ${secret:NAME}"`
	Private     bool              `json:"private,omitempty" doc:"http, sse, openapi: the URL may lead to a private or loopback address"`
	OAuth       *agent.ToolOAuth  `json:"oauth,omitempty" doc:"http, sse: how Skep authorises itself"`
	Document    string            `json:"document,omitempty" doc:"openapi: the text of the document, in JSON or YAML"`
	Agent       string            `json:"agent,omitempty" doc:"agent: whose functions"`
	Trusted     bool              `json:"trusted,omitempty" doc:"what it says of its tools' effects is believed"`
	Only        []string          `json:"only,omitempty" doc:"methods that are taken, with * at the end for a prefix; all unless given"`
	Timeout     time.Duration     `json:"timeout,omitempty" doc:"of a call; 60 s unless given"`
	Concurrency int               `json:"concurrency,omitempty" doc:"calls at once; 8 unless given"`
}

// toolServer is a record and how its server stands.
type toolServer struct {
	agent.ToolServer
	Status agent.ToolStatus `json:"status"`
	Hints  []string         `json:"hints,omitempty" doc:"what is to be done for it to be of use"`
}

type addToolServerRequest struct {
	Body newToolServer `body:"json"`
}

func (s *Server) addToolServer(ctx context.Context, q addToolServerRequest) (toolServer, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolServer{}, err
	}
	b := q.Body
	r := agent.ToolServer{
		App: appOf(ctx), Name: b.Name, Kind: b.Kind, Description: b.Description, Command: b.Command, Env: b.Env, Dir: b.Dir, URL: b.URL, Header: b.Header,
		Private: b.Private, OAuth: b.OAuth, Agent: b.Agent, Trusted: b.Trusted, Only: b.Only, Timeout: b.Timeout, Concurrency: b.Concurrency,
	}
	if err := ownersServer(ctx, r); err != nil {
		return toolServer{}, err
	}
	var hints []string
	if b.Document != "" {
		if hints, err = s.keepDocument(ctx, &r, b.Document); err != nil {
			return toolServer{}, err
		}
	}
	if r.Kind == agent.AgentTools && r.Agent != "" {
		if _, err := s.st.Agent(ctx, r.App, r.Agent); err != nil {
			return toolServer{}, err
		}
	}
	if r, err = c.Add(ctx, r); err != nil {
		return toolServer{}, err
	}
	if err := s.audit(ctx, "tools.add", r.Name, serverWords(r)); err != nil {
		return toolServer{}, err
	}
	st, err := c.Refresh(ctx, r.App, r.Name)
	if err != nil {
		return toolServer{}, err
	}
	if r, err = c.Server(ctx, r.App, r.Name); err != nil {
		return toolServer{}, err
	}
	return toolServer{shown(ctx, r), st, append(hints, plainSecrets(r)...)}, nil
}

// keepDocument checks and stores the document of an API.
func (s *Server) keepDocument(ctx context.Context, r *agent.ToolServer, text string) (hints []string, err error) {
	sum, err := openapi.CheckServer(*r, []byte(text))
	if err != nil {
		return nil, err
	}
	if r.Document, err = s.st.PutBlob(ctx, []byte(text)); err != nil {
		return nil, err
	}
	if len(sum.Auth) > 0 && len(r.Header) == 0 && !strings.Contains(r.URL, "?") {
		hints = append(hints, "it wants to know who calls: "+strings.Join(sum.Auth, "; "))
	}
	return hints, nil
}

// plainSecrets finds what looks like a secret that is not kept as one.
func plainSecrets(r agent.ToolServer) (hints []string) {
	for _, m := range []map[string]string{r.Env, r.Header} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			low := strings.ToLower(name)
			telling := slices.ContainsFunc([]string{"token", "key", "secret", "password", "authorization", "cookie"}, func(w string) bool { return strings.Contains(low, w) })
			if telling && m[name] != "" && !strings.Contains(m[name], "${secret:") {
				hints = append(hints, name+" is kept as plain text; skep secret set keeps it as a secret, and ${secret:NAME} puts it in")
			}
		}
	}
	return hints
}

// ownersServer refuses a developer what only an owner may do with a server of tools: have programs run on the machine, believe what a server says of
// its tools, and lead to private addresses.
func ownersServer(ctx context.Context, r agent.ToolServer) error {
	var what string
	switch {
	case requestOf(ctx).token.Role == agent.Owner:
		return nil
	case r.Kind == agent.MCPStdio:
		what = "run a program of the server's machine as a server of tools"
	case r.Trusted:
		what = "trust a server of tools"
	case r.Private:
		what = "let a server of tools lead to private addresses"
	case len(r.Effects) > 0:
		what = "change a server of tools whose tools were classified"
	default:
		return nil
	}
	return &agent.Error{Kind: agent.Denied, Msg: "a developer's token may not " + what, Hint: "ask an owner to " + what}
}

// shown is a record as the caller may see it: to a developer without values that are no names of secrets.
func shown(ctx context.Context, r agent.ToolServer) agent.ToolServer {
	if requestOf(ctx).token.Role == agent.Owner {
		return r
	}
	for _, m := range []*map[string]string{&r.Env, &r.Header} {
		*m = maps.Clone(*m)
		for k, v := range *m {
			if !strings.Contains(v, "${secret:") {
				(*m)[k] = "***"
			}
		}
	}
	return r
}

func (s *Server) listToolServers(ctx context.Context, q pageQuery) (list[toolServer], error) {
	c, err := s.catalogue()
	if err != nil {
		return list[toolServer]{}, err
	}
	limit, err := limitOf(q.Limit)
	if err != nil {
		return list[toolServer]{}, err
	}
	all, err := c.Servers(ctx, appOf(ctx))
	if err != nil {
		return list[toolServer]{}, err
	}
	out, next := []toolServer{}, ""
	for _, r := range all {
		if r.Name <= q.After && q.After != "" {
			continue
		}
		if len(out) == limit {
			next = out[limit-1].Name
			break
		}
		st, err := c.Status(ctx, r.App, r.Name)
		if err != nil && agent.KindOf(err) != agent.NotFound { // deleted meanwhile
			return list[toolServer]{}, err
		}
		out = append(out, toolServer{ToolServer: shown(ctx, r), Status: st})
	}
	return list[toolServer]{out, next}, nil
}

type toolServerRequest struct {
	Name string `path:"name"`
}

func (s *Server) getToolServer(ctx context.Context, q toolServerRequest) (toolServer, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolServer{}, err
	}
	r, err := c.Server(ctx, appOf(ctx), q.Name)
	if err != nil {
		return toolServer{}, err
	}
	st, err := c.Status(ctx, r.App, r.Name)
	return toolServer{ToolServer: shown(ctx, r), Status: st}, err
}

type updateToolServerRequest struct {
	Name string                `path:"name"`
	Body agent.ToolServerPatch `body:"json"`
}

func (s *Server) updateToolServer(ctx context.Context, q updateToolServerRequest) (toolServer, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolServer{}, err
	}
	r, err := c.Change(ctx, appOf(ctx), q.Name, func(r *agent.ToolServer) error {
		if err := ownersServer(ctx, *r); err != nil {
			return err
		}
		q.Body.Apply(r)
		if q.Body.Document != nil {
			if _, err := s.keepDocument(ctx, r, *q.Body.Document); err != nil {
				return err
			}
		}
		return ownersServer(ctx, *r)
	})
	if err != nil {
		return toolServer{}, err
	}
	if err := s.audit(ctx, "tools.update", r.Name, serverWords(r)); err != nil {
		return toolServer{}, err
	}
	st, err := c.Refresh(ctx, r.App, r.Name)
	return toolServer{ToolServer: shown(ctx, r), Status: st, Hints: plainSecrets(r)}, err
}

func (s *Server) deleteToolServer(ctx context.Context, q toolServerRequest) (nothing, error) {
	c, err := s.catalogue()
	if err != nil {
		return nothing{}, err
	}
	r, err := c.Server(ctx, appOf(ctx), q.Name)
	if err != nil {
		return nothing{}, err
	}
	if err := ownersServer(ctx, r); err != nil {
		return nothing{}, err
	}
	if err := c.Remove(ctx, r.App, r.Name); err != nil {
		return nothing{}, err
	}
	if err := s.forgetTools(ctx, r); err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "tools.remove", r.Name, serverWords(r))
}

func (s *Server) refreshToolServer(ctx context.Context, q toolServerRequest) (toolServer, error) {
	c, err := s.catalogue()
	if err != nil {
		return toolServer{}, err
	}
	st, err := c.Refresh(ctx, appOf(ctx), q.Name)
	if err != nil {
		return toolServer{}, err
	}
	r, err := c.Server(ctx, appOf(ctx), q.Name)
	return toolServer{ToolServer: shown(ctx, r), Status: st}, err
}
