package backendtest

import (
	"context"
	"io/fs"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Options of a Rig.
type Options struct {
	CLI    CLI
	Script string                  // turns: docs/guide/scripted-models.md
	Lines  func(dir string) string // Script, when it depends on where the workspace is
	Wait   time.Duration           // the longest that Rig.Wait waits; 30 s unless given
}

// Rig is what a box is to a backend: a workspace, a home, and a relay with models behind it, without any other network.
type Rig struct {
	Env  *backend.Env
	Dir  string // the workspace
	Home string

	*recorder
	b      backend.Backend
	island *island
	models *models

	mu        sync.Mutex
	server    *http.Server // nil while the gateway is down
	procs     []*process
	elsewhere []string
}

// New returns a rig, and skips the test when the CLI is not there or a network namespace cannot be had.
func New(t testing.TB, b backend.Backend, o *Options) *Rig {
	t.Helper()
	o.CLI.Need(t)
	island, err := newIsland()
	if err != nil {
		missing(t, "a network namespace cannot be had (%v): run the test as root", err)
	}
	root := t.TempDir()
	r := &Rig{recorder: newRecorder(t, o.Wait), b: b, island: island, Dir: filepath.Join(root, "work"), Home: filepath.Join(root, "home")}
	tmp := filepath.Join(root, "tmp")
	for _, dir := range []string{r.Dir, r.Home, tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { r.Down(); island.close() })
	text := o.Script
	if o.Lines != nil {
		text = o.Lines(r.Dir)
	}
	r.models = newModels(t, text)
	relay := "http://" + driver.RelayAddr
	r.Env = &backend.Env{
		Home: r.Home, Relay: relay, Models: relay + driver.ModelPath, Key: modelKey, Spawn: r.spawn,
		Vars: map[string]string{
			"PATH": o.CLI.path(), "HOME": r.Home, "TMPDIR": tmp, "LANG": "C.UTF-8", "TERM": "dumb",
			"HTTP_PROXY": relay, "HTTPS_PROXY": relay, "http_proxy": relay, "https_proxy": relay, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
		},
	}
	r.Env.Vars["NODE_COMPILE_CACHE"] = filepath.Join(o.CLI.home(), "node_modules", ".compile-cache") // a start in Node takes half the time
	maps.Copy(r.Env.Vars, o.CLI.Vars)
	r.Up()
	t.Cleanup(r.end)
	return r
}

// Up lets the gateway answer, as it does from the beginning.
func (r *Rig) Up() {
	r.t.Helper()
	ln, err := r.island.listen(driver.RelayAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &http.Server{Handler: r, ErrorLog: log.New(quiet{}, "", 0)}
	r.mu.Lock()
	r.server = s
	r.mu.Unlock()
	go func(ln net.Listener) { _ = s.Serve(ln) }(ln)
}

type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }

// Down makes the gateway unreachable, and cuts what it was saying.
func (r *Rig) Down() {
	r.mu.Lock()
	s := r.server
	r.server = nil
	r.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

// ServeHTTP answers at the relay: the gateway, and a proxy that lets nobody out and remembers who wanted to.
func (r *Rig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodConnect || q.URL.Host != "" && q.URL.Host != driver.RelayAddr {
		r.mu.Lock()
		r.elsewhere = append(r.elsewhere, q.Host)
		r.mu.Unlock()
		http.Error(w, "this host is not granted", http.StatusForbidden)
		return
	}
	r.models.ServeHTTP(w, q)
}

// Elsewhere are the hosts, with ports, that the CLI has asked the proxy for.
func (r *Rig) Elsewhere() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.elsewhere)
	slices.Sort(list)
	return slices.Compact(list)
}

// Requests are those that came to the gateway.
func (r *Rig) Requests() []Request { return r.models.requests() }

// Start starts the CLI in the workspace. CLI, Model (@main) and Dir are filled in. It is closed when the test ends.
func (r *Rig) Start(p driver.Prompt) backend.Session {
	r.t.Helper()
	s, err := r.Try(p)
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return s
}

// Try is Start, which may fail.
func (r *Rig) Try(p driver.Prompt) (backend.Session, error) {
	r.fill(&p)
	ctx, cancel := context.WithTimeout(context.Background(), r.wait)
	defer cancel()
	s, err := r.b.Start(ctx, &p, r.Env, r.record)
	if err == nil {
		r.t.Cleanup(func() { r.Close(s) })
	}
	return s, err
}

func (r *Rig) fill(p *driver.Prompt) {
	p.CLI = r.b.Spec().Name
	if p.Dir == "" {
		p.Dir = r.Dir
	}
	if p.Model == "" {
		p.Model = "@main"
	}
}

// Close closes a session, and sees to it that it ends.
func (r *Rig) Close(s backend.Session) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.wait)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		r.t.Errorf("close: %v", err)
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		r.t.Error("a session that was closed is not done")
	}
}

// Prompt begins a turn. CLI, Model and Dir are filled in as by Start.
func (r *Rig) Prompt(s backend.Session, p driver.Prompt) {
	r.t.Helper()
	r.fill(&p)
	ctx, cancel := context.WithTimeout(context.Background(), r.wait)
	defer cancel()
	if err := s.Prompt(ctx, &p); err != nil {
		r.t.Fatalf("prompt: %v", err)
	}
}

// Turn is Prompt, and waits until the turn has ended. It returns how.
func (r *Rig) Turn(s backend.Session, p driver.Prompt) driver.TurnEnd {
	r.t.Helper()
	r.Prompt(s, p)
	return Data[driver.TurnEnd](r.t, r.Wait(driver.TurnEnded))
}

// Refuse is Turn, in which all that the CLI asks to be allowed is refused. It returns what was asked, as ACTION ARGUMENTS in the order of the alphabet.
func (r *Rig) Refuse(s backend.Session, p driver.Prompt) (asked []string) {
	r.t.Helper()
	r.Prompt(s, p)
	for {
		e := r.Wait(driver.PermissionAsked, driver.TurnEnded)
		if e.Type == driver.TurnEnded {
			slices.Sort(asked)
			return asked
		}
		d := Data[driver.PermissionData](r.t, e)
		asked = append(asked, d.Action+" "+string(d.Args))
		if err := s.Answer(r.t.Context(), &driver.Answer{ID: d.ID, Message: "no"}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Kill ends everything that was started, as the kernel does for want of memory.
func (r *Rig) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.procs {
		_ = p.Signal("KILL", true)
	}
}

// Output is what the process that was started as number n, from 0, has written so far to its standard output.
func (r *Rig) Output(n int) []byte {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n >= len(r.procs) {
		r.t.Fatalf("%d processes were started, not %d", len(r.procs), n+1)
	}
	p := r.procs[n]
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.out)
}

// Until waits for what no event tells of.
func (r *Rig) Until(within time.Duration, what string, f func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(within); !f(); {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("not so within %s: %s", within, what)
		}
	}
}

// Tree is the workspace: the text of each file by its path.
func (r *Rig) Tree() map[string]string {
	r.t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(r.Dir, path)
		tree[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return tree
}

// Put writes a file, within the workspace unless its path is absolute. Folders that are missing are made.
func (r *Rig) Put(path, text string) {
	r.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Dir, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// end sees to it that no process is left, and tells of a failure what came.
func (r *Rig) end() {
	r.mu.Lock()
	procs := slices.Clone(r.procs)
	r.mu.Unlock()
	for _, p := range procs {
		select {
		case <-p.done:
		default:
			r.t.Errorf("process %d still runs", p.cmd.Process.Pid)
			_ = p.Signal("KILL", true)
			<-p.done
		}
	}
	if !r.t.Failed() {
		return
	}
	for _, e := range r.Events() {
		r.t.Logf("event %s turn %q native %q %.600s", e.Type, e.Turn, e.Native, e.Data)
	}
	for _, p := range procs {
		r.t.Logf("what %s said on standard error:\n%s", p.cmd.Path, p.err)
	}
	for _, q := range r.models.requests() {
		r.t.Logf("request %s %s answered %d, gone %t", q.Method, q.Path, q.Status, q.Gone)
	}
}
