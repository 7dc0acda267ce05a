package runtime_test

import (
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// A run that opens its sandbox once more, as each does after a crash, does not wait for one that waits for its end.
func TestBoxPetOpenedAgain(t *testing.T) {
	w := newBoxWorld(t, "", `
		import { sandbox, waitForEvent } from "skep";
		export async function run() {
			const box = await sandbox.open();
			await waitForEvent("more");
			return (await sandbox.open()).id === box.id;
		}
		export async function other() { return (await sandbox.open()).keep }
	`, agent.Pet, nil)
	w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env@1", Keep: agent.Pet}})
	w.start()
	begin := func(function string) agent.Run {
		t.Helper()
		run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "own", Function: function, Input: agent.JSON([]byte("null"))}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	first := begin("run")
	eventually(t, "it does not wait", func() bool {
		run, err := w.store.Run(t.Context(), app, first.ID)
		return err == nil && run.Status == agent.Waiting
	})
	other := begin("other")
	if _, ok := w.ended(other, 300*time.Millisecond); ok {
		t.Error("two runs have the sandbox at once")
	}
	if _, err := w.SendEvent(t.Context(), app, first.ID, "more", "", []byte("1")); err != nil {
		t.Fatal(err)
	}
	for run, want := range map[*agent.Run]string{&first: "true", &other: "pet"} {
		if _, ok := w.ended(*run, 10*time.Second); !ok {
			t.Fatal("they wait for each other")
		}
		if got := w.output(*run); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
