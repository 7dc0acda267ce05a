package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/store"
)

// defaultKey is the instance key of a session that names none.
const defaultKey = "default"

// maxName is the most bytes in the name of a function, a key or a media type.
const maxName = 256

// RunRequest asks for a run. Without a session it gets one of its own, with the instance key Key. Without a function it
// runs "run", or "default" where the code has no "run".
type RunRequest struct {
	Agent, Function string
	Session         agent.SessionID
	Key             string
	Input           agent.Payload

	code  agent.Digest // of a script of code mode, which is run in place of the agent's code
	tools []string     // that it may call
}

// StartRun stores a queued run and returns; Run executes it. It tells whether this was a repetition of the same request,
// which returns the first one's run as it stands now.
func (r *Runtime) StartRun(ctx context.Context, app agent.App, req RunRequest, once store.Once) (agent.Run, bool, error) {
	return r.start(ctx, app, req, once)
}

func (r *Runtime) start(ctx context.Context, app agent.App, req RunRequest, once store.Once) (agent.Run, bool, error) {
	now := time.Now().UTC()
	nr := store.NewRun{}
	if req.Session != "" {
		s, err := r.store.Session(ctx, app, req.Session)
		if err != nil {
			return agent.Run{}, false, err
		}
		if req.Agent == "" {
			req.Agent = s.Agent
		}
		if s.Agent != req.Agent {
			return agent.Run{}, false, agent.Errorf(agent.Invalid, "session %s belongs to agent %q, not to %q", s.ID, s.Agent, req.Agent)
		}
	} else {
		req.Session = agent.NewSessionID(now)
		nr.Session = &agent.Session{App: app, ID: req.Session, Agent: req.Agent, Key: cmp.Or(req.Key, defaultKey), Created: now}
		if req.code != "" && req.Key == "" {
			nr.Session.Key = string(req.Session) // so that scripts do not wait for each other
		}
	}
	return r.enqueue(ctx, app, req, nr, once)
}

// Send appends a message to a session and starts a run of onMessage with it. The role is "user" unless given.
func (r *Runtime) Send(ctx context.Context, app agent.App, id agent.SessionID, msg agent.Message, once store.Once) (agent.Run, bool, error) {
	msg.Role = cmp.Or(msg.Role, "user")
	if msg.Role != "user" && msg.Role != "agent" {
		return agent.Run{}, false, agent.Errorf(agent.Invalid, `a message's role is "user" or "agent", not %.80q`, msg.Role)
	}
	if !json.Valid(msg.Content) {
		return agent.Run{}, false, agent.Errorf(agent.Invalid, "a message needs content, which is a JSON value")
	}
	s, err := r.store.Session(ctx, app, id)
	if err != nil {
		return agent.Run{}, false, err
	}
	data := encode(msg)
	return r.enqueue(ctx, app, RunRequest{
		Agent: s.Agent, Function: "onMessage", Session: id, Input: agent.JSON(data),
	}, store.NewRun{Events: []agent.Event{{Kind: agent.EventMessage, Data: data}}}, once)
}

func (r *Runtime) enqueue(ctx context.Context, app agent.App, req RunRequest, nr store.NewRun, once store.Once) (agent.Run, bool, error) {
	rec, limits, err := r.admitCode(ctx, app, req.Agent, agent.Limits{})
	if err == nil && req.code == "" {
		if req.code, err = r.workerCode(ctx, rec, req.Function); req.code != "" {
			req.Function = codeFunction
			if nr.Session != nil && req.Key == "" {
				nr.Session.Key = string(nr.Session.ID) // an instance of its own, as for scripts
			}
		} else if err == nil && rec.plugin == noPlugin {
			err = errNoCode(rec.agent)
		}
	}
	if err != nil {
		return agent.Run{}, false, err
	}
	if req.Function == "" {
		if req.Function, err = defaultFunction(rec.plugin); err != nil {
			return agent.Run{}, false, err
		}
	}
	if n := int64(len(req.Input.Body)); n > limits.Input {
		return agent.Run{}, false, agent.Exceeded(agent.LimitInput, "the input has %d bytes, more than %d", n, limits.Input)
	}
	if err := checkNames(req.Function, req.Key, req.Input.Type); err != nil {
		return agent.Run{}, false, err
	}
	if err := r.mayQueue(rec, limits, req.Input); err != nil {
		return agent.Run{}, false, r.stats.failed(err)
	}
	now := time.Now().UTC()
	nr.Run = agent.Run{
		App: app, ID: agent.NewRunID(now), Session: req.Session, Agent: req.Agent, Plugin: rec.plugin.Digest,
		Function: req.Function, Input: req.Input, Status: agent.Queued, Created: now,
		Trace: telemetry.Traceparent(ctx),
	}
	if req.code != "" {
		nr.Run.Plugin, nr.Run.Code, nr.Run.Tools = req.code, true, req.tools
	}
	nr.Events = append(nr.Events, agent.Event{Kind: agent.EventRunQueued, Data: encode(map[string]string{"function": req.Function})})
	for i := range nr.Events {
		nr.Events[i].Run, nr.Events[i].Time = nr.Run.ID, now
	}
	run, events, replayed, err := r.store.CreateRun(ctx, nr, once)
	if err != nil || replayed {
		return run, replayed, err
	}
	r.feeds.publish(store.SessionLog(app, run.Session), events)
	r.queue.push(taskOf(run))
	return run, false, nil
}

func checkNames(function, key, mediaType string) error {
	for _, f := range []struct{ what, name string }{{"function", function}, {"key", key}, {"input's media type", mediaType}} {
		if len(f.name) > maxName {
			return agent.Errorf(agent.Invalid, "the %s has %d bytes, more than %d", f.what, len(f.name), maxName)
		}
	}
	return nil
}

func defaultFunction(p *agent.Plugin) (string, error) {
	for _, name := range []string{"run", "default"} {
		if slices.Contains(p.Exports, name) {
			return name, nil
		}
	}
	return "", &agent.Error{
		Kind: agent.Invalid, Msg: "the code has no function called run, so the run must name one",
		Hint: "it has: " + strings.Join(p.Exports, ", "),
	}
}

func taskOf(run agent.Run) *task {
	t := &task{
		app: run.App, id: run.ID, agent: run.Agent, session: run.Session, in: int64(len(run.Input.Body)), resumed: run.Lives > 0,
		since: time.Now(),
	}
	if t.resumed {
		t.in = 0 // it has counted
	}
	return t
}

// Cancel ends runs and returns them in the order of ids, ended. A run that ended before stays as it is. When one of the
// ids is not known, nothing is cancelled.
func (r *Runtime) Cancel(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	for _, id := range ids {
		if _, err := r.store.Run(ctx, app, id); err != nil {
			return nil, err
		}
	}
	// None may take the place of one that is stopped, and the stops come first, so that the runs end side by side.
	removed := r.queue.remove(ids)
	for _, id := range ids {
		r.interrupt(id)
	}
	out := make([]agent.Run, len(ids))
	for i, id := range ids {
		run, err := r.cancel(ctx, app, id)
		if err != nil {
			for _, t := range removed { // those that were cancelled are passed over in their turn
				r.queue.push(t)
			}
			return nil, err
		}
		out[i] = run
	}
	return out, nil
}

// interrupt stops the cell of a run that is being executed. It reports nil when none is.
func (r *Runtime) interrupt(id agent.RunID) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.active[id]
	if x != nil {
		x.stop(errCancelled())
	}
	return x
}

// cancel ends one run. A run has an execution for as long as this process has it Running, so a run that is Running twice in
// a row without one was left by another process.
func (r *Runtime) cancel(ctx context.Context, app agent.App, id agent.RunID) (agent.Run, error) {
	for orphan := false; ; {
		if x := r.interrupt(id); x != nil {
			select {
			case <-x.ended:
			case <-ctx.Done():
				return agent.Run{}, ctx.Err()
			}
		}
		run, err := r.store.Run(ctx, app, id)
		switch {
		case err != nil || run.Status.Terminal():
			return run, err
		case run.Status == agent.Running && !orphan:
			orphan = true
			continue
		}
		run, err = r.end(ctx, run, agent.RunCancelled, errCancelled())
		if err != nil && agent.KindOf(err) == agent.Conflict {
			orphan = false
			continue
		}
		return run, err
	}
}

// Wait returns the run once it has ended. When ctx ends first it returns the run as it was, with ctx's error.
func (r *Runtime) Wait(ctx context.Context, app agent.App, id agent.RunID) (agent.Run, error) {
	w := r.watches.add(id)
	defer r.watches.remove(id, w)
	run, err := r.store.Run(ctx, app, id)
	if err != nil || run.Status.Terminal() {
		return run, err
	}
	select {
	case <-w.ended:
		return r.store.Run(ctx, app, id)
	case <-ctx.Done():
		return run, ctx.Err()
	}
}
