// Command conformance is the client that the conformance suite of MCP drives: the client of package mcp, as Skep uses it, and nothing besides. The suite
// gives it the URL of a server as its last argument, and in MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT what it is to do there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/mcp"
)

// Where the suite's authorization servers send a person back to, and the document that they know Skep by.
const (
	redirect = "http://localhost:3000/callback"
	document = "https://conformance-test.local/client-metadata.json"
)

// maxAuthorize is how often a person authorizes Skep for one thing before they give up.
const maxAuthorize = 3

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: conformance URL, with MCP_CONFORMANCE_SCENARIO set")
	}
	if err := run(context.Background(), os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[len(os.Args)-1]); err != nil {
		log.Fatal(err)
	}
}

// given is what a scenario hands out.
type given struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	ToolCalls    []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
}

func run(ctx context.Context, scenario, at string) error {
	var g given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return err
		}
	}
	c, err := open(scenario, at, g)
	if err != nil {
		return err
	}
	defer c.source.Close()
	list, err := authorized(ctx, c, func() ([]tools.Offer, error) { return c.source.Tools(ctx) })
	if err != nil {
		return err
	}
	calls := g.ToolCalls
	if calls == nil {
		for _, t := range list {
			one := struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			}{t.Method, arguments(scenario, t, list)}
			calls = append(calls, one)
		}
	}
	for _, call := range calls {
		_, err := authorized(ctx, c, func() (agent.ToolResult, error) {
			return c.source.Call(ctx, call.Name, call.Arguments, &tools.CallOptions{Elicit: answer(scenario), Progress: func(tools.Progress) {}})
		})
		if err != nil {
			log.Printf("%s: %v", call.Name, err)
			if strings.HasPrefix(scenario, "auth/") {
				return err
			}
		}
	}
	return nil
}

// arguments are what a tool is called with.
func arguments(scenario string, t tools.Offer, all []tools.Offer) json.RawMessage {
	switch {
	case scenario == "tools_call":
		return json.RawMessage(`{"a":5,"b":3}`)
	case scenario == "http-invalid-tool-headers":
		return json.RawMessage(`{"region":"us-west1"}`)
	case t.Method == "json_schema_echo":
		for _, o := range all {
			if o.Method == "json_schema_2020_12_tool" {
				return json.RawMessage(`{"schema":` + string(o.Input) + `}`)
			}
		}
	}
	return json.RawMessage(`{}`)
}

// answer is what a person says to a question.
func answer(scenario string) func(context.Context, agent.Question) (agent.ApprovalAnswer, error) {
	content := json.RawMessage(`{"confirmed":true}`)
	if scenario == "elicitation-sep1034-client-defaults" {
		content = json.RawMessage(`{}`)
	}
	return func(context.Context, agent.Question) (agent.ApprovalAnswer, error) {
		return agent.ApprovalAnswer{Allow: true, Content: content}, nil
	}
}

type client struct {
	source tools.Source
	oauth  *mcp.OAuth
	rec    agent.ToolServer
}

func open(scenario, at string, g given) (*client, error) {
	out := egress.New(&egress.Options{Limits: mcp.Limits(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}})
	secret := func(context.Context, agent.App, string, string) (string, error) { return g.ClientSecret, nil }
	c := &client{
		oauth: mcp.NewOAuth(mcp.OAuthOptions{Tokens: &memory{}, Private: out, Secret: secret}),
		rec:   agent.ToolServer{App: "default", Name: "suite", Kind: agent.MCPHTTP, URL: at, Private: true},
	}
	if strings.HasPrefix(scenario, "auth/") {
		c.rec.OAuth = &agent.ToolOAuth{ClientID: g.ClientID, Metadata: document}
		if g.ClientSecret != "" {
			c.rec.OAuth.ClientSecret = "client"
		}
	}
	var err error
	c.source, err = mcp.Open(context.Background(), c.rec, &mcp.Options{
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Private: out, OAuth: c.oauth, Secret: secret,
	}, nil)
	return c, err
}

// authorized does something, and again each time after a person has authorized Skep, when the server wants that.
func authorized[T any](ctx context.Context, c *client, do func() (T, error)) (T, error) {
	for n := 0; ; n++ {
		v, err := do()
		if err == nil || n == maxAuthorize || c.rec.OAuth == nil || agent.KindOf(err) != agent.Denied {
			return v, err
		}
		page, _, err := c.oauth.Begin(ctx, c.rec, "", redirect)
		if err != nil {
			return v, err
		}
		q, err := person(ctx, page)
		if err != nil {
			return v, err
		}
		if _, err := c.oauth.Finish(ctx, q); err != nil {
			return v, err
		}
	}
}

// person opens the page, on which the suite's servers agree at once, and returns with what they send back.
func person(ctx context.Context, page string) (url.Values, error) {
	hc := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	res, err := hc.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	to, err := url.Parse(res.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), redirect) {
		return nil, fmt.Errorf("the authorization server redirects to %q", res.Header.Get("Location"))
	}
	return to.Query(), nil
}

// memory is mcp.Tokens for as long as the program runs.
type memory struct {
	mu sync.Mutex
	b  []byte
}

func (m *memory) Load(context.Context, agent.App, string, string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil {
		return nil, agent.Errorf(agent.NotFound, "there are no tokens")
	}
	return m.b, nil
}

func (m *memory) Save(_ context.Context, _ agent.App, _, _ string, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.b = b
	return nil
}

func (m *memory) DeleteAll(ctx context.Context, app agent.App, server string) error {
	return m.Delete(ctx, app, server, "")
}

func (m *memory) Delete(context.Context, agent.App, string, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.b = nil
	return nil
}
