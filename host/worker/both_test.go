//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// cells is what a *host.Host and a *Pool have in common.
type cells interface {
	Prepare(ctx context.Context, who host.Who, src agent.Source, progress func(host.Progress)) (host.Prepared, error)
	Call(ctx context.Context, c host.Call) (host.Result, error)
	Fetch(ctx context.Context, c host.Call, req host.Request) (host.Response, agent.Usage, error)
	Eval(ctx context.Context, src agent.Source, c host.Call) (host.Result, error)
}

// both runs a test on a host in this process and on a pool.
func both(t *testing.T, loading agent.Limits, test func(t *testing.T, h cells, s *shelf)) {
	t.Run("inline", func(t *testing.T) {
		s := &shelf{}
		h, err := host.New(t.Context(), &host.Options{CacheDir: cacheDir(t), Load: s.load, Loading: loading})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close(context.Background()) })
		test(t, h, s)
	})
	t.Run("process", func(t *testing.T) {
		p, s := open(t, Options{Host: host.Options{Loading: loading}})
		test(t, p, s)
	})
}

func module(m wasmtest.Module) agent.Source {
	return agent.Source{Kind: agent.Wasm, Main: "agent.wasm", Files: map[string][]byte{"agent.wasm": m.Bytes()}}
}

func wasmBody(body ...any) agent.Source {
	return module(wasmtest.Module{
		Types: []wasmtest.Type{{}, {Results: []byte{wasmtest.I32}}},
		Funcs: []wasmtest.Func{{Type: 1, Body: wasmtest.Code(wasmtest.Code(body...), wasmtest.I32Const(0)), Export: "f"}}, Memory: wasmtest.Size(1, -1),
	})
}

const greeter = `
	let calls = 0;
	export function greet(who: { name: string }, ctx: any) { calls++; console.log("greeting", who.name); return { text: "Hello, " + who.name, calls, tone: ctx.config.tone }; }
	export default { async fetch(req: Request) { return new Response(req.method + " " + new URL(req.url).pathname + await req.text(), { status: 201, headers: { "x-y": "z" } }); } };
`

func TestCallsAndAnswers(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, s *shelf) {
		src := script(greeter)
		p, err := h.Prepare(t.Context(), host.Who{}, src, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(host.Prepared{Exports: []string{"greet"}, Fetch: true}, p); d != "" {
			t.Error(d)
		}
		var logged []string
		call := host.Call{
			Plugin: s.put(src), Tenant: "default", Function: "greet", Input: agent.JSON([]byte(`{"name":"Ada"}`)),
			Config: map[string]string{"tone": "warm"},
			Calls: func(_ context.Context, name string, in []byte) ([]byte, error) {
				logged = append(logged, name+" "+string(in))
				return nil, nil
			},
		}
		for range 3 {
			res, err := h.Call(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(res.Output.Body); got != `{"text":"Hello, Ada","calls":1,"tone":"warm"}` {
				t.Errorf("got %s", got)
			}
			if u := res.Usage; u.CPU <= 0 || u.Wall < u.CPU || u.Fuel <= 0 || u.In != 14 || u.Out == 0 || u.Log == 0 {
				t.Errorf("%+v", u)
			}
		}
		want := []string{abi.CallLog + ` {"level":"info","message":"greeting Ada"}`}
		if d := cmp.Diff(slices.Repeat(want, 3), logged); d != "" {
			t.Error(d)
		}
		res, _, err := h.Fetch(t.Context(), call, host.Request{Method: "PUT", URL: "http://agent/a/b?c", Body: []byte("!")})
		if err != nil || res.Status != 201 || string(res.Body) != "PUT /a/b!" || !slices.Contains(res.Header, [2]string{"x-y", "z"}) {
			t.Errorf("%+v %v", res, err)
		}
		ev, err := h.Eval(t.Context(), script(`export default (x: number) => [x, (globalThis as any).seen, (globalThis as any).seen = true]`),
			host.Call{Input: agent.JSON([]byte("7"))})
		if err != nil || string(ev.Output.Body) != `[7,null,true]` {
			t.Errorf("%s %v", ev.Output.Body, err)
		}
		for _, err := range []error{
			second(h.Call(t.Context(), host.Call{Plugin: "sha256:none"})),
			second(h.Eval(t.Context(), wasmBody(), host.Call{})),
		} {
			if k := agent.KindOf(err); k != agent.NotFound && k != agent.Invalid {
				t.Error(err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A module that has to be compiled, and one that does not validate.
func TestModules(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, s *shelf) {
		good := wasmBody()
		if _, err := h.Call(t.Context(), host.Call{Plugin: s.put(good), Function: "f"}); err != nil {
			t.Error("not prepared before:", err)
		}
		if p, err := h.Prepare(t.Context(), host.Who{}, good, func(host.Progress) {}); err != nil || !slices.Equal(p.Exports, []string{"f"}) {
			t.Error(p, err)
		}
		var stages []host.Progress
		other := wasmBody(wasmtest.Code(0x01))
		if _, err := h.Prepare(t.Context(), host.Who{}, other, func(p host.Progress) { stages = append(stages, p) }); err != nil {
			t.Error(err)
		}
		size := int64(len(other.Files[other.Main]))
		if !slices.Contains(stages, host.Progress{Stage: "compile", Total: size}) || !slices.Contains(stages, host.Progress{Stage: "compile", Done: size, Total: size}) {
			t.Error(stages)
		}
		if err := second(h.Prepare(t.Context(), host.Who{}, wasmBody(byte(0x6a)), nil)); agent.KindOf(err) != agent.Invalid {
			t.Error(err)
		}
	})
}

// Every field of an error but its cause comes across, and the order of events is kept.
func TestErrorsAndOrder(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, s *shelf) {
		d := s.put(script("export function f() {\n  throw new TypeError('no')\n}\n" + `
			export function g() { for (let i = 0; i < 200; i++) { console.log(i); emit("e", i) } }
			export async function h(_: any, ctx: any) { try { await ctx.agent("x").y() } catch (e: any) { return e.message } }
			import { emit } from "skep";`))
		e := agent.AsError(second(h.Call(t.Context(), host.Call{Plugin: d, Function: "f"})))
		if e == nil || e.Kind != agent.Failed || !strings.Contains(e.Msg, "no") || e.Pos.Line != 2 || e.Pos.File != "agent.ts" || e.Stack == "" {
			t.Errorf("%+v", e)
		}
		e = agent.AsError(second(h.Call(t.Context(), host.Call{Plugin: d, Function: "nothing"})))
		if e == nil || e.Kind != agent.NotFound {
			t.Errorf("%+v", e)
		}
		var mu sync.Mutex
		var seen []string
		_, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "g", Calls: func(_ context.Context, name string, in []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, name)
			return nil, nil
		}})
		if err != nil || len(seen) != 400 {
			t.Fatal(len(seen), err)
		}
		for i, name := range seen {
			if want := []string{abi.CallLog, abi.CallEmit}[i%2]; name != want {
				t.Fatalf("host call %d is %s, want %s", i, name, want)
			}
		}
		res, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "h", Calls: func(context.Context, string, []byte) ([]byte, error) {
			return nil, agent.Wrap(agent.Denied, errors.New("secret"), "not granted")
		}})
		if got := string(res.Output.Body); err != nil || !strings.Contains(got, "not granted") || strings.Contains(got, "secret") {
			t.Error(got, err)
		}
	})
}

func TestHostileGuests(t *testing.T) {
	limits := agent.Limits{CPU: 200 * time.Millisecond, Wall: 20 * time.Second, Memory: 64 << 20}
	guests := map[string]struct {
		src  agent.Source
		want agent.Limit
	}{
		"module loop":      {wasmBody(wasmtest.Code(0x03, 0x40, 0x0c, 0, 0x0b)), agent.LimitCPU},
		"module recursion": {wasmBody(wasmtest.Code(0x10, 0, 0x1a)), agent.LimitStack},
		"script loop":      {script(`export function f() { for (;;); }`), agent.LimitCPU},
		"script console":   {script(`export function f() { for (;;) console.log("x".repeat(1000)) }`), agent.LimitLog},
		"script recursion": {script(`export function f() { (function g() { return 1 + g() })() }`), agent.LimitStack},
		"script at load":   {script(`for (;;);`), agent.LimitCPU},
		"script wall":      {script(`export async function f() { await new Promise(r => setTimeout(r, 3_600_000)) }`), agent.LimitWall},
	}
	both(t, limits, func(t *testing.T, h cells, s *shelf) {
		for name, g := range guests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := host.Call{
					Plugin: s.put(g.src), Function: "f", Limits: limits,
					Calls: func(context.Context, string, []byte) ([]byte, error) { return nil, nil },
				}
				switch g.want {
				case agent.LimitWall:
					c.Limits.Wall = 100 * time.Millisecond
				case agent.LimitStack, agent.LimitLog: // however slow the machine is
					c.Limits.CPU = 10 * time.Second
				}
				e := agent.AsError(second(h.Call(t.Context(), c)))
				if e == nil || e.Kind != agent.Exhausted || e.Limit != g.want {
					t.Errorf("%+v, want limit %v", e, g.want)
				}
			})
		}
	})
}

// Calls of agents to agents, each in another tenant, so each in another process.
func TestNestedCallsAcrossTenants(t *testing.T) {
	both(t, agent.Limits{}, func(t *testing.T, h cells, s *shelf) {
		d := s.put(script(`export async function down(n: number, ctx: any) { return n === 0 ? 0 : 1 + await ctx.agent("self").down(n - 1) }`))
		var call func(depth int) host.Call
		call = func(depth int) host.Call {
			return host.Call{
				Plugin: d, Function: "down", Input: agent.JSON(fmt.Appendf(nil, "%d", 5-depth)), Depth: depth,
				Tenant: agent.App(fmt.Sprint("tenant", depth%3)), Limits: agent.Limits{Wall: 20 * time.Second},
				Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					res, err := h.Call(ctx, call(depth+1))
					if err != nil {
						return nil, err
					}
					return json.Marshal(abi.AgentResult{Type: res.Output.Type, Output: res.Output.Body})
				},
			}
		}
		res, err := h.Call(t.Context(), call(0))
		if err != nil || string(res.Output.Body) != "5" {
			t.Errorf("%s %v", res.Output.Body, err)
		}
		if err := second(h.Call(t.Context(), call(17))); agent.AsError(err).Limit != agent.LimitConcurrency {
			t.Errorf("too deep: %v", err)
		}
	})
}

// A caller that leaves stops its cell, and the calls to its host that are under way.
func TestCancelling(t *testing.T) {
	reason := errors.New("the person left")
	both(t, agent.Limits{}, func(t *testing.T, h cells, s *shelf) {
		d := s.put(script(`
			export function spin() { console.log("on"); for (;;); }
			export async function wait(_: any, ctx: any) { console.log("on"); await ctx.agent("x").y() }`))
		for _, f := range []string{"spin", "wait"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			var left sync.WaitGroup
			left.Add(1)
			_, err := h.Call(ctx, host.Call{Plugin: d, Function: f, Calls: func(hc context.Context, name string, _ []byte) ([]byte, error) {
				if name == abi.CallLog {
					if f == "spin" {
						cancel(reason)
						left.Done()
					}
					return nil, nil
				}
				cancel(reason)
				<-hc.Done()
				left.Done()
				return nil, context.Cause(hc)
			}})
			left.Wait()
			if agent.KindOf(err) != agent.Cancelled || !errors.Is(err, reason) {
				t.Errorf("%s: %v", f, err)
			}
		}
		if _, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "nothing"}); agent.KindOf(err) != agent.NotFound {
			t.Error("the worker does not serve on:", err)
		}
	})
}
