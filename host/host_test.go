package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// shelf is where a test keeps code, by digest.
type shelf struct {
	mu    sync.Mutex
	code  map[agent.Digest]agent.Source
	loads atomic.Int64
}

func (s *shelf) load(_ context.Context, d agent.Digest) (agent.Source, error) {
	s.loads.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok := s.code[d]
	if !ok {
		return agent.Source{}, agent.Errorf(agent.NotFound, "no code %s", d)
	}
	return src, nil
}

// put keeps code and names it.
func (s *shelf) put(src agent.Source) agent.Digest {
	d := agent.DigestOf(src.Files[src.Main])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == nil {
		s.code = map[agent.Digest]agent.Source{}
	}
	s.code[d] = src
	return d
}

func script(text string) agent.Source {
	return agent.Source{Kind: agent.Script, Main: "agent.ts", Files: map[string][]byte{"agent.ts": []byte(text)}}
}

func module(m wasmtest.Module) agent.Source {
	return agent.Source{Kind: agent.Wasm, Main: "agent.wasm", Files: map[string][]byte{"agent.wasm": m.Bytes()}}
}

func open(t *testing.T, o host.Options) (*host.Host, *shelf) {
	t.Helper()
	s := &shelf{}
	o.Load = s.load
	h, err := host.New(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h, s
}

const greeter = `
	let calls = 0;
	export function greet(who: { name: string }) { calls++; console.log("greeting", who.name); return { text: "Hello, " + who.name, calls }; }
	export default { async fetch(req: Request) { return new Response(req.method + " " + new URL(req.url).pathname, { status: 201 }); } };
`

func TestBothWaysOfKeepingImages(t *testing.T) {
	for name, o := range map[string]host.Options{"mapped": {}, "copied": {Copy: true}} {
		t.Run(name, func(t *testing.T) {
			h, s := open(t, o)
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
				if got := string(res.Output.Body); got != `{"text":"Hello, Ada","calls":1}` {
					t.Errorf("got %s", got)
				}
				if u := res.Usage; u.CPU <= 0 || u.Wall < u.CPU || u.Fuel <= 0 || u.In != 14 || u.Out == 0 {
					t.Errorf("%+v", u)
				}
			}
			want := []string{abi.CallLog + ` {"level":"info","message":"greeting Ada"}`}
			if d := cmp.Diff(slices.Repeat(want, 3), logged); d != "" {
				t.Error(d)
			}
			res, _, err := h.Fetch(t.Context(), call, host.Request{Method: "PUT", URL: "http://agent/a/b?c"})
			if err != nil || res.Status != 201 || string(res.Body) != "PUT /a/b" {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}

func TestEvalKeepsNothing(t *testing.T) {
	h, s := open(t, host.Options{})
	for n := range 3 {
		res, err := h.Eval(t.Context(), script(`export default (x: number) => [x, (globalThis as any).seen, (globalThis as any).seen = true]`),
			host.Call{Input: agent.JSON([]byte("7"))})
		if err != nil || string(res.Output.Body) != `[7,null,true]` {
			t.Errorf("run %d: %s %v", n, res.Output.Body, err)
		}
	}
	if s.loads.Load() != 0 {
		t.Error("something was loaded")
	}
	if _, err := h.Eval(t.Context(), module(wasmtest.Module{}), host.Call{}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("a module: %v", err)
	}
}

func TestImagesAreLoadedOnceAndDroppedInTurn(t *testing.T) {
	h, s := open(t, host.Options{Images: 40 << 20})
	call := func(d agent.Digest) error {
		_, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "f"})
		return err
	}
	one := s.put(script(`export function f() { return 1 }`))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := call(one); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	before := s.loads.Load()
	if err := call(one); err != nil || s.loads.Load() != before {
		t.Errorf("%v; loaded again although it is in memory", err)
	}
	for n := range 20 {
		if err := call(s.put(script(fmt.Sprintf(`export function f() { return %d }`, n+100)))); err != nil {
			t.Fatal(err)
		}
	}
	before = s.loads.Load()
	if err := call(one); err != nil || s.loads.Load() != before+1 {
		t.Errorf("%v; %d loads, want one more: it was the one used longest ago", err, s.loads.Load()-before)
	}
	if err := call("sha256:none"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("unknown code: %v", err)
	}
}

// Code that fails to load is not kept: the next caller tries again.
func TestFailedLoadsAreNotKept(t *testing.T) {
	h, s := open(t, host.Options{})
	d := s.put(script(`export const x = ;`))
	for range 2 {
		before := s.loads.Load()
		_, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "f"})
		e := agent.AsError(err)
		if e == nil || e.Kind != agent.Invalid || e.Pos != (agent.Pos{File: "agent.ts", Line: 1, Column: 18}) {
			t.Errorf("%+v", e)
		}
		if s.loads.Load() != before+1 {
			t.Error("it was not loaded again")
		}
	}
}

func TestTheGate(t *testing.T) {
	h, s := open(t, host.Options{Cells: 2, Waiting: 1})
	d := s.put(script(`export async function hold() { await new Promise(r => setTimeout(r, 3_600_000)) }; export function f() {}`))
	ctx, cancel := context.WithCancel(t.Context())
	var held sync.WaitGroup
	hold := func(ctx context.Context) {
		held.Go(func() {
			_, _ = h.Call(ctx, host.Call{Plugin: d, Function: "hold", Limits: agent.Limits{Wall: time.Hour}})
		})
	}
	until := func(cells, waiting int) {
		for {
			if c, w := h.Live(); c == cells && w == waiting {
				return
			}
			if t.Context().Err() != nil {
				t.Fatal("not reached")
			}
		}
	}
	hold(ctx)
	hold(ctx)
	until(2, 0)
	waits, stopWaiting := context.WithCancel(t.Context())
	hold(waits)
	until(2, 1)
	_, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "f"})
	if e := agent.AsError(err); e == nil || e.Kind != agent.Unavailable || e.Limit != agent.LimitConcurrency {
		t.Errorf("one too many: %v", err)
	}
	stopWaiting()
	until(2, 0)
	cancel()
	held.Wait()
	if _, err := h.Call(t.Context(), host.Call{Plugin: d, Function: "f"}); err != nil {
		t.Errorf("after all have gone: %v", err)
	}
}

// Each of these ends within its limit, and says which, while a neighbour on the same host is served.
func TestHostileGuests(t *testing.T) {
	limits := agent.Limits{CPU: 300 * time.Millisecond, Wall: 20 * time.Second, Memory: 64 << 20}
	code := wasmtest.Code
	wasm := func(body ...any) agent.Source {
		return module(wasmtest.Module{
			Types: []wasmtest.Type{{}, {Results: []byte{wasmtest.I32}}},
			Funcs: []wasmtest.Func{{Type: 1, Body: code(code(body...), wasmtest.I32Const(0)), Export: "f"}}, Memory: wasmtest.Size(1, -1),
		})
	}
	js := func(body string) agent.Source { return script("export async function f() { " + body + " }") }
	grow := code(0x03, 0x40, wasmtest.I32Const(16), 0x40, 0, wasmtest.I32Const(0), 0x4e, 0x04, 0x40, 0x0c, 1, 0x0b, 0x0b, 0x00)
	guests := map[string]struct {
		src  agent.Source
		want []agent.Limit
		kind agent.Kind // when it is not Exhausted
	}{
		"wasm loop":          {src: wasm(code(0x03, 0x40, 0x0c, 0, 0x0b)), want: []agent.Limit{agent.LimitCPU}},
		"wasm recursion":     {src: wasm(code(0x10, 0, 0x1a)), want: []agent.Limit{agent.LimitStack}},
		"wasm memory":        {src: wasm(grow), want: []agent.Limit{agent.LimitMemory}},
		"script loop":        {src: js(`for (;;);`), want: []agent.Limit{agent.LimitCPU}},
		"script loop, try":   {src: js(`for (;;) try { for (;;); } catch {}`), want: []agent.Limit{agent.LimitCPU}},
		"script recursion":   {src: js(`(function g() { return 1 + g() })()`), want: []agent.Limit{agent.LimitStack}},
		"script memory":      {src: js(`const a = []; for (;;) a.push(new Uint8Array(1 << 20))`), want: []agent.Limit{agent.LimitMemory, agent.LimitCPU}},
		"script strings":     {src: js(`let s = "x"; for (;;) s += s`), want: []agent.Limit{agent.LimitMemory, agent.LimitCPU}, kind: agent.Failed},
		"script promises":    {src: js(`await new Promise(() => { (function g() { Promise.resolve().then(g) })() })`), want: []agent.Limit{agent.LimitCPU}},
		"script regex":       {src: js(`/(a+)+$/.test("a".repeat(40) + "b")`), want: []agent.Limit{agent.LimitCPU}},
		"script holes":       {src: js(`[].indexOf.call({ length: 2 ** 53 - 1 }, 1)`), want: []agent.Limit{agent.LimitCPU}},
		"script JSON":        {src: js(`const o = Array.from({ length: 5e4 }, (_, i) => ({ i })); for (;;) JSON.stringify(o)`), want: []agent.Limit{agent.LimitCPU}},
		"script sort":        {src: js(`const a = Array.from({ length: 1e5 }, (_, i) => i * 7919 % 1e5); for (;;) a.slice().sort((x, y) => x - y)`), want: []agent.Limit{agent.LimitCPU}},
		"script console":     {src: js(`for (;;) console.log("x".repeat(1000))`), want: []agent.Limit{agent.LimitLog}},
		"script never":       {src: js(`await new Promise(() => {})`), kind: agent.Failed},
		"script at its load": {src: script(`for (;;);`), want: []agent.Limit{agent.LimitCPU}},
	}
	h, s := open(t, host.Options{Loading: limits})
	neighbour := s.put(script(`export function hi() { return "hi" }`))
	serve := func() {
		res, err := h.Call(t.Context(), host.Call{Plugin: neighbour, Tenant: "n", Function: "hi"})
		if err != nil || string(res.Output.Body) != "hi" {
			t.Errorf("the neighbour got %s %v", res.Output.Body, err)
		}
	}
	serve()
	for _, name := range slices.Sorted(maps.Keys(guests)) {
		g := guests[name]
		t.Run(name, func(t *testing.T) {
			limits := limits
			if !slices.Contains(g.want, agent.LimitCPU) { // on a busy machine the pages of a deep stack, or many lines, cost more
				limits.CPU = 5 * time.Second
			}
			done := make(chan error, 1)
			go func() {
				_, err := h.Call(t.Context(), host.Call{
					Plugin: s.put(g.src), Tenant: "h", Function: "f", Limits: limits,
					Calls: func(context.Context, string, []byte) ([]byte, error) { return nil, nil },
				})
				done <- err
			}()
			served := 0
			for {
				select {
				case err := <-done:
					e := agent.AsError(err)
					if e == nil {
						t.Fatal("it ended well")
					}
					if g.kind != 0 && e.Kind == g.kind || e.Kind == agent.Exhausted && slices.Contains(g.want, e.Limit) {
						return
					}
					t.Fatalf("after %d neighbours: kind %v limit %q: %v", served, e.Kind, e.Limit, err)
				default:
					serve()
					served++
				}
			}
		})
	}
}

// What a guest does to its own globals and built-ins is gone in the next call.
func TestNothingLeaks(t *testing.T) {
	h, s := open(t, host.Options{})
	d := s.put(script(`
		const kept: string[] = [];
		export function put(x: string) { kept.push(x); (globalThis as any).x = x; (Array.prototype as any).x = x; JSON.parse = () => x; return get() }
		export function get() { return [kept, (globalThis as any).x ?? null, ([] as any).x ?? null, JSON.parse("1")] }`))
	ask := func(f, in string) string {
		body, _ := json.Marshal(in)
		res, err := h.Call(t.Context(), host.Call{Plugin: d, Function: f, Input: agent.JSON(body)})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Output.Body)
	}
	for n := range 20 {
		if got := ask("put", fmt.Sprint("secret", n)); strings.Count(got, "secret") != 4 {
			t.Fatalf("a call does not see its own changes: %s", got)
		}
		if got := ask("get", ""); got != `[[],null,null,1]` {
			t.Fatalf("a call sees another's changes: %s", got)
		}
	}
}

// With one place for calls from outside, a call that waits for another agent's call still gets its answer.
func TestNestedCallsDoNotWaitForTheirOwnPlace(t *testing.T) {
	h, s := open(t, host.Options{Cells: 1})
	d := s.put(script(`export async function down(n: number, ctx: any) { return n === 0 ? 0 : 1 + await ctx.agent("self").down(n - 1) }`))
	var call func(depth int) host.Call
	call = func(depth int) host.Call {
		return host.Call{
			Plugin: d, Function: "down", Input: agent.JSON([]byte(fmt.Sprint(5 - depth))), Depth: depth, Limits: agent.Limits{Wall: 20 * time.Second},
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
	if _, err := h.Call(t.Context(), call(17)); agent.AsError(err).Limit != agent.LimitConcurrency {
		t.Errorf("too deep: %v", err)
	}
}
