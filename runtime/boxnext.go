package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/store"
)

// lookAtBox is how often it is looked whether a sandbox is there, while nothing comes of it; lastWord how long what it has said before is waited for when it
// is not.
const (
	lookAtBox = 10 * time.Second
	lastWord  = time.Second
)

// toScript are the events of a CLI that its script has to know.
var toScript = []string{driver.SessionStarted, driver.PermissionAsked, driver.PermissionWithdrawn, driver.QuestionAsked, driver.TurnEnded}

// nextOf waits for the next events of a turn in the session's log. What it was told is in the log for good, so that it can be asked again.
func (b *toolbox) nextOf(ctx context.Context, q abi.SandboxNext) (abi.SandboxEvents, error) {
	x, a, err := b.sandboxed(ctx)
	if err != nil {
		return abi.SandboxEvents{}, err
	}
	if run, ok := runOfTurn(q.Turn); !ok || run != x.run.ID {
		return abi.SandboxEvents{}, agent.Errorf(agent.Denied, "the turn %.80q is not of this run", q.Turn)
	}
	sub, err := b.r.Subscribe(ctx, store.SessionLog(x.run.App, x.run.Session), max(q.After, x.run.FirstSeq-1))
	if err != nil {
		return abi.SandboxEvents{}, err
	}
	defer sub.Close()
	lost := b.r.boxLost(ctx, x.run, boxOf(a, x.run.ID), q.Generation)
	b.r.boxes.turn(x.run.ID, q.Turn, false)
	for {
		patience := lookAtBox
		if lost != nil {
			patience = lastWord
		}
		wait, done := x.untilLeaving(ctx, patience)
		frames, err := sub.Next(wait)
		over := wait.Err() != nil
		done()
		switch {
		case err == nil:
			if out := forScript(x.run.ID, q.Turn, frames); len(out.Events) > 0 {
				return b.endOf(ctx, x.run, q.Turn, out)
			}
			if !toldOfBox(frames) {
				continue
			}
		case ctx.Err() != nil:
			return abi.SandboxEvents{}, context.Cause(ctx)
		case !over:
			return abi.SandboxEvents{}, err
		case lost != nil:
			return abi.SandboxEvents{}, lost
		}
		if err := x.leaves(ctx); err != nil {
			return abi.SandboxEvents{}, err
		}
		lost = b.r.boxLost(ctx, x.run, boxOf(a, x.run.ID), q.Generation)
	}
}

// untilLeaving returns a context that ends after a while, and when the run is to give up its cell because the process stops.
func (x *execution) untilLeaving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	go func() {
		for {
			x.mu.Lock()
			changed, stopping := x.changed, x.stopping
			x.mu.Unlock()
			if stopping {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// leaves returns an error when the cell was given up because the process stops: the next one asks again, and nothing has to be waited for here.
func (x *execution) leaves(ctx context.Context) error {
	x.mu.Lock()
	stopping := x.stopping
	x.mu.Unlock()
	if !stopping {
		return nil
	}
	select {
	case <-x.gone:
		return errGoneAway
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lastWord):
		return nil
	}
}

// forScript picks what the script has to know of a turn.
func forScript(run agent.RunID, turn string, frames []Frame) (out abi.SandboxEvents) {
	for _, f := range frames {
		ev := f.Event
		out.After = ev.Seq
		if ev.Kind != agent.EventCLI || ev.Run != run || !slices.Contains(toScript, ev.Name) {
			continue
		}
		var d struct {
			Turn string `json:"turn"`
		}
		if json.Unmarshal(ev.Data, &d) != nil || d.Turn != turn && d.Turn != "" {
			continue
		}
		out.Events = append(out.Events, abi.SandboxEvent{Type: ev.Name, Data: abi.Raw(ev.Data)})
		if ev.Name == driver.TurnEnded {
			break
		}
	}
	return out
}

// endOf adds to the end of a turn what was told in the course of it.
func (b *toolbox) endOf(ctx context.Context, run agent.Run, turn string, out abi.SandboxEvents) (abi.SandboxEvents, error) {
	last := &out.Events[len(out.Events)-1]
	if last.Type != driver.TurnEnded {
		return out, nil
	}
	b.r.boxes.turn(run.ID, turn, true)
	err := b.r.eachEventOf(ctx, run, 0, func(ev agent.Event) {
		if ev.Kind != agent.EventCLI || ev.Seq > out.After {
			return
		}
		var d struct {
			Turn string `json:"turn"`
			ID   string `json:"id"`
		}
		if json.Unmarshal(ev.Data, &d) != nil {
			return
		}
		switch {
		case ev.Name == driver.SessionStarted:
			last.Session = d.ID
		case ev.Name == driver.UsageTold && d.Turn == turn:
			var u driver.UsageData
			if json.Unmarshal(ev.Data, &u) == nil {
				last.Usage = addTold(last.Usage, u)
			}
		}
	})
	return out, err
}

func addTold(sum *abi.ModelUsage, u driver.UsageData) *abi.ModelUsage {
	if sum == nil {
		sum = new(abi.ModelUsage)
	}
	sum.Input += u.Input
	sum.CacheRead += u.CacheRead
	sum.CacheWrite += u.CacheWrite
	sum.Output += u.Output
	sum.Reasoning += u.Reasoning
	return sum
}

// boxLost returns an error when the sandbox that a turn was begun in is not there any more. generation is 0 where it is not known. One that
// is there is noted as the run's: it may have been opened in another process.
func (r *Runtime) boxLost(ctx context.Context, run agent.Run, whose string, generation int64) error {
	rec, err := r.store.SandboxFor(ctx, run.App, whose)
	why := ""
	switch {
	case agent.KindOf(err) == agent.NotFound && err != nil:
		why = "it was deleted"
	case err != nil:
		return nil // it is looked again
	case rec.Run != run.ID:
		why = fmt.Sprintf("run %s has it", rec.Run)
	case rec.State == agent.SandboxLost || rec.State == agent.SandboxFailed || rec.State == agent.SandboxDeleting || rec.State == agent.SandboxStopped:
		if why = "it is " + rec.State.String(); rec.Error != nil {
			why += ": " + rec.Error.Msg
		}
	case generation != 0 && rec.Generation != generation:
		if why = "it was made anew"; rec.Error != nil {
			why += ": " + rec.Error.Msg
		}
	default:
		r.boxes.use(run.ID, rec.Sandbox)
		return nil
	}
	return &agent.Error{
		Kind: agent.Failed, Msg: "the sandbox was lost in the middle of the turn: " + why, Hint: "start the run again; skep sandbox list shows what became of it",
	}
}

// byCLI is who has answered a question that the CLI does not ask any more.
const byCLI = "cli"

// permissionOf returns for which permission of a CLI a call of a tool stands.
func permissionOf(p host.PendingCall) string {
	var q struct {
		Permission string `json:"permission"`
	}
	if p.Name == abi.CallTool && bytes.Contains(p.Input, []byte(`"permission":`)) { // which few have
		_ = json.Unmarshal(p.Input, &q)
	}
	return q.Permission
}

// withdraw takes questions to a person back. That is remembered over the run's lives in this process: the one that goes on may be another by then.
func (x *execution) withdraw(ids []string) {
	x.r.boxes.withdraw(x.run.ID, ids)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if cancel := x.asking[id]; cancel != nil {
			cancel(errWithdrawn)
		}
	}
	x.pokeLocked() // so that approval looks again
}

var errWithdrawn = &agent.Error{Kind: agent.Denied, Msg: "the CLI does not ask any more"}

// askedBy returns a context that ends when the CLI does not ask a question any more.
func (x *execution) askedBy(ctx context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asking == nil {
		x.asking = map[string]context.CancelCauseFunc{}
	}
	x.asking[id] = cancel
	if x.r.boxes.isWithdrawn(x.run.ID, id) {
		cancel(errWithdrawn)
	}
	return ctx, func() {
		cancel(nil)
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.asking, id)
	}
}
