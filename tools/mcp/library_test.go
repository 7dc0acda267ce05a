package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// TestLibrary reads the prompts and resources of a real server.
func TestLibrary(t *testing.T) {
	s := open(t, stdio(npm(t, "mcp-server-everything", "stdio")), nil, nil)
	all := list(t, s)
	for _, name := range []string{tools.PromptsList, tools.PromptsGet, tools.ResourcesList, tools.ResourcesRead} {
		if o := all[name]; !o.Own || o.Declared != agent.Read || !json.Valid(o.Input) || !json.Valid(o.Output) {
			t.Fatalf("%s: %+v", name, o)
		}
	}
	c, notes, err := s.(tools.Library).Contents(t.Context())
	if err != nil || len(notes) > 0 || len(c.Prompts) < 3 || len(c.Resources) < 3 || len(c.Templates) < 1 {
		t.Fatalf("%d prompts, %d resources, %d templates, %v %v", len(c.Prompts), len(c.Resources), len(c.Templates), notes, err)
	}
	args, _ := json.Marshal(map[string]any{"name": "args-prompt", "arguments": map[string]string{"city": "Oslo"}})
	if got := call(t, s, tools.PromptsGet, string(args), nil); !strings.Contains(string(got.Value), "Oslo") || !strings.Contains(string(got.Value), `"role":"user"`) {
		t.Errorf("prompt: %s", got.Value)
	}
	var listed struct {
		Resources []agent.Resource
		Next      string
	}
	got := call(t, s, tools.ResourcesList, `{"limit":2}`, nil)
	if err := json.Unmarshal(got.Value, &listed); err != nil || len(listed.Resources) != 2 || listed.Next != "2" || listed.Resources[0] != c.Resources[0] {
		t.Fatalf("%s %v", got.Value, err)
	}
	got = call(t, s, tools.ResourcesList, `{"limit":1,"after":"2"}`, nil)
	if err := json.Unmarshal(got.Value, &listed); err != nil || listed.Resources[0] != c.Resources[2] {
		t.Fatalf("%s %v", got.Value, err)
	}
	uri, _ := json.Marshal(map[string]string{"uri": c.Resources[0].URI})
	if got := call(t, s, tools.ResourcesRead, string(uri), nil); !strings.Contains(string(got.Value), c.Resources[0].URI) || !strings.Contains(string(got.Value), `"text"`) {
		t.Errorf("resource: %s", got.Value)
	}
	for method, args := range map[string]string{
		tools.ResourcesRead: `{"uri":"not a uri"}`, tools.ResourcesList: `{"after":"x"}`, tools.PromptsGet: `{"name":"args-prompt","more":1}`, tools.PromptsList: `{"limit":5000}`,
	} {
		_, err := s.Call(t.Context(), method, json.RawMessage(args), nil)
		wantError(t, err, agent.Invalid, true)
	}
	_, err = s.Call(t.Context(), tools.ResourcesRead, json.RawMessage(`{"uri":"demo://nothing/here"}`), nil)
	wantError(t, err, agent.Failed, false, "it.resources.read")
}

// library is a server in this process, of an era, that has a resource of bytes, a prompt that asks for a name, and a list that grows.
func library(t *testing.T, stateless bool) (*mcp.Server, string) {
	t.Helper()
	srv := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, nil)
	srv.AddResource(&mcp.Resource{URI: "lib://cover", Name: "cover"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "lib://cover", MIMEType: "image/png", Blob: []byte("\x89PNG\x00")}}}, nil
	})
	srv.AddPrompt(&mcp.Prompt{Name: "greet"}, func(_ context.Context, q *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		a, ok := q.Params.InputResponses["who"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.GetPromptResult{RequestState: "asked", InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{
				Message: "Who is it for?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
			}}}, nil
		}
		name, _ := a.Content["name"].(string)
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			{Role: "user", Content: &mcp.TextContent{Text: "Greet " + name + ", " + q.Params.RequestState}},
			{Role: "user", Content: &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG")}},
		}}, nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return srv, web.URL
}

// TestLibraryAsks has a server without tools be of use: bytes are blobs, a prompt may ask a person, and a list that changes is told of.
func TestLibraryAsks(t *testing.T) {
	srv, url := library(t, true)
	var mu sync.Mutex
	changes := 0
	s := overHTTP(t, byHTTP(url), nil, func() { mu.Lock(); changes++; mu.Unlock() })
	if all := list(t, s); len(all) != 4 {
		t.Errorf("%+v", all)
	}
	got := call(t, s, tools.ResourcesRead, `{"uri":"lib://cover"}`, nil)
	if len(got.Blobs) != 1 || string(got.Blobs[0].Body) != "\x89PNG\x00" || got.Blobs[0].Type != "image/png" || !strings.Contains(string(got.Value), `"blob":{"$blob":0}`) {
		t.Errorf("%s %+v", got.Value, got.Blobs)
	}
	var asked agent.Question
	got = call(t, s, tools.PromptsGet, `{"name":"greet"}`, &tools.CallOptions{Elicit: func(_ context.Context, q agent.Question) (agent.ApprovalAnswer, error) {
		asked = q
		return agent.ApprovalAnswer{Allow: true, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
	}})
	if asked.Message != "Who is it for?" || !strings.Contains(string(got.Value), "Greet Ada, asked") || len(got.Blobs) != 1 {
		t.Errorf("%+v %s", asked, got.Value)
	}
	mu.Lock()
	before := changes
	mu.Unlock()
	srv.AddResource(&mcp.Resource{URI: "lib://new", Name: "new"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, nil
	})
	until(t, "the change of a list", func() bool { mu.Lock(); defer mu.Unlock(); return changes > before })
	c, _, err := s.(tools.Library).Contents(t.Context())
	if err != nil || len(c.Resources) != 2 {
		t.Errorf("%+v %v", c, err)
	}
}

// TestLibraryOwn leaves a server's own tool where it has one of the name.
func TestLibraryOwn(t *testing.T) {
	srv, url := library(t, false)
	srv.AddTool(&mcp.Tool{Name: tools.ResourcesRead, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the server's"}}}, nil
	})
	s := overHTTP(t, byHTTP(url), nil, nil)
	if all := list(t, s); len(all) != 4 || all[tools.ResourcesRead].Own || !all[tools.ResourcesList].Own {
		t.Errorf("%+v", all)
	}
	if got := call(t, s, tools.ResourcesRead, `{"uri":"lib://cover"}`, nil); string(got.Value) != `"the server's"` {
		t.Errorf("%s", got.Value)
	}
}
