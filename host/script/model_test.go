package script

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// models is a host that answers calls of models from a list, and notes what it is asked.
type models struct {
	mu      sync.Mutex
	asks    []string
	answers []string // of model.generate, or of model.read, in order; one that begins with "!" is an error
	closed  []string
	more    Calls
}

func (m *models) next() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) == 0 {
		return nil, agent.Errorf(agent.Unavailable, "the model has said all")
	}
	a := m.answers[0]
	m.answers = m.answers[1:]
	if msg, failed := strings.CutPrefix(a, "!"); failed {
		return nil, agent.Errorf(agent.Denied, "%s", msg)
	}
	return []byte(a), nil
}

func (m *models) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	switch name {
	case abi.CallModel, abi.CallModelOpen:
		var ask abi.ModelAsk
		if err := json.Unmarshal(in, &ask); err != nil {
			return nil, err
		}
		m.mu.Lock()
		m.asks = append(m.asks, string(in))
		m.mu.Unlock()
		if name == abi.CallModelOpen {
			return []byte(`{"id":7}`), nil
		}
		return m.next()
	case abi.CallModelRead:
		return m.next()
	case abi.CallModelClose:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closed = append(m.closed, string(in))
		return nil, nil
	case abi.CallModelList:
		return []byte(`{"models":[{"name":"@main"},{"name":"a/b","description":"B"}]}`), nil
	}
	if m.more != nil {
		return m.more(ctx, name, in)
	}
	return nil, agent.Errorf(agent.Denied, "%s was not granted", name)
}

func spoken(text string) string {
	return fmt.Sprintf(`{"id":"r","model":"p/m","stop":"end","content":[{"type":"text","text":%q}],"usage":{"input":3,"cache_read":1,"output":2}}`, text)
}

func wants(calls ...string) string {
	return fmt.Sprintf(`{"id":"r","model":"p/m","stop":"tool","content":[{"type":"reasoning","text":"hm","opaque":"o","origin":{"a":1}},%s],"usage":{"input":1,"output":1}}`, strings.Join(calls, ","))
}

const modelUser = `
	import { Agent, model } from "skep";
	const add = { description: "Adds.", schema: { type: "object" }, run: ({ a, b }) => a + b };
	export const text = async () => { const a = await model.generate("Hello"); return [a.text, a.calls, a.stop, a.usage, a.model, JSON.stringify(a).includes("Hello")] };
	export const full = async (_, ctx) => (await ctx.model.generate({
		model: "@cheap", system: "S", messages: [{ role: "user", content: ["x", { type: "image", mime: "image/png", data: new Uint8Array([1, 2, 3]) }] }],
		tools: [{ name: "t", schema: { type: "object", properties: {} } }], choice: "t", maxTokens: 9, temperature: 0.5, topP: 0.1, stop: ["."], reasoning: "low",
		format: { name: "f", schema: {} }, user: "u", cache: true, show: "s",
	})).text;
	export const loop = async () => {
		const a = await model.generate({ prompt: "1+2", tools: { add, bad: { run() { throw new Error("broken") } } }, show: "x" });
		return [a.text, a.messages, a.usage.input];
	};
	export const byHand = async () => { const a = await model.generate({ prompt: "q", tools: { add: { schema: {} } } }); return [a.calls, a.text, a.reasoning, a.messages] };
	export const bounded = async () => (await model.generate({ prompt: "q", tools: { add }, maxSteps: 2 })).calls.length;
	export const pieces = async () => {
		const s = model.stream({ prompt: "q" }), all = [];
		for await (const p of s) all.push(p.type === "end" ? ["end", p.answer.text] : p.text ?? [p.id, p.name]);
		return [all, (await s.answer).text];
	};
	export const whole = async () => (await model.stream({ prompt: "q" }).answer).text;
	export const both = async () => {
		const s = model.stream({ prompt: "q" });
		const a = await s.answer, all = [];
		for await (const p of s) all.push(p.type);
		return [a.text, all];
	};
	export const early = async () => { for await (const p of model.stream("q")) return p.text };
	export const broken = async () => {
		const s = model.stream("q"), all = [];
		try { for await (const p of s) all.push(p.text) } catch (e) { all.push(e.kind, e.message) }
		try { await s.answer } catch (e) { all.push(e.message) }
		return all;
	};
	export const list = () => model.list();
	export const wrong = async () => {
		const all = [];
		for (const ask of [undefined, 1, {}, { prompt: "x", messages: [] }, { prompt: "x", max_tokens: 1 }, { messages: [1] }, { messages: [{ role: "user", content: 1 }] },
			{ messages: [{ role: "user", content: [1] }] }, { prompt: "x", tools: [{}] }, { prompt: "x", tools: { a: { run: 1 } } }, { prompt: "x", maxSteps: 0 }, { prompt: [{ type: "image", data: 1 }] }]) {
			try { await model.generate(ask); all.push("no error") } catch (e) { all.push(e.constructor === TypeError ? e.message.split(":").slice(1).join(":").trim().slice(0, 40) : String(e)) }
		}
		return all;
	};
	export default class extends Agent { async mine() { try { await this.model.generate("x") } catch (e) { return [e.name, e.kind, e.message] } } }
`

func TestModel(t *testing.T) {
	a := load(t, source(modelUser))
	call := `{"type":"tool-call","id":"c1","name":"add","args":{"a":1,"b":2}}`
	tests := []struct {
		function string
		answers  []string
		want     string
		asks     []string
	}{
		{"text", []string{spoken("Hi")}, `["Hi",[],"end",{"input":3,"cacheRead":1,"cacheWrite":0,"output":2,"reasoning":0},"p/m",false]`, []string{`{"messages":[{"role":"user","content":"Hello"}]}`}},
		{"full", []string{spoken("ok")}, "ok", []string{`{"model":"@cheap","system":"S","choice":"t","max_tokens":9,"temperature":0.5,"top_p":0.1,"stop":["."],"user":"u","cache":true,"show":"s",` +
			`"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","mime":"image/png","data":"AQID"}]}],"reasoning":{"effort":"low"},"format":{"name":"f","schema":{}},` +
			`"tools":[{"name":"t","schema":{"type":"object","properties":{}}}]}`}},
		{"loop", []string{wants(call, `{"type":"tool-call","id":"c2","name":"bad"}`, `{"type":"tool-call","id":"c3","name":"add","args":"{a:"}`), spoken("3")},
			`["3",[{"role":"assistant","content":[{"type":"reasoning","text":"hm","opaque":"o","origin":{"a":1}},` + call + `,{"type":"tool-call","id":"c2","name":"bad"},{"type":"tool-call","id":"c3","name":"add","args":"{a:"}]},` +
				`{"role":"user","content":[{"type":"tool-result","id":"c1","name":"add","result":"3"},{"type":"tool-result","id":"c2","name":"bad","result":"broken","failed":true},` +
				`{"type":"tool-result","id":"c3","name":"add","result":"the arguments are no JSON object","failed":true}]},` +
				`{"role":"assistant","content":[{"type":"text","text":"3"}]}],4]`,
			[]string{`"show":"x"`, `"show":"x.2"`}},
		{"byHand", []string{wants(call)}, `[[{"id":"c1","name":"add","args":{"a":1,"b":2}}],"","hm",[{"role":"assistant","content":[{"type":"reasoning","text":"hm","opaque":"o","origin":{"a":1}},` + call + `]}]]`, nil},
		{"bounded", []string{wants(call), wants(call), spoken("never")}, `1`, nil},
		{"pieces", []string{`{"pieces":[{"index":0,"type":"text","text":"He"},{"index":0,"type":"text","text":"llo"}]}`,
			`{"pieces":[{"index":1,"type":"tool-call","id":"c1","name":"add"}],"answer":` + spoken("Hello") + `}`}, `[["He","llo",["c1","add"],["end","Hello"]],"Hello"]`, nil},
		{"whole", []string{`{"pieces":[{"index":0,"type":"text","text":"He"}]}`, `{"pieces":[],"answer":` + spoken("Hello") + `}`}, `Hello`, nil},
		{"both", []string{`{"pieces":[{"index":0,"type":"text","text":"He"}]}`, `{"pieces":[],"answer":` + spoken("Hello") + `}`}, `["Hello",["text","end"]]`, nil},
		{"early", []string{`{"pieces":[{"index":0,"type":"text","text":"He"}]}`}, `He`, nil},
		{"broken", []string{`{"pieces":[{"index":0,"type":"text","text":"He"}]}`, `!cut off`}, `["He","denied","cut off","cut off"]`, nil},
		{"list", nil, `[{"name":"@main"},{"name":"a/b","description":"B"}]`, nil},
		{"wrong", nil, `["the argument is a text, or an object suc","the argument is a text, or an object suc","messages is an array such as [{ role: \"u","prompt stands for messages; give one of ",` +
			`"there is no field \"max_tokens\"; there ar","messages[0] is an object such as { role:","messages[0].content is a text, or an arr","messages[0].content[0] is a part such as",` +
			`"tools[0] has no name","tools[0].run is a function of the argume","maxSteps is a number from 1 up","prompt[0]: data is bytes, or their base6"]`, nil},
		{"mine", []string{"!not granted"}, `["SkepError","denied","not granted"]`, nil},
	}
	for _, tc := range tests {
		t.Run(tc.function, func(t *testing.T) {
			m := &models{answers: tc.answers}
			if got := result(t, a, Call{Function: tc.function, Calls: m.calls}); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			for i, want := range tc.asks {
				if i >= len(m.asks) || !strings.Contains(m.asks[i], want) {
					t.Errorf("asked %q, want %s", m.asks, want)
				}
			}
			if closes := len(m.closed) == 1; closes != (tc.function == "early") {
				t.Errorf("closed %q", m.closed)
			}
		})
	}
}

func TestModelWhileLoading(t *testing.T) {
	_, err := engine.Load(t.Context(), source(`import { model } from "skep"; await model.generate("x")`), nil)
	if err == nil || !strings.Contains(err.Error(), "while the module loads") {
		t.Errorf("got %v", err)
	}
}
