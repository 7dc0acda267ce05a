package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
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

// world is a store with the cells that users get, which outlives the runtimes over it.
type world struct {
	*rig
	cells *host.Host
}

func newWorld(t testing.TB, script string, o *runtime.Options, agents ...agent.Agent) *world {
	t.Helper()
	w := &world{rig: &rig{t: t}}
	w.db = faultkv.New(memkv.New(), func(op faultkv.Op) faultkv.Fault {
		if w.fault != nil {
			return w.fault(op)
		}
		return faultkv.Fault{}
	})
	st, err := store.Open(t.Context(), w.db, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w.store = st
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		return w.LoadSource(ctx, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.WithoutCancel(t.Context())) })
	w.cells = h
	w.Runtime = runtime.New(st, h, o)
	w.push(script)
	for _, a := range append(agents, agent.Agent{Name: "a"}) {
		w.agent(a)
	}
	return w
}

func (w *world) push(script string) {
	w.t.Helper()
	if _, _, err := w.PutPlugin(w.t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte(script)}, store.Once{}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// next is another process over the same store: what the one before still commits is refused.
func (w *world) next(o *runtime.Options) *world {
	n := &world{rig: &rig{t: w.t, Runtime: runtime.New(w.store, w.cells, o), store: w.store, db: w.db}, cells: w.cells}
	return n
}

func (w *world) begin(function, input string) agent.Run {
	w.t.Helper()
	run, _, err := w.StartRun(w.t.Context(), app, runtime.RunRequest{Agent: "a", Function: function, Input: agent.JSON([]byte(input))}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// until follows a run's log until an event of that kind, and returns the run then.
func (w *world) until(run agent.Run, kind agent.EventKind) agent.Run {
	w.t.Helper()
	sub, err := w.Subscribe(w.t.Context(), store.SessionLog(app, run.Session), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for {
		frames, err := sub.Next(ctx)
		if err != nil {
			w.t.Fatalf("no event %s: %v in %q", kind, err, w.sessionLog(run))
		}
		for _, f := range frames {
			if f.Event.Kind == kind && f.Event.Run == run.ID {
				run, err := w.store.Run(w.t.Context(), app, run.ID)
				if err != nil {
					w.t.Fatal(err)
				}
				return run
			}
		}
	}
}

func (w *world) event(run agent.Run, kind, data string) agent.Run {
	w.t.Helper()
	run, err := w.SendEvent(w.t.Context(), app, run.ID, kind, "", json.RawMessage(data))
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// output waits for a run and returns what it came to.
func (w *world) output(run agent.Run) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	run, err := w.Wait(ctx, app, run.ID)
	switch {
	case err != nil:
		w.t.Fatalf("run is %s: %v: %q", run.Status, err, w.sessionLog(run))
	case run.Error != nil:
		return fmt.Sprintf("%s %s: %s", run.Status, run.Error.Kind, run.Error.Msg)
	}
	return string(run.Output.Body)
}

const waiters = `
import { emit, sleep, waitForEvent, storage } from "skep";
export async function approve(who) {
	emit("asked", who);
	await storage.set("who", who);
	const answer = await waitForEvent("approval");
	console.log("got", answer.ok);
	return { who: await storage.get("who"), ok: answer.ok };
}
export async function nap() { const from = Date.now(); await sleep(1500); emit("awake"); return Date.now() - from >= 1500; }
export async function both() {
	const [a, b] = await Promise.all([waitForEvent("a"), waitForEvent("b")]);
	return [a, b, Math.random() < 1, crypto.getRandomValues(new Uint8Array(2)).length];
}
export async function patient() {
	try { return await waitForEvent("never", { timeout: 1200 }); } catch (e) { return e.name; }
}
`

func TestRunWaits(t *testing.T) {
	w := newWorld(t, waiters, nil)
	w.start()
	run := w.until(w.begin("approve", `"ann"`), agent.EventRunWaiting)
	if run.Status != agent.Waiting || run.Wait == nil || run.Wait.For != "event" || run.Wait.Name != "approval" || run.Lives != 1 {
		t.Fatalf("run %+v, wait %+v", run, run.Wait)
	}
	if n, _ := w.cells.Live(); n != 0 {
		t.Errorf("%d cells are live", n)
	}
	w.event(run, "approval", `{"ok":true}`)
	if got := w.output(run); got != `{"who":"ann","ok":true}` {
		t.Errorf("output %s", got)
	}
	want := []string{
		"run.queued", "run.started", `asked "ann"`, "run.waiting", "event.received", "run.resumed", "info: got true", "run.completed",
	}
	if d := cmp.Diff(want, w.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	for _, tt := range []struct{ function, want string }{{"nap", "true"}, {"patient", "TimeoutError"}} {
		if got := w.output(w.begin(tt.function, "null")); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.function, got, tt.want)
		}
	}
}

// A run waits for two things, is told of one, goes to another process, and is told of the other there.
func TestRunMovesToAnotherProcess(t *testing.T) {
	w := newWorld(t, waiters, nil)
	stop := w.start()
	run := w.until(w.begin("both", "null"), agent.EventRunWaiting)
	w.event(run, "b", `2`)
	for run.Lives != 2 || run.Status != agent.Waiting {
		run = w.until(run, agent.EventRunWaiting)
	}
	stop()
	next := w.next(nil)
	next.start()
	next.event(run, "a", `1`)
	if got := next.output(run); got != `[1,2,true,2]` {
		t.Errorf("output %s", got)
	}
}

var _ = strings.Contains
var _ sync.Mutex
