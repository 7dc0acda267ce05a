package script

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

func text(s string) agent.Payload { return agent.Text(s) }
func js(s string) agent.Payload   { return agent.JSON([]byte(s)) }

func TestValues(t *testing.T) {
	a := load(t, source(`
		export const same = (x: unknown) => x;
		export const kind = (x: any) => Object.prototype.toString.call(x) + typeof x;
		export const nothing = () => {};
		export const later = async (x: number) => { await null; return x * 2 };
		export const bytes = () => new Uint16Array([1, 256]);
		export const buffer = () => new Uint8Array([7, 8]).buffer;
		export const page = () => new Response("<p>", { headers: { "content-type": "text/html" } });
		export const big = () => ({ n: 10n });
		export const ring = () => { const o: any = {}; o.o = o; return o };
		export const thenable = () => ({ then(done: (v: string) => void) { done("then") } });
	`))
	for _, c := range []struct {
		fn       string
		in, want agent.Payload
	}{
		{"same", js(`{"a":[1,null,"é"]}`), js(`{"a":[1,null,"é"]}`)},
		{"same", js(`"s"`), text("s")},
		{"same", text("plain é"), text("plain é")},
		{"same", text("\xff<"), text("\ufffd<")},
		{"same", agent.Payload{Type: "application/octet-stream", Body: []byte{0, 255}}, agent.Payload{Type: agent.TypeBytes, Body: []byte{0, 255}}},
		{"kind", agent.Payload{Type: "image/png", Body: []byte{1}}, text("[object Uint8Array]object")},
		{"kind", agent.Payload{Type: "application/vnd.x+json", Body: []byte("[]")}, text("[object Array]object")},
		{"kind", agent.Payload{}, text("[object Undefined]undefined")},
		{"nothing", js("1"), js("null")},
		{"later", js("21"), js("42")},
		{"bytes", js("1"), agent.Payload{Type: agent.TypeBytes, Body: []byte{1, 0, 0, 1}}},
		{"buffer", js("1"), agent.Payload{Type: agent.TypeBytes, Body: []byte{7, 8}}},
		{"page", js("1"), agent.Payload{Type: "text/html", Body: []byte("<p>")}},
		{"thenable", js("1"), text("then")},
		{"same", text(strings.Repeat("long ", 100_000)), text(strings.Repeat("long ", 100_000))},
	} {
		got, usage, err := a.Call(t.Context(), Call{Function: c.fn, Input: c.in})
		if err != nil {
			t.Errorf("%s(%.40q): %v", c.fn, c.in.Body, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s(%.40q): %s", c.fn, c.in.Body, d)
		}
		if usage.In != int64(len(c.in.Body)) || usage.Out != int64(len(got.Body)) || usage.Fuel == 0 {
			t.Errorf("%s: usage %+v", c.fn, usage)
		}
	}
	for fn, want := range map[string]string{"big": "BigInt", "ring": "circular"} {
		_, _, err := a.Call(t.Context(), Call{Function: fn, Input: js("1")})
		if e := agent.AsError(err); e == nil || e.Kind != agent.Failed || !strings.Contains(e.Msg, want) {
			t.Errorf("%s: %v", fn, err)
		}
	}
	if _, _, err := a.Call(t.Context(), Call{Function: "same", Input: js("{")}); agent.KindOf(err) != agent.Invalid {
		t.Errorf("bad JSON: %v", err)
	}
}

func TestShapes(t *testing.T) {
	object := `export default { n: 5, add(x) { return this.n + x }, fetch() {}, get late() { return () => 1 } }`
	class := `
		import { Agent } from "skep";
		class Base extends Agent { hello(x: string) { return "hello " + x + this.config.mark } }
		export default class Mine extends Base { #n = 0; count() { return ++this.#n } static not() {} onMessage(m: any) { this.emit("seen", m) } }
		export function free() { return "free" }
		export class Other {}
		export const value = 1;`
	for _, c := range []struct {
		name, code string
		exports    []string
		fetch      bool
	}{
		{"object", object, []string{"add"}, true},
		{"class", class, []string{"count", "free", "hello", "onMessage"}, false},
		{"function", `export default async function (x) { return x }`, []string{"default"}, false},
		{"bare class", `export default class { constructor(ctx, env) { this.env = env } go() { return this.env.mark } }`, []string{"go"}, false},
		{"nothing", `const x = 1`, []string{}, false},
		{"named fetch is a function", `export function fetch() { return 1 }`, []string{"fetch"}, false},
	} {
		a := load(t, source(c.code))
		if d := cmp.Diff(c.exports, a.Exports()); d != "" || a.HasFetch() != c.fetch {
			t.Errorf("%s: fetch %v, exports %s", c.name, a.HasFetch(), d)
		}
	}
	config := map[string]string{"mark": "!"}
	a := load(t, source(class))
	if got := result(t, a, Call{Function: "hello", Input: text("you"), Config: config}); got != "hello you!" {
		t.Errorf("inherited method: %q", got)
	}
	if got := result(t, load(t, source(object)), Call{Function: "add", Input: js("2")}); got != "7" {
		t.Errorf("method of an object: %q", got)
	}
	if got := result(t, load(t, source(`export default class { constructor(ctx, env) { this.env = env } go() { return this.env.mark } }`)), Call{Function: "go", Config: config}); got != "!" {
		t.Errorf("a class gets (ctx, env): %q", got)
	}
	// Settings are listed and copied like any object.
	listed := `export const go = (x, { config }) => [config, { ...config }, Object.entries(config), structuredClone({ ...config })]`
	if got, want := result(t, load(t, source(listed)), Call{Function: "go", Config: config}), `[{"mark":"!"},{"mark":"!"},[["mark","!"]],{"mark":"!"}]`; got != want {
		t.Errorf("settings: %s, want %s", got, want)
	}
}

func TestNotCallable(t *testing.T) {
	for _, code := range []string{
		`export default { ok() { return 1 } }`,
		`export default class { ok() { return 1 } }`,
		`import { Agent } from "skep"; export default class extends Agent { ok() { return 1 } }`,
		`export const ok = () => 1; export class Class {}; export const value = { call() {} }`,
		`export default new Proxy({ ok() { return 1 } }, { get(t, k) { return t[k] ?? (() => "trapped") } })`,
	} {
		a := load(t, source(code))
		for _, name := range []string{"constructor", "__proto__", "toString", "hasOwnProperty", "valueOf", "emit", "agent", "waitUntil", "call", "Class", "value", "then", "", "__defineGetter__"} {
			_, _, err := a.Call(t.Context(), Call{Function: name})
			if agent.KindOf(err) != agent.NotFound || !strings.Contains(agent.AsError(err).Hint, "ok") {
				t.Errorf("%s: %q can be called: %v", code, name, err)
			}
		}
		if got := result(t, a, Call{Function: "ok"}); got != "1" {
			t.Errorf("%s: ok: %q", code, got)
		}
	}
}

// recorder is a host that keeps what it was asked.
type recorder struct {
	mu    sync.Mutex
	asked []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, fmt.Sprintf(format, args...))
}

func (r *recorder) calls(_ context.Context, name string, in []byte) ([]byte, error) {
	r.note("%s %s", name, in)
	switch name {
	case abi.CallAgent:
		var c abi.AgentCall
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		if c.Agent == "secret" {
			return nil, agent.Errorf(agent.Denied, "agent %s is not granted", c.Agent)
		}
		return json.Marshal(abi.AgentResult{Type: c.Type, Output: c.Input})
	case abi.CallHTTPOpen:
		return abi.AppendHTTPHead(nil, abi.HTTPHead{Status: 201, Header: [][2]string{{"X-A", "b"}}, End: true}, []byte("body é"))
	}
	return nil, nil
}

func (r *recorder) log(level agent.LogLevel, line string) { r.note("%s: %s", level, line) }

func TestHostCalls(t *testing.T) {
	a := load(t, source(`
		import { Agent, callAgent, config, emit, log, SkepError } from "skep";
		export default class extends Agent {
			async all() {
				console.log("start %d", 1, { a: [1, { b: "x" }] });
				emit("step", { n: 1 });
				this.emit("bare");
				log.warn("careful", config.key, this.config === config);
				const other = this.agent("other");
				const r = [await other.shout("é"), await other.sum([1, 2]), [...await callAgent("other", "raw", new Uint8Array([1, 255]))], await other.none()];
				console.error(new TypeError("shown"));
				const res = await fetch("https://example.com/x", { method: "POST", body: "hi", headers: { A: "b" } });
				return [...r, res.status, res.headers.get("x-a"), await res.text(), res.ok];
			}
			async denied() {
				try { await this.agent("secret").x() } catch (e) { return [e instanceof SkepError, e.name, e.kind, e.message] }
			}
			async uncaught() { await this.agent("secret").x() }
		}`))
	r := &recorder{}
	call := Call{Function: "all", Calls: r.calls, Log: r.log, Config: map[string]string{"key": "v"}}
	if got, want := result(t, a, call), `["é",[1,2],[1,255],null,201,"b","body é",true]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want := []string{
		`info: start 1 { a: [1, { b: "x" }] }`,
		`emit {"name":"step","data":{"n":1}}`,
		`emit {"name":"bare","data":null}`,
		`warn: careful v true`,
		`agent {"agent":"other","function":"shout","type":"text/plain; charset=utf-8","input":"w6k="}`,
		`agent {"agent":"other","function":"sum","type":"application/json","input":"WzEsMl0="}`,
		`agent {"agent":"other","function":"raw","type":"application/octet-stream","input":"Af8="}`,
		`agent {"agent":"other","function":"none","type":"application/json","input":"bnVsbA=="}`,
		"error: TypeError: shown\n    at all (agent.ts:11:23)",
		"http.open \x84\x00\x00\x00" + `{"method":"POST","url":"https://example.com/x","header":[["a","b"],["content-type","text/plain;charset=UTF-8"]],"redirect":"follow"}hi`,
	}
	if d := cmp.Diff(want, r.asked); d != "" {
		t.Error(d)
	}
	if got, want := result(t, a, Call{Function: "denied", Calls: r.calls}), `[true,"SkepError","denied","agent secret is not granted"]`; got != want {
		t.Errorf("got %s", got)
	}
	_, _, err := a.Call(t.Context(), Call{Function: "uncaught", Calls: r.calls})
	if e := agent.AsError(err); err == nil || e.Kind != agent.Failed || e.Msg != "SkepError: agent secret is not granted" || e.Pos.Line != 18 {
		t.Errorf("uncaught: %v at %v\n%s", e, e.Pos, e.Stack)
	}
	_, _, err = a.Call(t.Context(), Call{Function: "uncaught"})
	if e := agent.AsError(err); err == nil || e.Kind != agent.Failed || !strings.Contains(e.Msg, "SkepError") {
		t.Errorf("without grants: %v", err)
	}
}

// TestOverlap has two calls to the host wait for each other: they end only when both are under way at once.
func TestOverlap(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		export async function both() {
			const order = [];
			const one = async (name) => { const v = await callAgent(name, "meet"); order.push(v); return v };
			return [await Promise.all([one("a"), one("b")]), order];
		}`))
	here := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	bDone := make(chan struct{})
	calls := func(ctx context.Context, _ string, in []byte) ([]byte, error) {
		var c abi.AgentCall
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		other := map[string]string{"a": "b", "b": "a"}[c.Agent]
		close(here[c.Agent])
		wait := []chan struct{}{here[other]}
		if c.Agent == "a" {
			wait = append(wait, bDone) // so that b settles first
		} else {
			defer close(bDone)
		}
		for _, ch := range wait {
			select {
			case <-ch:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return json.Marshal(abi.AgentResult{Type: agent.TypeText, Output: []byte(c.Agent)})
	}
	if got := result(t, a, Call{Function: "both", Calls: calls}); got != `[["a","b"],["b","a"]]` && got != `[["a","b"],["a","b"]]` {
		t.Errorf("got %s", got)
	}
}

func TestManyCalls(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		export const many = async (n) => (await Promise.all(Array.from({ length: n }, (_, i) => callAgent("x", "f", i)))).reduce((a, b) => a + b, 0);`))
	r := &recorder{}
	out, usage, err := a.Call(t.Context(), Call{Function: "many", Input: js("1000"), Calls: r.calls})
	if err != nil || string(out.Body) != "499500" || usage.HostCalls != 1000 {
		t.Errorf("%s, %d calls: %v", out.Body, usage.HostCalls, err)
	}
	_, _, err = a.Call(t.Context(), Call{Function: "many", Input: js("1000"), Calls: r.calls, Limits: agent.Limits{HostCalls: 100}})
	if e := agent.AsError(err); e == nil || e.Limit != agent.LimitHostCalls {
		t.Errorf("past the limit: %v", err)
	}
}

func TestFetchHandler(t *testing.T) {
	a := load(t, source(`
		export default {
			async fetch(req: Request, env: any, ctx: any) {
				const url = new URL(req.url);
				if (url.pathname === "/bad") return "no response";
				ctx.waitUntil(new Promise<void>((done) => setTimeout(() => { console.log("after"); done() }, 5)));
				ctx.waitUntil(Promise.reject(new Error("late")));
				console.log("before");
				const body = req.method === "POST" ? await req.text() : "none";
				return new Response(new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode(req.method + " " + url.pathname + url.search + " " + body + " " + env.k)); c.close() } }), { status: 202, headers: [["x-a", req.headers.get("X-In")!], ["set-cookie", "a=1"], ["set-cookie", "b=2"]] });
			}
		}`))
	r := &recorder{}
	call := Call{Config: map[string]string{"k": "v"}, Log: r.log}
	res, _, err := a.Fetch(t.Context(), call, Request{Method: "POST", URL: "https://x.y/p?q=1", Header: [][2]string{{"X-In", "1"}}, Body: []byte("é")})
	if err != nil {
		t.Fatal(err)
	}
	want := Response{Status: 202, Header: [][2]string{{"set-cookie", "a=1"}, {"set-cookie", "b=2"}, {"x-a", "1"}}, Body: []byte("POST /p?q=1 é v")}
	if d := cmp.Diff(want, res); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"info: before", "error: Uncaught (in waitUntil) Error: late\n    at fetch (agent.ts:7:38)", "info: after"}, r.asked); d != "" {
		t.Error(d)
	}
	if _, _, err := a.Fetch(t.Context(), call, Request{Method: "GET", URL: "https://x.y/bad"}); agent.KindOf(err) != agent.Failed || !strings.Contains(err.Error(), "must return a Response") {
		t.Errorf("not a response: %v", err)
	}
	_, _, err = load(t, source(`export default { fetch() { return new Response("") } }`)).Call(t.Context(), Call{Function: "fetch"})
	if e := agent.AsError(err); err == nil || e.Kind != agent.NotFound || !strings.Contains(e.Hint, "/http/") {
		t.Errorf("a fetch handler that is called: %v", err)
	}
	if _, _, err := load(t, source(`export const f = 1`)).Fetch(t.Context(), call, Request{Method: "GET", URL: "https://x.y/"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("no handler: %v", err)
	}
}

func TestAbort(t *testing.T) {
	a := load(t, source(`
		export const f = async () => {
			try { await fetch("https://slow.example", { signal: AbortSignal.timeout(5) }) } catch (e) { return e.name }
		}`))
	ended := make(chan error, 1)
	got := result(t, a, Call{Function: "f", Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	if got != "TimeoutError" {
		t.Errorf("got %s", got)
	}
	<-ended // or the call would not have been cancelled
}

// TestOtherCallsEnd has a function return while a call is under way: it is cancelled and waited for.
func TestOtherCallsEnd(t *testing.T) {
	a := load(t, source(`export const f = () => { fetch("https://slow.example").catch(() => {}); return 1 }`))
	ended := false
	got := result(t, a, Call{Function: "f", Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended = true
		return nil, ctx.Err()
	}})
	if got != "1" || !ended {
		t.Errorf("got %s, ended %v", got, ended)
	}
}

func TestEval(t *testing.T) {
	r := &recorder{}
	for _, c := range []struct{ code, function, want string }{
		{`export default 1 + 1`, "", "2"},
		{`export default (x) => x * 2`, "", "42"},
		{`export default async function (x, ctx) { return ctx.config.a + x }`, "", "b21"},
		{`const r = await fetch("https://a.b"); export default await r.text()`, "", "body é"},
		{`await new Promise((f) => setTimeout(f, 2)); export default typeof crypto.randomUUID()`, "", "string"},
		{`export const f = (x) => x + 1`, "f", "22"},
		{`console.log("only this")`, "", "null"},
		{`export default Promise.resolve({ a: 1 })`, "", `{"a":1}`},
	} {
		out, _, err := engine.Eval(t.Context(), source(c.code), Call{Function: c.function, Input: js("21"), Calls: r.calls, Config: map[string]string{"a": "b"}})
		if err != nil || string(out.Body) != c.want {
			t.Errorf("%s: %s, %v", c.code, out.Body, err)
		}
	}
	if _, _, err := engine.Eval(t.Context(), source(`export const f = 1; export function g() {}`), Call{}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("no function named: %v", err)
	}
}
