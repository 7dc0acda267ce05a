package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools"
)

// rig is a server that listens, with a real runtime and store and with cells that run Go functions. Every exchange through
// its client is held against the OpenAPI document.
type rig struct {
	t     testing.TB
	s     *Server
	url   string
	token string
	c     *client.Client
	stop  func() error // idempotent
	gate  chan struct{}
	log   *logBuffer
	cells *runtimetest.Cells
}

// logBuffer collects a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t testing.TB, o *Options) *rig {
	t.Helper()
	db := memkv.New()
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return startOn(t, o, db, t.TempDir())
}

// startOn starts a server on a database that there may be already, with the files in dir.
func startOn(t testing.TB, o *Options, db kv.DB, dir string) *rig {
	t.Helper()
	r := &rig{t: t, gate: make(chan struct{}), log: &logBuffer{}}
	ctx := context.Background()
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(dir, "owner.token")
	if _, err := EnsureOwnerToken(ctx, st, tokenFile); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	r.token = strings.TrimSpace(string(b))
	funcs := r.funcs()
	maps.Copy(funcs, durableFuncs())
	cells := runtimetest.New(funcs)
	cells.OnFetch = fetchHandler
	r.cells = cells
	usage, err := ledger.Open(ctx, st, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	catalogue := tools.New(st, &tools.Options{Openers: tools.Openers{agent.MCPStdio: openLook}})
	t.Cleanup(func() { _ = catalogue.Close() })
	rt := runtime.New(st, cells, &runtime.Options{Ledger: usage, Tools: catalogue})

	opts := Options{}
	if o != nil {
		opts = *o
	}
	if opts.Tools == nil {
		opts.Tools = catalogue
	}
	if opts.Vault == nil {
		opts.Vault = openVault(t, st, rt)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(r.log, nil))
	}
	if opts.Models == nil {
		opts.Models = newModels(st, usage)
	}
	r.s = New(rt, st, &opts)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	r.c = client.New(r.url, r.token, &client.Options{HTTP: &http.Client{Transport: checked(t, r.s.doc)}})

	run, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	var served, ran error
	both.Go(func() { served = r.s.Run(run, ln) })
	both.Go(func() { ran = rt.Run(run) })
	r.stop = sync.OnceValue(func() error {
		cancel()
		both.Wait()
		return errors.Join(served, ran, usage.Close(), st.Close())
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error("stop:", err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return r
}

// funcs are what every agent's code has.
func (r *rig) funcs() map[string]runtimetest.Func {
	return map[string]runtimetest.Func{
		"echo": func(_ context.Context, c host.Call) (agent.Payload, error) { return c.Input, nil },
		"run":  func(_ context.Context, c host.Call) (agent.Payload, error) { return c.Input, nil },
		"onMessage": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			var m agent.Message
			if err := json.Unmarshal(c.Input.Body, &m); err != nil {
				return agent.Payload{}, err
			}
			if err := runtimetest.Emit(ctx, c, "reply", m.Content); err != nil {
				return agent.Payload{}, err
			}
			return agent.JSON(m.Content), nil
		},
		"split": func(context.Context, host.Call) (agent.Payload, error) {
			return agent.Payload{Type: "text/plain\r\nX-Evil: 1", Body: []byte("x")}, nil
		},
		"throw": func(context.Context, host.Call) (agent.Payload, error) {
			return agent.Payload{}, errors.New("boom")
		},
		"log": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.Text(""), runtimetest.Log(ctx, c, agent.LevelInfo, string(c.Input.Body))
		},
		"slow": func(ctx context.Context, _ host.Call) (agent.Payload, error) {
			<-ctx.Done()
			return agent.Payload{}, ctx.Err()
		},
		"gate": func(ctx context.Context, _ host.Call) (agent.Payload, error) {
			select {
			case <-r.gate:
				return agent.Text("open"), nil
			case <-ctx.Done():
				return agent.Payload{}, ctx.Err()
			}
		},
		"panic": func(context.Context, host.Call) (agent.Payload, error) { panic("secret detail") },
		"error": func(_ context.Context, c host.Call) (agent.Payload, error) {
			var e agent.Error
			if err := e.Kind.UnmarshalText(c.Input.Body); err != nil {
				return agent.Payload{}, err
			}
			e.Msg, e.Hint, e.Err = "as you asked", "ask for something else", errors.New("secret detail")
			e.Pos, e.Stack = agent.Pos{File: "main.ts", Line: 3, Column: 7}, "at f (main.ts:3:7)"
			return agent.Payload{}, &e
		},
	}
}

func fetchHandler(_ context.Context, _ host.Call, req host.Request) (host.Response, error) {
	if strings.HasSuffix(req.URL, "/teapot") {
		return host.Response{Status: 418, Header: [][2]string{
			{"Content-Type", "text/x-tea"}, {"Connection", "close"}, {"X-Split", "a\r\nX-Evil: 1"}, {"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2"},
		}, Body: []byte("short and stout")}, nil
	}
	if strings.HasSuffix(req.URL, "/nonsense") {
		return host.Response{Status: 42}, nil
	}
	b, err := json.Marshal(req)
	return host.Response{Status: 200, Header: [][2]string{{"content-type", "application/json"}}, Body: b}, err
}

// agent makes an agent called name.
func (r *rig) agent(name string) agent.Agent {
	r.t.Helper()
	ctx := context.Background()
	if _, err := r.c.PutPlugin(ctx, client.Upload{Name: "code", Version: "1", Filename: "main.ts", Body: []byte("export const x = 1")}, nil); err != nil {
		r.t.Fatal(err)
	}
	a, err := r.c.CreateAgent(ctx, client.NewAgent{Name: name, Plugin: "code"})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) session(name string) agent.Session {
	r.t.Helper()
	r.agent(name)
	s, err := r.c.CreateSession(context.Background(), client.NewSession{Agent: name})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// reply is an answer with its body read.
type reply struct {
	*http.Response
	body []byte
}

func (p reply) problem(t testing.TB) problem {
	t.Helper()
	var out problem
	if err := json.Unmarshal(p.body, &out); err != nil {
		t.Fatalf("%s: %v: %s", p.Status, err, p.body)
	}
	if got := p.Header.Get("Content-Type"); got != typeProblem {
		t.Errorf("Content-Type = %q", got)
	}
	return out
}

// do sends a request as it is. Headers are name, value, name, value.
func (r *rig) do(method, target, body string, header ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+target, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	req.Host = req.Header.Get("Host")
	hc := http.Client{Transport: checked(r.t, r.s.doc)}
	res, err := hc.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		dump, _ := httputil.DumpResponse(res, false)
		r.t.Fatalf("%v\n%s", err, dump)
	}
	return reply{res, b}
}

func (r *rig) wait(id agent.RunID) agent.Run {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, err := range r.c.Events(ctx, client.RunLog(id), 0, true) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	run, err := r.c.Run(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

func wantKind(t testing.TB, err error, kind agent.Kind) *agent.Error {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind {
		t.Fatalf("error = %v (%v), want kind %v", err, fmt.Sprintf("%T", err), kind)
	}
	return agent.AsError(err)
}
