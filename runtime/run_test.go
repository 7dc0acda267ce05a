package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
)

// block waits until ctx ends, having said that it began.
func block(begun chan<- string) runtimetest.Func {
	return func(ctx context.Context, c host.Call) (agent.Payload, error) {
		begun <- string(c.Input.Body)
		<-ctx.Done()
		return agent.Payload{}, ctx.Err()
	}
}

func TestRun(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{
		"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_ = runtimetest.Log(ctx, c, agent.LevelInfo, "thinking")
			_ = runtimetest.Emit(ctx, c, "step", map[string]int{"n": 1})
			return agent.Text("done " + string(c.Input.Body)), nil
		},
		"fail": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_ = runtimetest.Emit(ctx, c, "step", 2)
			return agent.Payload{}, errors.New("thrown")
		},
		"slow": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			<-ctx.Done()
			return agent.Payload{}, ctx.Err()
		},
	}, nil)
	r.agent(agent.Agent{Name: "quick", Limits: agent.Limits{Wall: time.Millisecond}})
	r.start()

	run := r.run("a", "", "it")
	if run.Status != agent.Queued || run.Function != "run" || run.Plugin == "" || run.Created.IsZero() {
		t.Errorf("queued: %+v", run)
	}
	run = r.wait(run.ID)
	if run.Status != agent.Completed || string(run.Output.Body) != "done it" || run.Error != nil {
		t.Errorf("completed: %+v", run)
	}
	if run.Usage.HostCalls != 1 || run.Usage.Log != 9 || run.Started.Before(run.Created) || run.Ended.Before(run.Started) {
		t.Errorf("usage %+v, created %s, started %s, ended %s", run.Usage, run.Created, run.Started, run.Ended)
	}
	want := []string{"run.queued", "run.started", "info: thinking", `step {"n":1}`, "run.completed"}
	if d := cmp.Diff(want, r.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}

	run = r.wait(r.run("a", "fail", "").ID)
	if run.Status != agent.RunFailed || run.Error.Kind != agent.Failed || run.Error.Pos.Line != 1 || run.Output != nil {
		t.Errorf("failed: %+v", run)
	}
	want = []string{"run.queued", "run.started", "step 2", "run.failed failed: thrown"}
	if d := cmp.Diff(want, r.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}

	if run = r.wait(r.run("quick", "slow", "").ID); run.Error == nil || run.Error.Limit != agent.LimitWall {
		t.Errorf("slow: %+v", run)
	}
	if run = r.wait(r.run("a", "none", "").ID); run.Error == nil || run.Error.Kind != agent.NotFound {
		t.Errorf("no function: %+v", run)
	}
	s := r.Stats()
	if s.Runs[agent.Completed] != 1 || s.Runs[agent.RunFailed] != 3 || s.Failures[agent.Failed] != 1 || s.Live != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestStartRunRefuses(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"f": echo}, nil, "b")
	s, _, err := r.store.CreateSession(t.Context(), agent.Session{App: app, Agent: "b", Key: "k"}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		req        runtime.RunRequest
	}{
		{"agent", "not_found", runtime.RunRequest{Agent: "none", Function: "f"}},
		{"no default", "invalid", runtime.RunRequest{Agent: "a"}},
		{"input", "exhausted", runtime.RunRequest{Agent: "a", Function: "f", Input: agent.Payload{Body: make([]byte, 8<<20+1)}}},
		{"function", "invalid", runtime.RunRequest{Agent: "a", Function: strings.Repeat("f", 257)}},
		{"session", "not_found", runtime.RunRequest{Agent: "a", Function: "f", Session: "none"}},
		{"other session", "invalid", runtime.RunRequest{Agent: "a", Function: "f", Session: s.ID}},
	} {
		if _, _, err := r.StartRun(t.Context(), app, tt.req, store.Once{}); kind(err) != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	for _, msg := range []agent.Message{{}, {Content: []byte("{")}, {Role: "god", Content: []byte("1")}} {
		if _, _, err := r.Send(t.Context(), app, s.ID, msg, store.Once{}); kind(err) != "invalid" {
			t.Errorf("message %+v: %v", msg, err)
		}
	}
	if n := r.Stats().RunsQueued; n != 0 {
		t.Errorf("%d runs queued", n)
	}
}

// The runs of a session go one after the other, in order, while those of other sessions go beside them.
func TestSendInOrder(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, map[string]runtimetest.Func{
		"onMessage": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if strings.Contains(string(c.Input.Body), "first") {
				<-release
			}
			return agent.Payload{}, runtimetest.Emit(ctx, c, "got", string(c.Input.Body))
		},
	}, nil)
	r.start()
	var sessions [2]agent.Session
	for i := range sessions {
		var err error
		if sessions[i], _, err = r.store.CreateSession(t.Context(), agent.Session{App: app, Agent: "a", Key: "k"}, store.Once{}); err != nil {
			t.Fatal(err)
		}
	}
	send := func(s agent.Session, text string) agent.Run {
		t.Helper()
		run, _, err := r.Send(t.Context(), app, s.ID, agent.Message{Content: []byte(`"` + text + `"`)}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	send(sessions[0], "first")
	second := send(sessions[0], "second")
	r.wait(send(sessions[1], "beside").ID)
	if run, err := r.store.Run(t.Context(), app, second.ID); err != nil || run.Status != agent.Queued {
		t.Errorf("second is %s: %v", run.Status, err)
	}
	close(release)
	r.wait(second.ID)
	var got []string
	for _, line := range r.sessionLog(second) {
		if !strings.HasPrefix(line, "run.") {
			got = append(got, line)
		}
	}
	want := []string{
		"message", "message",
		`got "{\"role\":\"user\",\"content\":\"first\"}"`, `got "{\"role\":\"user\",\"content\":\"second\"}"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestAgentsTakeTurns(t *testing.T) {
	order := make(chan string, 100)
	r := newRig(t, map[string]runtimetest.Func{"run": func(_ context.Context, c host.Call) (agent.Payload, error) {
		order <- string(c.Input.Body)
		return agent.Payload{}, nil
	}}, &runtime.Options{Workers: 1}, "b")
	var last agent.Run
	for i := range 5 {
		last = r.run("a", "", fmt.Sprint("a", i))
	}
	r.run("b", "", "b0")
	r.run("b", "", "b1")
	r.start()
	r.wait(last.ID)
	close(order)
	var got []string
	for s := range order {
		got = append(got, s)
	}
	if d := cmp.Diff([]string{"a0", "b0", "a1", "b1", "a2", "a3", "a4"}, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestStartRunOnce(t *testing.T) {
	n := make(chan struct{}, 10)
	r := newRig(t, map[string]runtimetest.Func{"run": func(context.Context, host.Call) (agent.Payload, error) {
		n <- struct{}{}
		return agent.Payload{}, nil
	}}, nil)
	r.start()
	once := store.Once{Scope: "test", Key: "k", Request: agent.DigestOf([]byte("1"))}
	req := runtime.RunRequest{Agent: "a"}
	first, replayed, err := r.StartRun(t.Context(), app, req, once)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	first = r.wait(first.ID)
	again, replayed, err := r.StartRun(t.Context(), app, req, once)
	if err != nil || !replayed || again.ID != first.ID || again.Status != agent.Completed {
		t.Errorf("again: %+v, replayed %v: %v", again, replayed, err)
	}
	if len(n) != 1 {
		t.Errorf("executed %d times", len(n))
	}
}

func TestCancel(t *testing.T) {
	begun := make(chan string, 10)
	r := newRig(t, map[string]runtimetest.Func{"block": block(begun), "run": echo}, &runtime.Options{Workers: 1})
	r.start()
	done := r.wait(r.run("a", "run", "").ID)
	running := r.run("a", "block", "running")
	<-begun
	queued := r.run("a", "block", "queued")

	if _, err := r.Cancel(t.Context(), app, running.ID, "none"); kind(err) != "not_found" {
		t.Errorf("unknown run: %v", err)
	}
	if run, err := r.store.Run(t.Context(), app, running.ID); err != nil || run.Status != agent.Running {
		t.Errorf("a run that stood beside it is %s: %v", run.Status, err)
	}
	runs, err := r.Cancel(t.Context(), app, queued.ID, running.ID, done.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []agent.RunStatus{agent.RunCancelled, agent.RunCancelled, agent.Completed} {
		if runs[i].Status != want || runs[i].Ended.IsZero() {
			t.Errorf("run %d is %s, want %s", i, runs[i].Status, want)
		}
	}
	for run, want := range map[agent.RunID][]string{
		queued.ID:  {"run.queued", "run.cancelled cancelled: the run was cancelled"},
		running.ID: {"run.queued", "run.started", "run.cancelled cancelled: the run was cancelled"},
	} {
		got, err := r.store.Run(t.Context(), app, run)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, r.sessionLog(got)); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	}
	if again, err := r.Cancel(t.Context(), app, running.ID); err != nil || !cmp.Equal(again[0], runs[1]) {
		t.Errorf("again: %+v, %v", again, err)
	}
	r.wait(r.run("a", "run", "").ID) // the worker is free again
	if len(begun) != 0 {
		t.Error("the queued run was executed")
	}
}

// Runs are cancelled at random moments of their lives; each ends once, and its log says so once.
func TestCancelRace(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		return agent.Payload{}, runtimetest.Emit(ctx, c, "x", 1)
	}}, &runtime.Options{Workers: 4})
	r.start()
	for range 100 {
		run := r.run("a", "", "")
		got, err := r.Cancel(t.Context(), app, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !got[0].Status.Terminal() {
			t.Fatalf("run is %s", got[0].Status)
		}
		ends := 0
		for _, line := range r.sessionLog(run) {
			if strings.HasPrefix(line, "run.c") || strings.HasPrefix(line, "run.f") {
				ends++
			}
		}
		if ends != 1 {
			t.Fatalf("%d ends in %q", ends, r.sessionLog(run))
		}
	}
}

func TestEventsKeepTheirOrder(t *testing.T) {
	const n = 3000
	r := newRig(t, map[string]runtimetest.Func{"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		for i := range n {
			if err := runtimetest.Emit(ctx, c, "n", i); err != nil {
				return agent.Payload{}, err
			}
		}
		return agent.Payload{}, nil
	}}, nil)
	r.start()
	commits := r.db.Count(faultkv.Apply)
	run := r.wait(r.run("a", "", "").ID)
	if commits = r.db.Count(faultkv.Apply) - commits; commits > n/20 { // 64 events each, and some that were made early so that listeners see them
		t.Errorf("%d commits for %d events", commits, n)
	}
	got := r.sessionLog(run)
	if len(got) != n+3 {
		t.Fatalf("%d events, want %d: %v", len(got), n+3, run.Error)
	}
	for i := range n {
		if got[i+2] != fmt.Sprint("n ", i) {
			t.Fatalf("event %d is %s", i, got[i+2])
		}
	}
}

// A guest that emits faster than the store commits is held back.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var emitted atomic.Int64
		r := newRig(t, map[string]runtimetest.Func{"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			for i := range 2000 {
				if err := runtimetest.Emit(ctx, c, "n", i); err != nil {
					return agent.Payload{}, err
				}
				emitted.Add(1)
			}
			return agent.Payload{}, nil
		}}, nil)
		run := r.run("a", "", "")
		base := r.db.Count(faultkv.Apply)
		gate := make(chan struct{})
		r.fault = func(op faultkv.Op) faultkv.Fault {
			if op.Kind != faultkv.Apply || op.N <= base+2 { // the instance, and the run's start
				return faultkv.Fault{}
			}
			return faultkv.Fault{Before: gate}
		}
		stop := r.start()
		synctest.Wait()
		if n := emitted.Load(); n < 16 || n > 64 { // what one commit takes, and no more: that is stuck
			t.Errorf("%d events are waiting", n)
		}
		close(gate)
		if run = r.wait(run.ID); run.Status != agent.Completed || emitted.Load() != 2000 {
			t.Errorf("run: %+v", run)
		}
		stop()
	})
}

func TestFailedCommits(t *testing.T) {
	for name, tt := range map[string]struct {
		apply int // that fails, counted from the run's start
		want  []string
	}{
		"instance": {1, []string{"run.queued", "run.started", "x 1", "run.completed"}},
		"start":    {2, []string{"run.queued", "run.started", "x 1", "run.completed"}},
		"event":    {3, []string{"run.queued", "run.started", "x 1", "run.completed"}},
		"end":      {4, []string{"run.queued", "run.started", "x 1", "run.completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			second := make(chan struct{}, 1)
			r := newRig(t, map[string]runtimetest.Func{"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
				err := runtimetest.Emit(ctx, c, "x", 1)
				select { // until the event's commit has been tried
				case <-second:
				case <-ctx.Done():
				}
				return agent.Payload{}, err
			}}, nil)
			run := r.run("a", "", "")
			base := r.db.Count(faultkv.Apply)
			begun := 0
			r.fault = func(op faultkv.Op) (f faultkv.Fault) {
				if op.Kind != faultkv.Apply {
					return f
				}
				n := op.N - base
				if n == tt.apply {
					f.Err = faultkv.ErrFault
				} else if begun++; begun == 3 {
					second <- struct{}{}
				}
				return f
			}
			r.start()
			run = r.wait(run.ID)
			if d := cmp.Diff(tt.want, r.sessionLog(run)); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}

// A queued run whose cancelling failed keeps its place in the store and is executed.
func TestCancelFails(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": echo}, nil)
	run := r.run("a", "", "it")
	r.fault = func(op faultkv.Op) (f faultkv.Fault) {
		if op.Kind == faultkv.Apply {
			f.Err = faultkv.ErrFault
		}
		return f
	}
	if _, err := r.Cancel(t.Context(), app, run.ID); kind(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
	r.fault = nil
	r.start()
	if run = r.wait(run.ID); run.Status != agent.Completed {
		t.Errorf("run: %+v", run)
	}
}

// Whatever a guest returns or throws, its run ends.
func TestHugeEnds(t *testing.T) {
	huge := strings.Repeat("é", 2<<20)
	r := newRig(t, map[string]runtimetest.Func{
		"throw": func(context.Context, host.Call) (agent.Payload, error) { return agent.Payload{}, errors.New(huge) },
		"give":  func(context.Context, host.Call) (agent.Payload, error) { return agent.Text(huge), nil },
		"name":  func(context.Context, host.Call) (agent.Payload, error) { return agent.Payload{Type: huge}, nil },
	}, nil)
	r.start()
	for function, want := range map[string]string{"throw": "failed failed", "give": "completed", "name": "failed invalid"} {
		run := r.wait(r.run("a", function, "").ID)
		got := run.Status.String()
		if run.Error != nil {
			got += " " + run.Error.Kind.String()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", function, got, want)
		}
		if run.Error != nil && len(run.Error.Msg) > 9<<10 {
			t.Errorf("%s: a message of %d bytes", function, len(run.Error.Msg))
		}
		if run.Output != nil && string(run.Output.Body) != huge {
			t.Errorf("%s: %d bytes of output", function, len(run.Output.Body))
		}
	}
}
