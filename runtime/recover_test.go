package runtime_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/memkv"
)

// A process dies with one run being executed and one queued. The next one, on the same database, executes both.
func TestRecover(t *testing.T) {
	inner, dir := memkv.New(), t.TempDir()
	dead := faultkv.New(inner, func(op faultkv.Op) faultkv.Fault { return faultkv.Fault{} })
	begun := make(chan string, 1)
	first := block(begun)
	lives := 0
	cells := runtimetest.New(map[string]runtimetest.Func{"run": echo, "block": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		if lives++; lives == 1 {
			return first(ctx, c)
		}
		return agent.Text("done"), nil
	}})

	st, err := store.Open(t.Context(), dead, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := &rig{t: t, Runtime: runtime.New(st, cells, &runtime.Options{Workers: 1, Grace: time.Nanosecond}), store: st, db: dead}
	if _, _, err := old.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Body: []byte("1")}, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	old.agent(agent.Agent{Name: "a"})
	stop := old.start()
	running, queued := old.run("a", "block", ""), old.run("a", "run", "later")
	<-begun
	// From here on nothing of the old process reaches the database.
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	stop()

	if st, err = store.Open(t.Context(), inner, dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	next := &rig{t: t, Runtime: runtime.New(st, cells, nil), store: st}
	next.start()
	if run := next.wait(queued.ID); run.Status != agent.Completed || string(run.Output.Body) != "later" {
		t.Errorf("queued run: %+v", run)
	}
	run := next.wait(running.ID)
	if run.Status != agent.Completed || run.Lives != 2 || run.Lost != 1 || run.Ended.IsZero() {
		t.Errorf("running run: %+v", run)
	}
	want := []string{"run.queued", "run.started", "run.resumed", "run.completed"}
	if d := cmp.Diff(want, next.sessionLog(run)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// A run that another process left Running can be cancelled before anything recovered it.
func TestCancelOrphan(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": echo}, nil)
	run := r.run("a", "", "")
	if _, _, err := r.store.UpdateRun(t.Context(), app, run.ID, nil, func(run *agent.Run) error {
		run.Status = agent.Running
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	runs, err := r.Cancel(t.Context(), app, run.ID)
	if err != nil || runs[0].Status != agent.RunCancelled {
		t.Errorf("got %+v, %v", runs, err)
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan string, 10)
		r := newRig(t, map[string]runtimetest.Func{
			"block": block(begun),
			"nap": func(ctx context.Context, c host.Call) (agent.Payload, error) {
				begun <- ""
				select {
				case <-time.After(5 * time.Second):
					return agent.Text("rested"), nil
				case <-ctx.Done():
					return agent.Payload{}, ctx.Err()
				}
			},
		}, &runtime.Options{Workers: 2, Grace: 10 * time.Second, Limits: agent.Limits{Wall: time.Hour}})
		stop := r.start()
		nap, long := r.run("a", "nap", ""), r.run("a", "block", "")
		<-begun
		<-begun
		waiting := r.run("a", "block", "")
		from := time.Now()
		stop()
		if d := time.Since(from); d != 10*time.Second {
			t.Errorf("stopping took %s", d)
		}
		for _, tt := range []struct {
			run  agent.RunID
			want agent.RunStatus
		}{{nap.ID, agent.Completed}, {long.ID, agent.Queued}, {waiting.ID, agent.Queued}} {
			run, err := r.store.Run(t.Context(), app, tt.run)
			if err != nil || run.Status != tt.want {
				t.Errorf("run is %s, want %s: %v", run.Status, tt.want, err)
			}
		}
	})
}

func TestStopWithoutWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, nil)
		stop := r.start()
		synctest.Wait()
		from := time.Now()
		stop()
		if d := time.Since(from); d != 0 {
			t.Errorf("stopping took %s", d)
		}
	})
}

// That a life was lost is written down although the first attempt at that fails: else the run would have another life than it is to have.
func TestLostLifeIsWrittenAgain(t *testing.T) {
	var lives atomic.Int64
	var fails atomic.Bool // the next commit
	r := newRig(t, map[string]runtimetest.Func{
		"work": func(context.Context, host.Call) (agent.Payload, error) {
			fails.Store(lives.Add(1) == 1)
			return agent.Payload{}, agent.Errorf(agent.Unavailable, "it is lost")
		},
	}, nil)
	r.fault = func(op faultkv.Op) (f faultkv.Fault) {
		if op.Kind == faultkv.Get && op.Touches("meta/commit") && fails.CompareAndSwap(true, false) {
			f.Err = faultkv.ErrFault
		}
		return f
	}
	r.start()
	run := r.wait(r.run("a", "work", "").ID)
	if run.Status != agent.RunFailed || !strings.HasPrefix(run.Error.Msg, "the run was lost twice in a row: life 1: it is lost; ") || lives.Load() != 2 {
		t.Errorf("after %d lives it is %s: %+v", lives.Load(), run.Status, run.Error)
	}
}
