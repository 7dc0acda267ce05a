package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// check holds what runs did against their programs, when all have ended.
func (w *town) check(ctx context.Context) {
	at := map[string]int{}
	for i := range keys {
		for n, name := range w.effects(ctx, fmt.Sprint("k", i)) {
			if at[name] > 0 {
				w.fail("k%d: %s took effect at %d and at %d", i, name, at[name], n+1)
			}
			at[name] = n + 1
		}
	}
	known := map[string]bool{}
	for _, j := range w.jobs {
		effects, output, least, most := j.expected()
		for _, name := range effects {
			known[name] = true
		}
		w.ofJob(j, effects, output, least, most, at)
		w.ofLog(ctx, j, effects)
		if j.run.Status == agent.Completed {
			again, err := w.now().ReplayRun(ctx, agent.DefaultApp, j.run.ID, runtime.ReplayRequest{})
			if err != nil || !again.Same || !again.Complete {
				w.fail("%s comes to something else when it is played again: %+v, %+v: %v", j.Name, again, again.Difference, err)
			}
		}
	}
	for name := range at {
		if !known[name] {
			w.fail("%s took effect, of which nobody asked", name)
		}
	}
}

// effects returns what took effect in an instance, in order.
func (w *town) effects(ctx context.Context, key string) (names []string) {
	read := func(what string, to any) bool {
		e, err := w.now().Storage(ctx, agent.DefaultApp, "worker", key, what)
		if err == nil {
			err = json.Unmarshal(e.Value.Body, to)
		} else if agent.KindOf(err) == agent.NotFound {
			return false
		}
		if err != nil {
			w.fail("%s: %s: %v", key, what, err)
		}
		return err == nil
	}
	count, name := 0, ""
	read("n", &count)
	for read(fmt.Sprint("e/", len(names)+1), &name) {
		names = append(names, name)
	}
	if count != len(names) {
		w.fail("%s: the number is %d with %d effects", key, count, len(names))
	}
	return names
}

// ofJob checks what a run did and what it returned.
func (w *town) ofJob(j *job, effects, output []string, least, most int, at map[string]int) {
	there, before := 0, 0
	for i, name := range effects {
		n := at[name]
		if n == 0 {
			continue
		}
		if there++; there != i+1 || n < before {
			w.fail("%s: %s took effect as number %d, without what was before it or sooner than that", j.Name, name, n)
		}
		before = n
	}
	paid, failed := 0, ""
	if j.run.Error != nil {
		failed = j.run.Error.Msg
	}
	switch {
	case j.run.Status == agent.Completed:
		w.note("completed")
		var said []string
		if j.run.Output == nil || json.Unmarshal(j.run.Output.Body, &said) != nil || !slices.Equal(said, output) || j.throws() {
			w.fail("%s returned %+v, want %q", j.Name, j.run.Output, output)
		}
		if there != len(effects) {
			w.fail("%s is completed with %d of its effects: %q", j.Name, there, effects)
		}
		paid = 1
	case j.throws() && j.run.Status == agent.RunFailed && strings.Contains(failed, "as it was asked to"):
		w.note("thrown")
		if there < least || there > most {
			w.fail("%s threw, and %d of its effects are there, not %d to %d: %q", j.Name, there, least, most, effects)
		}
		paid = 1
	case j.run.Status == agent.RunFailed && strings.HasPrefix(failed, "the run was lost twice"):
		w.note("lost twice")
	default:
		w.fail("%s is %s: %+v", j.Name, j.run.Status, j.run.Error)
	}
	for _, name := range j.payments() {
		if n := w.paidSoFar(name); n < paid || n > 1 {
			w.fail("%s, which is %s: the call %s of the bank was made %d times", j.Name, j.run.Status, name, n)
		}
	}
}

func (j *job) throws() bool { return len(j.Steps) > 0 && j.Steps[len(j.Steps)-1].Kind == throwing }

// ofLog checks that a run's log tells of what it did, once and in order, and of one end.
func (w *town) ofLog(ctx context.Context, j *job, effects []string) {
	events, err := w.current().store.Read(ctx, store.SessionLog(agent.DefaultApp, j.run.Session), 0, 0)
	if err != nil {
		w.fail("%s: %v", j.Name, err)
		return
	}
	var told, own []string
	for _, name := range effects {
		if !strings.HasPrefix(name, "child ") {
			own = append(own, name)
		}
	}
	over := 0
	for i, e := range events {
		if e.Seq != int64(i+1) {
			w.fail("%s: event %d stands at %d", j.Name, e.Seq, i+1)
		}
		if e.Run != j.run.ID {
			continue // of a run that it began
		}
		if over > 0 {
			w.fail("%s: %s follows the end", j.Name, e.Kind)
		}
		if e.Kind.EndsRun() {
			over++
		}
		if e.Kind == agent.EventEmit {
			var name string
			if err := json.Unmarshal(e.Data, &name); err != nil {
				w.fail("%s: event %d: %v", j.Name, e.Seq, err)
			}
			told = append(told, name)
		}
	}
	if over != 1 {
		w.fail("%s: its log tells of %d ends", j.Name, over)
	}
	if len(told) > len(own) || !slices.Equal(told, own[:len(told)]) || j.run.Status == agent.Completed && len(told) != len(own) {
		w.fail("%s, which is %s: its log tells of %q, and it was to do %q", j.Name, j.run.Status, told, own)
	}
}
