package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

// ask makes a host call as code would.
func ask[Out any](ctx context.Context, c host.Call, name string, in any) (out Out, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	if b, err = c.Calls(ctx, name, b); err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

func count(ctx context.Context, c host.Call, key string) (int, error) {
	got, err := ask[abi.StateEntries](ctx, c, abi.CallStorageGet, abi.StateGet{Keys: []string{key}})
	if err != nil {
		return 0, err
	}
	n := 0
	if len(got.Entries) > 0 {
		_ = json.Unmarshal(got.Entries[0].JSON, &n)
	}
	n++
	_, err = ask[abi.StateVersion](ctx, c, abi.CallStorageSet, abi.StateEdit{Key: key, StateValue: abi.StateValue{JSON: abi.Raw(fmt.Sprint(n))}})
	return n, err
}

func number(n int, err error) (agent.Payload, error) {
	return agent.JSON([]byte(fmt.Sprint(n))), err
}

func (r *rig) callInstance(key, method, input string) (string, error) {
	res, err := r.CallInstance(r.t.Context(), app, runtime.InstanceCall{Agent: "a", Key: key, Function: method, Input: agent.Text(input)})
	return string(res.Output.Body), err
}

func (r *rig) mustCall(key, method, input string) string {
	r.t.Helper()
	out, err := r.callInstance(key, method, input)
	if err != nil {
		r.t.Fatal(method, err)
	}
	return out
}

var counting = map[string]runtimetest.Func{
	"count": func(ctx context.Context, c host.Call) (agent.Payload, error) { return number(count(ctx, c, "n")) },
	"broken": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		_, _ = count(ctx, c, "n")
		_, _ = ask[struct{}](ctx, c, abi.CallEmit, abi.Emit{Name: "lost", Data: abi.Raw("1")})
		return agent.Payload{}, errors.New("no")
	},
}

// Calls of one instance come one after the other, and what one throws is undone.
func TestTurns(t *testing.T) {
	r := newRig(t, counting, nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _, _ = r.callInstance("k", "count", "") })
	}
	all.Wait()
	if _, err := r.callInstance("k", "broken", ""); agent.KindOf(err) != agent.Failed {
		t.Errorf("broken: %v", err)
	}
	if got := r.mustCall("k", "count", ""); got != "51" {
		t.Errorf("counted to %s, want 51", got)
	}
	if got := r.mustCall("other", "count", ""); got != "1" {
		t.Errorf("another instance counted to %s", got)
	}
	what, err := r.InspectInstance(t.Context(), app, "a", "k")
	if err != nil || what.State.Keys != 2 || what.Version == "" {
		t.Errorf("%+v, %v", what, err)
	}
	list, _, err := r.Instances(t.Context(), app, "a", agent.Page{})
	if err != nil || len(list) != 2 || list[0].Key != "k" {
		t.Errorf("%+v, %v", list, err)
	}
	page, _, err := r.ListStorage(t.Context(), app, "a", "k", agent.StateRange{})
	if err != nil || len(page) != 1 || page[0].Key != "n" || string(page[0].Value.Body) != "51" {
		t.Errorf("%+v, %v", page, err)
	}
	if events := r.instanceLog("k"); !slices.Equal(events, []string{"instance.created"}) {
		t.Errorf("events %q: what failed is not among them", events)
	}
	var out bytes.Buffer
	if err := r.ExportInstance(t.Context(), app, "a", "k", &out); err != nil || !strings.Contains(out.String(), `{"kind":"state","key":"n"`) {
		t.Errorf("export: %v\n%s", err, out.String())
	}
	if err := r.DeleteInstances(t.Context(), app, "a", "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.InspectInstance(t.Context(), app, "a", "k"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("after the end: %v", err)
	}
	if got := r.mustCall("k", "count", ""); got != "1" {
		t.Errorf("made anew it counts to %s", got)
	}
}

func (r *rig) instanceLog(key string) (out []string) {
	r.t.Helper()
	s, err := r.SubscribeInstance(r.t.Context(), app, "a", key, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	for s.Tail() > int64(len(out)) {
		frames, err := s.Next(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range frames {
			out = append(out, brief(f.Event))
		}
	}
	return out
}

func TestReservedMethods(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"onStart": nil, "ok": nil}, nil)
	for _, name := range []string{"onStart", "skep:connect", "none", ""} {
		if _, err := r.callInstance("k", name, ""); agent.KindOf(err) != agent.NotFound && name != "" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := r.InspectInstance(t.Context(), app, "a", "k"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("a call that cannot be made has made an instance: %v", err)
	}
	if _, err := r.callInstance("", "ok", ""); agent.KindOf(err) != agent.Invalid {
		t.Errorf("an empty key: %v", err)
	}
}

// A line that is full refuses the next call, and tells when to come again.
func TestFullLine(t *testing.T) {
	hold, inside := make(chan struct{}), make(chan struct{}, 10)
	r := newRig(t, map[string]runtimetest.Func{"wait": func(context.Context, host.Call) (agent.Payload, error) {
		inside <- struct{}{}
		<-hold
		return agent.Payload{}, nil
	}}, &runtime.Options{Queue: 3})
	errs := make(chan error, 10)
	call := func() { _, err := r.callInstance("k", "wait", ""); errs <- err }
	go call()
	<-inside
	for range 4 {
		go call()
	}
	refused := <-errs
	if e := agent.AsError(refused); e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitConcurrency || e.After == 0 || len(inside) != 0 {
		t.Errorf("%+v with %d more inside", e, len(inside))
	}
	close(hold)
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Calls that lead back are refused, however long the way is, and do not wait for each other for ever.
func TestCycle(t *testing.T) {
	call := func(ctx context.Context, c host.Call, key, fn string) (agent.Payload, error) {
		out, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: key, Function: fn})
		return agent.Text(string(out.Output)), err
	}
	both := make(chan struct{}, 2)
	r := newRig(t, map[string]runtimetest.Func{
		"round": func(ctx context.Context, c host.Call) (agent.Payload, error) { return call(ctx, c, "y", "back") },
		"back":  func(ctx context.Context, c host.Call) (agent.Payload, error) { return call(ctx, c, "x", "round") },
		"cross": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			both <- struct{}{}
			for len(both) < 2 {
				if ctx.Err() != nil {
					return agent.Payload{}, ctx.Err()
				}
			}
			return call(ctx, c, string(c.Input.Body), "ok")
		},
		"ok": func(context.Context, host.Call) (agent.Payload, error) { return agent.Text("ok"), nil },
	}, nil)
	if _, err := r.callInstance("x", "round", ""); err == nil || !strings.Contains(err.Error(), "waits for the turn") {
		t.Errorf("a cycle: %v", err)
	}
	errs := make(chan error, 2)
	go func() { _, err := r.callInstance("p", "cross", "q"); errs <- err }()
	go func() { _, err := r.callInstance("q", "cross", "p"); errs <- err }()
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) {
		t.Errorf("of two that call each other one must be refused: %v, %v", a, b)
	}
}

// onStart runs once, in the commit of the first turn; onUpgrade when the code is another.
func TestMeeting(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"onStart": func(ctx context.Context, c host.Call) (agent.Payload, error) { return number(count(ctx, c, "starts")) },
		"onUpgrade": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return number(count(ctx, c, "upgrades"))
		},
		"count":  counting["count"],
		"broken": counting["broken"],
	}, nil)
	if _, err := r.callInstance("k", "broken", ""); err == nil {
		t.Fatal("it worked")
	}
	r.mustCall("k", "count", "")
	r.mustCall("k", "count", "")
	upload := runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte("export {} // again")}
	if _, _, err := r.PutPlugin(t.Context(), app, upload, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	r.mustCall("k", "count", "")
	r.mustCall("k", "count", "")
	page, _, err := r.ListStorage(t.Context(), app, "a", "k", agent.StateRange{})
	got := ""
	for _, e := range page {
		got += fmt.Sprintf("%s=%s ", e.Key, e.Value.Body)
	}
	if err != nil || got != "n=4 starts=1 upgrades=1 " {
		t.Errorf("%s, %v", got, err)
	}
	if events := r.instanceLog("k"); !slices.Equal(events, []string{"instance.created", "instance.upgraded"}) {
		t.Errorf("%q", events)
	}
}

// An instance's own instances are made by their first call, belong to it, and end with it.
func TestChildren(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"spawn": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			out, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: string(c.Input.Body), Function: "count", Child: true})
			return agent.Text(string(out.Output)), err
		},
		"drop": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return ask[agent.Payload](ctx, c, abi.CallChildDelete, abi.ChildDelete{Key: string(c.Input.Body)})
		},
		"count": counting["count"],
	}, nil)
	for want, key := range []string{"c1", "c1", "c2"} {
		if got := r.mustCall("parent", "spawn", key); got != []string{"1", "2", "1"}[want] {
			t.Errorf("%s counted to %s", key, got)
		}
	}
	if _, err := r.callInstance("other", "spawn", "c1"); err == nil || !strings.Contains(err.Error(), "not a child") {
		t.Errorf("another's child: %v", err)
	}
	if err := r.DeleteInstances(t.Context(), app, "a", "c1"); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a child is ended from outside: %v", err)
	}
	if what, err := r.InspectInstance(t.Context(), app, "a", "parent"); err != nil || len(what.Own) != 2 || what.Own[0].Key != "c1" {
		t.Errorf("%+v, %v", what, err)
	}
	r.mustCall("parent", "drop", "c1")
	if what, err := r.InspectInstance(t.Context(), app, "a", "parent"); err != nil || len(what.Own) != 1 {
		t.Errorf("%+v, %v", what, err)
	}
	if err := r.DeleteInstances(t.Context(), app, "a", "parent"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"parent", "c1", "c2"} {
		if _, err := r.InspectInstance(t.Context(), app, "a", key); agent.KindOf(err) != agent.NotFound {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A message takes effect once, after the sender's commit; what the sender undoes is never sent.
func TestMessages(t *testing.T) {
	got := make(chan string, 10)
	send := func(ctx context.Context, c host.Call, what string) error {
		_, err := ask[abi.AgentResult](ctx, c, abi.CallAgent, abi.AgentCall{Key: "to", Function: "hear", Type: agent.TypeText, Input: []byte(what), Send: true})
		return err
	}
	r := newRig(t, map[string]runtimetest.Func{
		"tell": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			for _, s := range []string{"1", "2", strings.Repeat("x", 100<<10)} {
				if err := send(ctx, c, s); err != nil {
					return agent.Payload{}, err
				}
			}
			return agent.Payload{}, nil
		},
		"lie": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_ = send(ctx, c, "lie")
			return agent.Payload{}, errors.New("no")
		},
		"hear": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			got <- fmt.Sprint(len(c.Input.Body))
			return number(count(ctx, c, "heard"))
		},
		"count": counting["count"],
	}, nil)
	r.start()
	_, _ = r.callInstance("from", "lie", "")
	r.mustCall("from", "tell", "")
	for _, want := range []string{"1", "1", fmt.Sprint(100 << 10)} {
		if n := <-got; n != want {
			t.Errorf("a message of %s bytes, want %s", n, want)
		}
	}
}

// A call may leave its turn while it waits; others go first, and it goes on with what they left.
func TestLeavingTheTurn(t *testing.T) {
	left, others := make(chan struct{}), make(chan struct{})
	r := newRig(t, map[string]runtimetest.Func{
		"slow": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if _, err := count(ctx, c, "n"); err != nil {
				return agent.Payload{}, err
			}
			if _, err := c.Calls(ctx, abi.CallTurnLeave, nil); err != nil {
				return agent.Payload{}, err
			}
			close(left)
			<-others
			if _, err := count(ctx, c, "n"); agent.KindOf(err) != agent.Conflict {
				return agent.Payload{}, fmt.Errorf("outside of the turn: %w", err)
			}
			if _, err := c.Calls(ctx, abi.CallTurnEnter, nil); err != nil {
				return agent.Payload{}, err
			}
			return number(count(ctx, c, "n"))
		},
		"count": counting["count"],
	}, nil)
	slow := make(chan string)
	go func() {
		out, err := r.callInstance("k", "slow", "")
		slow <- fmt.Sprint(out, err)
	}()
	<-left
	if got := r.mustCall("k", "count", ""); got != "2" {
		t.Errorf("the other call counted to %s", got)
	}
	close(others)
	if got := <-slow; got != "3<nil>" {
		t.Errorf("the slow one: %s", got)
	}
}

// A call that is made again under its name has no second effect.
func TestOncePerName(t *testing.T) {
	r := newRig(t, counting, nil)
	call := func(once, method, input string) string {
		res, err := r.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "a", Key: "k", Function: method, Input: agent.Text(input), Once: once})
		return string(res.Output.Body) + kind(err)
	}
	got := []string{
		call("x", "count", ""), call("x", "count", ""), call("y", "count", ""), call("x", "count", "other"), call("z", "broken", ""), call("z", "count", ""),
	}
	if want := []string{"1ok", "1ok", "2ok", "conflict", "failed", "3ok"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func decode(b []byte, v any) error { return json.Unmarshal(b, v) }

// A turn begins runs with its commit: those of a turn that throws are not begun.
func TestTurnsBeginRuns(t *testing.T) {
	start := func(ctx context.Context, c host.Call) (abi.Started, error) {
		return ask[abi.Started](ctx, c, abi.CallStart, abi.Start{Function: "work", Input: []byte(`"x"`), Key: string(c.Input.Body)})
	}
	r := newRig(t, map[string]runtimetest.Func{
		"begin": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			s, err := start(ctx, c)
			return agent.Text(s.Run), err
		},
		"broken": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_, _ = start(ctx, c)
			return agent.Payload{}, errors.New("no")
		},
		"work": func(_ context.Context, c host.Call) (agent.Payload, error) { return c.Input, nil },
	}, nil)
	r.start()
	_, _ = r.callInstance("k", "broken", "")
	for _, key := range []string{"", "other"} {
		id := agent.RunID(r.mustCall("k", "begin", key))
		for {
			run, err := r.Wait(t.Context(), app, id)
			if agent.KindOf(err) == agent.NotFound && err != nil { // its message is on the way
				continue
			}
			if err != nil || run.Status != agent.Completed || string(run.Output.Body) != `"x"` {
				t.Errorf("key %q: %+v, %v", key, run, err)
			}
			break
		}
	}
	runs, _, err := r.store.Runs(t.Context(), app, store.RunFilter{}, agent.Page{})
	if err != nil || len(runs) != 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
