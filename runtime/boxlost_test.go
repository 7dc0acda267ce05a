package runtime_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
)

// A run that waits for nothing but its CLI is killed again and again, each time after it has taken the next event, and goes on. When it gets no further, the
// second kill is the last.
func TestBoxRunThatGetsOnIsNotLost(t *testing.T) {
	ask := make(chan struct{})
	c := newBoxCity(t, boxListener, time.Hour, func(turn *cliTurn) {
		for {
			select {
			case <-ask:
				turn.tell(driver.QuestionAsked, driver.QuestionData{ID: "q", Text: "Well?"})
			case <-turn.ctx.Done():
				return
			}
		}
	})
	var run agent.Run
	// life lives until ok, and dies.
	life := func(ok func(p *boxProcess) bool) {
		t.Helper()
		var dies atomic.Bool
		p := c.process(func(op faultkv.Op) faultkv.Fault {
			if op.Kind == faultkv.Apply && dies.Load() {
				return faultkv.Fault{Err: faultkv.ErrCrashed, Crash: true}
			}
			return faultkv.Fault{}
		})
		defer p.stop()
		if run.ID == "" {
			run = p.begin("run", "null")
		}
		eventually(t, "the run does not come so far", func() bool { return ok(p) })
		dies.Store(true)
		if _, err := p.store.PutDoc(t.Context(), store.Policies, app, "other", 0, map[string]string{"text": ""}); err == nil {
			t.Error("the process lives")
		}
		<-p.dead
	}
	prompted := func(*boxProcess) bool { return c.yard.did(driver.DoPrompt) > 0 }
	lives := func(n int) func(p *boxProcess) bool {
		return func(p *boxProcess) bool {
			now, err := p.store.Run(t.Context(), app, run.ID)
			return err == nil && now.Lives == n && now.Status == agent.Running
		}
	}
	life(prompted)
	for n := 2; n < 6; n++ {
		taken := -1
		life(func(p *boxProcess) bool {
			now := len(nextsOf(t, p.Runtime, run))
			if taken < 0 && lives(n)(p) {
				taken = now
				ask <- struct{}{}
			}
			return taken >= 0 && now > taken
		})
	}
	life(lives(6))
	p := c.process(never)
	defer p.stop()
	if got := p.output(run); !strings.HasPrefix(got, "failed exhausted: the run was lost twice in a row: life 5: ") {
		t.Errorf("it came to %q", got)
	}
}

// nextsOf returns what a run's journal has of events that its code got.
func nextsOf(t *testing.T, r *runtime.Runtime, run agent.Run) (list []agent.JournalEntry) {
	t.Helper()
	all, err := r.Journal(t.Context(), app, run.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == "deliver" && e.Name == abi.CallSandboxNext {
			list = append(list, e)
		}
	}
	return list
}

const boxGreedy = `
import { sandbox } from "skep";
export async function run() {
	const box = await sandbox.open();
	const turn = await box.prompt("hang");
	await box.next(turn);
	for (const all = []; ; ) all.push(new Uint8Array(1 << 20).fill(1));
}
`

// A run whose memory ends where it has heard of its CLI does that a few times at most: to hear the same again is no progress.
func TestBoxRunThatEndsItselfIsLost(t *testing.T) {
	w := newBoxWorld(t, "", boxGreedy, agent.Cattle, func(c *cliTurn) { <-c.ctx.Done() })
	w.agent(agent.Agent{Name: "own", Sandbox: &agent.SandboxUse{Environment: "env", CLI: "claude"}, Limits: agent.Limits{Memory: 32 << 20}})
	w.start()
	run, _, err := w.StartRun(t.Context(), app, runtime.RunRequest{Agent: "own", Function: "run", Input: agent.JSON([]byte("null"))}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.output(run); !strings.HasPrefix(got, "failed exhausted: the run was lost twice in a row: life ") {
		t.Errorf("it came to %q", got)
	}
	if run, err := w.store.Run(t.Context(), app, run.ID); err != nil || run.Lives > 4 {
		t.Errorf("it had %d lives, %v", run.Lives, err)
	}
	w.yard.none()
}
