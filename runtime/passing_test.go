package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store/faultkv"
)

// A run whose calls are to leave needs its instance for the commit before them. A store that fails just then, for a while, does not hold it up for ever.
func TestInstanceIsAcquiredAtRestAgain(t *testing.T) {
	c := newCity(t, `
		import { callAgent } from "skep";
		export async function run() {
			await fetch("URL/read");
			return await callAgent("bank", "pay", 1);
		}`)
	var failing atomic.Int64
	p := c.process(runtime.Options{}, func(op faultkv.Op) (f faultkv.Fault) {
		if op.Kind == faultkv.Apply && op.Touches("inst/") && failing.Add(-1) >= 0 {
			f.Err = faultkv.ErrFault
		}
		return f
	})
	p.deploy(c)
	asked := func() { // by code that has come to rest, which holds no turn
		p.ForgetInstances()
		failing.Store(3)
	}
	c.asked.Store(&asked)
	if got := p.output(p.begin("run", "null")); got != "paid" || c.bank.paid.Load() != 1 {
		t.Errorf("output %s, paid %d times", got, c.bank.paid.Load())
	}
	if failing.Load() >= 0 {
		t.Error("no acquisition has failed")
	}
}

// What a run needs to begin is read again when that fails: its own record, its session's, its code's, its agent's.
func TestRunBeginsAfterFailedReads(t *testing.T) {
	for _, record := range []string{"rec/runs/", "rec/sessions/", "by/plugin-digest/", "rec/agents/"} {
		t.Run(record, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { beginsAfterFailedRead(t, record) })
		})
	}
}

func beginsAfterFailedRead(t *testing.T, record string) {
	funcs := map[string]runtimetest.Func{"run": echo}
	r := newRig(t, funcs, nil)
	run := r.run("a", "run", "it")
	next := &rig{t: t, Runtime: runtime.New(r.store, runtimetest.New(funcs), nil), store: r.store, db: r.db}
	admits, failed := false, 0
	r.fault = func(op faultkv.Op) (f faultkv.Fault) {
		admits = admits || op.Touches("rec/agents/") // recovery has read the run
		if op.Kind != faultkv.Apply && admits && op.Touches(record) && failed < 2 {
			failed++
			f.Err = faultkv.ErrFault
		}
		return f
	}
	next.start()
	wait(time.Minute)
	got, err := r.store.Run(t.Context(), app, run.ID)
	if err != nil || got.Status != agent.Completed || got.Lost != 0 || failed != 2 {
		t.Errorf("after %d failed reads the run is %s: %+v, %v", failed, got.Status, got.Error, err)
	}
}

// A process that ends before it could write down that a life was lost leaves the run as any other end does: it goes on in the next one.
func TestLostLifeThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := 0
		funcs := map[string]runtimetest.Func{"work": func(ctx context.Context, _ host.Call) (agent.Payload, error) {
			if lives++; lives > 1 {
				return agent.Text("done"), nil
			}
			pause := time.NewTimer(time.Second)
			<-pause.C
			return agent.Payload{}, agent.Errorf(agent.Unavailable, "it is lost")
		}}
		const grace = 10 * time.Second
		r := newRig(t, funcs, &runtime.Options{Grace: grace})
		stop := r.start()
		run := r.run("a", "work", "")
		synctest.Wait() // it has begun
		began, last := time.Now(), true
		r.fault = func(op faultkv.Op) (f faultkv.Fault) {
			if op.Kind != faultkv.Apply {
				return f
			}
			if time.Since(began) < grace {
				f.Err = faultkv.ErrFault
			} else if last { // the attempt that the end of the process leaves
				f.Err, last = faultkv.ErrFault, false
			}
			return f
		}
		stop()
		if got, err := r.store.Run(t.Context(), app, run.ID); err != nil || got.Status != agent.Running || last {
			t.Fatalf("the run is %s: %+v, %v", got.Status, got.Error, err)
		}
		next := &rig{t: t, Runtime: runtime.New(r.store, runtimetest.New(funcs), nil), store: r.store, db: r.db}
		next.start()
		if got := next.wait(run.ID); got.Status != agent.Completed || got.Lost != 1 {
			t.Errorf("in the next process it is %s, lost %d times: %+v", got.Status, got.Lost, got.Error)
		}
	})
}
