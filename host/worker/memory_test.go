//go:build linux

package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// Workers whose memory is as the test says: idle ones go first, then who uses most for its app's weight, one at a time.
func TestWhoUsesMostMemoryGoesFirst(t *testing.T) {
	sizes := map[agent.App]int64{}
	p, s := open(t, Options{Total: 100, measure: func(w *process) int64 { return sizes[w.tenant] }})
	d := s.put(script(`export async function hold(n, ctx) { await ctx.agent("x").y(); return 1 }; export function f() { return 1 }`))
	ended := map[agent.App]chan error{}
	held, release := make(chan struct{}), make(chan struct{})
	hold := func(app agent.App, weight int) {
		ended[app] = make(chan error, 1)
		go func() {
			_, err := p.Call(t.Context(), host.Call{
				Plugin: d, Tenant: app, Weight: weight, Function: "hold",
				Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					held <- struct{}{}
					select {
					case <-release:
					case <-ctx.Done():
					}
					return []byte(`{"type":"application/json","output":"MQ=="}`), nil
				},
			})
			ended[app] <- err
		}()
		<-held
	}
	if _, err := p.Call(t.Context(), host.Call{Plugin: d, Tenant: "idle", Function: "f"}); err != nil {
		t.Fatal(err)
	}
	hold("heavy", 4)
	hold("light", 1)
	hold("small", 1)
	look := func(idle, heavy, light, small int64) {
		p.mu.Lock()
		sizes["idle"], sizes["heavy"], sizes["light"], sizes["small"] = idle, heavy, light, small
		p.mu.Unlock()
		p.look()
	}
	left := func(want ...agent.App) {
		t.Helper()
		p.mu.Lock()
		defer p.mu.Unlock()
		var got []agent.App
		for app, w := range p.workers {
			if !w.link.isDead() {
				got = append(got, app)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%v are left, want %v", got, want)
		}
	}
	look(10, 40, 30, 20)
	left("heavy", "idle", "light", "small") // 100 of 100
	look(11, 40, 30, 20)
	left("heavy", "light", "small")
	look(0, 60, 21, 20)
	left("heavy", "small")
	e := agent.AsError(<-ended["light"])
	if e == nil || e.Kind != agent.Unavailable || e.Limit != agent.LimitMemory || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	close(release)
	for _, app := range []agent.App{"heavy", "small"} {
		if err := <-ended[app]; err != nil {
			t.Error(app, err)
		}
	}
}

// An app whose cells fill memory for good is ended, and another's calls go on.
func TestAnAppThatFillsMemory(t *testing.T) {
	p, s := open(t, Options{Total: 300 << 20, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	hungry := s.put(script(`export function f() { const all = []; for (;;) all.length < 180 ? all.push(new Uint8Array(1 << 20).fill(1)) : all[0].fill(2) }`))
	modest := s.put(script(`export function f() { return 1 }`))
	var all sync.WaitGroup
	fell := make(chan error, 3)
	for range 3 {
		all.Go(func() {
			_, err := p.Call(t.Context(), host.Call{Plugin: hungry, Tenant: "hungry", Function: "f", Limits: agent.MaxLimits()})
			fell <- err
		})
	}
	for len(fell) == 0 {
		if _, err := p.Call(t.Context(), host.Call{Plugin: modest, Tenant: "modest", Function: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	for range 3 {
		if e := agent.AsError(<-fell); e == nil || e.Kind != agent.Unavailable || e.Limit != agent.LimitMemory {
			t.Errorf("%+v", e)
		}
	}
}

// Cells that want more than a worker may give them are told, and the worker lives.
func TestCellsKnowWhenTheirWorkerIsFull(t *testing.T) {
	p, s := open(t, Options{Memory: 512 << 20})
	d := s.put(script(`export async function f(n, ctx) { const all = []; for (let i = 0; i < n; i++) all.push(new Uint8Array(1 << 20).fill(1)); await ctx.agent("x").y(); return 1 }`))
	pid := pidOf(t, p, "a")
	held, release := make(chan struct{}, 8), make(chan struct{})
	var all sync.WaitGroup
	call := func(mib string) error {
		return second(p.Call(t.Context(), host.Call{
			Plugin: d, Tenant: "a", Function: "f", Input: agent.JSON([]byte(mib)), Limits: agent.MaxLimits(),
			Calls: func(context.Context, string, []byte) ([]byte, error) {
				held <- struct{}{}
				<-release
				return []byte(`{"type":"application/json","output":"MQ=="}`), nil
			},
		}))
	}
	for range 2 {
		all.Go(func() {
			if err := call("90"); err != nil {
				t.Error(err)
			}
		})
		<-held
	}
	e := agent.AsError(call("90"))
	if e == nil || e.Kind != agent.Failed && e.Kind != agent.Exhausted {
		t.Errorf("%+v", e)
	}
	close(release)
	all.Wait()
	if now := pidOf(t, p, "a"); now != pid {
		t.Errorf("the worker was process %d, and is %d", pid, now)
	}
	if err := call("1"); err != nil {
		t.Error(err)
	}
}

func TestKilobytes(t *testing.T) {
	const status = "Name:\tskep\nRssAnon:\t     12 kB\nBad: x kB\nShort:\n"
	for name, want := range map[string]int64{"RssAnon:": 12 << 10, "Bad:": 0, "Short:": 0, "None:": 0} {
		if got := kilobytes([]byte(status), name); got != want {
			t.Errorf("%s %d, want %d", name, got, want)
		}
	}
	if roomForAll() < 1<<20 {
		t.Error(roomForAll())
	}
}
