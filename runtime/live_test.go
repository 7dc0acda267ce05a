package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

// caller has a function that calls agent b each time it is told to, and tells how that went.
type caller struct{ again, went chan string }

func newCaller() *caller { return &caller{make(chan string), make(chan string)} }

func (c *caller) funcs() map[string]runtimetest.Func {
	return map[string]runtimetest.Func{
		"echo": echo,
		"loop": func(ctx context.Context, call host.Call) (agent.Payload, error) {
			for range c.again {
				_, err := runtimetest.CallAgent(ctx, call, "b", "echo", agent.Text("x"))
				c.went <- kind(err)
			}
			return agent.Text("done"), nil
		},
	}
}

func (c *caller) ask() string {
	c.again <- ""
	return <-c.went
}

func grantsOf(names ...string) *agent.Grants {
	g := agent.AgentGrants(names...)
	return &g
}

// A cell that runs loses a grant at the moment when it is taken back, and has it again when it is given again.
func TestRunningCellLosesAGrant(t *testing.T) {
	c := newCaller()
	r := newRig(t, c.funcs(), nil, "b")
	r.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("b")})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Call(t.Context(), app, call("caller", "loop", "")); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer close(c.again)
	update := func(p runtime.AgentPatch) {
		t.Helper()
		if _, err := r.UpdateAgent(t.Context(), app, "caller", p); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, want string) {
		t.Helper()
		if got := c.ask(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	want("granted", "ok")
	update(runtime.AgentPatch{Revoke: grantsOf("b")})
	want("taken back", "denied")
	update(runtime.AgentPatch{Grant: grantsOf("b")})
	want("given again", "ok")
	update(runtime.AgentPatch{Grants: &agent.Grants{}})
	want("replaced by nothing", "denied")
	update(runtime.AgentPatch{Grants: grantsOf("b")})
	want("replaced", "ok")
	if err := r.DeleteAgents(t.Context(), app, "caller"); err != nil {
		t.Fatal(err)
	}
	want("deleted", "denied")
	r.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("b")})
	want("another agent of its name", "denied")
}

// The same holds for a cell whose agent the cache has dropped for others.
func TestDroppedRecordIsLive(t *testing.T) {
	c := newCaller()
	r := newRig(t, c.funcs(), nil, "b")
	r.agent(agent.Agent{Name: "caller", Grants: agent.AgentGrants("b")})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = r.Call(t.Context(), app, call("caller", "loop", "")) })
	defer wg.Wait()
	defer close(c.again)
	if got := c.ask(); got != "ok" {
		t.Fatal(got)
	}
	r.ForgetRecords()
	goruntime.GC()
	goruntime.GC()
	if _, err := r.UpdateAgent(t.Context(), app, "caller", runtime.AgentPatch{Revoke: grantsOf("b")}); err != nil {
		t.Fatal(err)
	}
	if got := c.ask(); got != "denied" {
		t.Errorf("a cell whose agent is in no cache: %s", got)
	}
	if n := r.Living(); n > 2 { // the caller, and b
		t.Errorf("%d agents are kept", n)
	}
}

// What nobody holds is forgotten.
func TestRecordsAreForgotten(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"echo": echo}, nil)
	for i := range 50 {
		name := fmt.Sprint("n", i)
		r.agent(agent.Agent{Name: name})
		if _, err := r.Call(t.Context(), app, call(name, "echo", "")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Call(t.Context(), app, call("nobody"+name, "echo", "")); kind(err) != "not_found" {
			t.Fatal(err)
		}
	}
	if n := r.Living(); n != 50 {
		t.Errorf("%d agents are known, want 50", n)
	}
	r.ForgetRecords()
	for range 20 {
		goruntime.GC()
		if r.Living() == 0 {
			return
		}
	}
	t.Errorf("%d agents are kept that nobody holds", r.Living())
}

// Changes side by side and calls among them: when all have returned, calls see the last one.
func TestChangesKeepTheirOrder(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"tell": func(_ context.Context, c host.Call) (agent.Payload, error) {
		return agent.Text(c.Config["n"]), nil
	}}, nil)
	for round := range 20 {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				config := map[string]string{"n": fmt.Sprint(round, "-", i)}
				if _, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Config: &config}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if i == 2 {
					r.ForgetRecords()
				}
				_, _ = r.Call(t.Context(), app, call("a", "tell", ""))
			})
		}
		wg.Wait()
		stored, err := r.store.Agent(t.Context(), app, "a")
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.Call(t.Context(), app, call("a", "tell", ""))
		if err != nil || string(res.Output.Body) != stored.Config["n"] {
			t.Fatalf("a call sees %s, stored is %s: %v", res.Output.Body, stored.Config["n"], err)
		}
	}
}

func TestJudge(t *testing.T) {
	r := newRig(t, nil, nil)
	var was, now agent.Agent
	no := agent.Errorf(agent.Denied, "no")
	_, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Grant: grantsOf("b"), Judge: func(w, n agent.Agent) error {
		was, now = w, n
		return no
	}})
	if kind(err) != "denied" || len(was.Grants.Agents) != 0 || len(now.Grants.Agents) != 1 {
		t.Errorf("%v, from %+v to %+v", err, was.Grants, now.Grants)
	}
	if a, err := r.store.Agent(t.Context(), app, "a"); err != nil || !a.Grants.Empty() {
		t.Errorf("%+v %v", a, err)
	}
}

func TestWeightReachesCells(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"weight": func(_ context.Context, c host.Call) (agent.Payload, error) {
		return agent.Text(fmt.Sprint(c.Weight)), nil
	}}, nil)
	weigh := func() string {
		t.Helper()
		res, err := r.Call(t.Context(), app, call("a", "weight", ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Output.Body)
	}
	if got := weigh(); got != "1" {
		t.Errorf("at first: %s", got)
	}
	seven := 7
	if _, err := r.UpdateApp(t.Context(), app, runtime.AppPatch{Weight: &seven}); err != nil {
		t.Fatal(err)
	}
	if got := weigh(); got != "7" {
		t.Errorf("after the change: %s", got)
	}
}

func TestAudit(t *testing.T) {
	r := newRig(t, nil, nil)
	l := store.AuditLog(app)
	sub, err := r.Subscribe(t.Context(), l, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if err := r.Audit(t.Context(), app, agent.Event{Kind: agent.EventChanged, Data: []byte(`{"action":"x"}`)}, agent.Event{Kind: agent.EventSecretUsed}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.log(l), " "); got != "changed secret.used" {
		t.Errorf("log: %s", got)
	}
	frames, err := sub.Next(t.Context())
	if err != nil || len(frames) != 2 || frames[0].Event.Seq != 1 {
		t.Errorf("followed: %+v %v", frames, err)
	}
}
