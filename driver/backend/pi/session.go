package pi

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

// session is a pi that runs.
type session struct {
	*stdio.Session
	dir   string
	home  string
	model string
	all   bool // nothing is asked
	proc  backend.Process
	out   *stdio.Writer
	ask   *stdio.Calls

	gated  chan struct{} // closed by gateUp, when the gate has said that it is there
	gateUp func()

	said said // of the reader alone
}

func newSession(p *driver.Prompt, home string, proc backend.Process, sink func(driver.Event)) *session {
	gated := make(chan struct{})
	state, out := stdio.NewSession("pi", sink), stdio.NewWriter(proc)
	return &session{
		gated: gated, gateUp: sync.OnceFunc(func() { close(gated) }),
		Session: state, dir: p.Dir, home: home, model: p.Model, all: all(p), proc: proc, out: out, ask: stdio.NewCalls(state, out), said: newSaid(),
	}
}

// read reads what pi writes until it has ended.
func (s *session) read() {
	_ = stdio.Lines(s.proc, stdio.MaxLine, s.line)
	how := stdio.Reap(s.proc)
	s.said.close(s)
	s.End(how)
}

// request gives pi a command, and returns the data of its answer.
func (s *session) request(ctx context.Context, command map[string]any) (json.RawMessage, error) {
	return s.ask.Ask(ctx, func(id string) any {
		command["id"] = id
		return command
	})
}

// send writes one record.
func (s *session) send(ctx context.Context, v any) error { return s.ask.Send(ctx, v) }

// answered is the answer to a command of ours.
func (s *session) answered(r *record) bool {
	if !r.Success {
		return s.ask.Answered(r.ID, nil, agent.Errorf(agent.Failed, "pi refuses: %s", errorText(r.Error)))
	}
	return s.ask.Answered(r.ID, r.Data, nil)
}

// Prompt is backend.Session's.
func (s *session) Prompt(ctx context.Context, p *driver.Prompt) error {
	if all(p) != s.all || p.Model != "" && p.Model != s.model {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "pi was started with other permissions, or another model, than the turn is to have",
			Hint: "close it, and let it go on with its session under the new ones",
		}
	}
	command := map[string]any{"type": "prompt", "message": p.Text}
	if len(p.Images) > 0 {
		images, err := stdio.Images(p.Images, s.dir)
		if err != nil {
			return err
		}
		var list []any
		for _, i := range images {
			list = append(list, map[string]any{"type": "image", "data": base64.StdEncoding.EncodeToString(i.Data), "mimeType": i.Type})
		}
		command["images"] = list
	}
	if err := s.Begin(p.Turn); err != nil {
		return err
	}
	b, err := s.request(ctx, command)
	if s.Gone() != nil {
		return nil // that ends the turn, too
	}
	if err != nil {
		s.Finish(driver.TurnEnd{Status: driver.TurnFailed, Reason: "refused", Fault: driver.FaultOf(err)})
		return nil
	}
	var data struct {
		Disposition string `json:"disposition"`
	}
	if json.Unmarshal(b, &data) == nil && data.Disposition == "handled" { // a command of an extension: nothing follows
		s.Finish(driver.TurnEnd{Status: driver.TurnCompleted, Reason: data.Disposition})
	}
	return nil
}

// Interrupt is backend.Session's.
func (s *session) Interrupt(ctx context.Context) error {
	if err := s.Gone(); err != nil {
		return err
	}
	if s.Turn() == "" {
		return nil
	}
	_, err := s.request(ctx, map[string]any{"type": "abort"})
	return err
}

// Close is backend.Session's.
func (s *session) Close(ctx context.Context) error { return s.Leave(ctx, s.proc, s.Interrupt) }
