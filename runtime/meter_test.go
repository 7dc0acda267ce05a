package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/fair"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
)

// usage returns the events of the ledger, each as "kind agent function outcome in out".
func (r *rig) usage() (out []string) {
	r.t.Helper()
	entries, _, err := r.Ledger().Events(r.t.Context(), ledger.Query{App: app, To: time.Now().Add(time.Hour)}, "", 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s %s %s %s %d %d", e.Kind, e.Agent, e.Function, e.Outcome, e.In, e.Out))
	}
	return out
}

// Every cell is in the ledger by the time its caller has the answer: calls, runs, code, and calls of other agents.
func TestUsage(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"echo": echo, "run": echo, "default": echo,
		"fail": func(context.Context, host.Call) (agent.Payload, error) { return agent.Payload{}, errors.New("no") },
		"ask": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return runtimetest.CallAgent(ctx, c, "b", "echo", agent.Text("12345"))
		},
	}, nil, "b")
	r.agent(agent.Agent{Name: "asker", Grants: agent.AgentGrants("b")})
	r.start()
	call := func(name, function, in string) error {
		_, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: name, Function: function, Input: agent.Text(in)})
		return err
	}
	if err := call("a", "echo", "abc"); err != nil {
		t.Error(err)
	}
	if err := call("a", "fail", "abc"); err == nil {
		t.Error("no error")
	}
	if err := call("asker", "ask", ""); err != nil {
		t.Error(err)
	}
	if err := call("nobody", "echo", ""); err == nil {
		t.Error("no error")
	}
	if _, err := r.Code(t.Context(), app, runtime.CodeRequest{Source: agent.Source{Main: "a.ts", Files: map[string][]byte{"a.ts": nil}}, Input: agent.Text("1")}); err != nil {
		t.Error(err)
	}
	run := r.wait(r.run("a", "run", "four").ID)
	r.Loaded(host.Loaded{Who: fair.Who{App: app, Agent: "a"}, Usage: agent.Usage{Wall: 5, In: 100}, Err: agent.Errorf(agent.Invalid, "x")})
	want := []string{
		"call a echo ok 3 3", "call a fail failed 3 0", "call b echo ok 5 5", "call asker ask ok 0 5", "code   ok 1 1", "run a run ok 4 4",
		"load a  invalid 100 0",
	}
	if d := cmp.Diff(want, r.usage()); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
	entries, _, err := r.Ledger().Events(t.Context(), ledger.Query{App: app, To: time.Now().Add(time.Hour)}, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[5]; e.Run != run.ID || e.Session != run.Session || e.CPU != run.Usage.CPU {
		t.Errorf("event of the run: %+v", e)
	}
}

// A worker process that was broken into cannot lower what was used, by figures below 0 or beyond counting.
func TestImpossibleUsage(t *testing.T) {
	r := newRig(t, nil, nil)
	r.Loaded(host.Loaded{Who: fair.Who{App: app}, Usage: agent.Usage{CPU: -5, Wall: -1, Memory: -1, In: -1}})
	today := ledger.Query{App: app, From: time.Now(), To: time.Now()}
	rows, err := r.Ledger().Rows(t.Context(), today)
	if err != nil || len(rows) != 1 || rows[0].Cost != (agent.Cost{}) {
		t.Errorf("rows %+v, %v", rows, err)
	}
	for range 2 {
		r.Loaded(host.Loaded{Who: fair.Who{App: app}, Usage: agent.Usage{CPU: math.MaxInt64, Fuel: math.MaxInt64}})
	}
	rows, err = r.Ledger().Rows(t.Context(), today)
	if err != nil || len(rows) != 1 || rows[0].CPU != math.MaxInt64 || rows[0].Fuel != math.MaxInt64 {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

// A guest may announce any length for a body that follows; what counts is what went out, and here nothing did.
func TestAnnouncedLengthIsNotTraffic(t *testing.T) {
	out := egress.New(&egress.Options{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, errors.New("no way out") }})
	defer out.Close()
	post := func(ctx context.Context, c host.Call) (agent.Payload, error) {
		length := int64(1) << 62
		frame, err := abi.AppendHTTPHead(nil, abi.HTTPOpen{Method: "POST", URL: "https://203.0.113.1/", Stream: true, Length: &length}, nil)
		if err != nil {
			return agent.Payload{}, err
		}
		for range 3 {
			opened, err := c.Calls(ctx, abi.CallHTTPOpen, frame)
			if err != nil {
				return agent.Payload{}, err
			}
			head, _, err := abi.SplitHTTPHead(opened)
			if err != nil {
				return agent.Payload{}, err
			}
			var h abi.HTTPHead
			if err := json.Unmarshal(head, &h); err != nil {
				return agent.Payload{}, err
			}
			if _, err = c.Calls(ctx, abi.CallHTTPHead, abi.AppendHTTPID(nil, h.ID)); agent.AsError(err).Limit != agent.LimitHTTP {
				return agent.Payload{}, fmt.Errorf("the request was not refused for its length: %w", err)
			}
		}
		return agent.Text("ok"), nil
	}
	r := newRig(t, map[string]runtimetest.Func{"post": post}, &runtime.Options{Egress: out})
	r.agent(agent.Agent{Name: "sender", Grants: agent.Grants{HTTP: []agent.HTTPGrant{{Allow: agent.Target{Scheme: "https", Host: "*", Port: "443"}}}}})
	if _, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: "sender", Function: "post"}); err != nil {
		t.Fatal(err)
	}
	rows, err := r.Ledger().Rows(t.Context(), ledger.Query{App: app, From: time.Now(), To: time.Now()})
	if err != nil || len(rows) != 1 || rows[0].Sent != 0 {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

// What cannot be written down is neither begun nor answered.
func TestNoLedgerNoCall(t *testing.T) {
	var ran atomic.Int64
	r := newRig(t, map[string]runtimetest.Func{"f": func(_ context.Context, c host.Call) (agent.Payload, error) {
		ran.Add(1)
		return c.Input, nil
	}}, nil)
	if err := r.Ledger().Close(); err != nil {
		t.Fatal(err)
	}
	_, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: "a", Function: "f"})
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(agent.AsError(err).Msg, "usage") {
		t.Errorf("error is %v", err)
	}
	if ran.Load() > 1 {
		t.Errorf("ran %d times", ran.Load())
	}
}

// Quotas hold over all that reaches an agent, and say whose they are.
func TestQuotas(t *testing.T) {
	inside, leave := make(chan struct{}, 10), make(chan struct{})
	r := newRig(t, map[string]runtimetest.Func{
		"echo": echo,
		"stay": func(_ context.Context, c host.Call) (agent.Payload, error) {
			inside <- struct{}{}
			<-leave
			return c.Input, nil
		},
		"ask": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return runtimetest.CallAgent(ctx, c, "b", "echo", agent.Text("x"))
		},
	}, nil, "b")
	r.agent(agent.Agent{Name: "asker", Grants: agent.AgentGrants("b")})
	set := func(name string, q agent.Quota) {
		t.Helper()
		if _, err := r.UpdateAgent(t.Context(), app, name, runtime.AgentPatch{Quota: &q}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, words string) {
		t.Helper()
		e := agent.AsError(err)
		if e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitQuota || e.After <= 0 || !strings.Contains(e.Msg, words) {
			t.Errorf("error is %+v, want a quota: %s", e, words)
		}
	}
	call := func(name, function, in string) error {
		_, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: name, Function: function, Input: agent.Text(in)})
		return err
	}
	set("a", agent.Quota{Cells: 1})
	var first sync.WaitGroup
	first.Go(func() {
		if err := call("a", "stay", ""); err != nil {
			t.Error(err)
		}
	})
	<-inside
	refused(call("a", "echo", ""), `agent "a" is 1 cells`)
	_, err := r.Fetch(t.Context(), app, "a", host.Request{})
	refused(err, `agent "a"`)
	uses, err := r.QuotaUses(t.Context(), app, []agent.Agent{{Name: "a", Quota: agent.Quota{Cells: 1}}})
	if err != nil || len(uses) != 2 || uses[0].Cells != 1 || uses[1].Cells != 1 || uses[1].Calls != 1 || uses[1].Agent != "a" {
		t.Errorf("uses: %+v, %v", uses, err)
	}
	close(leave)
	first.Wait()
	if err := call("a", "echo", ""); err != nil {
		t.Error(err)
	}

	set("b", agent.Quota{BytesPerDay: 3})
	if err := call("asker", "ask", ""); err != nil { // one byte in and one out
		t.Error(err)
	}
	refused(call("b", "echo", "x"), `agent "b" is 3 bytes a day`)
	refused(call("b", "echo", strings.Repeat("x", 10)), "3 bytes")
	if err := call("asker", "ask", ""); err == nil {
		t.Error("a call of another agent passes its quota")
	}
	if _, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: "b", Function: "echo", Input: agent.Text("x")}, store.Once{}); err == nil {
		t.Error("a run was queued that has no room today")
	} else {
		refused(err, "3 bytes")
	}

	appQuota := agent.Quota{BytesPerDay: 1}
	if _, err := r.UpdateApp(t.Context(), app, runtime.AppPatch{Quota: &appQuota}); err != nil {
		t.Fatal(err)
	}
	refused(call("a", "echo", ""), `app "default" is 1 bytes a day`)
	_, err = r.Code(t.Context(), app, runtime.CodeRequest{Source: agent.Source{Main: "a.ts", Files: map[string][]byte{"a.ts": nil}}, Function: "echo"})
	refused(err, `app "default"`)
}

// A run waits for its turn when its quota has no room just now, in no slot, and can be cancelled meanwhile.
func TestRunsWaitForQuota(t *testing.T) {
	inside, leave := make(chan string, 10), make(chan struct{})
	r := newRig(t, map[string]runtimetest.Func{
		"echo": echo,
		"stay": func(_ context.Context, c host.Call) (agent.Payload, error) {
			inside <- string(c.Input.Body)
			<-leave
			return c.Input, nil
		},
	}, &runtime.Options{Workers: 2}, "b")
	q := agent.Quota{Cells: 1}
	if _, err := r.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Quota: &q}); err != nil {
		t.Fatal(err)
	}
	r.start()
	one := r.run("a", "stay", "one")
	<-inside
	two, three, gone := r.run("a", "stay", "two"), r.run("a", "stay", "three"), r.run("a", "stay", "gone")
	if got := r.wait(r.run("b", "echo", "").ID); got.Status != agent.Completed { // though both slots could be waited in
		t.Errorf("the other agent's run is %s", got.Status)
	}
	if _, err := r.Cancel(t.Context(), app, gone.ID); err != nil {
		t.Error(err)
	}
	close(leave)
	for _, run := range []agent.Run{one, two, three} {
		if got := r.wait(run.ID); got.Status != agent.Completed {
			t.Errorf("run is %s: %+v", got.Status, got.Error)
		}
	}
	if got := r.wait(gone.ID); got.Status != agent.RunCancelled {
		t.Errorf("the cancelled run is %s", got.Status)
	}
}

// What was used today counts after a restart.
func TestQuotaAfterRestart(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"echo": echo}, nil)
	if _, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: "a", Function: "echo", Input: agent.Text("12345")}); err != nil {
		t.Fatal(err)
	}
	k, err := quota.Load(t.Context(), r.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	if u := k.Used(app, "a", agent.Quota{}); u.Bytes != 10 || u.CPU == 0 {
		t.Errorf("used: %+v", u)
	}
	if u := k.Used(app, "", agent.Quota{}); u.Bytes != 10 {
		t.Errorf("used by the app: %+v", u)
	}
}
