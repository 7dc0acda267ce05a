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
	box := &toolbox{r: r, job: &j, auth: auth}
	var table *http.Table
	o.Close = append(o.Close, box.close, func() {
		if table != nil {
			table.Close()
		}
	})
	// What most calls make is there at once. The others are made for a cell that calls one of them.
	handlers := map[string]grant.Handler{abi.CallLog: log.New(j.limits.Log, j.sinks.line), abi.CallEmit: emit.New(j.limits.Events, j.sinks.emit)}
	if j.place != nil {
		state.AddStorage(handlers, func() agent.StateGrant { return storageBounds(j.grants()) }, storage{j.place})
		if x := j.place.run; x != nil {
			box.script, box.only = x.run.Code, x.run.Tools
			x.tools = box
			auth.CountBy(x.use)
		}
	}
	o.More = func() map[string]grant.Handler {
		more := box.handlers()
		if r.opts.Egress != nil {
			table = http.New(func() http.Client { return &outbound{r: r, job: &j, auth: auth} }, nil)
			maps.Copy(more, table.Handlers())
		} else {
			maps.Copy(more, http.Refused("agent \""+j.Agent+"\""))
		}
		more[abi.CallAgent] = grantagent.New(auth, j.depth, func(ctx context.Context, to grantagent.Target, in agent.Payload, depth int) (agent.Payload, error) {
			return r.callFrom(ctx, &j, to, in, depth)
		})
		if j.reply != nil {
			maps.Copy(more, j.reply.Handlers())
		}
		state.Add(more, auth, ownState{r.store, store.AgentState(j.App, j.ID), j.place})
		more[abi.CallSelf] = self(&j)
		if j.place != nil {
			r.addInstance(more, auth, &j)
			if j.place.run != nil {
				j.place.run.addHandlers(more, auth, &j)
			}
		}
		return more
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
