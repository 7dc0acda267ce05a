package runtime

import (
	"context"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/host/grant/emit"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/log"
)

// sinks is where a cell's console output and events go.
type sinks struct {
	line log.Sink
	emit emit.Sink
}

// door returns the door of one cell of a, which was called depth agents deep.
func (r *Runtime) door(a *agent.Agent, limits agent.Limits, depth int, s sinks) *grant.Door {
	call := func(ctx context.Context, name, function string, in agent.Payload, depth int) (agent.Payload, error) {
		res, err := r.call(ctx, a.App, CallRequest{Agent: name, Function: function, Input: in}, depth)
		return res.Output, err
	}
	auth := grant.NewAuthority(grant.Subject{App: a.App, Agent: a.Name, ID: a.ID}, func() agent.Grants { return a.Grants }, nil, nil)
	return grant.NewDoor(limits, map[string]grant.Handler{
		abi.CallLog:   log.New(limits.Log, s.line),
		abi.CallEmit:  emit.New(limits.Events, s.emit),
		abi.CallHTTP:  http.New("agent \"" + a.Name + "\""),
		abi.CallAgent: grantagent.New(auth, depth, call),
	}, &grant.Options{Log: r.log})
}

// lineList keeps console lines in memory.
type lineList struct {
	mu    sync.Mutex
	lines []agent.LogLine
}

func (l *lineList) add(_ context.Context, line agent.LogLine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *lineList) take() []agent.LogLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}
