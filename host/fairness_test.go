package host_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

func waitFor(h *host.Host, waiting int) {
	for {
		if _, n := h.Live(); n >= waiting {
			return
		}
	}
}

// One place, which an app holds while more of its calls wait: another app's call is the next.
func TestThePlaceGoesToTheOtherApp(t *testing.T) {
	h, s := open(t, host.Options{Cells: 1, Waiting: 100})
	d := s.put(script(`export async function f(input, ctx) { await ctx.agent("x").y(); return 1 }`))
	var mu sync.Mutex
	var order []string
	gate := make(chan struct{})
	var all sync.WaitGroup
	call := func(app agent.App, name string) {
		all.Go(func() {
			_, err := h.Call(t.Context(), host.Call{
				Plugin: d, Tenant: app, Agent: name, Function: "f", Calls: func(context.Context, string, []byte) ([]byte, error) {
					mu.Lock()
					order = append(order, string(app)+"/"+name)
					mu.Unlock()
					<-gate
					return []byte(`{"type":"application/json","output":"MQ=="}`), nil
				},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	call("flood", "a")
	for running := 0; running == 0; running, _ = h.Live() {
	}
	waiting := 0
	for _, who := range [][2]string{{"flood", "a"}, {"flood", "a"}, {"flood", "b"}, {"other", "a"}} {
		call(agent.App(who[0]), who[1])
		waiting++
		waitFor(h, waiting)
	}
	close(gate)
	all.Wait()
	if got := strings.Join(order[:3], " "); got != "flood/a other/a flood/b" {
		t.Errorf("%v came in this order", order)
	}
}

// One piece of code at a time: an app's flood of code to be prepared is not in the way of another's.
func TestPreparingIsShared(t *testing.T) {
	h, _ := open(t, host.Options{Prepares: 1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done atomic.Int64
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			src := script(fmt.Sprintf("export const n = %d; let x = 0; for (let i = 0; i < 3e5; i++) x += i; export function f() { return x }", n))
			if _, err := h.Prepare(ctx, host.Who{App: "flood"}, src, nil); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	for done.Load() == 0 {
	}
	for n := range 3 {
		before := done.Load()
		if before == 40 {
			t.Fatal("the flood is over too soon to tell anything")
		}
		if _, err := h.Prepare(t.Context(), host.Who{App: "other"}, script(fmt.Sprintf("export const m = %d", n)), nil); err != nil {
			t.Fatal(err)
		}
		if passed := done.Load() - before; passed > 3 { // the one under way, and what ends while this is told
			t.Errorf("%d of the flood were prepared before the other app's code", passed)
		}
	}
	all.Wait()
}

// What one app wants to be prepared is not held up by another that wants the same and waits in a long queue.
func TestTheSameCodeForTwoApps(t *testing.T) {
	h, _ := open(t, host.Options{Prepares: 2})
	src := script(`export function f() { return 1 }`)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if _, err := h.Prepare(t.Context(), host.Who{App: agent.App(fmt.Sprint(n % 3))}, src, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// An app with 64 cells that never end, each of which does nothing but one kind of mischief, and another app, whose calls
// all return meanwhile.
func TestFloodsStarveNobody(t *testing.T) {
	for name, text := range map[string]string{
		"loops":           `export function f() { for (;;); }`,
		"host calls":      `export async function f(input, ctx) { for (;;) await ctx.agent("x").y() }`,
		"many host calls": `export async function f(input, ctx) { for (;;) await Promise.all(Array.from({ length: 50 }, () => ctx.agent("x").y())) }`,
		"log lines":       `export function f() { for (;;) console.log("x".repeat(100)) }`,
		"garbage":         `export function f() { for (;;) JSON.stringify(Array.from({ length: 1000 }, (_, i) => ({ i }))) }`,
	} {
		t.Run(name, func(t *testing.T) {
			h, s := open(t, host.Options{Cells: 96})
			flood, quick := s.put(script(text)), s.put(script(greeter))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			limits := agent.MaxLimits()
			var early atomic.Int64
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					_, err := h.Call(ctx, host.Call{
						Plugin: flood, Tenant: "flood", Function: "f", Limits: limits,
						Calls: func(context.Context, string, []byte) ([]byte, error) {
							return []byte(`{"type":"application/json","output":"MQ=="}`), nil
						},
					})
					if agent.KindOf(err) != agent.Cancelled {
						early.Add(1)
						t.Error(err)
					}
				})
			}
			for running := 0; running < 64 && early.Load() == 0; running, _ = h.Live() {
			}
			for range 30 {
				_, err := h.Call(ctx, host.Call{Plugin: quick, Tenant: "other", Function: "greet", Input: agent.JSON([]byte(`{"name":"Ada"}`))})
				if err != nil {
					t.Fatal(err)
				}
			}
			stop()
			all.Wait()
		})
	}
}
