package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/journal"
)

const asking = `
import { agent, emit, sleep, step, storage, waitForEvent } from "skep";
export async function add(n) { return n + 1; }
export async function work() {
	await storage.set("n", 1);
	await storage.set("long", "x".repeat(160) + "a");
	await step("one", () => sleep(5));
	const sum = await agent("a", "other").add(3);
	const e = await waitForEvent("more", { timeout: "1 day" });
	emit("done", await storage.get("n"));
	return [e, sum];
}
`

// The journal says what each call asked for, also of those that were answered without a rest; and where other code differs from it both
// sides are named.
func TestJournalSaysWhatWasAsked(t *testing.T) {
	w := newWorld(t, asking, nil)
	w.start()
	run := w.until(w.begin("work", "null"), agent.EventRunWaiting)
	for run.Wait == nil || run.Wait.For != "event" {
		if run.Wait != nil && (run.Wait.For != "reply" || run.Wait.Name != "a/other.add 3") {
			t.Errorf("the run waits for %+v", run.Wait)
		}
		run = w.until(run, agent.EventRunWaiting)
	}
	w.event(run, "more", `2`)
	if got := w.output(run); got != "[2,4]" {
		t.Fatalf("output %s", got)
	}
	entries, err := w.Journal(t.Context(), app, run.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	named := map[uint64]bool{}
	for _, e := range entries {
		if e.Name != "" && e.Call > 0 && e.Kind != "step" && !named[e.Call] {
			named[e.Call] = true
			asked = append(asked, e.Name+" "+text(t, e.Input))
		}
	}
	long := `long = "` + strings.Repeat("x", journal.MaxBrief-len(`long = "...`)) + "..."
	want := []string{`storage.set n = 1`, `storage.set ` + long, `run.sleep 5ms`, `agent a/other.add 3`, `run.wait event more, up to 24h`, `storage.get n`}
	if d := cmp.Diff(want, asked); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}

	for _, tt := range []struct {
		name, old, new string
		want           agent.ReplayDifference
	}{
		{"another event", `waitForEvent("more", `, `waitForEvent("less", `, agent.ReplayDifference{Was: "run.wait event more, up to 24h", Now: "run.wait event less, up to 24h"}},
		{"another value", `storage.set("n", 1)`, `storage.set("n", 2)`, agent.ReplayDifference{Was: "storage.set n = 1", Now: "storage.set n = 2"}},
		{"another call", `agent("a", "other").add(3)`, `storage.get("n")`, agent.ReplayDifference{Was: "agent a/other.add 3", Now: "storage.get n"}},
		{"none", `await agent("a", "other").add(3)`, `4; if (1) return 5`, agent.ReplayDifference{Was: "agent a/other.add 3", Now: "the code has ended"}},
		{"beyond the brief", `+ "a"`, `+ "b"`, agent.ReplayDifference{Was: "storage.set " + long, Now: "storage.set " + long + ", with another input"}},
	} {
		text := strings.Replace(asking, tt.old, tt.new, 1)
		if text == asking {
			t.Fatalf("%s: the code is the same", tt.name)
		}
		src := agent.Source{Kind: agent.Script, Main: "a.ts", Files: map[string][]byte{"a.ts": []byte(text)}}
		got, err := w.ReplayRun(t.Context(), app, run.ID, runtime.ReplayRequest{Source: &src})
		if err != nil || got.Same || got.Difference == nil || got.Difference.Call == 0 {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
			continue
		}
		tt.want.Call = got.Difference.Call
		if d := cmp.Diff(tt.want, *got.Difference); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}

	w.push(strings.Replace(asking, `storage.set("n", 1)`, `storage.set("n", 2)`, 1))
	again, err := w.RestartRun(t.Context(), app, run.ID, "one", true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := w.output(again), "call 1 was storage.set n = 1 there, and is now: storage.set n = 2"; !strings.Contains(got, "conflict") || !strings.HasSuffix(got, want) {
		t.Errorf("a run that diverges: %s, want %s", got, want)
	}
}

func text(t *testing.T, b json.RawMessage) (s string) {
	t.Helper()
	if err := json.Unmarshal(b, &s); err != nil {
		t.Errorf("%s: %v", b, err)
	}
	return s
}
