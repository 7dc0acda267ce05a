package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// bearer sends the token.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// connect connects the Go SDK's client. It speaks 2026-07-28 unless an older revision is asked for.
func (r *rig) connect(t *testing.T, path, revision string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	tr := &mcp.StreamableClientTransport{Endpoint: r.url + path, HTTPClient: &http.Client{Transport: bearer{r.token}}}
	s, err := c.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func call(t *testing.T, s *mcp.ClientSession, name string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

func textOf(res *mcp.CallToolResult) string {
	var out []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			out = append(out, text.Text)
		}
	}
	return strings.Join(out, "\n")
}

// eachEra runs a test as clients of both eras do.
func eachEra(t *testing.T, test func(t *testing.T, revision string)) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) { test(t, revision) })
	}
}

func TestTools(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp", revision, nil)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*mcp.Tool{}
		var names []string
		for _, tool := range list.Tools {
			byName[tool.Name] = tool
			names = append(names, tool.Name)
		}
		for _, want := range []string{"demo.add", "demo.write", "execute", "program", "search", "describe", "run_result"} {
			if byName[want] == nil {
				t.Fatalf("%s is missing in %v", want, names)
			}
		}
		if !slices.IsSorted(names) {
			t.Errorf("not in order: %v", names)
		}
		if a := byName["demo.add"].Annotations; !a.ReadOnlyHint || byName["demo.add"].OutputSchema == nil {
			t.Errorf("demo.add: %+v", byName["demo.add"])
		}
		if a := byName["demo.write"].Annotations; a.ReadOnlyHint || a.DestructiveHint == nil || *a.DestructiveHint {
			t.Errorf("demo.write: %+v", a)
		}
		if b, _ := json.Marshal(byName["demo.slow"].InputSchema); strings.Contains(string(b), "x-mcp-header") {
			t.Errorf("a header of the server upstream is passed on: %s", b)
		}

		res := call(t, s, "demo.add", map[string]any{"a": 2, "b": 40})
		if b, _ := json.Marshal(res.StructuredContent); string(b) != `{"sum":42}` || textOf(res) != `{"sum":42}` || res.IsError {
			t.Errorf("demo.add: %s, %s", b, textOf(res))
		}
		if res = call(t, s, "demo.add", map[string]any{"a": "x"}); !res.IsError || !strings.Contains(textOf(res), "a: must be a number") {
			t.Errorf("wrong arguments: %s", textOf(res))
		}
		if res = call(t, s, "demo.fail", nil); !res.IsError || !strings.Contains(textOf(res), "the disk is full") {
			t.Errorf("demo.fail: %s", textOf(res))
		}
		if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "demo.none"}); err == nil {
			t.Error("a tool that is not there was called")
		}
	})
}

func TestArtifact(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp?mode=tools", revision, nil)
		res := call(t, s, "demo.image", nil)
		var link *mcp.ResourceLink
		var image *mcp.ImageContent
		for _, c := range res.Content {
			switch c := c.(type) {
			case *mcp.ResourceLink:
				link = c
			case *mcp.ImageContent:
				image = c
			}
		}
		if link == nil || image == nil || string(image.Data) != string(pixel) || image.MIMEType != "image/png" {
			t.Fatalf("%+v %+v: %s", link, image, textOf(res))
		}
		got, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
		if err != nil || string(got.Contents[0].Blob) != string(pixel) {
			t.Fatal(err, got)
		}
		if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: strings.Replace(link.URI, "/artifacts", "/../artifacts", 1)}); err == nil {
			t.Error("a path that leaves its folder was read")
		}
	})
}

func TestCode(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp/code", revision, nil)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 5 {
			t.Fatal(err, len(list.Tools))
		}
		if found := textOf(call(t, s, "search", map[string]any{"query": "add numbers"})); !strings.Contains(found, "add") {
			t.Errorf("search: %s", found)
		}
		if text := textOf(call(t, s, "describe", map[string]any{"names": []string{"demo.add"}})); !strings.Contains(text, "sum") {
			t.Errorf("describe: %s", text)
		}
		res := call(t, s, "execute", map[string]any{
			"code":  "console.log('adding'); const { sum } = await tools.demo.add({ a: input.a, b: 1 }); return sum * 2",
			"input": map[string]any{"a": 20},
		})
		if res.IsError || textOf(res) != "42\nPrinted:\nadding" {
			t.Errorf("execute: %q", textOf(res))
		}
		if res = call(t, s, "execute", map[string]any{"code": "return tools.demo.ad({})"}); !res.IsError || !strings.Contains(textOf(res), "add") {
			t.Errorf("a name that is nearly right: %s", textOf(res))
		}
		if res = call(t, s, "execute", map[string]any{"code": "return 1", "extra": 1}); !res.IsError {
			t.Errorf("an argument that is not known: %s", textOf(res))
		}
	})
}

// TestProgram has a client run bounded programs: one that reads, one that would change something in passing, and one whose change a person allows.
func TestProgram(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp/code", revision, nil)
		program := func(steps ...any) map[string]any {
			return map[string]any{"program": map[string]any{"steps": steps}, "input": map[string]any{"a": 20}}
		}
		res := call(t, s, "program", program(
			map[string]any{"step": "call", "tool": "demo.add", "args": map[string]any{"a": "${input.a}", "b": 1}, "as": "got"},
			map[string]any{"step": "return", "value": "${got.sum}"},
		))
		if res.IsError || textOf(res) != "21" {
			t.Errorf("a program that reads: %s", textOf(res))
		}
		before := len(r.demo.lines())
		res = call(t, s, "program", program(map[string]any{"step": "call", "tool": "demo.write", "args": map[string]any{"line": "x"}}))
		if !res.IsError || !strings.Contains(textOf(res), "/steps/0/tool: the effect of demo.write is modify") || len(r.demo.lines()) != before {
			t.Errorf("a change outside of a change set: %s", textOf(res))
		}
		if res = call(t, s, "program", map[string]any{"program": map[string]any{"steps": []any{map[string]any{"step": "jump"}}}}); !res.IsError || !strings.Contains(textOf(res), "/steps/0") {
			t.Errorf("a step that is not there: %s", textOf(res))
		}
		res = call(t, s, "program", program(
			map[string]any{"step": "change_set", "title": "write two lines", "calls": []any{
				map[string]any{"tool": "demo.write", "args": map[string]any{"line": "one"}}, map[string]any{"tool": "demo.write", "args": map[string]any{"line": "two"}},
			}},
			map[string]any{"step": "return", "value": "done"},
		))
		run, _ := res.Meta["dev.skep/run"].(string)
		asks, _, err := r.rt.Approvals(t.Context(), agent.DefaultApp, agent.Page{})
		if err != nil || len(asks) != 1 || string(asks[0].Run) != run || len(asks[0].Calls) != 2 {
			t.Fatal(err, asks, textOf(res))
		}
		if _, err := r.rt.AnswerApprovals(t.Context(), agent.DefaultApp, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
			t.Fatal(err)
		}
		if res = call(t, s, "run_result", map[string]any{"run": run}); res.IsError || textOf(res) != "done" || len(r.demo.lines()) != before+2 {
			t.Errorf("%s, %v", textOf(res), r.demo.lines())
		}
	})
}

func TestProgress(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		said := make(chan string, 16)
		s := r.connect(t, "/mcp/code", revision, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, p *mcp.ProgressNotificationClientRequest) { said <- p.Params.Message },
		})
		p := &mcp.CallToolParams{Name: "execute", Arguments: map[string]any{"code": `context.emit("progress", { progress: 1, total: 2, message: "half" }); return 1`}}
		p.SetProgressToken("t")
		if res, err := s.CallTool(t.Context(), p); err != nil || textOf(res) != "1" {
			t.Fatal(err, res)
		}
		if got := <-said; got != "half" {
			t.Error(got)
		}
	})
}

func TestCancel(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		s := r.connect(t, "/mcp", revision, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "demo.slow"})
			done <- err
		}()
		<-r.demo.begun
		cancel()
		if err := <-done; err == nil {
			t.Error("a call that was cancelled returned")
		}
		select {
		case <-r.demo.gone:
		case <-time.After(30 * time.Second):
			t.Fatal("the tool was not cancelled")
		}
	})
}

// TestApprovalLink has a person allow a call by the link that their client shows.
func TestApprovalLink(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		before := len(r.demo.lines())
		s := r.connect(t, "/mcp", revision, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(ctx context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if q.Params.Mode != "url" || !strings.HasPrefix(q.Params.URL, r.url+"/approve/") || !strings.Contains(q.Params.Message, "demo.write") {
					t.Errorf("%+v", q.Params)
				}
				return &mcp.ElicitResult{Action: "accept"}, allow(ctx, q.Params.URL)
			},
		})
		res := call(t, s, "demo.write", map[string]any{"line": "hello"})
		if res.IsError || textOf(res) != "written" || len(r.demo.lines()) != before+1 {
			t.Errorf("%s, %v", textOf(res), r.demo.lines())
		}
	})
}

// allow answers a link as its page does.
func allow(ctx context.Context, link string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, link, strings.NewReader(`{"allow":true}`))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return agent.Errorf(agent.Failed, "the link answered %s", res.Status)
	}
	return nil
}

// TestApprovalDeclined cancels the run of a call that its person declines to look at.
func TestApprovalDeclined(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		before := len(r.demo.lines())
		s := r.connect(t, "/mcp", revision, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "decline"}, nil
			},
		})
		res := call(t, s, "demo.write", map[string]any{"line": "no"})
		if !res.IsError || !strings.Contains(textOf(res), "declined") || len(r.demo.lines()) != before {
			t.Errorf("%s, %v", textOf(res), r.demo.lines())
		}
	})
}

// TestApprovalLater has a client that can show no link come back for the result.
func TestApprovalLater(t *testing.T) {
	r := serve(t)
	eachEra(t, func(t *testing.T, revision string) {
		before := len(r.demo.lines())
		s := r.connect(t, "/mcp", revision, nil)
		res := call(t, s, "demo.write", map[string]any{"line": "later"})
		run, _ := res.Meta["dev.skep/run"].(string)
		if !res.IsError || run == "" || !strings.Contains(textOf(res), "run_result") || !strings.Contains(textOf(res), "skep approvals approve "+run) {
			t.Fatal(textOf(res))
		}
		asks, _, err := r.rt.Approvals(t.Context(), agent.DefaultApp, agent.Page{})
		if err != nil || len(asks) != 1 || string(asks[0].Run) != run {
			t.Fatal(err, asks)
		}
		if _, err := r.rt.AnswerApprovals(t.Context(), agent.DefaultApp, "test", []agent.ApprovalID{asks[0].ID}, agent.ApprovalAnswer{Allow: true}); err != nil {
			t.Fatal(err)
		}
		if res = call(t, s, "run_result", map[string]any{"run": run}); res.IsError || textOf(res) != "written" || len(r.demo.lines()) != before+1 {
			t.Errorf("%s, %v", textOf(res), r.demo.lines())
		}
		if res = call(t, s, "run_result", map[string]any{"run": "01JX"}); !res.IsError {
			t.Error("a run that is not there has a result")
		}
	})
}

// TestListChanged wants clients told of tools that come to be.
func TestListChanged(t *testing.T) {
	r := serve(t)
	told := make(chan struct{}, 16)
	s := r.connect(t, "/mcp?mode=tools", "2025-11-25", &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} },
	})
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.demo.grow()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "demo.more" }) {
		t.Fatal(err, list)
	}
}

// TestGrants shows an agent's clients only what it is granted.
func TestGrants(t *testing.T) {
	r := serve(t)
	if _, _, err := r.rt.CreateAgent(t.Context(), agent.Agent{
		App: agent.DefaultApp, Name: "narrow", Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "demo.add"}}},
	}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	s := r.connect(t, "/mcp/narrow?mode=tools", "2026-07-28", nil)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "demo.add" {
		t.Fatal(err, list)
	}
	if res := call(t, s, "demo.add", map[string]any{"a": 1, "b": 1}); res.IsError {
		t.Error(textOf(res))
	}
}
