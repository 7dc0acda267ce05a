package script

import (
	"context"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// TestWaysToReturn has functions return and fail in the ways there are, none of which leaves a rejection to report.
func TestWaysToReturn(t *testing.T) {
	a := load(t, source(`
		const odd = () => new Error("odd");
		export const value = () => 1.5;
		export const infinite = () => -1 / 0;
		export const nothing = () => {};
		export const promise = () => Promise.resolve([1]);
		export const thenable = () => ({ then(done) { done({ a: 1 }) } });
		export const callable = () => Object.assign(() => {}, { then(done) { done("called") } });
		export class Later extends Promise {}
		export const derived = () => new Later((done) => setTimeout(done, 1, true));
		export const plain = () => ({ then: 1 });
		export const lone = () => "\ud800";
		export const throws = () => { throw odd() };
		export const rejects = () => Promise.reject(odd());
		export const rejectsLater = async () => { await null; throw odd() };
		export const badThen = () => ({ get then() { throw odd() } });
		export const yields = async function* () { yield 1; await null; yield [2]; yield undefined; return 3 };
		export const steps = function* () { yield* "ab" };
		export const stream = () => new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("text")); c.close() } });
		export const late = async function* () { yield 1; throw odd() };
		export const next = () => ({ next: 1 });
		export const circular = () => { const o = {}; o.o = o; return o };`))
	for fn, want := range map[string]string{
		"value": "1.5", "infinite": "null", "nothing": "null", "promise": "[1]", "thenable": `{"a":1}`, "callable": "called", "derived": "true",
		"plain": `{"then":1}`, "lone": "\ufffd", "throws": "Error: odd", "rejects": "Error: odd", "rejectsLater": "Error: odd", "badThen": "Error: odd",
		"yields": "[1,[2],null]", "steps": `["a","b"]`, "stream": `["text"]`, "late": "Error: odd", "next": `{"next":1}`,
		"circular": "TypeError: circular reference",
	} {
		r := &recorder{}
		out, _, err := a.Call(t.Context(), Call{Function: fn, Log: r.log})
		got := string(out.Body)
		if err != nil {
			got = agent.AsError(err).Msg
		}
		if got != want || len(r.asked) > 0 {
			t.Errorf("%s: got %q, want %q; logged %q", fn, got, want, r.asked)
		}
	}
}

// TestCallErrors looks at where the errors of calls say they are from.
func TestCallErrors(t *testing.T) {
	a := load(t, source(`
		import { callAgent } from "skep";
		export async function awaited() {
			const p = callAgent("a", "f");
			await p;
		}
		export async function all() {
			await Promise.all([callAgent("a", "f"), 1]);
		}
		export async function fetched() {
			await fetch("https://a.b");
		}
		export async function caught() {
			const mine = () => "mine", out = [];
			Error.prepareStackTrace = mine;
			try { await callAgent("a", "f") } catch (e) { out.push(e.stack) }
			out.push(Error.prepareStackTrace === mine);
			Error.prepareStackTrace = undefined;
			await callAgent("a", "f").catch((e) => out.push(e.message, typeof e.stack));
			await callAgent(1).catch((e) => out.push(e.name));
			Error.stackTraceLimit = 0;
			await callAgent("a", "f").catch((e) => out.push(e.kind));
			return out;
		}`))
	calls := func(context.Context, string, []byte) ([]byte, error) { return nil, agent.Errorf(agent.Denied, "no") }
	for fn, line := range map[string]int{"awaited": 5, "all": 8, "fetched": 11} {
		_, _, err := a.Call(t.Context(), Call{Function: fn, Calls: calls})
		if e := agent.AsError(err); err == nil || e.Msg != map[bool]string{true: "TypeError: no", false: "SkepError: no"}[fn == "fetched"] || e.Pos.Line != line {
			t.Errorf("%s: %v at %v, want line %d\n%s", fn, err, e.Pos, line, e.Stack)
		}
	}
	want := `["mine",true,"no","undefined","TypeError","denied"]`
	if got := result(t, a, Call{Function: "caught", Calls: calls}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
