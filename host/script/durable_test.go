package script

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

func TestSelf(t *testing.T) {
	a := load(t, source(`
		import { Agent } from "skep";
		export const plain = (_, ctx) => [ctx.key, ctx.name, ctx.runId, ctx.sessionId, Object.keys(ctx).includes("key")];
		export default class extends Agent {
			ids() { return [this.key, this.name, this.runId, this.sessionId, this.key] }
			own() { this.key = "mine"; return this.key }
		}`))
	p := newHive("r1")
	p.want(t, a, "ids", "", `["lobby","room","r1","s1","lobby"]`)
	p.want(t, a, "plain", "", `["lobby","room","r1","s1",false]`)
	p.want(t, a, "own", "", `mine`)
	if d := cmp.Diff([]string{"self", "self"}, p.asked); d != "" {
		t.Error("it is asked once in a cell:", d)
	}
	if _, err := engine.Load(t.Context(), source(`import { storage, sleep } from "skep"; await sleep(1)`), nil); err == nil || !strings.Contains(err.Error(), "while the module loads") {
		t.Error("while loading:", err)
	}
	// An object and a function have the same.
	o := load(t, source(`export default { ids() { return [this.key, this.step.name === "step", typeof this.storage.get, this.own] }, own: 1, storage: { get: 5 } }`))
	p.want(t, o, "ids", "", `["lobby",true,"number",1]`)
}

func TestStorage(t *testing.T) {
	a := load(t, source(`
		import { Agent, storage } from "skep";
		export default class extends Agent {
			async count() { const n = (await this.storage.get("n")) ?? 0; await storage.set("n", n + 1); return n + 1 }
			async many(_, ctx) { await ctx.storage.batch([{ op: "set", key: "a", value: 1 }, { op: "check", key: "b", ifVersion: 0 }]); return (await storage.list({ prefix: "x" })).entries }
			bad() { return this.storage.set("k", undefined) }
			late() { this.storage.set("late", 1); return "returned" }
		}`))
	p := newHive("")
	p.want(t, a, "count", "", "1")
	p.want(t, a, "count", "", "2")
	p.want(t, a, "many", "", "[]")
	p.want(t, a, "late", "", "returned")
	p.wantError(t, a, "bad", "", "TypeError: storage: undefined has no JSON form; storage.delete removes a key")
	want := []string{
		`storage.get {"keys":["n"]}`, `storage.set {"key":"n","json":1}`, `storage.get {"keys":["n"]}`, `storage.set {"key":"n","json":2}`,
		`storage.batch {"edits":[{"do":"set","key":"a","json":1},{"do":"check","key":"b","if":0}]}`, `storage.list {"reverse":false,"prefix":"x"}`,
		`storage.set {"key":"late","json":1}`,
	}
	if d := cmp.Diff(want, p.asked); d != "" {
		t.Error(d)
	}
}

func TestSQL(t *testing.T) {
	a := load(t, source(`
		import { Agent, sql } from "skep";
		const show = (v) => JSON.stringify(v, (_, x) => typeof x === "bigint" ? x + "n" : x instanceof Uint8Array ? "bytes " + x : x);
		export default class extends Agent {
			async rows(x) { return show(await this.sql`+"`SELECT * FROM t WHERE a = ${x} AND b = ${null} AND c=${2n**53n} AND d=${true} AND e=${1.5} AND f=${new Uint8Array([255])} AND g=${-0}`"+`) }
			async raw() { return show(await this.storage.sql.raw("SELECT ?", "é")) }
			async text() { return show(await sql("DELETE FROM t")) }
			bad(x) { return this.sql("SELECT ?", [undefined, NaN, {}, 2n ** 63n][x]) }
		}`))
	p := newHive("")
	p.rows = `{"columns":["i","big","r","t","b","n","__proto__"],"rows":[[{"int":"7"},{"int":"9007199254740993"},{"real":0.5},{"text":""},{"bytes":"/w=="},{},{"int":"1"}]],"changes":3}`
	p.want(t, a, "rows", "5", `[{"i":7,"big":"9007199254740993n","r":0.5,"t":"","b":"bytes 255","n":null,"__proto__":1}]`)
	p.want(t, a, "raw", "", `{"columns":["i","big","r","t","b","n","__proto__"],"rows":[[7,"9007199254740993n",0.5,"","bytes 255",null,1]],"changes":3}`)
	p.rows = `{"columns":null,"rows":null,"changes":1}`
	p.want(t, a, "text", "", `[]`)
	want := []string{
		`storage.sql {"query":"SELECT * FROM t WHERE a = ? AND b = ? AND c=? AND d=? AND e=? AND f=? AND g=?","params":[{"int":"5"},{},` +
			`{"int":"9007199254740992"},{"int":"1"},{"real":1.5},{"bytes":"/w=="},{"int":"0"}]}`,
		`storage.sql {"query":"SELECT ?","params":[{"text":"é"}]}`,
		`storage.sql {"query":"DELETE FROM t"}`,
	}
	if d := cmp.Diff(want, p.asked); d != "" {
		t.Error(d)
	}
	for in, want := range map[string]string{"0": "parameter 1 is undefined", "1": "parameter 1 is NaN", "2": "parameter 1 is an object", "3": "does not fit into 64 bits"} {
		p.wantError(t, a, "bad", in, want)
	}
	p.refuse[abi.CallStorageSQL] = agent.Errorf(agent.Invalid, "no such table: t")
	p.wantError(t, a, "text", "", "SkepError: no such table: t")
}

const counting = `
	import { Agent } from "skep";
	export default class extends Agent {
		initialState = { n: 1, list: [1] };
		seen = [];
		validateStateChange(next, source) { if (next.n < 0) throw new RangeError(source + ": below zero") }
		onStateChanged(state, source) { console.log(source, state.n) }
		read() { return [this.state, this.state === this.state, Object.isFrozen(this.state.list)] }
		add(n) { this.setState({ ...this.state, n: this.state.n + n }); return this.state.n }
		blind(n) { this.setState({ n }); this.setState({ n: n + 1 }); return this.state }
		mutate() { this.state.n = 5 }
		push() { this.state.list.push(5) }
		nothing() { this.setState(undefined) }
		async stale() {
			const before = this.state;
			await this.storage.get("x");
			try { this.setState({ n: before.n + 1 }) } catch (e) { return [e.kind, this.state.n, (this.setState({ n: 50 }), this.state.n)] }
		}
		viaContext(_, ctx) { ctx.setState({ n: 9 }); return ctx.state.n }
	}`

func TestSharedState(t *testing.T) {
	a := load(t, source(counting))
	p := newHive("")
	p.want(t, a, "read", "", `[{"n":1,"list":[1]},true,true]`)
	if d := cmp.Diff([]string{"shared.get"}, p.asked); d != "" {
		t.Error(d)
	}
	r := &recorder{}
	if got := result(t, a, Call{Function: "add", Input: js("2"), Calls: p.calls, Log: r.log}); got != "3" {
		t.Error(got)
	}
	if d := cmp.Diff([]string{"info: server 3"}, r.asked); d != "" {
		t.Error(d)
	}
	if got := string(p.state.State); got != `{"n":3,"list":[1]}` || p.state.Version != 1 {
		t.Error(got)
	}
	p.want(t, a, "add", "2", "5")
	p.want(t, a, "blind", "7", `{"n":8}`)
	p.want(t, a, "viaContext", "", "9")
	p.wantError(t, a, "add", "-20", "RangeError: server: below zero")
	p.wantError(t, a, "mutate", "", "TypeError: 'n' is read-only")
	p.wantError(t, a, "nothing", "", "TypeError: setState: undefined has no JSON form")
	want := []string{
		`shared.set {"state":{"n":3,"list":[1]},"if":0}`, `shared.set {"state":{"n":5,"list":[1]},"if":1}`,
		`shared.set {"state":{"n":7}}`, `shared.set {"state":{"n":8},"if":3}`, `shared.set {"state":{"n":9}}`,
	}
	if d := cmp.Diff(want, p.did(abi.CallSharedSet)); d != "" {
		t.Error(d)
	}
	p.state.State = abi.Raw(`{"n":1,"list":[]}`)
	p.wantError(t, a, "push", "", "TypeError: ")
}

// TestStateOfARun has another turn change the state while code waits: what the code saw is stale, and cannot be lost.
func TestStateOfARun(t *testing.T) {
	a := load(t, source(counting))
	p := newHive("r1")
	w := newWorld()
	call := func(resume []byte, deliver ...Delivery) Call {
		c := w.call("stale", resume, deliver...)
		c.Calls = p.calls
		return c
	}
	p.state = abi.Shared{State: abi.Raw(`{"n":1}`), Version: 4}
	s := run(t, a, call(nil))
	p.state = abi.Shared{State: abi.Raw(`{"n":10}`), Version: 5}
	res, err := a.Run(t.Context(), call(s.Snapshot, Delivery{ID: 2, Name: abi.CallStorageGet, Out: []byte(`{"entries":[]}`)}))
	if want := `["conflict",10,50]`; err != nil || string(res.Output.Body) != want {
		t.Errorf("%s, %v, want %s", res.Output.Body, err, want)
	}
}

func TestClientSetsState(t *testing.T) {
	a := load(t, source(counting))
	p := newHive("")
	p.want(t, a, abi.FunctionSetState, `{"state":{"n":5},"source":"c1"}`, `{"version":1}`)
	p.want(t, a, abi.FunctionSetState, `{"state":{"n":6},"source":"c1","if":1}`, `{"version":2}`)
	p.wantError(t, a, abi.FunctionSetState, `{"state":{"n":7},"source":"c1","if":1}`, "SkepError: the state has version 2, not 1")
	p.wantError(t, a, abi.FunctionSetState, `{"state":{"n":-1},"source":"c1"}`, "RangeError: c1: below zero")
	if got := string(p.state.State); got != `{"n":6}` {
		t.Error(got)
	}
	b := load(t, source(`export const initialState = { n: 1 }; export const validateStateChange = (s) => { if (s.n > 9) throw new Error("too much") }; export const state = (_, ctx) => ctx.state`))
	p = newHive("")
	p.want(t, b, "state", "", `{"n":1}`)
	p.want(t, b, abi.FunctionConnect, `{"socket":{"id":"c1"}}`, `null`)
	if got := string(p.state.State); got != `{"n":1}` {
		t.Error("a client that connects sees the initial state:", got)
	}
	p.wantError(t, b, abi.FunctionSetState, `{"state":{"n":10},"source":"c1"}`, "Error: too much")
	c := load(t, source(`export default { async validateStateChange() {}, f() {} }`))
	p.wantError(t, c, abi.FunctionSetState, `{"state":1,"source":"c1"}`, "validateStateChange must not be async")
}

func TestSchedule(t *testing.T) {
	a := load(t, source(`
		import { Agent } from "skep";
		export default class extends Agent {
			onAlarm() {} remind() {}
			async all() {
				const out = [await this.schedule(90, "remind", { a: 1 }), await this.schedule(new Date(5000)), await this.schedule("0 9 * * *", "remind", undefined, { name: "daily", keep: true, overlap: "queue", missed: "all" }),
					await this.schedule({ cron: "@daily", zone: "Europe/Rome" }, "remind", null, { name: "zoned" }), await this.schedule({ at: new Date(7000) }, "remind", 0, { name: "at", retry: { attempts: 3, delay: 1.5, maxDelay: 60 } }),
					await this.schedule({ delay: 0 }, "remind", 1, { name: "now" }), await this.scheduleEvery(60, "remind", [], { name: "each" })];
				return out.map((s) => s.name + (s.at instanceof Date) + (s.every ?? "") + (s.cron ?? "")).join();
			}
			async more() {
				return [(await this.listSchedules()).map((s) => s.name).join(), (await this.getSchedule("daily")).cron, await this.getSchedule("dail") ?? null, await this.getSchedule("zz") ?? null,
					await this.cancelSchedule("daily"), await this.cancelSchedule("daily")];
			}
			async one() { await this.setAlarm(new Date(9000)); const at = await this.getAlarm(); await this.deleteAlarm(); return [at, await this.getAlarm()] }
			bad(w) { return this.schedule(w === "date" ? new Date(NaN) : w, "remind") }
			missing() { return this.schedule(1, "reminf") }
		}`))
	p := newHive("")
	p.want(t, a, "all", "", `made-uptrue,made-uptrue,dailytrue0 9 * * *,zonedtrue@daily,attrue,nowtrue,eachtrue60`)
	want := []string{
		`alarm.set {"method":"remind","delay":90000,"payload":{"a":1}}`,
		`alarm.set {"method":"onAlarm","at":5000}`,
		`alarm.set {"method":"remind","cron":"0 9 * * *","name":"daily","keep":true,"overlap":"queue","missed":"all"}`,
		`alarm.set {"method":"remind","cron":"@daily","zone":"Europe/Rome","payload":null,"name":"zoned"}`,
		`alarm.set {"method":"remind","at":7000,"payload":0,"name":"at","retry":{"attempts":3,"delay":1500,"max_delay":60000}}`,
		`alarm.set {"method":"remind","delay":1,"payload":1,"name":"now"}`,
		`alarm.set {"method":"remind","every":60000,"payload":[],"name":"each"}`,
	}
	if d := cmp.Diff(want, p.did(abi.CallAlarmSet)); d != "" {
		t.Error(d)
	}
	p.want(t, a, "more", "", `["at,daily,each,made-up,now,zoned","0 9 * * *",null,null,true,false]`)
	p.want(t, a, "one", "", `[9000,null]`)
	for _, in := range []string{`-1`, `null`, `{}`, `{"every":"5"}`, `"date"`} {
		if in == `"date"` {
			p.wantError(t, a, "bad", in, "a time is a valid Date")
		} else {
			p.wantError(t, a, "bad", in, "TypeError: schedule: ")
		}
	}
	p.wantError(t, a, "missing", "", `schedule: the agent has no method "reminf"`)
}

const stepping = `
	import { Agent, NonRetryableError, step, waitForEvent, sleep, sleepUntil, emit } from "skep";
	const flaky = (n) => { let left = n; return async (c) => { if (left-- > 0) throw new Error("try " + c.attempt); return "done by " + c.attempt } };
	export default class extends Agent {
		async twice() { return [await this.step("a", () => 1), await this.step.do("a", async () => 2), await step("b", (c) => c.step.name)] }
		retried(r) { return this.step("flaky", { retries: { ...r, limit: 3 } }, flaky(2)) }
		given(n) { return this.step("flaky", { retries: n }, flaky(9)) }
		final() { return this.step("f", { retries: 5 }, () => { throw new NonRetryableError("no use") }) }
		async slow() { try { await this.step("slow", { timeout: "1 minute" }, () => new Promise(() => {})) } catch (e) { return [e.name, e.kind, e.message] } }
		quick() { return this.step("quick", { timeout: 1000 }, async () => "in time") }
		async waits() { await this.sleep("2 days"); await sleepUntil(new Date(5)); await this.step.sleep("nap", 1500.2); await sleep(0); return "awake" }
		async events() { return [await this.waitForEvent("paid"), (await this.step.waitForEvent("x", { type: "paid", timeout: "1 hour" })).payload] }
		async late() { try { await waitForEvent("paid", { timeout: 5 }) } catch (e) { return [e.name, e.kind, e.message] } }
		async undone(fail) {
			await this.step("one", () => 1, { rollback: ({ output, error, attempt }) => { emit("undo one", [output, error.message, attempt]) } });
			await this.step("two", { retries: 1 }, () => 2, { rollback: () => { throw new Error("cannot") } });
			await this.step("three", { rollback: async ({ output }) => { await this.sleep(5); emit("undo three", output) } }, () => 3);
			if (fail === "sync") throw new TypeError("broken");
			return this.waitForEvent("never");
		}
		syncFail() { throw new Error("at once") }
		bad(w) { return w === 1 ? this.step("", () => {}) : w === 2 ? this.step("x") : w === 3 ? this.step("x", { retries: { backoff: "odd" } }, () => {}) : this.sleep("soon") }
	}`

func TestSteps(t *testing.T) {
	a := load(t, source(stepping))
	p := newHive("r1")
	p.answer[abi.CallSleep] = ""
	p.want(t, a, "twice", "", `[1,2,"b"]`)
	want := []string{
		`step.begin {"name":"a","attempt":1}`, `step.end {"name":"a","attempt":1}`, `step.begin {"name":"a#2","attempt":1}`,
		`step.end {"name":"a#2","attempt":1}`, `step.begin {"name":"b","attempt":1}`, `step.end {"name":"b","attempt":1}`,
	}
	if d := cmp.Diff(want, p.asked); d != "" {
		t.Error(d)
	}
	for in, want := range map[string][]string{
		`{}`:                               {`run.sleep {"for":10000}`, `run.sleep {"for":20000}`},
		`{"delay":"1 second"}`:             {`run.sleep {"for":1000}`, `run.sleep {"for":2000}`},
		`{"delay":100,"backoff":"linear"}`: {`run.sleep {"for":100}`, `run.sleep {"for":200}`},
		`{"delay":"1.5 minutes","backoff":"constant"}`: {`run.sleep {"for":90000}`, `run.sleep {"for":90000}`},
	} {
		p.asked = nil
		p.want(t, a, "retried", in, "done by 3")
		if d := cmp.Diff(want, p.did(abi.CallSleep)); d != "" {
			t.Error(in, d)
		}
		if d := cmp.Diff(`step.end {"name":"flaky","attempt":1,"error":"Error: try 1"}`, p.did(abi.CallStepEnd)[0]); d != "" {
			t.Error(d)
		}
	}
	p.asked = nil
	p.wantError(t, a, "given", "2", "Error: try 3")
	p.wantError(t, a, "final", "", "NonRetryableError: no use")
	if n := len(p.did(abi.CallStepBegin)); n != 4 {
		t.Errorf("%d attempts", n)
	}
	for in, want := range map[string]string{"1": "the step's name", "2": "a function is required", "3": "retries.backoff is", "4": `a text such as "10 seconds"`} {
		p.wantError(t, a, "bad", in, want)
	}
	// Outside of an instance's run the cell keeps the time itself.
	o := newHive("")
	o.want(t, a, "retried", `{"delay":1}`, "done by 3")
	if d := cmp.Diff([]string(nil), o.did(abi.CallSleep)); d != "" {
		t.Error(d)
	}
}

func TestWaits(t *testing.T) {
	a := load(t, source(stepping))
	p := newHive("r1")
	p.answer[abi.CallSleep], p.answer[abi.CallWait] = "", `{"data":{"by":"ada"}}`
	p.want(t, a, "waits", "", "awake")
	p.want(t, a, "slow", "", `["TimeoutError","unavailable","step \"slow\" took longer than 60000 ms"]`)
	p.want(t, a, "events", "", `[{"by":"ada"},{"by":"ada"}]`)
	want := []string{
		`run.sleep {"for":172800000}`, `run.sleep {"until":5}`, `run.sleep {"for":1501}`, `run.sleep {"for":60000}`,
		`run.wait {"type":"paid"}`, `run.wait {"type":"paid","timeout":3600000}`,
	}
	if d := cmp.Diff(want, p.did(abi.CallSleep, abi.CallWait)); d != "" {
		t.Error(d)
	}
	p.answer[abi.CallWait] = `{"timed_out":true}`
	p.want(t, a, "late", "", `["TimeoutError","unavailable","no event \"paid\" came in 5 ms"]`)
	delete(p.answer, abi.CallSleep)
	p.want(t, a, "quick", "", "in time") // and its timer is given up
}

func TestRollback(t *testing.T) {
	a := load(t, source(stepping))
	for _, how := range []string{"sync", "cancelled"} {
		p, r := newHive("r1"), &recorder{}
		p.answer[abi.CallSleep] = ""
		p.refuse[abi.CallWait] = agent.Errorf(agent.Cancelled, "the run was terminated")
		_, _, err := a.Call(t.Context(), Call{Function: "undone", Input: js(`"` + how + `"`), Calls: p.calls, Log: r.log})
		want := map[string]string{"sync": "TypeError: broken", "cancelled": "SkepError: the run was terminated"}[how]
		if err == nil || agent.AsError(err).Msg != want {
			t.Errorf("%v, want %s", err, want)
		}
		reason := strings.SplitN(want, ": ", 2)[1]
		marks := []string{
			`step.begin {"name":"three","attempt":1,"rollback":true}`, `run.sleep {"for":5}`, `emit {"name":"undo three","data":3}`,
			`step.end {"name":"three","attempt":1,"rollback":true}`,
			`step.begin {"name":"two","attempt":1,"rollback":true}`, `step.end {"name":"two","attempt":1,"error":"Error: cannot","rollback":true}`,
			`step.begin {"name":"one","attempt":1,"rollback":true}`, `emit {"name":"undo one","data":[1,"` + reason + `",1]}`,
			`step.end {"name":"one","attempt":1,"rollback":true}`,
		}
		asked := p.did("step", "run.sleep", "emit")
		if d := cmp.Diff(marks, asked[len(asked)-len(marks):]); d != "" {
			t.Error(d)
		}
		if len(r.asked) != 1 || !strings.Contains(r.asked[0], `Uncaught (in the rollback of step "two") Error: cannot`) {
			t.Error(r.asked)
		}
	}
	newHive("r1").wantError(t, a, "syncFail", "", "Error: at once")
}

// TestUndoingIsSuspended has a run wait while it takes back what it has done.
func TestUndoingIsSuspended(t *testing.T) {
	a := load(t, source(stepping))
	p, w := newHive("r1"), newWorld()
	p.refuse[abi.CallWait] = agent.Errorf(agent.Cancelled, "terminated")
	call := w.call("undone", nil)
	call.Input, call.Calls = js(`"x"`), p.calls
	call.Waiting.Rest = func(_ context.Context, p Pending) bool { return len(p.Calls) == 1 && p.Calls[0].Name == abi.CallSleep }
	s := run(t, a, call)
	again := w.call("", s.Snapshot, Delivery{ID: s.Pending.Calls[0].ID, Name: abi.CallSleep})
	again.Calls = p.calls
	_, err := a.Run(t.Context(), again)
	if err == nil || agent.AsError(err).Msg != "SkepError: terminated" {
		t.Error(err)
	}
	if n := len(p.did(`emit {"name":"undo`)); n != 2 {
		t.Error(p.asked)
	}
}
