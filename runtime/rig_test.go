package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

const app = agent.DefaultApp

// rig is a runtime with scripted cells on a memory store, with a plugin "code" and agents that run it.
type rig struct {
	*runtime.Runtime
	t     testing.TB
	store *store.Store
	db    *faultkv.DB
	fault func(faultkv.Op) faultkv.Fault // may be set before the operation it is for
}

func newRig(t testing.TB, funcs map[string]runtimetest.Func, o *runtime.Options, agents ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	r.db = faultkv.New(memkv.New(), func(op faultkv.Op) faultkv.Fault {
		if r.fault != nil {
			return r.fault(op)
		}
		return faultkv.Fault{}
	})
	dir := t.TempDir()
	st, err := store.Open(t.Context(), r.db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	r.store = st
	if o == nil {
		o = &runtime.Options{}
	}
	if o.Ledger, err = ledger.Open(t.Context(), st, dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Ledger.Close() })
	o.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	r.Runtime = runtime.New(st, runtimetest.New(funcs), o)
	if _, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte("export {}")}, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(agents, "a") {
		r.agent(agent.Agent{Name: name})
	}
	return r
}

// testWriter keeps what a runtime logs for the test's own log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

func (r *rig) agent(a agent.Agent) agent.Agent {
	r.t.Helper()
	a.App = app
	if a.Plugin == "" {
		a.Plugin = "code"
	}
	a, _, err := r.CreateAgent(r.t.Context(), a, store.Once{})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// start runs the runtime until the test ends, or until the function it returns is called.
func (r *rig) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	stop = func() { cancel(); done.Wait() }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) run(name, function, input string) agent.Run {
	r.t.Helper()
	run, _, err := r.StartRun(r.t.Context(), app, runtime.RunRequest{Agent: name, Function: function, Input: agent.Text(input)}, store.Once{})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

func (r *rig) wait(id agent.RunID) agent.Run {
	r.t.Helper()
	run, err := r.Wait(r.t.Context(), app, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// log returns the events of a session's log, each as "kind data" or "name data".
func (r *rig) log(l store.Log) (out []string) {
	r.t.Helper()
	events, err := r.store.Read(r.t.Context(), l, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, ev := range events {
		out = append(out, brief(ev))
	}
	return out
}

func (r *rig) sessionLog(run agent.Run) []string {
	r.t.Helper()
	return r.log(store.SessionLog(app, run.Session))
}

func brief(ev agent.Event) string {
	switch ev.Kind {
	case agent.EventEmit:
		return fmt.Sprintf("%s %s", ev.Name, ev.Data)
	case agent.EventLog:
		var l agent.LogLine
		_ = json.Unmarshal(ev.Data, &l)
		return fmt.Sprintf("%s: %s", l.Level, l.Message)
	case agent.EventRunFailed, agent.EventRunCancelled:
		var e agent.RunError
		_ = json.Unmarshal(ev.Data, &e)
		return fmt.Sprintf("%s %s: %s", ev.Kind, e.Kind, e.Msg)
	default:
		return ev.Kind.String()
	}
}

// collect reads a subscription to its end.
func collect(ctx context.Context, s *runtime.Subscription) (out []runtime.Frame, err error) {
	for {
		frames, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, frames...)
	}
}

func kind(err error) string {
	if err == nil {
		return "ok"
	}
	return agent.KindOf(err).String()
}
