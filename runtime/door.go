package runtime

import (
	"context"
	"maps"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/host/grant/emit"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/log"
	"github.com/skep-dev/skep/host/grant/state"
	"github.com/skep-dev/skep/store"
)

// sinks is where a cell's console output and events go. Code that runs once has the first one only.
type sinks struct {
	line  log.Sink
	emit  emit.Sink
	event func(context.Context, agent.Event) // of ours; it may be dropped where lines may be
}

// door returns the door of one cell. Close it when the cell has ended.
func (r *Runtime) door(j job) *grant.Door {
	o := &grant.Options{Log: r.log}
	if j.grants == nil {
		handlers := http.Refused("code that runs once")
		handlers[abi.CallLog] = log.New(j.limits.Log, j.sinks.line)
		handlers[abi.CallEmit] = emit.Refused("code that runs once")
		return grant.NewDoor(j.limits, handlers, o)
	}
	j.sinks = j.sinks.cleaned(j.secrets)
	auth := grant.NewAuthority(j.Subject, j.grants, r.quotas, r.refused(j))
	call := func(ctx context.Context, to grantagent.Target, in agent.Payload, depth int) (agent.Payload, error) {
		return r.callFrom(ctx, &j, to, in, depth)
	}
	handlers := http.Refused("agent \"" + j.Agent + "\"")
	if r.opts.Egress != nil {
		table := http.New(func() http.Client { return &outbound{r: r, job: &j, auth: auth} }, nil)
		o.Close = append(o.Close, table.Close)
		handlers = table.Handlers()
	}
	handlers[abi.CallLog] = log.New(j.limits.Log, j.sinks.line)
	handlers[abi.CallEmit] = emit.New(j.limits.Events, j.sinks.emit)
	handlers[abi.CallAgent] = grantagent.New(auth, j.depth, call)
	if j.reply != nil {
		maps.Copy(handlers, j.reply.Handlers())
	}
	state.Add(handlers, auth, ownState{r.store, store.AgentState(j.App, j.ID), j.place})
	handlers[abi.CallSelf] = self(&j)
	box := &toolbox{r: r, job: &j, auth: auth}
	o.More, o.Close = box.handlers, append(o.Close, box.close)
	if j.place != nil {
		r.addInstance(handlers, auth, &j)
		if j.place.run != nil {
			box.script, box.only = j.place.run.run.Code, j.place.run.run.Tools
			j.place.run.tools = box
			j.place.run.addHandlers(handlers, auth, &j)
			auth.CountBy(j.place.run.use)
		}
	}
	return grant.NewDoor(j.limits, handlers, o)
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
