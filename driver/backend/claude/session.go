package claude

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// session is a Claude Code that runs.
type session struct {
	*stdio.Session
	id   string
	dir  string
	all  bool // nothing is asked
	proc backend.Process
	out  *stdio.Writer
	ask  *stdio.Calls

	mu      sync.Mutex
	model   string
	message string // uuid of the user message of the turn
	cut     bool   // the turn was interrupted

	said said // of the reader alone
}

func newSession(p *driver.Prompt, id string, proc backend.Process, sink func(driver.Event)) *session {
	state, out := stdio.NewSession("Claude Code", sink), stdio.NewWriter(proc)
	return &session{
		Session: state, id: id, dir: p.Dir, all: all(p), proc: proc, out: out, ask: stdio.NewCalls(state, out), model: p.Model, said: newSaid(),
	}
}

// read reads what the CLI writes until it has ended.
func (s *session) read() {
	_ = stdio.Lines(s.proc, stdio.MaxLine, s.frame)
	how := stdio.Reap(s.proc)
	s.said.close(s)
	s.End(how)
}

// control is a request, whoever makes it.
type control struct {
	Type    string `json:"type"`
	ID      string `json:"request_id"`
	Request any    `json:"request"`
}

// request asks the CLI for something, and returns what it answers.
func (s *session) request(ctx context.Context, what any) (json.RawMessage, error) {
	return s.ask.Ask(ctx, func(id string) any { return control{"control_request", id, what} })
}

// send writes one frame.
func (s *session) send(ctx context.Context, v any) error { return s.ask.Send(ctx, v) }

// answered is a control_response to us.
func (s *session) answered(f *frame) bool {
	if f.Response.Subtype != "success" {
		return s.ask.Answered(f.Response.ID, nil, agent.Errorf(agent.Failed, "Claude Code refuses: %s", f.Response.Error))
	}
	return s.ask.Answered(f.Response.ID, f.Response.Response, nil)
}

// userMessage is a prompt as the CLI takes it.
type userMessage struct {
	Type    string  `json:"type"`
	UUID    string  `json:"uuid"`
	Message message `json:"message"`
	Parent  *string `json:"parent_tool_use_id"`
	Session string  `json:"session_id"`
}

type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

// Prompt is backend.Session's.
func (s *session) Prompt(ctx context.Context, p *driver.Prompt) error {
	if all(p) != s.all {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "Claude Code was started with other permissions than the turn is to have",
			Hint: "close it, and let it go on with its session under the new ones",
		}
	}
	content, err := contentOf(p, s.dir)
	if err != nil {
		return err
	}
	if err := s.Gone(); err != nil {
		return err
	}
	if err := s.useModel(ctx, p.Model); err != nil {
		return err
	}
	if err := s.Begin(p.Turn); err != nil {
		return err
	}
	m := userMessage{Type: "user", UUID: newUUID(), Message: message{"user", content}, Session: s.id}
	s.mu.Lock()
	s.message, s.cut = m.UUID, false
	s.mu.Unlock()
	_ = s.send(ctx, m) // a CLI that reads no more has ended, or will be: that ends the turn
	return nil
}

// useModel makes another model that of the session.
func (s *session) useModel(ctx context.Context, model string) error {
	s.mu.Lock()
	same := model == "" || model == s.model
	s.mu.Unlock()
	if same || s.Turn() != "" {
		return nil
	}
	if _, err := s.request(ctx, map[string]any{"subtype": "set_model", "model": model}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model = model
	return nil
}

// contentOf is what a prompt says and shows.
func contentOf(p *driver.Prompt, dir string) ([]any, error) {
	images, err := stdio.Images(p.Images, dir)
	if err != nil {
		return nil, err
	}
	var list []any
	for _, i := range images {
		source := map[string]string{"type": "base64", "media_type": i.Type, "data": base64.StdEncoding.EncodeToString(i.Data)}
		list = append(list, map[string]any{"type": "image", "source": source})
	}
	return append(list, map[string]any{"type": "text", "text": p.Text}), nil
}

// Interrupt is backend.Session's.
func (s *session) Interrupt(ctx context.Context) error {
	if err := s.Gone(); err != nil {
		return err
	}
	if s.Turn() == "" {
		return nil
	}
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	_, err := s.request(ctx, map[string]any{"subtype": "interrupt"})
	return err
}

// Close is backend.Session's.
func (s *session) Close(ctx context.Context) error { return s.Leave(ctx, s.proc, s.Interrupt) }
