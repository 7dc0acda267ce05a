package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// What users of other agent clouds have reported in public, as tests. Each names what was reported.

// lives is a server that dies without warning and is started again, on one database.
type lives struct {
	*rig
	inner kv.DB
	dir   string
	funcs map[string]runtimetest.Func
	dead  *atomic.Bool
	stop  func()
}

func (l *lives) begin() {
	l.t.Helper()
	dead := &atomic.Bool{}
	db := faultkv.New(l.inner, func(faultkv.Op) faultkv.Fault {
		if dead.Load() {
			return faultkv.Fault{Err: errors.New("the process is dead"), Crash: true}
		}
		return faultkv.Fault{}
	})
	st, err := store.Open(l.t.Context(), db, l.dir, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	o := &runtime.Options{Grace: time.Nanosecond, Log: slog.New(slog.NewTextHandler(testWriter{l.t}, nil))}
	l.rig = &rig{t: l.t, db: db, store: st, Runtime: runtime.New(st, runtimetest.New(l.funcs), o)}
	l.dead = dead
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { _ = l.Run(ctx) })
	l.stop = func() {
		cancel()
		loops.Wait()
		_ = st.Close()
	}
}

// crash ends the process: from now on nothing that it does is kept, and its cells end. That the store was closed is undone.
func (l *lives) crash() {
	l.t.Helper()
	l.dead.Store(true)
	witness := filepath.Join(l.dir, "commit")
	was, err := os.ReadFile(witness)
	if err != nil {
		l.t.Fatal(err)
	}
	l.stop()
	if err := os.WriteFile(witness, was, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// reported runs a test in a bubble, over a server in its first life.
func reported(t *testing.T, funcs map[string]runtimetest.Func, test func(t *testing.T, l *lives)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{rig: &rig{t: t}, inner: memkv.New(), dir: t.TempDir(), funcs: funcs}
		l.begin()
		if _, _, err := l.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte("export {}")}, store.Once{}, nil); err != nil {
			t.Fatal(err)
		}
		l.agent(agent.Agent{Name: "a"})
		test(t, l)
		l.stop()
	})
}

func (l *lives) number(key, state string) string {
	l.t.Helper()
	e, err := l.Storage(l.t.Context(), app, "a", key, state)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		return ""
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return string(e.Value.Body)
}

func setAlarm(in abi.AlarmSet) runtimetest.Func {
	return func(ctx context.Context, c host.Call) (agent.Payload, error) {
		_, err := ask[abi.Alarm](ctx, c, abi.CallAlarmSet, in)
		return agent.Payload{}, err
	}
}

func counted(key string) runtimetest.Func {
	return func(ctx context.Context, c host.Call) (agent.Payload, error) { return number(count(ctx, c, key)) }
}

// "Hundreds of duplicate schedule rows, replayed after crashes": code that sets its schedule at each start has one.
func TestReportDuplicateSchedulesAfterCrashes(t *testing.T) {
	reported(t, map[string]runtimetest.Func{
		"boot": setAlarm(abi.AlarmSet{Method: "tick", Every: 60_000, Payload: abi.Raw(`"p"`)}), "tick": counted("ticks"),
	}, func(t *testing.T, l *lives) {
		for range 30 {
			l.mustCall("k", "boot", "")
			l.crash()
			l.begin()
		}
		list, _, err := l.Alarms(t.Context(), app, "a", "k", "", 0)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d schedules, %v", len(list), err)
		}
		wait(10*time.Minute + time.Second)
		if got := l.number("k", "ticks"); got != "10" {
			t.Errorf("%s ticks in ten minutes", got)
		}
	})
}

// "scheduleEvery silently stopped after a restart": it goes on after crashes, after failures, and after a long time away.
func TestReportIntervalGoesOnAfterRestart(t *testing.T) {
	fail := &atomic.Int64{}
	reported(t, map[string]runtimetest.Func{
		"boot": setAlarm(abi.AlarmSet{Method: "tick", Every: 60_000}),
		"tick": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if fail.Add(-1) >= 0 {
				return agent.Payload{}, errors.New("not now")
			}
			return number(count(ctx, c, "ticks"))
		},
	}, func(t *testing.T, l *lives) {
		l.mustCall("k", "boot", "")
		wait(90 * time.Second)
		for range 5 {
			l.crash()
			l.begin()
			wait(time.Minute)
		}
		if got := l.number("k", "ticks"); got != "6" {
			t.Errorf("%s ticks over five crashes", got)
		}
		fail.Store(100) // more than it is tried: the time is given up, the schedule is not
		wait(20 * time.Minute)
		fail.Store(0)
		before := l.number("k", "ticks")
		wait(5 * time.Minute)
		if got := l.number("k", "ticks"); got == before {
			t.Errorf("it stopped after failures, at %s ticks", got)
		}
		l.crash()
		wait(24 * time.Hour)
		l.begin()
		before = l.number("k", "ticks")
		wait(3*time.Minute + time.Second)
		var was, is int
		_, _ = fmt.Sscan(before, &was)
		_, _ = fmt.Sscan(l.number("k", "ticks"), &is)
		if is-was != 3 && is-was != 4 { // one stands for all that were missed
			t.Errorf("%d ticks in three minutes after a day away", is-was)
		}
	})
}

// "The alarm was used up and what it wrote is lost": both are one commit, so a crash between them is none.
func TestReportAlarmUsedUpAndWriteLost(t *testing.T) {
	var l *lives
	crashes := 3
	var dying chan struct{} // of the bubble
	reported(t, map[string]runtimetest.Func{
		"set": setAlarm(abi.AlarmSet{Method: "ring", Delay: 1000}),
		"ring": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			n, err := count(ctx, c, "rings")
			if crashes > 0 { // it has written, and the process dies before it can commit
				crashes--
				l.dead.Store(true)
				dying <- struct{}{}
			}
			return number(n, err)
		},
	}, func(t *testing.T, ls *lives) {
		l, dying = ls, make(chan struct{})
		l.mustCall("k", "set", "")
		for range 3 {
			<-dying
			l.crash()
			l.begin()
		}
		wait(time.Minute)
		if got := l.number("k", "rings"); got != "1" {
			t.Errorf("%s rings", got)
		}
		if list, _, err := l.Alarms(t.Context(), app, "a", "k", "", 0); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if got := l.instanceLog("k"); strings.Count(strings.Join(got, " "), "alarm.fired") != 1 {
			t.Errorf("events %q", got)
		}
	})
}

// An alarm has its effect once when the process before was killed, though its attempts are counted then.
func TestAlarmAfterCrashOnce(t *testing.T) {
	reported(t, map[string]runtimetest.Func{
		"set": setAlarm(abi.AlarmSet{Method: "ring", Delay: 60_000}), "ring": counted("rings"),
	}, func(t *testing.T, l *lives) {
		l.mustCall("k", "set", "")
		l.crash()
		wait(2 * time.Minute)
		l.begin()
		wait(time.Minute)
		if got := l.number("k", "rings"); got != "1" {
			t.Errorf("%s rings", got)
		}
	})
}

// "A turn that runs out of memory is run again and billed for ever": an alarm that kills the process each time ends as a dead letter that
// one can see and run again.
func TestReportAlarmThatKillsTheProcess(t *testing.T) {
	var l *lives
	var dying chan struct{} // of the bubble
	deadly := true
	reported(t, map[string]runtimetest.Func{
		"set": setAlarm(abi.AlarmSet{Name: "bomb", Method: "ring", Delay: 1000, Retry: &abi.AlarmRetry{Attempts: 3}}),
		"ring": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			if deadly {
				l.dead.Store(true)
				dying <- struct{}{}
				<-ctx.Done()
				return agent.Payload{}, ctx.Err()
			}
			return number(count(ctx, c, "rings"))
		},
	}, func(t *testing.T, ls *lives) {
		l, dying = ls, make(chan struct{})
		l.mustCall("k", "set", "")
		deaths := 0
		for quiet := false; !quiet && deaths < 20; {
			timer := time.NewTimer(time.Hour)
			select {
			case <-dying:
				deaths++
				l.crash()
				l.begin()
			case <-timer.C:
				quiet = true
			}
			timer.Stop()
		}
		if deaths < 2 || deaths > 4 {
			t.Errorf("the process died %d times of an alarm with 3 attempts", deaths)
		}
		list, _, err := l.Alarms(t.Context(), app, "a", "k", "", 0)
		if err != nil || len(list) != 1 || !list[0].Dead || list[0].Error == "" {
			t.Fatalf("%+v, %v", list, err)
		}
		deadly = false
		if _, err := l.RetryAlarm(t.Context(), app, "a", "k", "bomb"); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if got := l.number("k", "rings"); got != "1" {
			t.Errorf("%s rings", got)
		}
	})
}

// "Retries were counted from the end of the log, which a restart began anew: an endless loop": attempts are counted over restarts.
func TestReportAttemptsAreCountedOverRestarts(t *testing.T) {
	calls := 0
	reported(t, map[string]runtimetest.Func{
		"set": setAlarm(abi.AlarmSet{Name: "bad", Method: "ring", Delay: 1000, Retry: &abi.AlarmRetry{Attempts: 4, Delay: 60_000, MaxDelay: 60_000}}),
		"ring": func(context.Context, host.Call) (agent.Payload, error) {
			calls++
			return agent.Payload{}, errors.New("not now")
		},
	}, func(t *testing.T, l *lives) {
		l.mustCall("k", "set", "")
		for range 8 {
			wait(61 * time.Second)
			l.crash()
			l.begin()
		}
		list, _, err := l.Alarms(t.Context(), app, "a", "k", "", 0)
		if err != nil || len(list) != 1 || !list[0].Dead || list[0].Attempt != 4 || calls != 4 {
			t.Errorf("%d calls, %+v, %v", calls, list, err)
		}
	})
}

// "Two upgrades at once": each instance is upgraded once for each code that it meets, in its line, whatever comes at the same time.
func TestReportTwoUpgradesAtOnce(t *testing.T) {
	reported(t, map[string]runtimetest.Func{
		"onStart": counted("starts"), "onUpgrade": counted("upgrades"), "count": counted("n"),
	}, func(t *testing.T, l *lives) {
		l.mustCall("k", "count", "")
		for round := range 10 {
			var all sync.WaitGroup
			for i := range 2 {
				all.Go(func() {
					body := fmt.Appendf(nil, "export {} // %d %d", round, i)
					if _, _, err := l.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: body}, store.Once{}, nil); err != nil {
						t.Error(err)
					}
				})
			}
			for range 8 {
				all.Go(func() { l.mustCall("k", "count", "") })
			}
			all.Wait()
		}
		l.mustCall("k", "count", "")
		in, err := l.InspectInstance(t.Context(), app, "a", "k")
		if err != nil {
			t.Fatal(err)
		}
		upgrades := strings.Count(strings.Join(l.instanceLog("k"), " "), "instance.upgraded")
		if got := l.number("k", "upgrades"); got != fmt.Sprint(upgrades) || upgrades < 10 || l.number("k", "starts") != "1" || l.number("k", "n") != "82" {
			t.Errorf("%s upgrades and %d events of them, %s starts, %s calls, version %s", got, upgrades, l.number("k", "starts"), l.number("k", "n"), in.Version)
		}
	})
}

// "Durable processing state is orphaned after an eviction": what a turn wrote before the process died is gone with it, so none says for ever
// that it is being worked on.
func TestReportOrphanedProcessingState(t *testing.T) {
	var l *lives
	var dying chan struct{} // of the bubble
	deadly := true
	reported(t, map[string]runtimetest.Func{"work": func(ctx context.Context, c host.Call) (agent.Payload, error) {
		was, err := ask[abi.StateEntries](ctx, c, abi.CallStorageGet, abi.StateGet{Keys: []string{"processing"}})
		if err != nil || len(was.Entries) > 0 {
			return agent.Payload{}, fmt.Errorf("somebody works on it already: %w", err)
		}
		edit := abi.StateEdit{Key: "processing", StateValue: abi.StateValue{JSON: abi.Raw("true")}}
		if _, err := ask[abi.StateVersion](ctx, c, abi.CallStorageSet, edit); err != nil {
			return agent.Payload{}, err
		}
		if deadly {
			deadly = false
			l.dead.Store(true)
			close(dying)
			<-ctx.Done()
			return agent.Payload{}, ctx.Err()
		}
		return agent.Text("done"), nil
	}}, func(t *testing.T, ls *lives) {
		l, dying = ls, make(chan struct{})
		failed := make(chan error)
		r := l.rig
		go func() { _, err := r.callInstance("k", "work", ""); failed <- err }()
		<-dying
		l.crash()
		if err := <-failed; err == nil {
			t.Error("the call of a process that died was answered")
		}
		l.begin()
		if got := l.mustCall("k", "work", ""); got != "done" {
			t.Errorf("got %s", got)
		}
	})
}

// "An alarm every 30 seconds for ever, so agents never hibernated": an instance that asked for nothing is not touched.
func TestReportNothingWakesAnIdleInstance(t *testing.T) {
	reported(t, map[string]runtimetest.Func{"count": counted("n")}, func(t *testing.T, l *lives) {
		for i := range 20 {
			l.mustCall(fmt.Sprint("k", i), "count", "")
		}
		turns := l.Stats().Durable.Turns
		wait(12 * time.Hour)
		if s := l.Stats().Durable; s.Turns != turns || s.Owned != 0 {
			t.Errorf("%d turns in twelve idle hours; %d instances are in memory", s.Turns-turns, s.Owned)
		}
	})
}
