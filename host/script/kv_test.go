package script

import (
	"context"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

const keeping = `
	import { Agent, kv } from "skep";
	const show = (v: any) => v === undefined ? "undefined" : v instanceof Uint8Array ? "bytes " + v : JSON.stringify(v);
	export const get = async (k: string) => show(await kv.get(k));
	export const getMany = async (ks: string[]) => (await kv.getMany(ks)).map(show).join();
	export const entry = async (k: string) => show(await kv.getEntry(k));
	export const set = async (v: any) => await kv.set("k", v);
	export const setBytes = async () => kv.set("k", new Uint16Array([1, 255]), { ifVersion: 3 });
	export const setNothing = async () => kv.set("k", undefined);
	export const setLone = async () => kv.set("\ud800", 1);
	export const remove = async () => show(await kv.delete("k", { ifVersion: 0 }));
	export const cas = async (k: string) => show(await kv.compareAndSet(k, 4, null));
	export const batch = async () => kv.batch([{ op: "set", key: "a", value: "t" }, { op: "delete", key: "b" }, { op: "check", key: "c", ifVersion: 0 }]);
	export const badBatch = async () => kv.batch([{ op: "drop", key: "a" }]);
	export const list = async (o: any) => { const p = await kv.list(o); return [p.entries.map((e) => e.key + e.version + show(e.value)).join(), p.after ?? null] };
	export const walk = async (o: any) => { let s = ""; for await (const e of kv.entries(o)) s += e.key; return s };
	export default class extends Agent { async viaThis() { return show(await this.kv.get("j")) } viaContext(_: any, ctx: any) { return ctx.kv === kv && Object.isFrozen(kv) } }
`

// state answers as a state would that has fixed entries, and keeps what it is asked.
type state struct{ asked []string }

func (s *state) answer(_ context.Context, name string, in []byte) ([]byte, error) {
	s.asked = append(s.asked, name+" "+string(in))
	entries := map[string]string{
		"j": `{"key":"j","version":1,"type":"application/json","json":{"a":null}}`, "n": `{"key":"n","version":2,"type":"application/json","json":null}`,
		"t": `{"key":"t","version":3,"type":"text/plain; charset=utf-8","text":"é"}`, "e": `{"key":"e","version":4,"type":"text/plain"}`,
		"b": `{"key":"b","version":5,"type":"x/y","base64":"/w=="}`, "z": `{"key":"z","version":6,"type":"x/y"}`,
	}
	switch name {
	case abi.CallStateGet:
		var found []string
		for _, k := range []string{"j", "n", "t", "e", "b", "z"} {
			if strings.Contains(string(in), `"`+k+`"`) {
				found = append(found, entries[k])
			}
		}
		return []byte(`{"entries":[` + strings.Join(found, ",") + `]}`), nil
	case abi.CallStateList:
		if strings.Contains(string(in), `"after":"j"`) {
			return []byte(`{"entries":[` + entries["n"] + `]}`), nil
		}
		return []byte(`{"entries":[` + entries["b"] + "," + entries["j"] + `],"after":"j"}`), nil
	}
	if strings.Contains(string(in), "taken") {
		return nil, agent.Errorf(agent.Conflict, "state key has version 9, not 4")
	}
	if strings.Contains(string(in), "full") {
		return nil, agent.Exceeded(agent.LimitState, "full")
	}
	return []byte(`{"version":8}`), nil
}

func TestKV(t *testing.T) {
	a := load(t, source(keeping))
	for _, tt := range []struct{ fn, in, want, asked string }{
		{"get", `"j"`, `{"a":null}`, `state.get {"keys":["j"]}`},
		{"get", `"n"`, `null`, ``},
		{"get", `"t"`, `"é"`, ``},
		{"get", `"e"`, `""`, ``},
		{"get", `"b"`, `bytes 255`, ``},
		{"get", `"z"`, `bytes `, ``},
		{"get", `"none\"\n"`, `undefined`, `state.get {"keys":["none\"\n"]}`},
		{"getMany", `["none","j","x","t"]`, `undefined,{"a":null},undefined,"é"`, `state.get {"keys":["none","j","x","t"]}`},
		{"entry", `"n"`, `{"key":"n","value":null,"version":2}`, ``},
		{"entry", `"none"`, `undefined`, ``},
		{"set", `{"a":[1]}`, `8`, `state.set {"key":"k","json":{"a":[1]}}`},
		{"set", `"é\n"`, `8`, `state.set {"key":"k","text":"é\n"}`},
		{"set", `null`, `8`, `state.set {"key":"k","json":null}`},
		{"setBytes", ``, `8`, `state.set {"key":"k","base64":"AQD/AA==","if":3}`},
		{"remove", ``, `undefined`, `state.delete {"key":"k","if":0}`},
		{"cas", `"free"`, `8`, `state.set {"key":"free","json":null,"if":4}`},
		{"cas", `"taken"`, `undefined`, ``},
		{"batch", ``, `8`, `state.batch {"edits":[{"do":"set","key":"a","text":"t"},{"do":"delete","key":"b"},{"do":"check","key":"c","if":0}]}`},
		{"list", `{"prefix":"p","start":"s","end":"e","limit":2,"reverse":true}`, `["b5bytes 255,j1{\"a\":null}","j"]`,
			`state.list {"reverse":true,"prefix":"p","start":"s","end":"e","limit":2}`},
		{"list", ``, `["b5bytes 255,j1{\"a\":null}","j"]`, `state.list {"reverse":false}`},
		{"walk", `{"limit":2}`, `bj`, ``},
		{"walk", ``, `bjn`, ``},
		{"viaThis", ``, `{"a":null}`, ``},
		{"viaContext", ``, `true`, ``},
	} {
		s := &state{}
		got := result(t, a, Call{Function: tt.fn, Input: js(tt.in), Calls: s.answer})
		if got != tt.want || tt.asked != "" && strings.Join(s.asked, "\n") != tt.asked {
			t.Errorf("%s(%s): got %s, want %s; asked %q, want %q", tt.fn, tt.in, got, tt.want, s.asked, tt.asked)
		}
	}
	for fn, want := range map[string]string{
		"setNothing": "TypeError: kv: undefined has no JSON form", "setLone": `TypeError: kv: a key is a string of Unicode characters, not "\ud800"`,
		"badBatch": `TypeError: kv.batch: the op of edit 1 must be`,
	} {
		s := &state{}
		_, _, err := a.Call(t.Context(), Call{Function: fn, Calls: s.answer})
		if err == nil || !strings.HasPrefix(agent.AsError(err).Msg, want) || len(s.asked) > 0 {
			t.Errorf("%s: %v, want %s; asked %q", fn, err, want, s.asked)
		}
	}
	_, _, err := a.Call(t.Context(), Call{Function: "set", Input: js(`"full"`), Calls: (&state{}).answer})
	if e := agent.AsError(err); err == nil || e.Msg != "SkepError: full" || e.Pos.Line != 7 {
		t.Errorf("%v at %v", err, e.Pos)
	}
	if _, err := engine.Load(t.Context(), source(`import { kv } from "skep"; await kv.get("k"); export const f = 1`), nil); err == nil ||
		!strings.Contains(err.Error(), "not available while the module loads") {
		t.Errorf("while loading: %v", err)
	}
}

// BenchmarkKV reads a key of 1 KB, many times in one call.
func BenchmarkKV(b *testing.B) {
	a := load(b, source(`import { kv } from "skep"; export async function run(n: number) { for (let i = 0; i < n; i++) await kv.get("k"); return n }`))
	reply := []byte(`{"entries":[{"key":"k","version":1,"type":"application/json","json":{"text":"` + strings.Repeat("x", 1000) + `"}}]}`)
	call := Call{Function: "run", Input: js("100"), Calls: func(context.Context, string, []byte) ([]byte, error) { return reply, nil }}
	for b.Loop() {
		if _, _, err := a.Call(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/get")
}
