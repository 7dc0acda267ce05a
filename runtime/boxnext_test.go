package runtime_test

import (
	"slices"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

const boxListener = `
import { sandbox, emit } from "skep";
export async function run() {
	const box = await sandbox.open();
	const turn = await box.prompt("hang");
	emit("waits");
	for (let after; ; emit("heard")) {
		({ after } = await box.next(turn, after));
	}
}
`

// A run that goes on in another process, where it only listens to its CLI, takes the CLI along when it is cancelled there.
func TestBoxCancelledElsewhere(t *testing.T) {
	for _, keep := range []agent.SandboxKeep{agent.Cattle, agent.Pet} {
		t.Run(keep.String(), func(t *testing.T) {
			ask, ended := make(chan struct{}), make(chan struct{})
			w := newBoxWorld(t, "", boxListener, keep, func(c *cliTurn) {
				defer close(ended)
				<-ask
				c.tell(driver.QuestionAsked, driver.QuestionData{ID: "q", Text: "Well?"})
				<-c.ctx.Done()
			})
			w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env", CLI: "claude", Keep: keep}})
			stop := w.start()
			run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "own", Function: "run", Input: agent.JSON([]byte("null"))}, store.Once{})
			if err != nil {
				t.Fatal(err)
			}
			emits := func() int {
				return len(slices.DeleteFunc(w.told(run), func(s string) bool { return s != agent.EventEmit.String() }))
			}
			eventually(t, "it does not hear that the session has begun", func() bool { return emits() == 2 })
			w.yard.serve(nil)
			stop()
			w = w.again()
			w.start()
			close(ask)
			eventually(t, "it does not hear what is asked", func() bool { return emits() == 3 })
			if _, err := w.Cancel(t.Context(), app, run.ID); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("the CLI goes on")
			}
			if keep == agent.Cattle {
				w.yard.none()
			}
		})
	}
}

const boxAsksOften = `
import { sandbox } from "skep";
export async function run() {
	const box = await sandbox.open();
	await box.work("go");
	return "done";
}
`

// A CLI that asks often leaves its run no wait that is long, and the run may take longer all the same than one life of its script.
func TestBoxAsksOften(t *testing.T) {
	w := newBoxWorld(t, allowEdits, boxAsksOften, agent.Cattle, func(c *cliTurn) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range 150 {
			if why := c.permit(driver.ActionEdit, map[string]string{"path": "edited"}); why != "" {
				t.Errorf("it is denied: %s", why)
				return
			}
			<-tick.C
		}
	})
	w.agent(agent.Agent{Name: "often", Limits: agent.Limits{Wall: 3 * time.Second}, Sandbox: &agent.SandboxUse{Environment: "env", CLI: "claude"}})
	w.start()
	run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "often", Function: "run", Input: agent.JSON([]byte("null"))}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); got != "done" {
		t.Errorf("the run came to %q", got)
	}
}
