package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/store"
)

const (
	endBox   = time.Minute // for what is done to a sandbox when its run has ended
	stopTurn = 40 * time.Second
)

// boxes remembers, of runs that are under way, what they do in sandboxes. It is made anew of what they do after a restart.
type boxes struct {
	mu    sync.Mutex
	runs  map[agent.RunID]*boxUse
	pets  map[string]*petLine // that are being taken
	texts boxTexts
}

// boxUse is what one run does.
type boxUse struct {
	id    agent.SandboxID
	pet   bool
	turns map[string]bool // that were begun, and have not ended as far as is known
	gone  map[string]bool // permissions and questions that the CLI does not ask any more
}

// use notes that a run works in a sandbox.
func (b *boxes) use(run agent.RunID, sb agent.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs == nil {
		b.runs = map[agent.RunID]*boxUse{}
	}
	u := b.runs[run]
	if u == nil {
		u = &boxUse{turns: map[string]bool{}, gone: map[string]bool{}}
		b.runs[run] = u
	}
	u.id, u.pet = sb.ID, strings.HasPrefix(sb.For, forAgent)
}

// turn notes that a turn is under way, or has ended.
func (b *boxes) turn(run agent.RunID, turn string, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.runs[run]
	switch {
	case u == nil:
	case ended:
		delete(u.turns, turn)
	default:
		u.turns[turn] = true
	}
}

// withdraw notes what the CLI does not ask any more.
func (b *boxes) withdraw(run agent.RunID, ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.runs[run]; u != nil {
		for _, id := range ids {
			u.gone[id] = id != ""
		}
	}
}

func (b *boxes) isWithdrawn(run agent.RunID, id string) bool {
	if id == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.runs[run]
	return u != nil && u.gone[id]
}

// leave forgets a run, and returns what it did.
func (b *boxes) leave(run agent.RunID) *boxUse {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.runs[run]
	delete(b.runs, run)
	return u
}

// petLine is where the callers stand that take a sandbox which an agent keeps.
type petLine struct {
	turn chan struct{} // has one while a caller takes it
	n    int           // callers that take it or wait
}

// take lets one caller at a time take a sandbox that an agent keeps.
func (b *boxes) take(ctx context.Context, whose string) (done func(), err error) {
	b.mu.Lock()
	if b.pets == nil {
		b.pets = map[string]*petLine{}
	}
	line := b.pets[whose]
	if line == nil {
		line = &petLine{turn: make(chan struct{}, 1)}
		b.pets[whose] = line
	}
	line.n++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if line.n--; line.n == 0 {
			delete(b.pets, whose)
		}
	}
	select {
	case line.turn <- struct{}{}:
		return func() { <-line.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// addSandbox gives a door the calls of the agent's sandbox.
func (b *toolbox) addSandbox(handlers map[string]grant.Handler) {
	handlers[abi.CallSandboxOpen] = grant.JSON(b.openBox)
	handlers[abi.CallSandboxExec] = inBox(b, b.execIn)
	handlers[abi.CallSandboxRead] = inBox(b, b.readIn)
	handlers[abi.CallSandboxWrite] = inBox(b, b.writeIn)
	handlers[abi.CallSandboxList] = inBox(b, b.listIn)
	handlers[abi.CallSandboxDelete] = inBox(b, b.deleteIn)
	handlers[abi.CallSandboxAttach] = inBox(b, b.attachIn)
	handlers[abi.CallSandboxRepo] = inBox(b, b.repoIn)
	handlers[abi.CallSandboxDiff] = inBox(b, b.diffIn)
	handlers[abi.CallSandboxSave] = inBox(b, b.saveIn)
	handlers[abi.CallSandboxRestore] = inBox(b, b.restoreIn)
	handlers[abi.CallSandboxPrompt] = inBox(b, b.promptIn)
	handlers[abi.CallSandboxNext] = grant.JSON(b.nextOf)
	handlers[abi.CallSandboxAnswer] = inBox(b, b.answerIn)
	handlers[abi.CallSandboxInterrupt] = inBox(b, b.interruptIn)
	handlers[abi.CallSandboxProcesses] = inBox(b, b.processesIn)
	handlers[abi.CallSandboxSignal] = inBox(b, b.signalIn)
	handlers[abi.CallSandboxPreview] = inBox(b, b.previewIn)
	handlers[abi.CallSandboxAsk] = grant.JSON(b.askPerson)
	handlers[abi.CallSandboxWithdraw] = grant.JSON(b.withdraw)
}

// inBox is a call of the sandbox that the run has opened.
func inBox[I, O any](b *toolbox, do func(context.Context, Box, I) (O, error)) grant.Handler {
	return grant.JSON(func(ctx context.Context, in I) (out O, err error) {
		sb, err := b.record(ctx)
		if err != nil {
			return out, err
		}
		box, err := b.r.opts.Boxes.Get(ctx, b.job.App, sb.ID)
		if err != nil {
			return out, err
		}
		return do(ctx, box, in)
	})
}

// sandboxed returns the run and its agent, as this is now: its record is the grant.
func (b *toolbox) sandboxed(ctx context.Context) (*execution, *agent.Agent, error) {
	if b.job.place == nil || b.job.place.run == nil {
		return nil, nil, needsRun("sandbox")
	}
	_, a, err := b.r.records.agent(ctx, b.r.store, recordKey{b.job.App, b.job.Agent})
	switch {
	case err != nil:
		return nil, nil, err
	case a.ID != b.job.ID || a.Sandbox == nil:
		return nil, nil, &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("the agent %s has no sandbox", b.job.Agent), Hint: "give it one: skep agent update " + b.job.Agent + " --environment NAME",
		}
	case b.r.opts.Boxes == nil:
		return nil, nil, errNoBoxes()
	}
	return b.job.place.run, a, nil
}

// record returns the sandbox that the run has opened.
func (b *toolbox) record(ctx context.Context) (agent.Sandbox, error) {
	x, a, err := b.sandboxed(ctx)
	if err != nil {
		return agent.Sandbox{}, err
	}
	rec, err := b.r.store.SandboxFor(ctx, b.job.App, boxOf(a, x.run.ID))
	switch {
	case agent.KindOf(err) == agent.NotFound && err != nil:
		return agent.Sandbox{}, &agent.Error{Kind: agent.NotFound, Msg: "the run has no sandbox: it was deleted, or was not opened", Hint: "const box = await sandbox.open()"}
	case err != nil:
		return agent.Sandbox{}, err
	case rec.Run != x.run.ID:
		return agent.Sandbox{}, agent.Errorf(agent.Conflict, "the sandbox is used by run %s now", rec.Run)
	}
	b.r.boxes.use(x.run.ID, rec.Sandbox)
	return rec.Sandbox, nil
}

// openBox answers sandbox.open. Runs of an agent that keeps its sandbox have it one after the other.
func (b *toolbox) openBox(ctx context.Context, _ struct{}) (abi.Sandbox, error) {
	x, a, err := b.sandboxed(ctx)
	if err != nil {
		return abi.Sandbox{}, err
	}
	whose := boxOf(a, x.run.ID)
	if a.Sandbox.Keep == agent.Pet && !b.r.hasPet(ctx, x.run, whose) {
		done, err := b.r.boxes.take(ctx, whose)
		if err != nil {
			return abi.Sandbox{}, err
		}
		defer done()
		if err := b.r.awaitPet(ctx, x.run, whose); err != nil {
			return abi.Sandbox{}, err
		}
	}
	env, err := b.r.store.FreezeEnvironment(ctx, x.run.App, x.run.Session, a.Sandbox.Environment)
	if err != nil {
		return abi.Sandbox{}, err
	}
	b.r.boxes.use(x.run.ID, agent.Sandbox{For: whose}) // before there is one, so that it goes when the run does
	box, err := b.r.opts.Boxes.Open(ctx, BoxWant{
		App: x.run.App, Agent: a.Name, For: whose, Session: x.run.Session, Run: x.run.ID, Keep: a.Sandbox.Keep, Environment: env, Trace: x.run.Trace,
	})
	if err != nil {
		return abi.Sandbox{}, err
	}
	sb := box.Record()
	b.r.boxes.use(x.run.ID, sb)
	return abi.Sandbox{
		ID: string(sb.ID), Environment: sb.Environment, Provider: sb.Provider, Keep: a.Sandbox.Keep.String(), Generation: sb.Generation, Kept: sb.Kept,
		CLI: a.Sandbox.CLI, Workspace: sandbox.Workspace,
	}, nil
}

// hasPet reports whether a run has a sandbox that its agent keeps, by having opened it before. It stands in no line then: who is first in it waits for the end of
// this very run.
func (r *Runtime) hasPet(ctx context.Context, run agent.Run, whose string) bool {
	rec, err := r.store.SandboxFor(ctx, run.App, whose)
	return err == nil && rec.Run == run.ID
}

// awaitPet returns when no other run has the sandbox, and what the last one left in it has stopped.
func (r *Runtime) awaitPet(ctx context.Context, run agent.Run, whose string) error {
	rec, err := r.store.SandboxFor(ctx, run.App, whose)
	if agent.KindOf(err) == agent.NotFound && err != nil || err == nil && (rec.Run == "" || rec.Run == run.ID) {
		return nil
	}
	if err != nil {
		return err
	}
	other, err := r.Wait(ctx, run.App, rec.Run)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		return nil
	}
	if err != nil || rec.State != agent.SandboxReady {
		return err
	}
	turns, err := r.openTurns(ctx, other)
	if err == nil {
		err = r.interruptTurns(ctx, other.App, rec.ID, turns)
	}
	if now, bad := r.store.SandboxFor(ctx, run.App, whose); err != nil && bad == nil && (now.State != agent.SandboxReady || now.Generation != rec.Generation) {
		return nil // the box has gone, and what was left in it
	}
	return err
}

// interruptTurns has the CLI of a sandbox stop what it does.
func (r *Runtime) interruptTurns(ctx context.Context, app agent.App, id agent.SandboxID, turns []string) error {
	if len(turns) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTurn)
	defer cancel()
	box, err := r.opts.Boxes.Get(ctx, app, id)
	if err != nil {
		return err
	}
	for _, t := range turns {
		err = errors.Join(err, notThere(box.Do(ctx, driver.DoInterrupt, driver.InterruptArgs{Turn: t}, nil)))
	}
	return err
}

// notThere passes errors but those of what is not there any more.
func notThere(err error) error {
	if kind := agent.KindOf(err); kind == agent.NotFound || kind == agent.Conflict {
		return nil
	}
	return err
}

// openTurns returns the turns of a run that have begun, and not ended, by its session's log.
func (r *Runtime) openTurns(ctx context.Context, run agent.Run) (open []string, err error) {
	err = r.eachEventOf(ctx, run, 0, func(ev agent.Event) {
		if ev.Kind != agent.EventCLI {
			return
		}
		var d struct {
			Turn string `json:"turn"`
		}
		switch _ = json.Unmarshal(ev.Data, &d); ev.Name {
		case driver.TurnStarted:
			open = append(open, d.Turn)
		case driver.TurnEnded:
			open = slices.DeleteFunc(open, func(t string) bool { return t == d.Turn })
		}
	})
	return open, err
}

// eachEventOf calls fn with the events of a run that are in its session's log after a number.
func (r *Runtime) eachEventOf(ctx context.Context, run agent.Run, after int64, fn func(agent.Event)) error {
	for after = max(after, run.FirstSeq-1, 0); ; {
		page, err := r.store.Read(ctx, store.SessionLog(run.App, run.Session), after, 0)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, ev := range page {
			if after = ev.Seq; ev.Run == run.ID {
				fn(ev)
			}
		}
	}
}

// named names what a call of a run begins, so that it is begun once.
func (b *toolbox) named(ctx context.Context) string { return turnName(b.job.Run, host.Number(ctx)) }

func turnName(run agent.RunID, call uint64) string {
	return string(run) + "-" + strconv.FormatUint(call, 10)
}

// runOfTurn returns the run that has begun a turn.
func runOfTurn(turn string) (agent.RunID, bool) {
	run, _, ok := strings.Cut(turn, "-")
	return agent.RunID(run), ok && run != ""
}
