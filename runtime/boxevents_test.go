package runtime_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

// texts are the lines that a chat shows of a log.
func texts(t *testing.T, r *rig, l store.Log) string {
	t.Helper()
	events, err := r.store.Read(t.Context(), l, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fold client.ChatFold
	var out strings.Builder
	for _, ev := range events {
		for _, p := range fold.Add(ev) {
			switch p.Kind {
			case client.ChatText, client.ChatThought:
				out.WriteString(p.Text)
			case client.ChatAnswer:
				out.WriteString("|")
			case client.ChatRestart:
				out.WriteString("<again>")
			}
		}
	}
	return out.String()
}

// Events come again in other batches, over restarts of the server in the middle of a text, and each is in the log once.
func TestBoxEventsOnce(t *testing.T) {
	for _, step := range []int{1, 2, 3, 5, 20} {
		r := newRig(t, map[string]runtimetest.Func{"f": nil}, nil)
		run := r.run("a", "f", "")
		sb := agent.Sandbox{ID: agent.NewSandboxID(run.Created), App: app, Agent: "a", For: "run/" + string(run.ID), Run: run.ID, Session: run.Session, Generation: 1}
		turn := string(run.ID) + "-7"
		at := func(kind string, data any) driver.Event { return driver.NewEvent(turn, kind, data) }
		all := []driver.Event{
			driver.NewEvent("", driver.SessionStarted, driver.SessionData{ID: "s"}),
			at(driver.TurnStarted, nil),
			at(driver.TextDelta, driver.TextData{Item: "1", Text: "Hello, "}),
			at(driver.TextDelta, driver.TextData{Item: "1", Text: "wörld"}),
			at(driver.ReasoningDelta, driver.TextData{Item: "1", Text: "(hm)"}),
			at(driver.TextDone, driver.TextData{Item: "1", Text: "Hello, wörld"}),
			at(driver.ToolStarted, driver.ToolData{ID: "t", Name: "Bash"}),
			at(driver.TextDone, driver.TextData{Item: "2", Text: "At once."}),
			at(driver.TextDelta, driver.TextData{Item: "3", Text: "cut "}),
			at(driver.TextDone, driver.TextData{Item: "3", Text: "cut off"}),
			{Turn: turn, Type: "raw", Data: json.RawMessage(`[1]`), Native: "n", Cut: true},
			at(driver.TurnEnded, driver.TurnEnd{Status: driver.TurnCompleted}),
		}
		now := r.Runtime
		for i := 0; i < len(all); i += step {
			from := max(i-2, 0) // two come again
			if err := now.BoxEvents(t.Context(), sb, int64(from+1), all[from:min(i+step, len(all))]); err != nil {
				t.Fatal(err)
			}
			if i/step%2 == 1 {
				now = runtime.New(r.store, runtimetest.New(nil), nil)
			}
		}
		if err := now.BoxEvents(t.Context(), sb, 1, all); err != nil {
			t.Fatal(err)
		}
		if taken, err := r.store.Taken(t.Context(), app, sb.Source()); taken != int64(len(all)) || err != nil {
			t.Errorf("step %d: %d events are taken, %v", step, taken, err)
		}
		log := store.SessionLog(app, run.Session)
		if got := texts(t, r, log); got != "Hello, wörld(hm)|At once.cut off" {
			t.Errorf("step %d: the texts are %q", step, got)
		}
		var got []string
		events, err := r.store.Read(t.Context(), log, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Kind == agent.EventCLI {
				got = append(got, fmt.Sprintf("%s %s", ev.Name, strings.ReplaceAll(string(ev.Data), turn, "T")))
				if ev.Run != run.ID {
					t.Errorf("%s is of run %q", ev.Name, ev.Run)
				}
			}
		}
		want := []string{
			`session.started {"id":"s","cli":""}`, `turn.started {"turn":"T"}`, `tool.started {"turn":"T","id":"t","name":"Bash","action":""}`,
			`raw {"turn":"T","native":"n","cut":true}`, `turn.ended {"turn":"T","status":"completed"}`,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("step %d (-want +got):\n%s", step, d)
		}
	}
}

// What a sandbox tells that was lost is void when its turn begins again in the next. What is of no run, or of another agent's, is in the agent's log.
func TestBoxEventsElsewhere(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"f": nil}, nil, "b")
	run, other := r.run("a", "f", ""), r.run("b", "f", "")
	sb := agent.Sandbox{ID: agent.NewSandboxID(run.Created), App: app, Agent: "a", For: "agent/x", Run: run.ID, Session: run.Session, Generation: 1}
	put := func(first int64, turns ...string) {
		t.Helper()
		var list []driver.Event
		for _, turn := range turns {
			list = append(list, driver.NewEvent(turn, driver.TextDelta, driver.TextData{Item: "1", Text: "text "}))
		}
		if err := r.BoxEvents(t.Context(), sb, first, list); err != nil {
			t.Fatal(err)
		}
	}
	mine := string(run.ID) + "-1"
	put(1, mine, mine, string(other.ID)+"-1", "01GONE-1", mine)
	sb.Generation = 2
	put(1, mine)
	if got := texts(t, r, store.SessionLog(app, run.Session)); got != "text text text <again>text " {
		t.Errorf("its session tells %q", got)
	}
	if got := texts(t, r, store.SessionLog(app, other.Session)); got != "" {
		t.Errorf("that of another agent tells %q", got)
	}
	a, err := r.store.Agent(t.Context(), app, "a")
	if err != nil {
		t.Fatal(err)
	}
	events, err := r.store.Read(t.Context(), store.AgentLog(app, a.ID), 0, 0)
	if err != nil || len(events) != 2 || events[0].Run != "" {
		t.Errorf("the agent's log has %+v, %v", events, err)
	}
	if err := r.BoxEvents(t.Context(), sb, 9, []driver.Event{driver.NewEvent(mine, driver.TurnEnded, nil)}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("after a gap: %v", err)
	}
	var d abi.MessageDelta
	last, err := r.store.Read(t.Context(), store.SessionLog(app, run.Session), 0, 0)
	if err != nil || json.Unmarshal(last[len(last)-1].Data, &d) != nil || d.Attempt != 2 || d.Offset != 0 {
		t.Errorf("the last is %+v, %v", d, err)
	}
}

// What a sandbox tells while one run has it is bounded, whosever turns it says it is of; for the next run it may tell as much again.
func TestBoxTellsTooMuch(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"f": nil}, &runtime.Options{BoxTold: 10_000})
	run, next := r.run("a", "f", ""), r.run("a", "f", "")
	sb := agent.Sandbox{ID: agent.NewSandboxID(run.Created), App: app, Agent: "a", For: "agent/x", Run: run.ID, Session: run.Session, Generation: 1}
	first := int64(1)
	tell := func(turn agent.RunID, n int) error {
		e := driver.Event{Turn: string(turn) + "-1", Type: driver.DriverLog, Data: json.RawMessage(`"` + strings.Repeat("x", n-256-2) + `"`)}
		err := r.BoxEvents(t.Context(), sb, first, []driver.Event{e})
		if err == nil {
			first++
		}
		return err
	}
	for _, turn := range []agent.RunID{run.ID, next.ID} {
		if err := tell(turn, 5000); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell(run.ID, 300); !errors.Is(err, link.ErrTooMuch) || agent.KindOf(err) != agent.Exhausted {
		t.Errorf("beyond the bound: %v", err)
	}
	sb.Run = next.ID
	if err := tell(next.ID, 10_000); err != nil {
		t.Errorf("for the next run: %v", err)
	}
}
