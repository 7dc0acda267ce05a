package client

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
)

// NewAgent is an agent to create. Plugin is the name of one, or name@version to pin it.
type NewAgent struct {
	Name        string            `json:"name"`
	Plugin      string            `json:"plugin,omitempty"` // none for an agent whose Sandbox has a CLI
	Description string            `json:"description,omitempty"`
	Config      map[string]string `json:"config,omitempty"`
	Grants      agent.Grants      `json:"grants,omitzero"`
	Limits      agent.Limits      `json:"limits,omitzero"`
	Quota       agent.Quota       `json:"quota,omitzero"`
	Sandbox     *agent.SandboxUse `json:"sandbox,omitempty"`
}

// AgentPatch changes the fields that are set. Config, Grants, Limits and Quota are replaced as a whole; Grant adds to the grants and
// Revoke takes away from them, whatever they are by then.
type AgentPatch struct {
	Plugin      *string            `json:"plugin,omitempty"`
	Description *string            `json:"description,omitempty"`
	Config      *map[string]string `json:"config,omitempty"`
	Grants      *agent.Grants      `json:"grants,omitempty"`
	Limits      *agent.Limits      `json:"limits,omitempty"`
	Quota       *agent.Quota       `json:"quota,omitempty"`
	Sandbox     *agent.SandboxUse  `json:"sandbox,omitempty"` // replaced as a whole; one without an environment takes it away
	Grant       *agent.Grants      `json:"grant,omitempty"`
	Revoke      *agent.Grants      `json:"revoke,omitempty"`
}

// AgentGrants is what an agent may do, beside what the manifest of its plugin asks for.
type AgentGrants struct {
	Granted agent.Grants  `json:"granted"`
	Asked   *agent.Grants `json:"asked,omitempty"` // nil when the manifest does not say
	Missing []string      `json:"missing"`         // asked for and not granted, in words
	Words   []string      `json:"words"`           // granted, in words
	Quota   []string      `json:"quota"`           // what bounds it, in words
}

// Grants returns what an agent may do, and what its code asks for.
func (c *Client) Grants(ctx context.Context, name string) (AgentGrants, error) {
	return get[AgentGrants](ctx, c, path("agents", name, "grants"))
}

// CreateAgent creates an agent.
func (c *Client) CreateAgent(ctx context.Context, a NewAgent) (out agent.Agent, err error) {
	return out, c.do(ctx, "POST", path("agents"), once(), a, &out)
}

// Agents lists agents, newest first.
func (c *Client) Agents(ctx context.Context, p agent.Page) (List[agent.Agent], error) {
	return get[List[agent.Agent]](ctx, c, path("agents")+pageQuery(p).encode())
}

// Agent returns the agent of that name.
func (c *Client) Agent(ctx context.Context, name string) (agent.Agent, error) {
	return get[agent.Agent](ctx, c, path("agents", name))
}

// UpdateAgent changes an agent.
func (c *Client) UpdateAgent(ctx context.Context, name string, patch AgentPatch) (out agent.Agent, err error) {
	return out, c.do(ctx, "PATCH", path("agents", name), nil, patch, &out)
}

// DeleteAgents deletes agents, all or none.
func (c *Client) DeleteAgents(ctx context.Context, names ...string) error {
	return c.do(ctx, "POST", path("agents", "delete"), nil, map[string]any{"names": names}, nil)
}

// Call runs one function of an agent in a fresh cell. A timeout above 0 narrows the agent's limit on wall time. The server
// goes on with a call whose ctx has ended, up to that limit.
func (c *Client) Call(ctx context.Context, agentName, function string, in agent.Payload, timeout time.Duration) (agent.Payload, agent.Usage, error) {
	return c.call(ctx, path("agents", agentName, "call", function), "", in, timeout)
}

func (c *Client) call(ctx context.Context, target, once string, in agent.Payload, timeout time.Duration) (out agent.Payload, u agent.Usage, err error) {
	h := header{"Content-Type": in.Type}
	if once != "" {
		h["Idempotency-Key"] = once
	}
	if timeout > 0 {
		h["Skep-Timeout"] = timeout.String()
	}
	res, err := c.send(ctx, "POST", target, h, in.Body)
	if err != nil {
		return out, u, err
	}
	defer res.Body.Close()
	out.Type = res.Header.Get("Content-Type")
	if out.Body, err = io.ReadAll(res.Body); err != nil {
		return out, u, c.unreachable(ctx, err)
	}
	return out, usageOf(res.Header), nil
}

func usageOf(h http.Header) agent.Usage {
	ms := func(name string) time.Duration {
		f, _ := strconv.ParseFloat(h.Get(name), 64)
		return time.Duration(f * float64(time.Millisecond))
	}
	n := func(name string) int64 {
		v, _ := strconv.ParseInt(h.Get(name), 10, 64)
		return v
	}
	return agent.Usage{
		CPU: ms("Skep-Cpu-Ms"), Wall: ms("Skep-Wall-Ms"), Fuel: n("Skep-Fuel"), Memory: n("Skep-Memory"),
		HostCalls: n("Skep-Host-Calls"), In: n("Skep-In"), Out: n("Skep-Out"), Log: n("Skep-Log"),
	}
}

// Fetch passes an HTTP request to an agent's fetch handler: of req's URL the path and the query are used. The response is
// the handler's own, whatever its status; errors of the server are returned as errors. The caller closes its body.
func (c *Client) Fetch(agentName string, req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	u, err := req.URL.Parse(c.base + path("agents", agentName, "http") + "/" + trimSlash(req.URL.EscapedPath()))
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the request's URL is not valid")
	}
	u.RawQuery = req.URL.RawQuery
	out.URL, out.Host, out.RequestURI = u, "", ""
	out.Header.Set("Authorization", "Bearer "+c.token)
	if c.o.App != "" {
		out.Header.Set("Skep-App", string(c.o.App))
	}
	res, err := c.o.HTTP.Do(out)
	if err != nil {
		return nil, c.unreachable(req.Context(), err)
	}
	if res.Header.Get("Content-Type") == typeProblem {
		defer res.Body.Close()
		return nil, errorOf(res)
	}
	return res, nil
}

func trimSlash(p string) string {
	if p != "" && p[0] == '/' {
		return p[1:]
	}
	return p
}
