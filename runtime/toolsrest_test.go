package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// An answer of a person that comes while the cell is kept, since another call is under way, leaves the call what it is: one that is not made
// twice. What has it taken for a wait would have the next process make it again.
func TestCodeAnswerInCell(t *testing.T) {
	const calls = 8
	w := newToolWorld(t, "")
	held, free, put := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, calls)
	w.shelf.hold = func(ctx context.Context, method string, _ *tools.CallOptions) error {
		if method != "look" {
			put <- struct{}{}
			return nil
		}
		held <- struct{}{}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.start()
	for range 10 {
		run := w.code(fmt.Sprintf(`const all = [tools.fs.look({})];
for (let n = 0; n < %d; n++) all.push(tools.fs.put({ n }));
return (await Promise.all(all)).length;`, calls))
		<-held
		for _, ask := range w.asks(calls) {
			w.answer(true, ask)
		}
		for range calls {
			<-put
		}
		free <- struct{}{}
		wantOutput(t, w.wait(run.ID), fmt.Sprint(calls+1))
		entries, err := w.Journal(t.Context(), app, run.ID, 0, 500)
		if err != nil {
			t.Fatal(err)
		}
		starts := 0
		for _, e := range entries {
			if e.Kind == "start" {
				starts++
				if e.Class != "once" {
					t.Errorf("call %d leaves as one of class %s", e.Call, e.Class)
				}
			}
		}
		if starts != calls {
			t.Errorf("%d calls have left, want %d", starts, calls)
		}
	}
}

// A run that a person has looked at is not given up for what became of it before: what they said about its call is done.
func TestCodeResolvedAfterLosses(t *testing.T) {
	w := newToolWorld(t, "read: allow\nmodify: allow\n")
	held := make(chan struct{}, 1)
	w.shelf.hold = func(ctx context.Context, _ string, _ *tools.CallOptions) error {
		held <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	w.start()
	run := w.code(`return (await tools.fs.put({ n: 1 })).did;`)
	for n := range 4 {
		<-held
		w = w.again()
		w.start()
		say := agent.Resolution{Call: w.uncertain(run, n+1), Action: "retry"}
		if n == 3 {
			say.Action, say.Output = "answer", []byte(`{"did":"it"}`)
		}
		if _, err := w.ResolveRun(t.Context(), app, run.ID, say); err != nil {
			t.Fatal(err)
		}
	}
	wantOutput(t, w.wait(run.ID), "it")
	if n := len(w.shelf.made()); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

// uncertain returns the call of which it is told that nobody knows its effect, when that is told so often.
func (w *toolWorld) uncertain(run agent.Run, times int) uint64 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	sub, err := w.Subscribe(ctx, store.SessionLog(app, run.Session), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	for {
		frames, err := sub.Next(ctx)
		if err != nil {
			w.t.Fatalf("it is not uncertain %d times: %v in %q", times, err, w.sessionLog(run))
		}
		for _, f := range frames {
			if f.Event.Kind != agent.EventRunUncertain {
				continue
			}
			if times--; times > 0 {
				continue
			}
			var wait agent.RunWait
			if err := json.Unmarshal(f.Event.Data, &wait); err != nil {
				w.t.Fatal(err)
			}
			return wait.Call
		}
	}
}

// What calls come to while the server stops is written down once, with the events that tell of it.
func TestCodeReturnsAtStop(t *testing.T) {
	const calls = 4
	w := newToolWorld(t, "read: allow\nmodify: allow\n")
	for range 8 {
		held, free := make(chan struct{}, calls), make(chan struct{})
		w.shelf.hold = func(ctx context.Context, _ string, _ *tools.CallOptions) error {
			held <- struct{}{}
			select {
			case <-free:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		stop := w.start()
		run := w.code(fmt.Sprintf(`const all = [];
for (let n = 0; n < %d; n++) all.push(tools.fs.put({ n }));
return (await Promise.all(all)).length;`, calls))
		for range calls {
			<-held
		}
		go close(free)
		stop()
		w = w.again()
		w.shelf.hold = nil
		stop = w.start()
		wantOutput(t, w.wait(run.ID), fmt.Sprint(calls))
		entries, err := w.Journal(t.Context(), app, run.ID, 0, 500)
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, e := range entries {
			if e.Kind == "done" {
				done++
			}
		}
		returned := strings.Count(strings.Join(w.sessionLog(run), "\n"), agent.EventToolReturned.String())
		if done != calls || returned != calls {
			t.Errorf("of %d calls the journal tells %d times what they came to, and the log %d times", calls, done, returned)
		}
		stop()
		w = w.again()
	}
}

// A person answers while a server that starts goes through what it has found: the question stays answered.
func TestCodeAnsweredDuringRecovery(t *testing.T) {
	w := newToolWorld(t, "")
	held := make(chan struct{})
	w.shelf.hold = func(ctx context.Context, method string, _ *tools.CallOptions) error {
		if method == "look" {
			close(held)
			<-ctx.Done()
		}
		return ctx.Err()
	}
	w.start()
	run := w.code(`return (await Promise.all([tools.fs.look({}), tools.fs.put({})])).length;`)
	<-held
	asks := w.asks(1)
	w = w.again()
	found, err := w.store.Run(t.Context(), app, run.ID)
	if err != nil || found.Status != agent.Running || len(found.Asks) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	w.answer(true, asks...)
	if err := w.Resume(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if now, err := w.store.Run(t.Context(), app, run.ID); err != nil || now.Status != agent.Queued || len(now.Asks) != 0 {
		t.Errorf("the run is %s with %d questions, %v", now.Status, len(now.Asks), err)
	}
}
