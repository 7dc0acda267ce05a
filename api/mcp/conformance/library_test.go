package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// shelf is a source that has prompts and resources as well, as package tools/mcp makes one.
type shelf struct{ *demo }

func (s shelf) Tools(ctx context.Context) ([]tools.Offer, error) {
	list, err := s.demo.Tools(ctx)
	for _, method := range []string{tools.PromptsGet, tools.ResourcesRead} {
		list = append(list, tools.Offer{Own: true, Declared: agent.Read, Tool: agent.Tool{Method: method, Input: json.RawMessage(`{"type":"object"}`)}})
	}
	return list, err
}

func (s shelf) Contents(context.Context) (tools.Contents, []string, error) {
	c := tools.Contents{
		Prompts: []agent.Prompt{{Name: "review it", Arguments: []agent.PromptArgument{{Name: "file", Required: true}}}},
		Resources: []agent.Resource{
			{URI: "demo://guide", Name: "guide", Type: "text/plain"}, {URI: "demo://pixel"}, {URI: "demo://held"}, {URI: "demo://forged"}, {URI: "skep://sessions/S/files/x"}, {URI: "no scheme"},
		},
		Templates: []agent.Resource{{URI: "demo://notes/{id}", Name: "note"}, {URI: "{scheme}://{+rest}", Name: "all"}, {URI: "demo://{", Name: "broken"}},
	}
	if s.demo.grown() {
		c.Prompts = append(c.Prompts, agent.Prompt{Name: "more"})
	}
	return c, nil, nil
}

func (s shelf) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	var in struct {
		Name, URI string
		Arguments map[string]string
	}
	_ = json.Unmarshal(args, &in)
	switch {
	case method == tools.PromptsGet:
		return agent.ToolResult{Value: json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"` + in.Name + " " + in.Arguments["file"] +
			`"}},{"role":"user","content":{"type":"image","mimeType":"image/png","data":{"$blob":0}}}]}`), Blobs: []agent.ToolBlob{{Type: "image/png", Body: pixel}}}, nil
	case method == tools.ResourcesRead && in.URI == "demo://pixel":
		return agent.ToolResult{Value: json.RawMessage(`{"contents":[{"uri":"demo://pixel","mimeType":"image/png","blob":{"$blob":0}}]}`), Blobs: []agent.ToolBlob{{Type: "image/png", Body: pixel}}}, nil
	case method == tools.ResourcesRead && in.URI == "demo://forged": // it has its bytes once, and says twice more where they are kept, as if they were none
		forged := fmt.Sprintf(`{"uri":"demo://forged","blob":{"artifact":"artifacts/%s/1-1.png","type":"image/png","size":0}}`, o.For.Run)
		return agent.ToolResult{
			Value: json.RawMessage(`{"contents":[{"uri":"demo://forged","blob":{"$blob":0}},` + forged + "," + forged + `]}`), Blobs: []agent.ToolBlob{{Type: "image/png", Body: make([]byte, 3<<20)}},
		}, nil
	case method == tools.ResourcesRead && in.URI == "demo://notes/none":
		return agent.ToolResult{}, agent.Errorf(agent.Failed, "there is no such note")
	case method == tools.ResourcesRead:
		return agent.ToolResult{Value: json.RawMessage(`{"contents":[{"uri":"` + in.URI + `","text":"the text"}]}`)}, nil
	}
	return s.demo.Call(ctx, method, args, o)
}

func (d *demo) grown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.more
}

// TestLibrary passes prompts and resources of servers on, to agents that are granted them, and under the policy.
func TestLibrary(t *testing.T) {
	r := serve(t)
	r.demo.library = true
	if _, err := r.st.PutDoc(t.Context(), store.Policies, agent.DefaultApp, tools.PolicyName, store.AnyRev, tools.PolicyText{
		Text: "read: allow\nrules:\n  - deny demo.resources.read(uri=demo://notes/secret) because it is nobody's business\n  - ask demo.resources.read(uri=demo://held)\n",
	}); err != nil {
		t.Fatal(err)
	}
	narrow := agent.Agent{App: agent.DefaultApp, Name: "narrow", Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "demo.add"}, {Name: "demo.prompts.get"}}}}
	if _, _, err := r.rt.CreateAgent(t.Context(), narrow, store.Once{}); err != nil {
		t.Fatal(err)
	}
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp", revision, nil)
		prompts, err := s.ListPrompts(t.Context(), nil)
		if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Name != "demo.review_it" || !prompts.Prompts[0].Arguments[0].Required {
			t.Fatalf("%+v %v", prompts, err)
		}
		p, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "demo.review_it", Arguments: map[string]string{"file": "main.go"}})
		if err != nil || p.Messages[0].Content.(*mcp.TextContent).Text != "review it main.go" || string(p.Messages[1].Content.(*mcp.ImageContent).Data) != string(pixel) {
			t.Fatalf("%+v %v", p, err)
		}
		resources, err := s.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var uris []string
		for _, one := range resources.Resources {
			uris = append(uris, one.URI)
		}
		if !slices.Equal(uris, []string{"demo://forged", "demo://guide", "demo://held", "demo://pixel"}) {
			t.Error(uris)
		}
		templates, err := s.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 2 || templates.ResourceTemplates[0].URITemplate != "demo://notes/{id}" {
			t.Errorf("%+v %v", templates, err)
		}
		read := func(uri string) (*mcp.ReadResourceResult, error) {
			return s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		}
		if got, err := read("demo://notes/7"); err != nil || got.Contents[0].Text != "the text" || got.Contents[0].URI != "demo://notes/7" {
			t.Errorf("%+v %v", got, err)
		}
		if got, err := read("demo://pixel"); err != nil || string(got.Contents[0].Blob) != string(pixel) {
			t.Errorf("%+v %v", got, err)
		}
		for uri, want := range map[string]string{
			"demo://notes/secret": "it is nobody's business", "demo://notes/none": "there is no such note", "demo://held": "skep approvals approve", "other://x": "not found",
			"demo://forged": "what it holds has more than 4194304 bytes",
		} {
			if _, err := read(uri); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
				t.Errorf("%s: %v", uri, err)
			}
		}
		n := r.connect(t, "/mcp/narrow?mode=tools", revision, nil)
		if prompts, err := n.ListPrompts(t.Context(), nil); err != nil || len(prompts.Prompts) != 1 {
			t.Errorf("%+v %v", prompts, err)
		}
		if resources, err := n.ListResources(t.Context(), nil); err != nil || len(resources.Resources) != 0 {
			t.Errorf("%+v %v", resources, err)
		}
		if _, err := n.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://guide"}); err == nil {
			t.Error("a resource that is not granted was read")
		}
	})
	told := make(chan struct{}, 4)
	s := r.connect(t, "/mcp", "2025-11-25", &mcp.ClientOptions{PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { told <- struct{}{} }})
	r.demo.grow()
	<-told
	if prompts, err := s.ListPrompts(t.Context(), nil); err != nil || len(prompts.Prompts) != 2 {
		t.Errorf("%+v %v", prompts, err)
	}
}
