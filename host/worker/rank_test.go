//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

func TestNiceOf(t *testing.T) {
	for load, want := range map[float64]int{0: 5, modest: 5, 0.2: 9, 0.3: 12, greedy: 19, 4: 19} {
		if got := niceOf(load); got != want {
			t.Errorf("%v processors: %d, want %d", load, got, want)
		}
	}
	// A burst of a tenth of a second hardly counts, and is forgotten; who goes on is set back within half a second.
	r := rank{nice: politeness}
	use := func(part float64, d time.Duration) {
		for ; d > 0; d -= rankEvery {
			r = r.after(r.used+time.Duration(part*float64(rankEvery)), rankEvery)
		}
	}
	if use(1, 100*time.Millisecond); r.nice > 8 {
		t.Errorf("after a burst: %+v", r)
	}
	if use(0, time.Second); r.nice != politeness {
		t.Errorf("a second later: %+v", r)
	}
	if use(1, 500*time.Millisecond); r.nice != humblest {
		t.Errorf("after half a second: %+v", r)
	}
	if use(0, 2*time.Second); r.nice != politeness {
		t.Errorf("two seconds later: %+v", r)
	}
}

// A worker that computes without end is set back, with all its threads, and is as before when it has rested. Its neighbour stays as it was.
func TestWhoUsesMuchIsSetBack(t *testing.T) {
	p, s := open(t, Options{})
	d := s.put(script(`export function f() { return 1 }; export function loop() { for (;;); }`))
	for _, app := range []agent.App{"loops", "rests"} {
		if _, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: app, Function: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	pids := map[agent.App]int{}
	for _, w := range p.Workers() {
		pids[w.App] = w.PID
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Call(ctx, host.Call{Plugin: d, Tenant: "loops", Function: "loop", Limits: agent.Limits{CPU: time.Minute, Wall: time.Minute}})
		ended <- err
	}()
	if !mayRank() {
		used := processorTimeOf(t, pids["loops"])
		await(t, "it has used a second", func() bool { return processorTimeOf(t, pids["loops"]) > used+time.Second })
		if got := priority(t, pids["loops"]); got != politeness {
			t.Errorf("priority %d, which nobody can raise again", got)
		}
	} else {
		await(t, "the worker that loops is set back", func() bool { return priority(t, pids["loops"]) > politeness })
	}
	await(t, "its neighbour has the usual priority", func() bool { return priority(t, pids["rests"]) == politeness })
	stop()
	if err := <-ended; agent.KindOf(err) != agent.Cancelled {
		t.Error(err)
	}
	await(t, "the worker that looped is as before", func() bool { return priority(t, pids["loops"]) == politeness })
}

func processorTimeOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	used, err := processorTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// await looks until something is so, for a minute at most.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}

// priority is that of all threads of a process but those that begin or end just now; -1 when they differ.
func priority(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]bool{}
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(b), ") ")
		nice, err := strconv.Atoi(strings.Fields(after)[16])
		if err != nil {
			t.Fatal(err)
		}
		all[nice] = true
	}
	if len(all) != 1 {
		return -1
	}
	for nice := range all {
		return nice
	}
	return -1
}
