//go:build linux

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// pidOf returns the process of a tenant.
func pidOf(t *testing.T, p *Pool, tenant agent.App) int {
	t.Helper()
	s, err := p.ask(t.Context(), tenant, "pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func unavailable(err error) bool {
	e := agent.AsError(err)
	return e != nil && e.Kind == agent.Unavailable && e.Msg == "the worker process ended" && e.Hint == "try again"
}

// Workers of two tenants under load; one tenant's is killed, again and again, at whatever moment it is. Its calls fail,
// typed, and nothing else does; what it is asked next is answered by a new one.
func TestKilledWorkers(t *testing.T) {
	p, s := open(t, Options{})
	d := s.put(script(`export async function f(n: number, ctx: any) { await ctx.agent("x").y(); return n }`))
	call := func(tenant agent.App) error {
		_, err := p.Call(t.Context(), host.Call{
			Plugin: d, Tenant: tenant, Function: "f", Input: agent.JSON([]byte("1")),
			Calls: func(context.Context, string, []byte) ([]byte, error) {
				return []byte(`{"type":"application/json","output":"MQ=="}`), nil
			},
		})
		return err
	}
	const kills = 5
	stop := make(chan struct{})
	var load sync.WaitGroup
	var served, failed [2]atomic.Int64
	var moved atomic.Int64 // calls served since the last kill
	for i, tenant := range []agent.App{"victim", "neighbour"} {
		for range 4 {
			load.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					switch err := call(tenant); {
					case err == nil:
						served[i].Add(1)
						if i == 0 {
							moved.Add(1)
						}
					case unavailable(err) && i == 0:
						failed[i].Add(1)
					default:
						t.Errorf("%s: %v", tenant, err)
						return
					}
				}
			})
		}
	}
	for range kills {
		w, err := p.acquire(t.Context(), "victim")
		if err != nil {
			t.Error(err)
			break
		}
		p.release(w)
		moved.Store(0)
		for moved.Load() < 20 && !t.Failed() {
			runtime.Gosched()
		}
		if err := syscall.Kill(pidOf(t, p, "victim"), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		<-w.ended
	}
	close(stop)
	load.Wait()
	if err := call("victim"); err != nil {
		t.Error("after all:", err)
	}
	if failed[0].Load() == 0 || failed[1].Load() != 0 || served[1].Load() == 0 {
		t.Errorf("served %d and %d, failed %d and %d", served[0].Load(), served[1].Load(), failed[0].Load(), failed[1].Load())
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	p, s := open(t, Options{})
	d := s.put(script(`export function spin() { console.log("on"); for (;;); }; export function hi() { return 1 }`))
	pid := pidOf(t, p, "a")
	_, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: "a", Function: "spin", Calls: func(context.Context, string, []byte) ([]byte, error) {
		return nil, syscall.Kill(pid, syscall.SIGKILL)
	}})
	if !unavailable(err) {
		t.Error(err)
	}
	if _, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: "a", Function: "hi"}); err != nil {
		t.Error(err)
	}
}

func TestIdleWorkersStop(t *testing.T) {
	p, s := open(t, Options{Idle: time.Millisecond, Workers: 1})
	d := s.put(script(`export function hi() { return 1 }`))
	for range 3 {
		w, err := p.acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := second(p.Call(t.Context(), host.Call{Plugin: d, Tenant: "b", Function: "hi"})); agent.KindOf(err) != agent.Unavailable {
			t.Error("one too many:", err)
		}
		if _, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: "a", Function: "hi"}); err != nil {
			t.Error(err)
		}
		p.release(w)
		<-w.ended
	}
}

// status reads a figure of a process from the kernel, in kB.
func status(t *testing.T, pid int, name string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no ", name)
	return 0
}

func files(t *testing.T, pid int) int {
	t.Helper()
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

func TestManyCallsLeaveNothing(t *testing.T) {
	p, s := open(t, Options{})
	d := s.put(script(`export function f(n: number) { console.log(n); return n }`))
	pid := pidOf(t, p, "a")
	many := func(n int) {
		for range n {
			_, err := p.Call(t.Context(), host.Call{
				Plugin: d, Tenant: "a", Function: "f", Input: agent.JSON(bytes.Repeat([]byte("1"), 10)),
				Calls: func(context.Context, string, []byte) ([]byte, error) { return nil, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	many(300)
	root := os.Geteuid() == 0 // a worker cannot be dumped, so only root may look at its files
	theirs := 0
	if root {
		theirs = files(t, pid)
	}
	ours, rss, routines := files(t, os.Getpid()), status(t, pid, "VmRSS"), runtime.NumGoroutine()
	many(1000)
	if n := files(t, os.Getpid()); n > ours+2 {
		t.Errorf("%d files are open here, %d before", n, ours)
	}
	if root {
		if n := files(t, pid); n > theirs+2 {
			t.Errorf("%d files are open in the worker, %d before", n, theirs)
		}
	}
	if n := status(t, pid, "VmRSS"); n > rss+16<<10 {
		t.Errorf("the worker uses %d kB, %d before", n, rss)
	}
	if n := runtime.NumGoroutine(); n > routines+4 {
		t.Errorf("%d goroutines, %d before", n, routines)
	}
	if n := len(p.workers["a"].flights); n != 0 {
		t.Errorf("%d calls are not forgotten", n)
	}
}

// bomb is a module of a size that is allowed, which takes many seconds to compile.
func bomb() agent.Source {
	body := append([]byte{0x20, 0}, bytes.Repeat(wasmtest.Code(0x20, 0, 0x41, 7, 0x6c, 0x20, 0, 0x73, 0x6a), 60_000)...)
	m := wasmtest.Module{Types: []wasmtest.Type{{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}}}}
	for range 40 {
		m.Funcs = append(m.Funcs, wasmtest.Func{Body: body})
	}
	m.Memory = wasmtest.Size(1, -1)
	return module(m)
}

// Code that costs too much to compile is refused in time, while calls go on.
func TestCompileBomb(t *testing.T) {
	src := bomb()
	for name, c := range map[string]struct {
		limits PrepareLimits
		want   string
	}{
		"CPU":    {PrepareLimits{CPU: time.Second}, "of CPU"},
		"wall":   {PrepareLimits{Wall: 700 * time.Millisecond}, "more than 700ms"},
		"memory": {PrepareLimits{Memory: 256 << 20}, "of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := open(t, Options{Prepare: c.limits, Host: host.Options{CacheDir: t.TempDir()}})
			hi := s.put(script(`export function hi() { return 1 }`))
			refused := make(chan error, 1)
			start := time.Now()
			go func() {
				_, err := p.Prepare(t.Context(), host.Who{App: "a"}, src, nil)
				refused <- err
			}()
			for {
				if _, err := p.Call(t.Context(), host.Call{Plugin: hi, Tenant: "n", Function: "hi"}); err != nil {
					t.Fatal("a neighbour:", err)
				}
				select {
				case err := <-refused:
					e := agent.AsError(err)
					if e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitModule || !strings.Contains(e.Msg, c.want) {
						t.Errorf("%+v", e)
					}
					if took := time.Since(start); took > 20*time.Second {
						t.Errorf("refused after %v", took)
					}
					return
				default:
				}
			}
		})
	}
}

// Code that nobody waits for any more is prepared no further.
func TestNobodyWaits(t *testing.T) {
	ended := make(chan error, 1)
	p, _ := open(t, Options{Prepare: PrepareLimits{CPU: time.Hour, Wall: time.Hour}, Host: host.Options{
		CacheDir: t.TempDir(), Loaded: func(l host.Loaded) { ended <- l.Err },
	}})
	src := bomb()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	started := make(chan struct{})
	begun := sync.OnceFunc(func() { close(started) })
	first := make(chan error, 1)
	go func() {
		_, err := p.Prepare(ctx, host.Who{App: "a"}, src, func(host.Progress) { begun() })
		first <- err
	}()
	<-started
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Prepare(gone, host.Who{App: "a"}, src, nil); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("one of two has left: %v", err)
	}
	p.mu.Lock()
	if len(p.underWay) != 1 {
		t.Errorf("%d preparations while one waits, want 1", len(p.underWay))
	}
	p.mu.Unlock()
	leave()
	if err := <-first; agent.KindOf(err) != agent.Cancelled {
		t.Errorf("the last has left: %v", err)
	}
	if err := <-ended; agent.KindOf(err) != agent.Cancelled {
		t.Errorf("the preparation ended with %v", err)
	}
}

// A pool that is closed ends what is under way, and takes nothing more.
func TestClosing(t *testing.T) {
	p, s := open(t, Options{})
	d := s.put(script(`export function spin() { console.log("on"); for (;;); }`))
	_, err := p.Call(t.Context(), host.Call{Plugin: d, Function: "spin", Calls: func(context.Context, string, []byte) ([]byte, error) {
		go p.Close()
		return nil, nil
	}})
	if !unavailable(err) || !errors.Is(err, errClosing) {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		second(p.Call(t.Context(), host.Call{Plugin: d})), second(p.Prepare(t.Context(), host.Who{}, script(``), nil)),
	} {
		if agent.KindOf(err) != agent.Unavailable {
			t.Error(err)
		}
	}
}
