package runtime_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

const edges = `
import { emit, run, sleep, storage, waitForEvent } from "skep";
const many = (n) => Array.from({ length: n }, (_, i) => ({ op: "set", key: "k" + i, value: "x".repeat(127 * 1024) }));
export async function much() {
	await storage.set("before", 1);
	const failed = await storage.batch(many(8)).then(() => "no", (e) => e.kind + ": " + e.message);
	const stored = await storage.batch(many(5)).then(() => "stored");
	await storage.set("after", 1);
	emit("stored");
	return [failed, stored, await storage.get("before"), await storage.get("k7"), (await storage.get("k4")).length];
}
export async function loud() {
	await storage.batch(many(5));
	for (let i = 0; i < 100; i++) emit("loud", "x".repeat(6000));
	await storage.batch(many(5));
	for (let i = 0; i < 60; i++) emit("loud", "x".repeat(6000));
	await storage.batch(many(5));
	return "stored";
}
export async function kept() { await storage.batch(many(8)); return "stored"; }
export async function held() {
	const e = await waitForEvent("first");
	await sleep(1100);
	return [e, await waitForEvent("second")];
}
export async function pay(n) { return n; }
export async function go() { return await waitForEvent("go"); }
export async function refused() {
	const kid = await run("pay", 1, { agent: "bank", key: "k" });
	emit("begun");
	return await kid.result().then(() => "made", (e) => e.kind);
}
`

// What a run can store at once is bounded, and its code is told so: the run is not lost to it.
func TestRunStoresMuch(t *testing.T) {
	w := newWorld(t, edges, nil)
	w.start()
	want := `["exhausted: the edits have 1040632 bytes, and in a run up to 699050 are made at once","stored",1,null,130048]`
	if got := w.output(w.begin("much", "null")); got != want {
		t.Errorf("output %s, want %s", got, want)
	}
	if got := w.output(w.begin("loud", "null")); got != `"stored"` && got != "stored" {
		t.Errorf("with many events beside: %s", got)
	}
	res, err := w.CallInstance(t.Context(), app, runtime.InstanceCall{Agent: "a", Key: "other", Function: "kept"})
	if err != nil || string(res.Output.Body) != "stored" {
		t.Errorf("in a call of the instance: %s, %v", res.Output.Body, err)
	}
}

// A paused run is woken by nothing: neither by events, which are kept for it, nor by times.
func TestPausedRunKeepsEvents(t *testing.T) {
	w := newWorld(t, edges, nil)
	w.start()
	run := w.until(w.begin("held", "null"), agent.EventRunWaiting)
	w.event(run, "first", `1`)
	for run.Wait == nil || run.Wait.For != "sleep" {
		run = w.until(run, agent.EventRunWaiting)
	}
	paused, err := w.PauseRuns(t.Context(), app, run.ID)
	if err != nil || paused[0].Status != agent.Paused {
		t.Fatalf("%+v, %v", paused, err)
	}
	for _, data := range []string{"2", "3"} {
		if got := w.event(run, "second", data); got.Status != agent.Paused || got.Lives != paused[0].Lives {
			t.Errorf("an event woke the run: %+v", got)
		}
	}
	// The time that it slept until passes for another run, which began to sleep later.
	other := w.begin("held", "null")
	w.event(other, "first", `1`)
	w.event(other, "second", `1`)
	w.output(other)
	if got, err := w.store.Run(t.Context(), app, run.ID); err != nil || got.Status != agent.Paused || got.Lives != paused[0].Lives {
		t.Errorf("the run is %+v, %v", got, err)
	}
	if _, err := w.ResumeRuns(t.Context(), app, run.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "[1,2]" {
		t.Errorf("output %s", got)
	}
}

// Who sends an event again, because the answer was lost, is told the same as the first time, also by the run that has ended with it.
func TestEventIsSentAgain(t *testing.T) {
	w := newWorld(t, edges, nil)
	w.start()
	run := w.until(w.begin("go", "null"), agent.EventRunWaiting)
	send := func(key string) error {
		_, err := w.SendEvent(t.Context(), app, run.ID, "go", key, json.RawMessage("7"))
		return err
	}
	if err := send("click"); err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "7" {
		t.Fatalf("output %s", got)
	}
	if err := send("click"); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for _, key := range []string{"another", ""} {
		if err := send(key); kind(err) != "conflict" {
			t.Errorf("once-key %q: %v", key, err)
		}
	}
	if n := tally(w.sessionLog(run))["event.received"]; n != 1 {
		t.Errorf("the event is there %d times", n)
	}
}

// A run that is to begin at an instance which is gone by then does not: who began it is told when it asks for the result.
func TestRunBeginsAtDeletedInstance(t *testing.T) {
	c := newCity(t, edges)
	p := c.process(runtime.Options{}, never)
	p.deploy(c)
	block := make(chan struct{})
	c.bank.block.Store(&block)
	called := make(chan error, 1)
	go func() {
		_, err := p.CallInstance(context.WithoutCancel(t.Context()), app, runtime.InstanceCall{Agent: "bank", Key: "k", Function: "pay", Input: agent.JSON([]byte("1"))})
		called <- err
	}()
	for c.bank.paid.Load() == 0 { // the instance is busy, and messages to it wait
		select {
		case err := <-called:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	run := p.until(p.begin("refused", "null"), agent.EventRunWaiting)
	if run.Wait.For != "run" {
		t.Fatalf("the run waits for %+v", run.Wait)
	}
	if err := p.DeleteAgents(t.Context(), app, "bank"); err != nil {
		t.Fatal(err)
	}
	close(block)
	if got := p.output(run); got != `"not_found"` && got != "not_found" {
		t.Errorf("output %s", got)
	}
	<-called
	if _, err := p.store.Run(t.Context(), app, agent.RunID(run.Wait.Name)); kind(err) != "not_found" {
		t.Errorf("the other run: %v", err)
	}
	if n := c.bank.paid.Load(); n != 1 {
		t.Errorf("the bank was called %d times", n)
	}
}

// An instance keeps the newest journals of runs that have ended, and all of those that have not.
func TestOldJournalsAreTrimmed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a thousand runs")
	}
	w := &world{rig: newRig(t, map[string]runtimetest.Func{
		"run": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			return agent.Text("done"), runtimetest.Emit(ctx, c, "n", 1)
		},
		"wait": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			_, err := c.Calls(ctx, "run.wait", []byte(`{"type":"go"}`))
			return agent.Text("woken"), err
		},
	}, nil)}
	w.start()
	start := func(function string) agent.Run {
		run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "a", Key: "k", Function: function, Input: agent.Text("")}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	waits := w.until(start("wait"), agent.EventRunWaiting)
	const n = 1100 // the 1088th that ends has the oldest 128 removed
	var runs []agent.Run
	for range n / 100 {
		var some []agent.Run
		for range 100 {
			some = append(some, start("run"))
		}
		for _, run := range some {
			w.wait(run.ID)
		}
		runs = append(runs, some...)
	}
	has := func(run agent.Run) int {
		entries, err := w.Journal(t.Context(), app, run.ID, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	gone := 0
	for _, run := range runs {
		if has(run) == 0 {
			gone++
		}
	}
	if gone < 100 || gone > 128 {
		t.Errorf("%d of %d journals are gone", gone, n)
	}
	if has(runs[0]) != 0 || has(runs[n-1]) == 0 || has(waits) == 0 {
		t.Errorf("the oldest has %d entries, the newest %d, that of a run that waits %d", has(runs[0]), has(runs[n-1]), has(waits))
	}
	if _, err := w.ReplayRun(t.Context(), app, runs[0].ID, runtime.ReplayRequest{}); kind(err) != "not_found" || !strings.Contains(err.Error(), "journal") {
		t.Errorf("replay of it: %v", err)
	}
	w.event(waits, "go", "1")
	if got := w.output(waits); got != "woken" {
		t.Errorf("output %s", got)
	}
}
