package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/memkv"
)

var _ runtime.Cells = (*host.Host)(nil)

const realScript = `
import { Agent, emit, callAgent } from "skep";
export function run(n: number) {
	for (let i = 0; i < n; i++) emit("n", i);
	console.warn("counted", n);
	return { n };
}
export function spin() { emit("spinning"); for (;;); }
export async function ask(name: string) { return await callAgent(name, "double", 21); }
export function double(x: number) { return 2 * x; }
export async function out() { await fetch("https://example.com/"); }
export function fail() { throw new TypeError("no"); }
`

// newRealRig is a rig with the cells that users get.
func newRealRig(t *testing.T, script string) *rig {
	t.Helper()
	var r *rig
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		return r.LoadSource(ctx, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.WithoutCancel(t.Context())) })
	db := faultkv.New(memkv.New(), func(faultkv.Op) faultkv.Fault { return faultkv.Fault{} })
	st, err := store.Open(t.Context(), db, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	r = &rig{t: t, Runtime: runtime.New(st, h, nil), store: st, db: db}
	if _, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte(script)}, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// The whole way with the cells that users get: what a script emits keeps its order, a busy loop is cancelled at once, and
// refusals reach the author's code.
func TestRealCells(t *testing.T) {
	r := newRealRig(t, realScript)
	r.agent(agent.Agent{Name: "a"})
	r.agent(agent.Agent{Name: "asker", Grants: agent.AgentGrants("a")})
	r.start()
	start := func(name, function, input string) agent.Run {
		t.Helper()
		run, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: name, Function: function, Input: agent.JSON([]byte(input))}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}

	run := r.wait(start("a", "", "500").ID)
	want := []string{"run.queued", "run.started"}
	for i := range 500 {
		want = append(want, fmt.Sprint("n ", i))
	}
	want = append(want, "warn: counted 500", "run.completed")
	if d := cmp.Diff(want, r.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if run.Status != agent.Completed || string(run.Output.Body) != `{"n":500}` || run.Usage.HostCalls != 500 {
		t.Errorf("run: %+v", run)
	}

	spin := start("a", "spin", "null")
	if _, err := read(t.Context(), r, store.SessionLog(app, spin.Session), 0, 3); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	if runs, err := r.Cancel(t.Context(), app, spin.ID); err != nil || runs[0].Status != agent.RunCancelled {
		t.Errorf("cancel: %+v, %v", runs, err)
	}
	if d := time.Since(from); d > 2*time.Second {
		t.Errorf("cancelling took %s", d)
	}

	for _, tt := range []struct{ name, function, input, want string }{
		{"asker", "ask", `"a"`, "42"}, {"a", "ask", `"a"`, "failed"}, {"a", "out", "null", "failed"}, {"a", "fail", "null", "failed"},
	} {
		res, err := r.Call(t.Context(), app, runtime.CallRequest{Agent: tt.name, Function: tt.function, Input: agent.JSON([]byte(tt.input))})
		got := string(res.Output.Body)
		if err != nil {
			got = kind(err)
		}
		if got != tt.want {
			t.Errorf("%s.%s: got %s, want %s: %v", tt.name, tt.function, got, tt.want, err)
		} else if err != nil {
			t.Logf("%s.%s: %v", tt.name, tt.function, err)
		}
	}
}
