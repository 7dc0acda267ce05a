// Package clientjs tests the npm package in this directory, and Cloudflare's client, against a real server.
package clientjs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// server is a real one, with real cells, that can be stopped and started again at the same address with the same data.
type server struct {
	t     *testing.T
	dir   string
	db    kv.DB
	addr  string
	token string
	host  *host.Host
	model runtime.Models // nil unless the test has one
	boxes boxes          // nil unless the test has sandboxes
	rt    *runtime.Runtime
	stop  func()
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := startServer(t, server{})
	prepare(t, s.addr, s.token)
	return s
}

// startServer starts one that has no agents, with the model and the sandboxes of o.
func startServer(t *testing.T, o server) *server {
	t.Helper()
	s := &server{t: t, model: o.model, boxes: o.boxes, dir: t.TempDir(), db: memkv.New(), addr: "127.0.0.1:0"}
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) { return s.rt.LoadSource(ctx, d) }})
	if err != nil {
		t.Fatal(err)
	}
	s.host = h
	s.start()
	t.Cleanup(func() {
		s.stop()
		_ = h.Close(context.WithoutCancel(t.Context()))
	})
	return s
}

// prepare puts the agents there that the tests are about.
func prepare(t *testing.T, addr, token string) {
	t.Helper()
	ctx := t.Context()
	c := client.New("http://"+addr, token, nil)
	code, err := os.ReadFile(filepath.Join("testdata", "agent.ts"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutPlugin(ctx, client.Upload{Name: "code", Version: "1", Filename: "agent.ts", Body: code}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"room", "chat_room"} {
		if _, err := c.CreateAgent(ctx, client.NewAgent{Name: name, Plugin: "code"}); err != nil {
			t.Fatal(err)
		}
	}
}

// grace is how long runs may go on when the server stops. A model that waits for the test would wait for long.
func (s *server) grace() time.Duration {
	if s.model != nil {
		return 50 * time.Millisecond
	}
	return 0
}

func (s *server) start() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	st, err := store.Open(ctx, s.db, s.dir, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.dir, "owner.token")
	if _, err := api.EnsureOwnerToken(ctx, st, file); err != nil {
		s.t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(b))
	ro := &runtime.Options{Models: s.model, Grace: s.grace()}
	o := &api.Options{Origins: []string{"http://page.example"}}
	var both sync.WaitGroup
	var served, ran, kept error
	if s.boxes != nil {
		k := s.boxes(st)
		ro.Boxes, o.Sandboxes, o.Heartbeat = runtimeBoxes{k}, k, 20*time.Millisecond
		both.Go(func() { kept = k.Run(ctx) })
	}
	s.rt = runtime.New(st, s.host, ro)
	srv := api.New(s.rt, st, o)
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	both.Go(func() { served = srv.Run(ctx, ln) })
	both.Go(func() { ran = s.rt.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		both.Wait()
		if err := errors.Join(served, ran, kept, st.Close()); err != nil {
			s.t.Error(err)
		}
	})
}

// control lets a test in Node restart the server: it is an HTTP server of its own.
func (s *server) control() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/restart", func(w http.ResponseWriter, _ *http.Request) {
		s.stop()
		s.start()
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) { // one that may stand in a URL
		tok, err := client.New("http://"+s.addr, s.token, nil).CreateToken(r.Context(), client.NewToken{Name: "t", Expires: time.Now().Add(time.Minute)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, tok.Secret)
	})
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(ln) }()
	s.t.Cleanup(func() { _ = srv.Close() })
	return "http://" + ln.Addr().String()
}

// node runs a test file, which finds the server by its environment.
func (s *server) node(file string, env ...string) {
	s.t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		s.t.Skip("there is no node")
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", file)
	cmd.Env = append(os.Environ(), "SKEP_URL=http://"+s.addr, "SKEP_TOKEN="+s.token, "SKEP_CONTROL="+s.control())
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("node --test %s: %v", file, err)
	}
	s.t.Logf("%s", out)
}

func needsModules(t *testing.T, name string) {
	if _, err := os.Stat(filepath.Join("node_modules", name)); err != nil {
		t.Skip("there is no " + name + ": npm ci")
	}
}

func TestClient(t *testing.T) {
	needsModules(t, "ws")
	newServer(t).node("testdata/client.test.mjs")
}

// With the WebSocket that Node itself has, which is that of browsers (WHATWG).
func TestClientGlobal(t *testing.T) {
	needsModules(t, "ws")
	if exec.Command("node", "--experimental-websocket", "-e", "new WebSocket('ws://127.0.0.1:1').onerror = () => {}").Run() != nil {
		t.Skip("this Node has no WebSocket")
	}
	newServer(t).node("testdata/client.test.mjs", "NODE_OPTIONS=--experimental-websocket", "SKEP_GLOBAL=1")
}

// Cloudflare's own AgentClient, as its package has it.
func TestAgentClient(t *testing.T) {
	needsModules(t, "agents")
	newServer(t).node("testdata/cloudflare.test.mjs")
}

// Its hook for React.
func TestUseAgent(t *testing.T) {
	needsModules(t, "react-test-renderer")
	newServer(t).node("testdata/react.test.mjs")
}

func TestTypes(t *testing.T) {
	tsc := filepath.Join("..", "js", "node_modules", ".bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Skip("there is no checker: npm ci in sdk/js")
	}
	if out, err := exec.Command(tsc, "--noEmit", "-p", ".").CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}

// TestBrowser holds the package against what browsers have: it imports nothing.
func TestBrowser(t *testing.T) {
	for _, name := range []string{"index.js", "socket.js", "http.js", "chat.js", "sandbox.js", "query.js", "error.js"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if from, ok := strings.CutPrefix(line, "import "); ok && !strings.Contains(from, `from "./`) {
				t.Errorf("%s: %s", name, line)
			}
			if strings.Contains(line, "process.") || strings.Contains(line, "Buffer.from") || strings.Contains(line, "require(") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
