package host

import (
	"context"
	"os"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/python"
)

// pythons makes the Python engine when the first agent needs it: that takes seconds when nothing is cached.
type pythons struct {
	file string
	opts func() *python.Options

	mu  sync.Mutex
	eng *python.Engine
}

func (p *pythons) engine(ctx context.Context, cells *cell.Engine) (*python.Engine, error) {
	if p.file == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "this server runs no agents in Python: it was started without an interpreter",
			Hint: "start it with --python FILE; " + python.Hint,
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.eng != nil {
		return p.eng, nil
	}
	wasm, err := os.ReadFile(p.file)
	if err != nil {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "the Python interpreter cannot be read", Err: err, Hint: python.Hint}
	}
	p.eng, err = python.New(ctx, cells, wasm, p.opts())
	return p.eng, err
}

func (p *pythons) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.eng == nil {
		return nil
	}
	eng := p.eng
	p.eng = nil
	return eng.Close(ctx)
}

type pythonGuest struct{ agent *python.Agent }

func (g pythonGuest) Exports() []string           { return g.agent.Exports() }
func (g pythonGuest) HasFetch() bool              { return false }
func (g pythonGuest) Size() int64                 { return g.agent.Size() }
func (g pythonGuest) Cost() agent.Usage           { return g.agent.Cost() }
func (g pythonGuest) Close(context.Context) error { return g.agent.Close() }

func (g pythonGuest) Call(ctx context.Context, c Call) (agent.Payload, agent.Usage, error) {
	return g.agent.Call(ctx, pythonCall(ctx, c))
}

func pythonCall(ctx context.Context, c Call) python.Call {
	return python.Call{Function: c.Function, Input: c.Input, Config: c.Config, Env: cell.Env{
		Tenant: c.Tenant, Agent: c.Agent, Weight: c.Weight, Limits: c.Limits, Calls: c.Calls, Log: logTo(ctx, c), Now: c.Now, Random: c.Random,
	}}
}

func (g pythonGuest) Fetch(context.Context, Call, Request) (Response, agent.Usage, error) {
	return Response{}, agent.Usage{}, &agent.Error{
		Kind: agent.NotFound, Msg: "the agent answers no HTTP requests: it is written in Python",
		Hint: "call one of its functions; HTTP handlers are for agents in JavaScript or TypeScript",
	}
}
