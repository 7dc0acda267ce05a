package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
)

func echo(_ context.Context, c host.Call) (agent.Payload, error) { return c.Input, nil }

func call(name, function, input string) runtime.CallRequest {
	return runtime.CallRequest{Agent: name, Function: function, Input: agent.Text(input)}
}

func TestCallTouchesNoDisk(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"echo": echo}, nil)
	one := func() {
		res, err := r.Call(t.Context(), app, call("a", "echo", "hello"))
		if err != nil || string(res.Output.Body) != "hello" || res.Usage.In != 5 || res.Usage.Out != 5 {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	one()
	views, applies := r.db.Count(faultkv.View), r.db.Count(faultkv.Apply)
	for range 100 {
		one()
	}
	if v, a := r.db.Count(faultkv.View)-views, r.db.Count(faultkv.Apply)-applies; v+a != 0 {
		t.Errorf("%d reads and %d commits", v, a)
	}
	if s := r.Stats(); s.Calls != 101 || s.Live != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestCallSeesChanges(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"tell": func(_ context.Context, c host.Call) (agent.Payload, error) {
		return agent.Text(fmt.Sprintf("%s %v", c.Plugin.Hex()[:12], c.Config)), nil
	}}, nil)
	tell := func() string {
		t.Helper()
		res, err := r.Call(t.Context(), app, call("a", "tell", ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Output.Body)
	}
	put := func(body string) string {
		t.Helper()
		p, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte(body)}, store.Once{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(p.Version, "0-")
	}
	update := func(p runtime.AgentPatch) {
		t.Helper()
		if _, err := r.UpdateAgent(t.Context(), app, "a", p); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	v2 := put("2")
	if got := tell(); got != v2+" map[]" {
		t.Errorf("newest version: got %s", got)
	}
	update(runtime.AgentPatch{Config: &map[string]string{"k": "v"}})
	if got := tell(); got != v2+" map[k:v]" {
		t.Errorf("config: got %s", got)
	}
	pinned := "code@0-" + v2
	update(runtime.AgentPatch{Plugin: &pinned})
	put("3")
	if got := tell(); got != v2+" map[k:v]" {
		t.Errorf("pinned: got %s", got)
	}
	if err := r.DeleteAgents(t.Context(), app, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Call(t.Context(), app, call("a", "tell", "")); kind(err) != "not_found" {
		t.Errorf("deleted: %v", err)
	}
}

func TestAgentRefused(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, tt := range []struct {
		name string
		a    agent.Agent
		kind string
	}{
		{"name", agent.Agent{Name: "A", Plugin: "code"}, "invalid"},
		{"unknown plugin", agent.Agent{Name: "x", Plugin: "none"}, "not_found"},
		{"limits", agent.Agent{Name: "x", Plugin: "code", Limits: agent.Limits{Wall: 2 * time.Hour}}, "invalid"},
		{"grant", agent.Agent{Name: "x", Plugin: "code", Grants: agent.AgentGrants("*")}, "invalid"},
		{"grants", agent.Agent{Name: "x", Plugin: "code", Grants: agent.AgentGrants(make([]string, 300)...)}, "invalid"},
		{"config", agent.Agent{Name: "x", Plugin: "code", Config: map[string]string{"k": strings.Repeat("v", 64<<10)}}, "invalid"},
		{"config name", agent.Agent{Name: "x", Plugin: "code", Config: map[string]string{"": "v"}}, "invalid"},
		{"description", agent.Agent{Name: "x", Plugin: "code", Description: strings.Repeat("v", 4<<10+1)}, "invalid"},
		{"twice", agent.Agent{Name: "a", Plugin: "code"}, "exists"},
	} {
		tt.a.App = app
		if _, _, err := r.CreateAgent(t.Context(), tt.a, store.Once{}); kind(err) != tt.kind {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.kind)
		}
	}
	none, grants := "none", agent.AgentGrants("b", "a", "b")
	if _, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Plugin: &none}); kind(err) != "not_found" {
		t.Errorf("update to an unknown plugin: %v", err)
	}
	if _, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Limits: &agent.Limits{CPU: -1}}); kind(err) != "invalid" {
		t.Errorf("update to bad limits: %v", err)
	}
	a, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Grants: &grants})
	if err != nil || !cmp.Equal(a.Grants, agent.AgentGrants("a", "b")) {
		t.Errorf("grants: %v, %v", a.Grants, err)
	}
}

func TestCallLimits(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"tell": func(_ context.Context, c host.Call) (agent.Payload, error) {
		return agent.Text(fmt.Sprint(c.Limits.Memory>>20, " ", c.Limits.Wall)), nil
	}}, nil)
	r.agent(agent.Agent{Name: "small", Limits: agent.Limits{Memory: 16 << 20}})
	for _, tt := range []struct {
		agent string
		asked agent.Limits
		want  string
	}{
		{"a", agent.Limits{}, "128 30s"},
		{"small", agent.Limits{}, "16 30s"},
		{"small", agent.Limits{Memory: 8 << 20, Wall: time.Second}, "8 1s"},
		{"small", agent.Limits{Memory: 32 << 20}, "invalid"},
		{"small", agent.Limits{Wall: -1}, "invalid"},
	} {
		req := call(tt.agent, "tell", "")
		req.Limits = tt.asked
		res, err := r.Call(t.Context(), app, req)
		got := string(res.Output.Body)
		if err != nil {
			got = kind(err)
		}
		if got != tt.want {
			t.Errorf("%s asking %+v: got %s, want %s", tt.agent, tt.asked, got, tt.want)
		}
	}
}

func TestAgentsCallAgents(t *testing.T) {
	depth := 0
	r := newRig(t, map[string]runtimetest.Func{
		"echo": echo,
		"ask": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return runtimetest.CallAgent(ctx, c, string(c.Input.Body), "echo", agent.Text("hi"))
		},
		"loop": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			depth++
			return runtimetest.CallAgent(ctx, c, "looper", "loop", c.Input)
		},
	}, nil)
	r.agent(agent.Agent{Name: "asker", Grants: agent.AgentGrants("a", "gone")})
	r.agent(agent.Agent{Name: "looper", Grants: agent.AgentGrants("looper")})
	for _, tt := range []struct{ from, to, want string }{
		{"asker", "a", "hi"}, {"asker", "asker", "denied"}, {"asker", "gone", "not_found"}, {"a", "a", "denied"},
	} {
		res, err := r.Call(t.Context(), app, call(tt.from, "ask", tt.to))
		got := string(res.Output.Body)
		if err != nil {
			got = kind(err)
		}
		if got != tt.want || res.Usage.HostCalls != 1 {
			t.Errorf("%s asks %s: got %s with %d host calls, want %s", tt.from, tt.to, got, res.Usage.HostCalls, tt.want)
		}
	}
	if _, err := r.Call(t.Context(), app, call("looper", "loop", "")); kind(err) != "exhausted" || depth != grantagent.MaxDepth+1 {
		t.Errorf("cycle: depth %d, %v", depth, err)
	}
}

func TestStatelessCallsWriteTheAgentsLog(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"talk": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_ = runtimetest.Log(ctx, c, agent.LevelInfo, "one")
			_ = runtimetest.Emit(ctx, c, "step", 1)
			return agent.Payload{}, errors.New("thrown")
		},
	}, nil)
	a := r.agent(agent.Agent{Name: "talker"})
	stop := r.start()
	res, err := r.Call(t.Context(), app, call("talker", "talk", ""))
	if kind(err) != "failed" || res.Usage.Log != 4 || res.Usage.HostCalls != 1 {
		t.Fatalf("got %+v, %v", res.Usage, err)
	}
	stop()
	want := []string{"info: one", "step 1", "error: main.ts:1: thrown\nat main.ts:1"}
	if d := cmp.Diff(want, r.log(store.AgentLog(app, a.ID))); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
	if s := r.Stats(); s.Failures[agent.Failed] != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLogDropsAndTells(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"talk": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			for i := range 20 {
				_ = runtimetest.Log(ctx, c, agent.LevelInfo, fmt.Sprint(i))
			}
			return agent.Payload{}, nil
		},
	}, &runtime.Options{LogLines: 32})
	a, b := r.agent(agent.Agent{Name: "loud"}), r.agent(agent.Agent{Name: "other"})
	for _, name := range []string{"loud", "loud", "other"} { // nothing writes yet
		if _, err := r.Call(t.Context(), app, call(name, "talk", "")); err != nil {
			t.Fatal(err)
		}
	}
	applies := r.db.Count(faultkv.Apply)
	r.start()()
	if n := r.db.Count(faultkv.Apply) - applies; n > 2 {
		t.Errorf("%d commits for two agents", n)
	}
	for _, tt := range []struct {
		id   agent.AgentID
		note string
	}{{a.ID, "32 lines dropped"}, {b.ID, "12 lines dropped"}} {
		got := r.log(store.AgentLog(app, tt.id))
		if len(got) != 9 || got[0] != "info: 0" || got[7] != "info: 7" || !strings.Contains(got[8], tt.note) {
			t.Errorf("got %q, want 8 lines and %q", got, tt.note)
		}
	}
	if n := r.Stats().LinesDropped; n != 44 {
		t.Errorf("%d lines dropped, want 44", n)
	}
}

func TestCode(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"default": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_ = runtimetest.Log(ctx, c, agent.LevelWarn, "careful")
			if string(c.Input.Body) == "fail" {
				return agent.Payload{}, errors.New("thrown")
			}
			return c.Input, nil
		},
		"emit": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.Payload{}, runtimetest.Emit(ctx, c, "x", nil)
		},
		"ask": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return runtimetest.CallAgent(ctx, c, "a", "default", c.Input)
		},
	}, nil)
	src := agent.Source{Kind: agent.Script, Main: "main.ts", Files: map[string][]byte{"main.ts": []byte("1")}}
	for _, tt := range []struct{ function, input, want string }{
		{"", "hi", "hi"}, {"", "fail", "failed"}, {"emit", "", "denied"}, {"ask", "", "denied"}, {"none", "", "not_found"},
	} {
		res, err := r.Code(t.Context(), app, runtime.CodeRequest{Source: src, Function: tt.function, Input: agent.Text(tt.input)})
		got := string(res.Output.Body)
		if err != nil {
			got = kind(err)
		}
		if got != tt.want {
			t.Errorf("%s(%q): got %s, want %s", tt.function, tt.input, got, tt.want)
		}
		if tt.function == "" && !cmp.Equal(res.Logs, []agent.LogLine{{Level: agent.LevelWarn, Message: "careful"}}) {
			t.Errorf("%q: logs %v", tt.input, res.Logs)
		}
	}
	if _, err := r.Code(t.Context(), app, runtime.CodeRequest{Source: src, Limits: agent.Limits{Memory: 1 << 40}}); kind(err) != "invalid" {
		t.Errorf("limits: %v", err)
	}
}

func TestFetch(t *testing.T) {
	r := newRig(t, nil, nil)
	if _, err := r.Fetch(t.Context(), app, "a", host.Request{}); kind(err) != "not_found" {
		t.Errorf("no handler: %v", err)
	}
	cells := &runtimetest.Cells{OnFetch: func(_ context.Context, c host.Call, req host.Request) (host.Response, error) {
		return host.Response{Status: 201, Body: []byte(req.Method + " " + string(c.Tenant))}, nil
	}}
	res, err := runtime.New(r.store, cells, nil).Fetch(t.Context(), app, "a", host.Request{Method: "PUT"})
	if err != nil || res.Status != 201 || string(res.Body) != "PUT default" {
		t.Errorf("got %+v, %v", res, err)
	}
}

// An agent without a plugin runs only the scripts that it is given: whatever needs code of its own is refused, and says so.
func TestAgentWithoutCode(t *testing.T) {
	r := newRig(t, nil, nil)
	if _, _, err := r.CreateAgent(t.Context(), agent.Agent{App: app, Name: "bare"}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: "bare", Function: "f"}); kind(err) != "not_found" || !strings.Contains(err.Error(), "no code of its own") {
		t.Errorf("call: %v", err)
	}
	if _, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: "bare", Function: "f"}, store.Once{}); kind(err) != "not_found" {
		t.Errorf("run: %v", err)
	}
}
