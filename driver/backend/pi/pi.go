// Package pi speaks to pi by its RPC mode: commands and events as lines of JSON. docs/rpc.md and docs/json.md of the npm package tell them. pi asks nobody
// what it may do, so an extension of ours (gate.mjs) asks before each call of a tool.
package pi

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Version is the one that the tests run.
const Version = "1.6.0"

//go:embed gate.mjs
var gate []byte

// Backend is pi's.
type Backend struct{}

// New returns it.
func New() *Backend { return &Backend{} }

// Spec is backend.Backend's.
func (*Backend) Spec() backend.Spec {
	return backend.Spec{
		Name: "pi", Title: "pi", Package: "@earendil-works/pi-coding-agent@" + Version, Binary: "pi", Protocol: "rpc",
		Models:    []string{agent.ChatProtocol.String()},
		Abilities: []string{backend.Asks, backend.Interrupts, backend.Resumes, backend.Streams, backend.Thinks, backend.Counts, backend.Questions, backend.Diffs, backend.Images},
	}
}

// provider is what pi calls the gateway, and keyVar where its key is.
const (
	provider = "skep"
	keyVar   = "SKEP_MODEL_KEY"
)

// arguments are those of the CLI. Under a policy it loads no extension but the gate, and nothing that the workspace wants it to load.
func arguments(p *driver.Prompt, home string) []string {
	args := []string{"--mode", "rpc", "--provider", provider, "--model", p.Model, "--session-dir", filepath.Join(home, ".pi", "sessions")}
	if p.Resume != "" {
		args = append(args, "--session", p.Resume)
	}
	if all(p) {
		return append(args, "--approve")
	}
	return append(args, "--no-approve", "--no-extensions", "--extension", gateFile(home))
}

func gateFile(home string) string { return filepath.Join(home, ".pi", "skep", "gate.mjs") }

func all(p *driver.Prompt) bool { return p.Permissions == agent.AllowAll.String() }

// configure writes the gate, and the gateway as a provider beside those that are in the home already.
func configure(p *driver.Prompt, env *backend.Env) error {
	if err := write(gateFile(env.Home), gate); err != nil {
		return err
	}
	file := filepath.Join(env.Home, ".pi", "agent", "models.json")
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var config struct {
		Schema    string         `json:"$schema,omitempty"`
		Providers map[string]any `json:"providers"`
	}
	if json.Unmarshal(b, &config) != nil || config.Providers == nil {
		config.Providers = map[string]any{} // what it cannot be read by, pi cannot use either
	}
	config.Providers[provider] = map[string]any{
		"baseUrl": env.Models + "/v1", "api": "openai-completions", "apiKey": "$" + keyVar,
		"models": []any{map[string]any{"id": p.Model, "name": p.Model, "input": []string{"text", "image"}}},
	}
	if b, err = json.MarshalIndent(config, "", "\t"); err != nil {
		return err
	}
	return write(file, b)
}

func write(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// Start is backend.Backend's.
func (b *Backend) Start(ctx context.Context, p *driver.Prompt, env *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	if p.Model == "" {
		return nil, agent.Errorf(agent.Invalid, "pi needs the name of a model")
	}
	if strings.HasPrefix(p.Resume, "-") || strings.ContainsAny(p.Resume, "/\\") {
		return nil, agent.Errorf(agent.Invalid, "a session of pi is not called %.80q", p.Resume)
	}
	if err := configure(p, env); err != nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "the configuration of pi cannot be written", Err: err}
	}
	proc, err := env.Spawn(ctx, &backend.Command{
		Path: b.Spec().Binary, Args: arguments(p, env.Home), Dir: p.Dir,
		Env: map[string]string{
			"HOME": env.Home, keyVar: env.Key, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0",
			"PI_CODING_AGENT_DIR": filepath.Join(env.Home, ".pi", "agent"),
		},
	})
	if err != nil {
		return nil, err
	}
	s := newSession(p, env.Home, proc, sink)
	go s.read()
	if err := s.greet(ctx, p); err != nil {
		s.Drop(proc)
		return nil, err
	}
	return s, nil
}

// greet asks for the session, and tells that it has started.
func (s *session) greet(ctx context.Context, p *driver.Prompt) error {
	b, err := s.request(ctx, map[string]any{"type": "get_state"})
	if err != nil {
		return s.FailedStart(err, s.proc, p.Resume != "", "No session found")
	}
	var state struct {
		ID string `json:"sessionId"`
	}
	if json.Unmarshal(b, &state) != nil || state.ID == "" {
		return agent.Errorf(agent.Failed, "pi does not tell its session")
	}
	if err := s.guarded(ctx); err != nil {
		return err
	}
	s.Started(driver.SessionData{ID: state.ID, CLI: "pi", Model: p.Model, Resumed: p.Resume != ""})
	return nil
}

// gateWait is how long the gate may take after pi answers. It is there before that.
const gateWait = 5 * time.Second

// guarded returns when the gate is there, if it has to be. pi goes on without an extension that it cannot load.
func (s *session) guarded(ctx context.Context) error {
	if s.all {
		return nil
	}
	late := time.NewTimer(gateWait)
	defer late.Stop()
	select {
	case <-s.gated:
		return nil
	case <-s.Done():
		return s.Gone()
	case <-late.C:
	case <-ctx.Done():
	}
	return &agent.Error{
		Kind: agent.Failed, Msg: "pi does not load the extension that asks before a tool is called, so it cannot be had under a policy",
		Hint: "use the version of pi that skep image build installs, or allow the agent all in its sandbox: permissions all",
	}
}
