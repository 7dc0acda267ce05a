// Package claude speaks to Claude Code by its stream-json control protocol: lines of JSON both ways, in which the CLI streams what the model says, and asks
// to be allowed what its tools want to do. The protocol is that of Anthropic's Agent SDK (the npm package @anthropic-ai/claude-agent-sdk has its types); it
// is not promised to stay. What the tests saw of it is in testdata/frames.golden, and docs/design/backends.md tells what is to be known beyond the types.
package claude

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Version is the one that the tests run.
const Version = "2.1.332"

// Backend is Claude Code's.
type Backend struct{}

// New returns it.
func New() *Backend { return &Backend{} }

// Spec is backend.Backend's.
func (*Backend) Spec() backend.Spec {
	return backend.Spec{
		Name: "claude", Title: "Claude Code", Package: "@anthropic-ai/claude-code@" + Version, Binary: "claude", Protocol: "stream-json",
		Models: []string{agent.MessageProtocol.String()}, Proprietary: true,
		Abilities: []string{
			backend.Asks, backend.Interrupts, backend.Resumes, backend.Streams, backend.Thinks, backend.Plans, backend.Counts, backend.Questions, backend.Diffs, backend.Images,
		},
	}
}

// askAbout are the tools about which Claude Code would not ask by itself, or only at times. Rules to ask win over rules to allow, whoever wrote those.
var askAbout = []string{
	"Bash", "Edit", "Write", "NotebookEdit", "Read", "Glob", "Grep", "LSP", "WebFetch", "WebSearch", "Skill", "Workflow",
	"Monitor", "EnterWorktree", "CronCreate", "mcp__*",
}

// arguments are those of the CLI. Under a policy, settings and MCP servers of the workspace are left out: they come with what is worked on, and could allow
// anything, or run programs by themselves. What the workspace has to tell to the model is left out with them, so it is handed over.
func arguments(p *driver.Prompt, id string) []string {
	args := []string{
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio",
	}
	if p.Model != "" {
		args = append(args, "--model", p.Model)
	}
	if p.Resume != "" {
		args = append(args, "--resume", p.Resume)
	} else {
		args = append(args, "--session-id", id)
	}
	settings := map[string]any{"skipWebFetchPreflight": true} // which asks the vendor about each host
	if all(p) {
		return append(args, "--permission-mode", "bypassPermissions", "--settings", string(toJSON(settings)))
	}
	settings["permissions"] = map[string]any{"ask": askAbout}
	settings["disableAllHooks"] = true
	args = append(args, "--permission-mode", "manual", "--setting-sources", "user", "--strict-mcp-config", "--settings", string(toJSON(settings)))
	if text := instructions(p.Dir); text != "" {
		args = append(args, "--append-system-prompt", text)
	}
	return args
}

// maxInstructions bounds what is handed over of a workspace's instructions; the CLI itself warns from 40,000 characters on.
const maxInstructions = 64 << 10

// instructions are what the workspace has to tell to whoever works in it.
func instructions(dir string) string {
	for _, name := range []string{"CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md"} {
		b, err := readRegular(filepath.Join(dir, name), maxInstructions)
		if err == nil && len(bytes.TrimSpace(b)) > 0 {
			text := strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "")
			return "What " + name + " of the working directory says about how to work in it:\n\n" + text
		}
	}
	return ""
}

// readRegular reads the beginning of a file that is no device or pipe, for which one could wait.
func readRegular(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, os.ErrInvalid)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, most))
}

// retries is how often the CLI asks a model again that cannot be reached. The gateway tries again by itself when a provider fails.
const retries = "CLAUDE_CODE_MAX_RETRIES"

// environment makes the CLI talk to the gateway alone. Each model that it would choose by itself is the one that was asked for.
func environment(p *driver.Prompt, env *backend.Env) map[string]string {
	vars := map[string]string{
		"HOME":               env.Home,
		"ANTHROPIC_BASE_URL": env.Models, "ANTHROPIC_API_KEY": env.Key,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_INSTALLATION_CHECKS": "1",
		"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1", // else it has no plan that could be told
		"IS_SANDBOX":                    "1", // without it, root may not have bypassPermissions
	}
	if env.Vars[retries] == "" {
		vars[retries] = "5" // about half a minute, in which a control plane that was started anew is back; it is 10 unless set
	}
	if p.Model != "" {
		for _, name := range []string{
			"ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
		} {
			vars[name] = p.Model
		}
	}
	return vars
}

func all(p *driver.Prompt) bool { return p.Permissions == agent.AllowAll.String() }

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Start is backend.Backend's.
func (b *Backend) Start(ctx context.Context, p *driver.Prompt, env *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	id := p.Resume
	if id == "" {
		id = newUUID()
	} else if strings.HasPrefix(id, "-") {
		return nil, agent.Errorf(agent.Invalid, "a session of Claude Code is not called %.80q", id)
	}
	proc, err := env.Spawn(ctx, &backend.Command{Path: b.Spec().Binary, Args: arguments(p, id), Dir: p.Dir, Env: environment(p, env)})
	if err != nil {
		return nil, err
	}
	s := newSession(p, id, proc, sink)
	go s.read()
	if err := s.greet(ctx, p); err != nil {
		s.Drop(proc)
		return nil, err
	}
	return s, nil
}

// greet asks who is there, and tells that the session has started.
func (s *session) greet(ctx context.Context, p *driver.Prompt) error {
	if _, err := s.request(ctx, map[string]any{"subtype": "initialize"}); err != nil {
		return s.FailedStart(err, s.proc, p.Resume != "", "No conversation found")
	}
	var version struct {
		Version string `json:"version"`
	}
	if b, err := s.request(ctx, map[string]any{"subtype": "get_binary_version"}); err == nil {
		_ = json.Unmarshal(b, &version)
	}
	s.Started(driver.SessionData{ID: s.id, CLI: "claude", Version: version.Version, Model: p.Model, Resumed: p.Resume != ""})
	return nil
}
