package script

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

const chatting = `
	import { Agent, broadcast, connections } from "skep";
	export default class extends Agent {
		async onConnect(connection, { request }) {
			console.log("connect", connection.id, connection.tags.join(), connection.attachment ?? "none", request.url, request.headers.get("x-a"));
			await connection.setTags(["room", "x"]);
			await connection.attach({ name: "ada" });
			connection.send(connection.state.name + connection.tags.length);
		}
		onSocketMessage(connection, data) {
			console.log("message", typeof data === "string" ? data : "bytes " + data);
			if (data === "bye") return connection.close(4000, "enough");
			if (data === "boom") throw new Error("boom");
			this.broadcast({ said: data.length }, { tag: "room", except: connection });
			broadcast(new Uint8Array([1, 255]), { except: ["c7", connection] });
		}
		onClose(connection, code, reason) { console.log("close", connection.id, code, reason) }
		async names() { return (await this.connections("room")).map((c) => c.id + JSON.stringify(c)).join() + (await connections()).length }
		bad() { return this.broadcast(undefined) }
		chain() { (async () => { await broadcast("1"); await Promise.resolve(); await broadcast("2"); this.agent("log", "k", { send: true }).note("3") })(); return "returned" }
		failing() { broadcast("lost"); throw new Error("undone") }

		add(a, b, c = 3) { return a + b + c }
		nothing() {}
		*sync() { yield 1 }
		async *count(n) { for (let i = 0; i < n; i++) yield { i }; return "end" }
		stream() { return new Blob(["é€"]).stream() }
		async fails() { throw new RangeError("no") }
	}
	export const plain = (x, ctx) => [x, typeof ctx?.emit];
	export const two = (a, b) => [a, b];`

func TestSockets(t *testing.T) {
	a := load(t, source(chatting))
	p, r := newHive(""), &recorder{}
	call := func(fn string, e abi.SocketEvent) {
		t.Helper()
		in, _ := json.Marshal(e)
		if got := result(t, a, Call{Function: fn, Input: agent.JSON(in), Calls: p.calls, Log: r.log}); got != "null" {
			t.Errorf("%s: %s", fn, got)
		}
	}
	s := abi.Socket{ID: "c1", Tags: []string{"t"}, Attachment: abi.Raw(`5`)}
	hello, bye := "héllo", "bye"
	opened := s
	opened.URL, opened.Header = "wss://h/x?y", [][2]string{{"X-A", "b"}}
	call(abi.FunctionConnect, abi.SocketEvent{Socket: opened})
	call(abi.FunctionMessage, abi.SocketEvent{Socket: s, Text: &hello})
	call(abi.FunctionMessage, abi.SocketEvent{Socket: s, Base64: []byte{1, 2}})
	call(abi.FunctionMessage, abi.SocketEvent{Socket: s, Text: &bye})
	call(abi.FunctionClose, abi.SocketEvent{Socket: s, Code: 1001, Reason: "away"})
	call(abi.FunctionClose, abi.SocketEvent{Socket: s})
	want := []string{
		`socket.attach {"id":"c1","tags":["room","x"]}`, `socket.attach {"id":"c1","attachment":{"name":"ada"}}`,
		`socket.send {"to":["c1"],"text":"ada2"}`,
		`socket.send {"tag":"room","except":["c1"],"text":"{\"said\":5}"}`, `socket.send {"except":["c7","c1"],"base64":"Af8="}`,
		`socket.send {"tag":"room","except":["c1"],"text":"{\"said\":2}"}`, `socket.send {"except":["c7","c1"],"base64":"Af8="}`,
		`socket.close {"id":"c1","code":4000,"reason":"enough"}`,
	}
	slices.Sort(want)
	got := p.did("socket")
	slices.Sort(got) // two that are not awaited overlap
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	said := []string{
		"info: connect c1 t 5 wss://h/x?y b", "info: message héllo", "info: message bytes 1,2", "info: message bye",
		"info: close c1 1001 away", "info: close c1 1005 ",
	}
	if d := cmp.Diff(said, r.asked); d != "" {
		t.Error(d)
	}
	p.sockets = []abi.Socket{{ID: "c1", Tags: []string{"room"}}, {ID: "c2"}}
	p.want(t, a, "names", "", `c1{"id":"c1","tags":["room"]},c2{"id":"c2","tags":[]}2`)
	p.wantError(t, a, abi.FunctionMessage, `{"socket":{"id":"c1"},"text":"boom"}`, "Error: boom")
	p.wantError(t, a, "bad", "", "send: undefined has no JSON form")
	// An agent without handlers hears nothing.
	result(t, load(t, source(`export const f = () => 1`)), Call{Function: abi.FunctionMessage, Input: js(`{"socket":{"id":"c1"},"text":"x"}`), Calls: p.calls})
}

// TestWhatIsNotAwaited has functions send and return: what they sent leaves nevertheless, but of one that failed.
func TestWhatIsNotAwaited(t *testing.T) {
	a := load(t, source(chatting))
	p := newHive("")
	var sent agent.Payload
	calls := func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if name != abi.CallAgent {
			return p.calls(ctx, name, in)
		}
		var c abi.AgentCall
		if err := json.Unmarshal(in, &c); err != nil || !c.Send || c.Key != "k" || c.Agent != "log" || c.Function != "note" {
			t.Errorf("%s", in)
		}
		sent = agent.Payload{Type: c.Type, Body: c.Input}
		return []byte(`{"type":""}`), ctx.Err()
	}
	for _, waiting := range []*Waiting{nil, {}} {
		p.asked, sent = nil, agent.Payload{}
		res, err := a.Run(t.Context(), Call{Function: "chain", Calls: calls, Waiting: waiting})
		if err != nil || string(res.Output.Body) != "returned" || string(sent.Body) != "3" {
			t.Errorf("%s, %v, sent %s", res.Output.Body, err, sent.Body)
		}
		if d := cmp.Diff([]string{`socket.send {"text":"1"}`, `socket.send {"text":"2"}`}, p.asked); d != "" {
			t.Error(d)
		}
	}
	p.wantError(t, a, "failing", "", "Error: undone")
}

func TestRPC(t *testing.T) {
	a := load(t, source(chatting))
	p := newHive("")
	rpc := func(method, args string) string {
		return `{"method":"` + method + `","args":` + args + `,"connection":"c1","id":"q1"}`
	}
	for _, c := range []struct{ method, args, want string }{
		{"add", `[1,2]`, `{"done":6}`}, {"add", `[1,2,"x"]`, `{"done":"3x"}`}, {"nothing", `[]`, `{"done":null}`},
		{"plain", `[7]`, `{"done":[7,"function"]}`}, {"two", `[1,2]`, `{"done":[1,2]}`}, {"count", `[2]`, `{"done":"end"}`}, {"stream", `[]`, `{"done":null}`},
	} {
		p.want(t, a, abi.FunctionRPC, rpc(c.method, c.args), c.want)
	}
	frame := func(result string) string {
		text, _ := json.Marshal(`{"type":"rpc","id":"q1","success":true,"done":false,"result":` + result + `}`)
		return `socket.send {"to":["c1"],"text":` + string(text) + `}`
	}
	if d := cmp.Diff([]string{frame(`{"i":0}`), frame(`{"i":1}`), frame(`"é€"`)}, p.asked); d != "" {
		t.Error(d)
	}
	p.wantError(t, a, abi.FunctionRPC, rpc("fails", `[]`), "RangeError: no")
	for _, method := range []string{"onClose", "onConnect", "skep:rpc", "setState", "toString", "constructor", "fetch", "", "broadcast", "validateStateChange"} {
		p.wantError(t, a, abi.FunctionRPC, rpc(method, `[]`), `there is no method "`+method+`"`)
	}
}

func TestReservedFunctions(t *testing.T) {
	a := load(t, source(`
		const f = () => "the author's";
		export { f as "skep:rpc", f as "skep:mine" };
		export default class { onStart() {} onUpgrade() {} onAlarm() {} onConnect() {} onSocketMessage() {} onClose() {} validateStateChange() {} onStateChanged() {} initialState() {} go() {} "skep:close"() { return 1 } }`))
	names := a.Exports()
	for _, name := range names {
		if abi.Reserved(name) || strings.HasPrefix(name, "skep:") {
			t.Errorf("an author's code has %s", name)
		}
		if abi.Handler(name) == (name == "go") {
			t.Errorf("%s: handler %v", name, abi.Handler(name))
		}
	}
	if len(names) != 10 {
		t.Error(names)
	}
	for code, want := range map[string]bool{
		`import { Agent } from "skep"; class Base extends Agent { initialState = { n: 1 } } export default class extends Base { f() {} }`: true,
		`import { Agent } from "skep"; export default class extends Agent { f() {} }`:                                                     false,
		`export default { initialState: 0, f() {} }`:                                                                                      true,
		`export const initialState = []; export const f = () => 1`:                                                                        true,
		`export const f = () => 1; export default class { f() { return 1 } }`:                                                             false,
	} {
		if got := slices.Contains(load(t, source(code)).Exports(), "initialState"); got != want {
			t.Errorf("%s: says %v", code, got)
		}
	}
	p := newHive("")
	p.want(t, a, abi.FunctionClose, `{"socket":{"id":"c"}}`, "null")
	if _, _, err := a.Call(t.Context(), Call{Function: "skep:mine", Input: js("1")}); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
}

func TestInstancesAndRuns(t *testing.T) {
	a := load(t, source(`
		import { Agent, run, child } from "skep";
		export default class extends Agent {
			calls() {
				return Promise.all([this.agent("room", "k").say(1), this.agent("room", "k", { send: true }).say(2), this.child("c").say(3), child("room2", "c").say(4),
					this.child("c", { send: true }).say(5), this.agent("room").say(6)]).then((l) => l.map((v) => v ?? null));
			}
			async start() {
				const h = await this.run("work", { a: 1 });
				const other = await run("work", new Uint8Array([1]), { agent: "b", key: "k" });
				await run("work");
				return [h.id, h.sessionId, await h.result(), await other.result()];
			}
			ends() { return Promise.all([this.deleteChild("c"), this.deleteChild("b", "c")]).then(() => "ended") }
			bad(n) { return n === 1 ? this.agent("x", "").say() : n === 2 ? this.run() : this.deleteChild() }
		}`))
	p := newHive("r1")
	p.answer[abi.CallAgent], p.answer[abi.CallResult] = `{"type":"application/json","output":"N30="}`, `{"type":"text/plain","output":"b2s="}`
	p.answer[abi.CallAgent] = `{"type":"application/json","output":"Nw=="}`
	p.answer[abi.CallStart] = `{"run":"R","session":"S"}`
	p.want(t, a, "calls", "", `[7,null,7,7,null,7]`)
	got := p.did(abi.CallAgent)
	slices.Sort(got)
	call := func(name, key, input, more string) string {
		if key != "" {
			key = `,"key":"` + key + `"`
		}
		return `agent {"agent":"` + name + `","function":"say","type":"application/json","input":"` + input + `"` + key + more + `}`
	}
	want := []string{
		call("room", "k", "MQ==", ""), call("room", "k", "Mg==", `,"send":true`), call("room", "c", "Mw==", `,"child":true`),
		call("room2", "c", "NA==", `,"child":true`), call("room", "c", "NQ==", `,"child":true,"send":true`), call("room", "", "Ng==", ""),
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	p.want(t, a, "start", "", `["R","S","ok","ok"]`)
	p.want(t, a, "ends", "", `ended`)
	want = []string{
		`child.delete {"key":"c"}`, `child.delete {"agent":"b","key":"c"}`,
		`run.result {"run":"R"}`, `run.result {"run":"R"}`,
		`run.start {"function":"work","type":"application/json","input":"eyJhIjoxfQ=="}`,
		`run.start {"agent":"b","key":"k","function":"work","type":"application/octet-stream","input":"AQ=="}`, `run.start {"function":"work"}`,
	}
	got = p.did("run.", "child.")
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for in, want := range map[string]string{"1": "the key of an instance is a text", "2": "run: the first argument", "3": "deleteChild: the key"} {
		p.wantError(t, a, "bad", in, want)
	}
	p.refuse[abi.CallResult] = agent.Errorf(agent.Failed, "Error: it broke")
	p.wantError(t, a, "start", "", "SkepError: Error: it broke")
}

const approving = `
	import { Agent } from "skep";
	export default class extends Agent {
		initialState = { done: 0 };
		async work() {
			const [charge, ok] = await Promise.all([
				this.step("charge", { timeout: "1 hour", retries: 2 }, async () => { await this.sleep(1000); this.setState({ done: this.state.done + 1 }); return "charged" }),
				this.waitForEvent("approved", { timeout: "2 days" }),
			]);
			await this.storage.set("charge", charge);
			return { charge, ok, done: this.state.done, key: this.key };
		}
	}`

// TestSuspendedInAStep suspends a run that is in a step and waits for an event, and goes on in cells of their own.
func TestSuspendedInAStep(t *testing.T) {
	a := load(t, source(approving))
	var first []byte
	var numbers map[uint64]string
	for n := range 3 {
		p, w := newHive("r1"), newWorld()
		life := func(resume []byte, deliver ...Delivery) Result {
			c := w.call("work", resume, deliver...)
			c.Calls = p.calls
			if resume != nil {
				c.Function = ""
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			res, err := a.Run(ctx, c)
			if err != nil {
				t.Fatal(err, agent.AsError(err).Stack)
			}
			return res
		}
		s := life(nil).Suspended
		var names []string
		for _, c := range s.Pending.Calls {
			names = append(names, c.Name+" "+string(c.Input))
		}
		want := []string{`run.sleep {"for":1000}`, `run.sleep {"for":3600000}`, `run.wait {"type":"approved","timeout":172800000}`}
		if d := cmp.Diff(want, names); d != "" {
			t.Fatal(d)
		}
		id := func(n int) (uint64, string) { return s.Pending.Calls[n].ID, s.Pending.Calls[n].Name }
		journal := []Delivery{{Out: nil}, {Out: []byte(`{"data":{"by":"ada"}}`)}}
		journal[0].ID, journal[0].Name = id(0)
		journal[1].ID, journal[1].Name = id(2)
		switch n {
		case 0: // one life after the other
			s = life(s.Snapshot, journal[0]).Suspended
			s = life(s.Snapshot, journal[1]).Suspended
		default: // from the beginning
			p, w = newHive("r1"), newWorld()
			s = life(nil, journal...).Suspended
		}
		if n == 0 {
			first, numbers = s.Snapshot, p.numbers
			if len(s.Pending.Calls) != 1 || s.Pending.Calls[0].Name != abi.CallStorageSet {
				t.Errorf("the step's timer is given up: %+v", s.Pending.Calls)
			}
			continue
		}
		if !bytes.Equal(s.Snapshot, first) {
			t.Error("a replay comes to another state")
		}
		for number, name := range p.numbers {
			if numbers[number] != name {
				t.Errorf("call %d is %s in a replay, and was %s", number, name, numbers[number])
			}
		}
		if p.state.Version != 1 || len(p.did(abi.CallStepBegin)) != 1 || len(p.did(abi.CallStepEnd)) != 1 {
			t.Error("a replay makes again what is answered at once:", p.asked)
		}
		res := life(s.Snapshot, Delivery{ID: s.Pending.Calls[0].ID, Name: abi.CallStorageSet, Out: []byte(`{"version":2}`)})
		if want := `{"charge":"charged","ok":{"by":"ada"},"done":1,"key":"lobby"}`; string(res.Output.Body) != want {
			t.Errorf("got %s, want %s", res.Output.Body, want)
		}
	}
}
