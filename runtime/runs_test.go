package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	dir   string // of blobs
}

func newWorld(t testing.TB, script string, o *runtime.Options, agents ...agent.Agent) *world {
	t.Helper()
	w := &world{rig: &rig{t: t}, dir: t.TempDir()}
	w.db = faultkv.New(memkv.New(), func(op faultkv.Op) faultkv.Fault {
		if w.fault != nil {
			return w.fault(op)
		}
		return faultkv.Fault{}
	})
	st, err := store.Open(t.Context(), w.db, w.dir, nil)
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
	n := &world{rig: &rig{t: w.t, Runtime: runtime.New(w.store, w.cells, o), store: w.store, db: w.db}, cells: w.cells, dir: w.dir}
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

const controlled = `
import { callAgent, emit, run, sleep, step, storage, waitForEvent } from "skep";
export async function steps() {
	const a = await step("one", async () => { await storage.set("one", true); return 1; }, { rollback: async () => { emit("undone"); } });
	const b = await step("two", () => waitForEvent("more"));
	return [a, b, Math.random() < 1];
}
export async function parent() { const r = await run("kid", 20, { key: "elsewhere" }); return await r.result(); }
export async function kid(n) { await sleep(5); return n + 1; }
export async function spin() { emit("spinning"); for (;;); }
export async function greedy() { const a = []; for (let i = 0; ; i++) a.push(new Uint8Array(1 << 20).fill(i)); }
export async function call() { return await callAgent("bank", "pay", 1); }
`

func TestRunIsTerminated(t *testing.T) {
	w := newWorld(t, controlled, nil)
	w.start()
	run := w.until(w.begin("steps", "null"), agent.EventRunWaiting)
	if _, err := w.TerminateRuns(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "cancelled cancelled: the run was terminated" {
		t.Errorf("output %s", got)
	}
	log := strings.Join(w.sessionLog(run), "\n")
	if !strings.Contains(log, "undone null") || strings.Count(log, "step.started") != 3 {
		t.Errorf("events %s", log)
	}
}

func TestRunIsPaused(t *testing.T) {
	w := newWorld(t, controlled, nil)
	w.start()
	run := w.until(w.begin("steps", "null"), agent.EventRunWaiting)
	if got, err := w.PauseRuns(t.Context(), app, run.ID); err != nil || got[0].Status != agent.Paused {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := w.event(run, "more", `2`); got.Status != agent.Paused {
		t.Errorf("an event woke a run that is %s", got.Status)
	}
	if _, err := w.ResumeRuns(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "[1,2,true]" {
		t.Errorf("output %s", got)
	}
	if _, err := w.ResumeRuns(t.Context(), app, run.ID); kind(err) != "conflict" {
		t.Errorf("a run that has ended was resumed: %v", err)
	}
}

func TestRunBeginsAnother(t *testing.T) {
	w := newWorld(t, controlled, nil)
	w.start()
	if got := w.output(w.begin("parent", "null")); got != "21" {
		t.Errorf("output %s", got)
	}
}

func TestRunIsReplayed(t *testing.T) {
	w := newWorld(t, controlled, nil)
	w.start()
	run := w.until(w.begin("steps", "null"), agent.EventRunWaiting)
	early, err := w.ReplayRun(t.Context(), app, run.ID, runtime.ReplayRequest{})
	if err != nil || !early.Same || early.Complete {
		t.Errorf("replay of a run that waits: %+v, %v", early, err)
	}
	w.event(run, "more", `2`)
	if got := w.output(run); got != "[1,2,true]" {
		t.Fatalf("output %s", got)
	}
	same, err := w.ReplayRun(t.Context(), app, run.ID, runtime.ReplayRequest{})
	if err != nil || !same.Same || !same.Complete || same.Calls == 0 || string(same.Output.Body) != "[1,2,true]" {
		t.Errorf("replay: %+v, %v, %+v", same, err, same.Difference)
	}
	other := strings.Replace(controlled, "return [a, b,", "return [b, a,", 1)
	w.push(other)
	differs, err := w.ReplayRun(t.Context(), app, run.ID, runtime.ReplayRequest{Plugin: "code"})
	if err != nil || differs.Same || differs.Difference == nil {
		t.Errorf("replay with other code: %+v, %v", differs, err)
	}
	entries, err := w.Journal(t.Context(), app, run.ID, 0, 0)
	if err != nil || len(entries) < 8 || entries[0].Kind != "begin" {
		t.Errorf("journal %+v, %v", entries, err)
	}
	again, err := w.RestartRun(t.Context(), app, run.ID, "two", false)
	if err != nil {
		t.Fatal(err)
	}
	again = w.until(again, agent.EventRunWaiting)
	w.event(again, "more", `3`)
	if got := w.output(again); got != "[1,3,true]" {
		t.Errorf("output of the run that was restarted at a step: %s", got)
	}
	if mended, err := w.RestartRun(t.Context(), app, run.ID, "two", true); err != nil {
		t.Error(err)
	} else {
		mended = w.until(mended, agent.EventRunWaiting)
		w.event(mended, "more", `3`)
		if got := w.output(mended); got != "[3,1,true]" {
			t.Errorf("output of the run that goes on with other code: %s", got)
		}
	}
	var out bytes.Buffer
	if err := w.ExportRun(t.Context(), app, run.ID, &out); err != nil || !strings.Contains(out.String(), `"kind":"journal"`) {
		t.Errorf("export %s, %v", out.String(), err)
	}
}

// Code that has its result while a call is still under way, as after a race, comes to the same when it is played again.
func TestReplayOfARace(t *testing.T) {
	w := newWorld(t, `
		import { sleep } from "skep";
		export async function run() { return await Promise.race([sleep("1 hour").then(() => "late"), sleep(5).then(() => "soon")]); }`, nil)
	w.start()
	run := w.begin("run", "null")
	if got := w.output(run); got != "soon" {
		t.Fatalf("output %s", got)
	}
	for range 20 {
		got, err := w.ReplayRun(t.Context(), app, run.ID, runtime.ReplayRequest{})
		if err != nil || !got.Same || !got.Complete || got.Output == nil || string(got.Output.Body) != "soon" {
			t.Fatalf("replay: %+v, %v, %+v", got, err, got.Difference)
		}
	}
}

// A server that stops lets runs that rest give up their cells, and stops those that compute; the next one goes on with both.
func TestRunsOutliveTheirServer(t *testing.T) {
	w := newWorld(t, controlled, &runtime.Options{Grace: 50 * time.Millisecond})
	stop := w.start()
	waits := w.until(w.begin("steps", "null"), agent.EventRunWaiting)
	spins := w.until(w.begin("spin", "null"), agent.EventEmit)
	stop()
	if run, err := w.store.Run(t.Context(), app, spins.ID); err != nil || run.Status != agent.Queued || run.Lost != 0 {
		t.Errorf("run that computes: %+v, %v", run, err)
	}
	next := w.next(nil)
	next.start()
	next.event(waits, "more", `2`)
	if got := next.output(waits); got != "[1,2,true]" {
		t.Errorf("output %s", got)
	}
	if _, err := next.Cancel(t.Context(), app, spins.ID); err != nil {
		t.Error(err)
	}
	if n := strings.Count(strings.Join(next.sessionLog(spins), " "), "spinning"); n != 1 {
		t.Errorf("an event is there %d times", n)
	}
}

// An owner that was deposed commits nothing, and does not end the run.
func TestRunIsTakenOver(t *testing.T) {
	w := newWorld(t, controlled, nil)
	w.start()
	run := w.until(w.begin("spin", "null"), agent.EventEmit)
	next := w.next(nil)
	next.start() // which finds it Running
	if got := next.until(run, agent.EventRunResumed); got.Lives != 2 || got.Lost != 1 {
		t.Errorf("run %+v", got)
	}
	if _, err := next.Cancel(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Cancel(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := w.store.Run(t.Context(), app, run.ID); err != nil || got.Status != agent.RunCancelled {
		t.Errorf("run %+v, %v", got, err)
	}
}

func TestRunThatIsLostTwice(t *testing.T) {
	w := newWorld(t, controlled, &runtime.Options{Limits: agent.Limits{Memory: 32 << 20}})
	w.start()
	got := w.output(w.begin("greedy", "null"))
	if !strings.HasPrefix(got, "failed exhausted: the run was lost twice in a row: life 1: ") {
		t.Errorf("output %s", got)
	}
}

// Runs that wait hold no cell.
func TestManyRunsWait(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 50
	}
	w := newWorld(t, waiters, nil)
	w.start()
	runs := make([]agent.Run, n)
	for i := range runs {
		runs[i] = w.begin("approve", fmt.Sprint(i))
	}
	for _, run := range runs {
		w.until(run, agent.EventRunWaiting)
	}
	if cells, waiting := w.cells.Live(); cells != 0 || waiting != 0 || w.Stats().RunsActive != 0 {
		t.Errorf("%d cells, %d wait for one, %d runs are executed", cells, waiting, w.Stats().RunsActive)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		w.event(runs[i], "approval", `{"ok":1}`)
		if got := w.output(runs[i]); !strings.HasSuffix(got, `"ok":1}`) {
			t.Errorf("output %s", got)
		}
	}
}

// Sleeps that are begun in order end in order, and one that was given up holds nobody up.
func TestSleepsEndInOrder(t *testing.T) {
	w := newWorld(t, `
		import { sleep, step } from "skep";
		export async function run() {
			const ended = [];
			await step("quick", { timeout: 200 }, () => sleep(1));
			await Promise.all([30, 30, 20, 30, 250, 10].map((ms, i) => sleep(ms).then(() => ended.push(i))));
			return ended;
		}`, nil)
	w.start()
	for range 5 {
		if got := w.output(w.begin("run", "null")); got != "[5,2,0,1,3,4]" {
			t.Errorf("ended in the order %s", got)
		}
	}
}
