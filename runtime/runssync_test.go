package runtime_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

// Code that waits inside of a call gives up its cell, and is played again from its beginning: what it did is not done again.
func TestRunIsPlayedAgain(t *testing.T) {
	var lives, paid atomic.Int64
	ask := func(ctx context.Context, c host.Call, name string, in any) (string, error) {
		b, err := json.Marshal(in)
		if err != nil {
			return "", err
		}
		out, err := c.Calls(ctx, name, b)
		return string(out), err
	}
	w := &world{rig: newRig(t, map[string]runtimetest.Func{
		"pay": func(context.Context, host.Call) (agent.Payload, error) {
			paid.Add(1)
			return agent.Text("paid"), nil
		},
		"work": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			lives.Add(1)
			first := c.Now()
			if err := runtimetest.Emit(ctx, c, "begin", 1); err != nil {
				return agent.Payload{}, err
			}
			if err := runtimetest.Log(ctx, c, agent.LevelInfo, "here"); err != nil {
				return agent.Payload{}, err
			}
			if _, err := ask(ctx, c, abi.CallStorageSet, abi.StateEdit{Key: "k", StateValue: abi.StateValue{JSON: abi.Raw("1")}}); err != nil {
				return agent.Payload{}, err
			}
			got, err := runtimetest.CallAgent(ctx, c, "a", "pay", agent.Text(""))
			if err != nil {
				return agent.Payload{}, err
			}
			if _, err := ask(ctx, c, abi.CallSleep, abi.Sleep{For: 5}); err != nil {
				return agent.Payload{}, err
			}
			event, err := ask(ctx, c, abi.CallWait, abi.Wait{Type: "go"})
			if err != nil {
				return agent.Payload{}, err
			}
			if !c.Now().After(first) {
				t.Error("the clock stands still")
			}
			state, err := ask(ctx, c, abi.CallStorageGet, abi.StateGet{Keys: []string{"k"}})
			return agent.Text(string(got.Body) + event + state), err
		},
	}, nil)}
	w.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("a")})
	w.start()
	run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "caller", Function: "work", Input: agent.Text("")}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	run = w.until(run, agent.EventRunWaiting)
	if run.Wait.For != "event" || w.Stats().Live != 0 {
		t.Errorf("run waits for %+v, %d cells are live", run.Wait, w.Stats().Live)
	}
	w.event(run, "go", `7`)
	want := `paid{"data":7}{"entries":[{"key":"k","version":2,"type":"application/json","json":1}]}`
	if got := w.output(run); got != want {
		t.Errorf("output %s, want %s", got, want)
	}
	if lives.Load() != 2 || paid.Load() != 1 {
		t.Errorf("%d lives, paid %d times", lives.Load(), paid.Load())
	}
	events := []string{"run.queued", "run.started", "begin 1", "info: here", "run.waiting", "event.received", "run.resumed", "run.completed"}
	if d := cmp.Diff(events, w.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// A process that was taken over, and has the instance again because somebody called it there, does not go on with a run that has gone on elsewhere.
func TestRunOfAProcessThatWasTakenOver(t *testing.T) { synctest.Test(t, takenOver) }

func takenOver(t *testing.T) {
	calls, let := make(chan struct{}, 2), make(chan struct{})
	funcs := map[string]runtimetest.Func{
		"pay": func(ctx context.Context, _ host.Call) (agent.Payload, error) {
			calls <- struct{}{}
			select {
			case <-let:
			case <-ctx.Done():
			}
			return agent.Text("paid"), ctx.Err()
		},
		"touch": counted("touched"),
		"work": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if _, err := runtimetest.CallAgent(ctx, c, "a", "pay", agent.Text("")); err != nil {
				return agent.Payload{}, err
			}
			if _, err := count(ctx, c, "worked"); err != nil {
				return agent.Payload{}, err
			}
			return runtimetest.CallAgent(ctx, c, "a", "pay", agent.Text(""))
		},
	}
	w := &world{rig: newRig(t, funcs, nil)}
	w.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("a")})
	stop := w.start()
	run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "caller", Function: "work", Key: "k", Input: agent.Text("")}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	<-calls
	next := &world{rig: &rig{t: t, store: w.store, db: w.db, Runtime: runtime.New(w.store, runtimetest.New(funcs), nil)}}
	end := next.start()
	next.until(run, agent.EventRunUncertain)
	end()
	touch := func() error {
		_, err := w.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "caller", Key: "k", Function: "touch", Input: agent.Text("")})
		return err
	}
	if err := touch(); err == nil {
		t.Error("it did not hear that it was taken over")
	}
	if err := touch(); err != nil {
		t.Fatal(err)
	}
	close(let)
	wait(time.Second)
	stop()
	if got, err := w.store.Run(t.Context(), app, run.ID); err != nil || got.Status != agent.Uncertain {
		t.Errorf("the run is %s: %v", got.Status, err)
	}
	if _, err := w.Storage(t.Context(), app, "caller", "k", "worked"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("it went on: %v", err)
	}
}

// A life goes on where its own process has forgotten the instance, which nobody used for a while, and has acquired it anew: also after a life that was lost,
// and after a pause.
func TestRunOfAnInstanceAcquiredAnew(t *testing.T) { synctest.Test(t, acquiredAnew) }

func acquiredAnew(t *testing.T) {
	var lives atomic.Int64
	funcs := map[string]runtimetest.Func{
		"pay": func(context.Context, host.Call) (agent.Payload, error) {
			time.Sleep(time.Minute)
			return agent.Text("paid"), nil
		},
		"work": func(ctx context.Context, c host.Call) (out agent.Payload, err error) {
			life := lives.Add(1)
			for i := range 4 {
				if _, err := runtimetest.CallAgent(ctx, c, "payer", "pay", agent.Text("")); err != nil {
					return out, err
				}
				if out, err = number(count(ctx, c, "worked")); err != nil {
					return out, err
				}
				if life == 1 {
					return out, agent.Errorf(agent.Unavailable, "the first life is lost")
				}
				if _, err := ask[struct{}](ctx, c, abi.CallSleep, abi.Sleep{For: int64(i) * 600}); err != nil {
					return out, err
				}
			}
			return out, nil
		},
	}
	w := &world{rig: newRig(t, funcs, nil)}
	long := agent.Limits{Wall: time.Hour}
	w.agent(agent.Agent{Name: "payer", Limits: long})
	w.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("payer"), Limits: long})
	w.start()
	run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "caller", Function: "work", Key: "k", Input: agent.Text("")}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	acquired := w.Stats().Durable.Acquired
	wait(150 * time.Second) // in the second life, while it pays for the second time
	if _, err := w.PauseRuns(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	run = w.until(run, agent.EventRunPaused)
	if _, err := w.ResumeRuns(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	wait(10 * time.Minute)
	if got := w.output(run); got != "4" {
		t.Errorf("output %s", got)
	}
	if n := w.Stats().Durable.Acquired - acquired; n < 4 {
		t.Errorf("the instance was acquired anew %d times", n)
	}
}
