package runtime_test

import (
	"testing"

	"github.com/skep-dev/skep/runtime"
)

// Code streams answers whose tools are run in the cell: what they say and what the tools return comes in its order, and the whole is there at the end.
func TestStreamsRunTools(t *testing.T) {
	turns := `{"match":{"tool":"times"},"reply":{"calls":[{"name":"wait","args":{}}]}}
{"match":{"tool":"wait"},"reply":{"text":"It is 391.","chunk":5}}
{"match":{"nth":1},"reply":{"text":"I multiply.","calls":[{"name":"times","args":{"a":17,"b":23}},{"name":"times","args":{"a":17}}],"chunk":4}}`
	w := newModelWorld(t, turns, `
import { model } from "skep";
export const go = async () => {
	const tools = {
		times: { schema: { type: "object" }, run: ({ a, b }) => { if (b === undefined) throw new TypeError("b is missing"); return a * b } },
		wait: { run: async () => { await new Promise((f) => setTimeout(f, 1)); return "waited" } },
	};
	const s = model.stream({ prompt: "Go.", tools });
	const said = [];
	let text = "";
	for await (const p of s) {
		if (p.type === "text") text += p.text;
		else if (p.type === "tool-result") { said.push(text, p.name, p.result, p.failed ?? false); text = "" }
		else if (p.type === "end") said.push(text, p.answer.text);
	}
	const a = await s.answer;
	return [said, a.messages.length, a.messages[1].content.length];
};`, runtime.Options{}, "fake/b*", "@main")
	w.start()
	want := `[["I multiply.","times","391",false,"","times","b is missing",true,"","wait","waited",false,"It is 391.","It is 391."],5,2]`
	if got := w.output(w.launch("go", `null`)); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if n := len(w.oracle.requests()); n != 3 {
		t.Errorf("%d requests have reached the provider", n)
	}
}
