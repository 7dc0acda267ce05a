package runtime_test

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
)

// A limit of a grant for one call holds for the whole of a run, in whatever cells and processes that goes on.
func TestLimitPerRun(t *testing.T) {
	w := newWorld(t, `
		import { callAgent, waitForEvent } from "skep";
		export const one = () => 1;
		export async function main() {
			let n = 0;
			for (const more of ["first", "second", "third"]) {
				n += await callAgent("b", "one");
				await waitForEvent(more);
			}
			return n;
		}`, nil, agent.Agent{Name: "b"})
	g := agent.Grants{Agents: []agent.NamedGrant{{Name: "b", Limits: agent.Rate{PerCall: 2}}}}
	if _, err := w.UpdateAgent(t.Context(), app, "a", runtime.AgentPatch{Grants: &g}); err != nil {
		t.Fatal(err)
	}
	stop := w.start()
	run := w.until(w.begin("main", "null"), agent.EventRunWaiting)
	w.event(run, "first", "null")
	for run.Lives != 2 || run.Status != agent.Waiting {
		run = w.until(run, agent.EventRunWaiting)
	}
	stop()
	next := w.next(nil)
	next.start()
	next.event(run, "second", "null")
	if got := next.output(run); !strings.HasPrefix(got, "failed") || !strings.Contains(got, "is for 2 uses within one call or run") {
		t.Errorf("the third use: %s", got)
	}
	if log := next.sessionLog(run); !strings.Contains(strings.Join(log, "\n"), "grant.refused") {
		t.Errorf("the session has %q", log)
	}
	if again := next.until(next.begin("main", "null"), agent.EventRunWaiting); again.Status != agent.Waiting {
		t.Errorf("another run is %s", again.Status)
	}
}
