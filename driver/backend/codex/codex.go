// Package codex is the backend of Codex, which it speaks to by its app-server: JSON-RPC on standard input and output. What it needs of that protocol is
// in testdata/contract.json, which a test compares with the schema that the CLI writes of itself.
package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/jsonrpc"
	"github.com/skep-dev/skep/driver/backend/stdio"
	"github.com/skep-dev/skep/driver/backend/turn"
)

const title = "Codex"

// keyVar is the variable in which Codex finds the key of the gateway.
const keyVar = "SKEP_MODEL_KEY"

// Backend speaks to Codex.
type Backend struct{}

// New returns the backend.
func New() *Backend { return &Backend{} }

// Spec is what it is.
func (*Backend) Spec() backend.Spec {
	return backend.Spec{
		Name: "codex", Title: title, Package: "@openai/codex@0.171.0", Binary: "codex", Protocol: "app-server (JSON-RPC)",
		Models: []string{agent.ResponseProtocol.String()},
		Abilities: []string{
			backend.Asks, backend.Interrupts, backend.Resumes, backend.Streams, backend.Thinks, backend.Counts, backend.Questions, backend.Diffs, backend.Images,
		},
	}
}

// session is a thread of one app-server.
type session struct {
	book *turn.Book
	conn *jsonrpc.Conn
	proc backend.Process
	dir  string
	all  bool // nobody is asked

	// of Run's goroutine
	changes map[string][]change // what the file changes of the turn are, by item
	thought map[string]bool     // reasoning that came in pieces
	asks    map[string]string   // the ids of what is asked, by those of Codex's requests
	retries int                 // of requests to the model, in the turn
	failure *turnError          // the last that was told of the turn

	mu     sync.Mutex
	thread string
	id     string // of Codex's turn
}

// Start starts an app-server and a thread.
func (b *Backend) Start(ctx context.Context, p *driver.Prompt, env *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	home := filepath.Join(env.Home, ".codex")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of Codex: %w", err)
	}
	s := &session{
		book: turn.New(title, sink), dir: p.Dir, all: p.Permissions == agent.AllowAll.String(),
		changes: map[string][]change{}, thought: map[string]bool{}, asks: map[string]string{},
	}
	catalog, err := writeCatalog(ctx, env, home, p)
	if err != nil {
		s.book.Log("the catalogue of Codex's models cannot be read, so that it edits by its shell: " + err.Error())
	}
	s.proc, err = env.Spawn(ctx, &backend.Command{
		Path: "codex", Args: arguments(env, p, catalog, s.all), Dir: p.Dir,
		Env: map[string]string{"CODEX_HOME": home, keyVar: env.Key, "NO_COLOR": "1"},
	})
	if err != nil {
		return nil, err
	}
	s.conn = jsonrpc.New(s.proc, &jsonrpc.Options{Bare: true, Notify: s.notify, Ask: s.ask, Junk: s.book.Unparsed})
	go s.run()
	if err := s.begin(ctx, p); err != nil {
		return nil, s.book.Abandon(s.proc, err)
	}
	return s, nil
}

// run is the session's goroutine, which lives as long as the CLI.
func (s *session) run() {
	_ = s.conn.Run() // what ended the reading ends the program, too
	s.book.End(stdio.Reap(s.proc))
}

// arguments are those of the program. They go before what a file of configuration in the home says, and what that of a repository says.
func arguments(env *backend.Env, p *driver.Prompt, catalog string, all bool) []string {
	args := []string{"app-server"}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	provider := fmt.Sprintf(`{name="Skep",base_url=%s,env_key=%q,wire_api="responses",supports_websockets=false,`, quote(env.Models+"/v1"), keyVar) +
		`request_max_retries=0,stream_max_retries=1,stream_idle_timeout_ms=300000}`
	set("model_provider", `"skep"`)
	set("model_providers.skep", provider)
	set("model", quote(p.Model))
	if catalog != "" {
		set("model_catalog_json", quote(catalog))
	}
	set("web_search", `"disabled"`) // it is a tool of OpenAI's: what it finds comes by no way that a policy sees
	set("analytics.enabled", "false")
	set("check_for_update_on_startup", "false")
	set("shell_environment_policy.exclude", fmt.Sprintf("[%q]", keyVar))
	if !all {
		set("projects", untrusted(p.Dir))
	}
	for _, feature := range []string{"apps", "plugins", "goals", "image_generation", "unbounded_connection_retries"} {
		args = append(args, "--disable", feature)
	}
	return args
}

// untrusted says that the repository at dir is not trusted. Codex trusts one that a thread is started in without its sandbox, and then starts the servers,
// runs the hooks and allows the commands that the repository's own .codex says, and asks nobody.
func untrusted(dir string) string {
	table := fmt.Sprintf(`%s={trust_level="untrusted"}`, quote(dir))
	for root := dir; ; {
		if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil && root != dir {
			table += fmt.Sprintf(`,%s={trust_level="untrusted"}`, quote(root))
		}
		up := filepath.Dir(root)
		if up == root {
			return "{" + table + "}"
		}
		root = up
	}
}

// quote is text as a basic string of TOML, which has the escapes of JSON.
func quote(text string) string {
	out, _ := json.Marshal(text) // a string always is JSON
	return string(out)
}

// begin does the handshake, and starts the thread or resumes one.
func (s *session) begin(ctx context.Context, p *driver.Prompt) error {
	hello := map[string]any{
		"clientInfo":   map[string]any{"name": "skep", "title": "Skep", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true},
	}
	if err := s.conn.Call(ctx, "initialize", hello, nil); err != nil {
		return err
	}
	if err := s.conn.Tell("initialized", nil); err != nil {
		return err
	}
	args := map[string]any{"cwd": p.Dir, "model": p.Model, "modelProvider": "skep", "approvalPolicy": s.approvals(), "sandbox": "danger-full-access"}
	method := "thread/start"
	if p.Resume != "" {
		method = "thread/resume"
		args["threadId"], args["excludeTurns"] = p.Resume, true
	}
	var r struct {
		Thread struct {
			ID         string `json:"id"`
			CLIVersion string `json:"cliVersion"`
		} `json:"thread"`
		Model string `json:"model"`
	}
	if err := s.conn.Call(ctx, method, args, &r); err != nil {
		return err
	}
	if r.Thread.ID == "" {
		return errors.New(method + ": the answer names no thread")
	}
	s.mu.Lock()
	s.thread = r.Thread.ID
	s.mu.Unlock()
	s.book.Started(driver.SessionData{ID: r.Thread.ID, CLI: "codex", Version: r.Thread.CLIVersion, Model: r.Model, Resumed: p.Resume != ""})
	return nil
}

// approvals is Codex's name of who is asked. Its sandbox is off, because it cannot be within another, and untrusted then means that everything is asked.
func (s *session) approvals() string {
	if s.all {
		return "never"
	}
	return "untrusted"
}

// Prompt begins a turn. What is not kept by Codex when a thread is resumed is said each time.
func (s *session) Prompt(ctx context.Context, p *driver.Prompt) error {
	if err := s.book.Begin(p.Turn); err != nil {
		return err
	}
	var input []any
	for _, path := range p.Images {
		input = append(input, map[string]any{"type": "localImage", "path": path})
	}
	input = append(input, map[string]any{"type": "text", "text": p.Text})
	args := map[string]any{
		"threadId": s.thread, "input": input, "cwd": p.Dir, "model": p.Model,
		"approvalPolicy": s.approvals(), "sandboxPolicy": map[string]any{"type": "dangerFullAccess"},
	}
	begun := make(chan error, 1)
	s.conn.Go("turn/start", args, func(raw json.RawMessage, err error) { begun <- s.begun(raw, err) })
	select {
	case err := <-begun:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begun notes Codex's id of the turn. Of one that could not begin, the end is told.
func (s *session) begun(raw json.RawMessage, err error) error {
	var r struct {
		Turn codexTurn `json:"turn"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil {
		s.named(r.Turn.ID)
		return nil
	}
	if refused := (*jsonrpc.Error)(nil); errors.As(err, &refused) {
		err = agent.Errorf(agent.Failed, "Codex did not begin the turn: %s", refused)
	}
	s.book.Fail("turn/start", err)
	return err
}

// named notes the id of the turn under way, and interrupts one that somebody wanted to interrupt before it had one.
func (s *session) named(id string) {
	s.mu.Lock()
	fresh := id != "" && s.id != id
	s.id = id
	s.mu.Unlock()
	if fresh && s.book.WasCut() {
		s.interrupt(id)
	}
}

func (s *session) interrupt(id string) {
	args := map[string]any{"threadId": s.thread, "turnId": id}
	s.conn.Go("turn/interrupt", args, func(_ json.RawMessage, err error) {
		if err != nil && s.book.Turn() != "" {
			s.book.Log("Codex did not take the interrupt: " + err.Error())
		}
	})
}

// Answer answers what was asked.
func (s *session) Answer(ctx context.Context, a *driver.Answer) error { return s.book.Answer(ctx, a) }

// Interrupt asks Codex to end the turn.
func (s *session) Interrupt(context.Context) error {
	if under, err := s.book.Cut(); err != nil || !under {
		return err
	}
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	if id != "" {
		s.interrupt(id)
	}
	return nil
}

// Close ends the app-server by the end of its input, which also ends a turn.
func (s *session) Close(ctx context.Context) error { return s.book.Shut(ctx, s.proc) }

// Done is closed when the app-server has exited.
func (s *session) Done() <-chan struct{} { return s.book.Done() }
