package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools"
)

// rig is a server with real cells, the agent that serves what the suite wants, and a server of tools, "demo".
type rig struct {
	url, token string
	rt         *runtime.Runtime
	st         *store.Store
	cat        *tools.Catalogue
	demo       *demo
}

func serve(t *testing.T) *rig {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	db := memkv.New()
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(dir, "owner.token")
	if _, err := api.EnsureOwnerToken(ctx, st, tokenFile); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{token: strings.TrimSpace(string(token)), st: st, demo: newDemo()}
	cells, err := host.New(ctx, &host.Options{
		Seed: make([]byte, 32), CacheDir: filepath.Join(dir, "cache"),
		Load:   func(ctx context.Context, d agent.Digest) (agent.Source, error) { return r.rt.LoadSource(ctx, d) },
		Loaded: func(l host.Loaded) { r.rt.Loaded(l) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.cat = tools.New(st, &tools.Options{Openers: tools.Openers{agent.MCPHTTP: r.demo.open}})
	r.rt = runtime.New(st, cells, &runtime.Options{Tools: r.cat})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	run, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	var served, ran error
	both.Go(func() { served = api.New(r.rt, st, &api.Options{Tools: r.cat, MCPWait: time.Second}).Run(run, ln) })
	both.Go(func() { ran = r.rt.Run(run) })
	t.Cleanup(func() {
		cancel()
		both.Wait()
		if err := errors.Join(served, ran, r.cat.Close(), cells.Close(ctx), st.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	push(t, r.rt)
	if _, err := r.cat.Add(ctx, agent.ToolServer{
		App: agent.DefaultApp, Name: "demo", Kind: agent.MCPHTTP, URL: "https://demo.example/mcp",
		Effects: map[string]agent.Effect{"add": agent.Read, "slow": agent.Read, "image": agent.Read, "fail": agent.Read, "write": agent.Modify},
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// demo is a server of tools.
type demo struct {
	begun chan struct{} // has one when a slow call has begun
	gone  chan error    // has what ended it
	go_   chan struct{} // lets it end

	mu      sync.Mutex
	written []string
	more    bool // whether there is one more tool
	changed func()

	library bool // whether it has prompts and resources
}

func newDemo() *demo {
	return &demo{begun: make(chan struct{}, 8), gone: make(chan error, 8), go_: make(chan struct{})}
}

func (d *demo) open(_ context.Context, _ agent.ToolServer, changed func()) (tools.Source, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = changed
	if d.library {
		return shelf{d}, nil
	}
	return d, nil
}

func (d *demo) grow() {
	d.mu.Lock()
	d.more = true
	changed := d.changed
	d.mu.Unlock()
	changed()
}

func (d *demo) Tools(context.Context) ([]tools.Offer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	offer := func(method, text, in, out string) tools.Offer {
		o := tools.Offer{Tool: agent.Tool{Method: method, Description: text, Input: json.RawMessage(in)}}
		if out != "" {
			o.Output = json.RawMessage(out)
		}
		return o
	}
	list := []tools.Offer{
		offer("add", "Adds two numbers.", `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`,
			`{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`),
		offer("slow", "Takes its time.", `{"type":"object","properties":{"token":{"type":"string","x-mcp-header":"Token"}}}`, ""),
		offer("image", "Draws.", `{"type":"object"}`, ""),
		offer("fail", "Fails.", `{"type":"object"}`, ""),
		offer("write", "Writes a line.", `{"type":"object","properties":{"line":{"type":"string"}},"required":["line"]}`, ""),
	}
	if d.more {
		list = append(list, offer("more", "Is new.", `{"type":"object"}`, ""))
	}
	return list, nil
}

var pixel = []byte("\x89PNG\r\n\x1a\nnot really")

func (d *demo) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	var in struct {
		A, B float64
		Line string
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return agent.ToolResult{}, err
	}
	switch method {
	case "add":
		b, err := json.Marshal(map[string]float64{"sum": in.A + in.B})
		return agent.ToolResult{Value: b}, err
	case "slow":
		d.begun <- struct{}{}
		select {
		case <-d.go_:
			return agent.ToolResult{Value: json.RawMessage(`"done"`), Text: true}, nil
		case <-ctx.Done():
			d.gone <- ctx.Err()
			return agent.ToolResult{}, ctx.Err()
		}
	case "image":
		return agent.ToolResult{Value: json.RawMessage(`{"$blob":0}`), Blobs: []agent.ToolBlob{{Name: "pixel.png", Type: "image/png", Body: pixel}}}, nil
	case "fail":
		return agent.ToolResult{}, agent.Errorf(agent.Failed, "the disk is full")
	case "write":
		d.mu.Lock()
		d.written = append(d.written, in.Line)
		d.mu.Unlock()
		return agent.ToolResult{Value: json.RawMessage(`"written"`), Text: true}, nil
	}
	return agent.ToolResult{}, agent.Errorf(agent.NotFound, "no %s", method)
}

func (d *demo) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.written...)
}

func (d *demo) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }
func (d *demo) Close() error             { return nil }

// push stores the plugin and makes the agent.
func push(t *testing.T, rt *runtime.Runtime) {
	t.Helper()
	files, err := plugins.Collect(os.DirFS("plugin"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := plugins.Pack(files)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := rt.PutPlugin(t.Context(), agent.DefaultApp, runtime.Upload{Body: body}, store.Once{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := rt.CreateAgent(t.Context(), agent.Agent{App: agent.DefaultApp, Name: "conformance", Plugin: p.Name}, store.Once{}); err != nil {
		t.Fatal(err)
	}
}

// proxy passes requests on as they are, with the token, which the suite cannot send. Host and Origin stay as the suite says: it tests them.
func (r *rig) proxy(t *testing.T) string {
	t.Helper()
	to, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	p := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host
		p.Out.Header.Set("Authorization", "Bearer "+r.token)
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// A body is read first: the server would end one that is still on its way when the answer begins, and the answer with it.
	whole := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		p.ServeHTTP(w, q)
	})
	s := &http.Server{Handler: whole, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	return "http://" + ln.Addr().String()
}
