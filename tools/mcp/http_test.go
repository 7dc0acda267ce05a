package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/mcp"
)

// ways are ways out: one to public addresses, and one to this machine as well.
func ways(t *testing.T) (public, private *egress.Egress) {
	t.Helper()
	public = egress.New(&egress.Options{Limits: mcp.Limits()})
	private = egress.New(&egress.Options{Limits: mcp.Limits(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(func() { _, _ = public.Close(), private.Close() })
	return public, private
}

func byHTTP(url string) agent.ToolServer {
	return agent.ToolServer{Kind: agent.MCPHTTP, URL: url, Private: true}
}

// overHTTP opens a source by HTTP.
func overHTTP(t *testing.T, rec agent.ToolServer, o *mcp.Options, changed func()) tools.Source {
	t.Helper()
	if o == nil {
		o = &mcp.Options{}
	}
	o.Egress, o.Private = ways(t)
	return open(t, rec, o, changed)
}

type text struct {
	Text string `json:"text"`
}

// kit is a server with tools of all sorts, by the SDK.
func kit() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "kit", Version: "1.2.3"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "echo"}, func(_ context.Context, _ *sdk.CallToolRequest, in text) (*sdk.CallToolResult, text, error) {
		return nil, in, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "wait"}, func(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second): // the SDK tells a stateless server of no cancellation
		}
		return nil, nil, ctx.Err()
	})
	sdk.AddTool(s, &sdk.Tool{Name: "ask"}, func(ctx context.Context, req *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		q := &sdk.ElicitParams{Message: "Which?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"which":{"type":"string","default":"this"}}}`)}
		if req.Params.InputResponses == nil {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"q": q}, RequestState: "kept"}, nil, nil
		}
		if req.Params.RequestState != "kept" {
			return nil, nil, fmt.Errorf("the state is %q", req.Params.RequestState)
		}
		got := req.Params.InputResponses["q"].(*sdk.ElicitResult)
		return nil, map[string]any{"action": got.Action, "which": got.Content["which"]}, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "roots"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		//lint:ignore SA1019 servers may still ask for them
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"r": &sdk.ListRootsParams{}}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "more"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		sdk.AddTool(s, &sdk.Tool{Name: "another"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return nil, nil, nil
		})
		return nil, nil, nil
	})
	return s
}

func TestRevisions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		handler  http.Handler
		kind     agent.ServerKind
		revision string
	}{
		{"stateless", sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return kit() }, &sdk.StreamableHTTPOptions{Stateless: true}), agent.MCPHTTP, "2026-07-28"},
		{"stateful", sdk.NewStreamableHTTPHandler(same(kit()), nil), agent.MCPHTTP, "2025-11-25"},
		{"json", sdk.NewStreamableHTTPHandler(same(kit()), &sdk.StreamableHTTPOptions{JSONResponse: true}), agent.MCPHTTP, "2025-11-25"},
		{"sse", sdk.NewSSEHandler(same(kit()), nil), agent.MCPSSE, "2025-11-25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.handler)
			t.Cleanup(server.Close)
			rec := byHTTP(server.URL)
			rec.Kind = tt.kind
			var changed atomic.Int32
			s := overHTTP(t, rec, nil, func() { changed.Add(1) })
			if n := len(list(t, s)); n != 5 {
				t.Errorf("there are %d tools: %v", n, s.Status().Notes)
			}
			if st := s.Status(); st.State != agent.ServerReady || st.Protocol != tt.revision || st.Version != "1.2.3" {
				t.Errorf("status: %+v", st)
			}
			if got := call(t, s, "echo", `{"text":"hé"}`, nil); string(got.Value) != `{"text":"hé"}` {
				t.Errorf("got %s", got.Value)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := s.Call(ctx, "wait", nil, nil)
			cancel()
			wantError(t, err, agent.Cancelled, false, "it.wait was cancelled")
			if tt.name == "json" {
				return // it cannot ask
			}
			var asked agent.Question
			got := call(t, s, "ask", `{}`, &tools.CallOptions{Elicit: func(_ context.Context, q agent.Question) (agent.ApprovalAnswer, error) {
				asked = q
				return agent.ApprovalAnswer{Allow: true}, nil
			}})
			if asked.Message != "Which?" || string(got.Value) != `{"action":"accept","which":"this"}` {
				t.Errorf("asked was %+v, got %s", asked, got.Value)
			}
			_, err = s.Call(t.Context(), "roots", nil, nil)
			wantError(t, err, agent.Failed, false)
			if tt.name == "stateless" {
				wantError(t, err, agent.Failed, false, "Skep shares no folders")
				return // each request has a server of its own
			}
			call(t, s, "more", `{}`, nil)
			until(t, "the change of the list is told of", func() bool { return changed.Load() > 0 })
			if n := len(list(t, s)); n != 6 {
				t.Errorf("there are %d tools after the change", n)
			}
		})
	}
}

func same(s *sdk.Server) func(*http.Request) *sdk.Server {
	return func(*http.Request) *sdk.Server { return s }
}

func TestSessionLost(t *testing.T) {
	var now atomic.Pointer[http.Handler]
	restart := func() {
		var h http.Handler = sdk.NewStreamableHTTPHandler(same(kit()), nil)
		now.Store(&h)
	}
	restart()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s := overHTTP(t, byHTTP(server.URL), nil, nil)
	call(t, s, "echo", `{"text":"a"}`, nil)
	restart()
	if got := call(t, s, "echo", `{"text":"b"}`, nil); string(got.Value) != `{"text":"b"}` {
		t.Errorf("got %s", got.Value)
	}
}

// fake is a server whose answers to tools/call are written by answer.
func fake(t *testing.T, answer func(w http.ResponseWriter, id json.RawMessage)) (*httptest.Server, *atomic.Pointer[http.Header]) {
	t.Helper()
	var last atomic.Pointer[http.Header]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(&r.Header)
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}}`, m.ID)
		case "tools/call":
			answer(w, m.ID)
		case "server/discover":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server, &last
}

func TestHTTPAnswers(t *testing.T) {
	large := func(w http.ResponseWriter, before, after string) {
		fmt.Fprint(w, before)
		part := strings.Repeat("a", 1<<20)
		for range 200 {
			if _, err := fmt.Fprint(w, part); err != nil {
				return
			}
		}
		fmt.Fprint(w, after)
	}
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, id json.RawMessage)
		kind   agent.Kind
		words  string
	}{
		{"large JSON", func(w http.ResponseWriter, id json.RawMessage) {
			large(w, `{"jsonrpc":"2.0","id":`+string(id)+`,"result":{"content":[{"type":"text","text":"`, `"}]}}`)
		}, agent.Exhausted, "a message of more than 64 MiB"},
		{"large event", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			large(w, `data: {"jsonrpc":"2.0","id":`+string(id)+`,"result":{"content":[{"type":"text","text":"`, "\"}]}}\n\n")
		}, agent.Exhausted, "a message of more than 64 MiB"},
		{"events without end", func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}, agent.Unavailable, "did not answer it.x within 1s"},
		{"an event that is none", func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: nonsense\n\n")
		}, agent.Unavailable, "the call of it.x was lost"},
		{"no JSON", func(w http.ResponseWriter, _ json.RawMessage) { fmt.Fprint(w, "<html>") }, agent.Unavailable, "the call of it.x was lost"},
		{"a failure", func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(http.StatusBadGateway) }, agent.Unavailable, "Bad Gateway"},
		{"an error", func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"there is no x"}}`, id)
		}, agent.Failed, "it.x: there is no x (code -32602)"},
		{"another host", func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "http://127.0.0.2:1/steal")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, agent.Denied, "leads to another host, http://127.0.0.2:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, _ := fake(t, tt.answer)
			rec := byHTTP(server.URL)
			if rec.Timeout = time.Second; strings.HasPrefix(tt.name, "large") {
				rec.Timeout = time.Minute
			}
			s := overHTTP(t, rec, nil, nil)
			_, err := s.Call(t.Context(), "x", nil, nil)
			wantError(t, err, tt.kind, false, tt.words)
		})
	}
}

func TestHeaders(t *testing.T) {
	server, last := fake(t, func(w http.ResponseWriter, id json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"you sent s3cr3t-value"}]}}`, id)
	})
	rec := byHTTP(server.URL)
	rec.Header = map[string]string{"Authorization": "Bearer ${secret:key}", "X-Team": "bees"}
	s := overHTTP(t, rec, &mcp.Options{Secret: secret(t, "key", server.URL, "s3cr3t-value")}, nil)
	got := call(t, s, "x", "", nil)
	if string(got.Value) != `"you sent [secret]"` {
		t.Errorf("got %s", got.Value)
	}
	if h := *last.Load(); h.Get("Authorization") != "Bearer s3cr3t-value" || h.Get("X-Team") != "bees" {
		t.Errorf("sent was %v", h)
	}
}

func TestUnsent(t *testing.T) {
	server, _ := fake(t, nil)
	rec := byHTTP(server.URL)
	rec.Private = false
	_, err := overHTTP(t, rec, nil, nil).Call(t.Context(), "x", nil, nil)
	wantError(t, err, agent.Denied, true, "127.0.0.1 is a loopback address")
	gone := httptest.NewServer(nil)
	gone.Close()
	_, err = overHTTP(t, byHTTP(gone.URL), nil, nil).Call(t.Context(), "x", nil, nil)
	wantError(t, err, agent.Unavailable, true, "the connection was refused")
}
