package response

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
	"github.com/tidwall/gjson"
)

const (
	started   = `response.created "sequence_number":0,"response":{"id":"resp_1","model":"m","created_at":1700000000,"status":"in_progress","output":[]}`
	usageJSON = `"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":200,"cache_write_tokens":700,"cache_write_tokens_details":{"ttl_30m":600,"ttl_12h":100}},"output_tokens":80,"output_tokens_details":{"reasoning_tokens":30},"total_tokens":1080}`
	done      = `response.completed "response":{"id":"resp_1","model":"m","status":"completed","service_tier":"flex","output":[],` + usageJSON + `}`
)

func TestStreams(t *testing.T) {
	call := func(id, name, args string) []wire.Part { return []wire.Part{callPart(id, name, args)} }
	const added = `response.output_item.added "output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":""}`
	const itemDone = `response.output_item.done "output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\":1}"}`
	for _, c := range []struct {
		name   string
		events []string
		parts  []wire.Part
		stop   wire.Stop
	}{
		{"text", []string{started, `response.output_item.added "output_index":0,"item":{"type":"message","id":"msg_1","content":[]}`,
			`response.content_part.added "item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}`,
			`response.output_text.delta "item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel"`, `response.output_text.delta "item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo"`,
			`response.output_text.done "item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello"`, `response.content_part.done "item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello"}`,
			`response.output_item.done "output_index":0,"item":{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hello"}]}`, done},
			[]wire.Part{text("Hello")}, wire.StopEnd},
		{"text that has only its end", []string{started, `response.output_text.done "output_index":0,"content_index":0,"text":"Hello"`, done}, []wire.Part{text("Hello")}, wire.StopEnd},
		{"text that is only in the item", []string{started, `response.output_item.done "output_index":0,"item":{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hello"}]}`, done}, []wire.Part{text("Hello")}, wire.StopEnd},
		{"all that is only in the response", []string{started, `response.completed "response":{"status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"Hello"}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`},
			[]wire.Part{thought("hm"), text("Hello"), callPart("a", "f", "{}")}, wire.StopTool},
		{"a response that repeats what came", []string{started, added, `response.function_call_arguments.delta "output_index":0,"delta":"{\"x\":1}"`, itemDone,
			`response.completed "response":{"status":"completed","output":[{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\":1}"}]}`}, call("a", "f", `{"x":1}`), wire.StopTool},
		{"arguments in pieces", []string{started, added, `response.function_call_arguments.delta "item_id":"fc_1","output_index":0,"delta":"{\"x\""`, `response.function_call_arguments.delta "item_id":"fc_1","output_index":0,"delta":":1}"`,
			`response.function_call_arguments.done "item_id":"fc_1","output_index":0,"arguments":"{\"x\":1}"`, itemDone, done}, call("a", "f", `{"x":1}`), wire.StopTool},
		{"arguments only when done", []string{started, added, `response.function_call_arguments.done "item_id":"fc_1","output_index":0,"arguments":"{\"x\":1}"`, itemDone, done}, call("a", "f", `{"x":1}`), wire.StopTool},
		{"arguments only in the item", []string{started, added, itemDone, done}, call("a", "f", `{"x":1}`), wire.StopTool},
		{"a call that has only its end", []string{started, itemDone, done}, call("a", "f", `{"x":1}`), wire.StopTool},
		{"no arguments", []string{started, added, `response.output_item.done "output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":""}`, done}, call("a", "f", `{}`), wire.StopTool},
		{"an item that never ends", []string{started, added, `response.function_call_arguments.delta "item_id":"fc_1","output_index":0,"delta":"{}"`, done}, call("a", "f", `{}`), wire.StopTool},
		{"no indexes", []string{started, `response.output_item.added "item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f"}`, `response.function_call_arguments.delta "item_id":"fc_1","delta":"{}"`,
			`response.output_item.done "item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{}"}`, done}, call("a", "f", `{}`), wire.StopTool},
		{"calls side by side", []string{started, added, `response.output_item.added "output_index":1,"item":{"type":"function_call","id":"fc_2","call_id":"b","name":"g","arguments":""}`,
			`response.function_call_arguments.delta "output_index":1,"delta":"{}"`, `response.function_call_arguments.delta "output_index":0,"delta":"{\"x\":1}"`,
			`response.output_item.done "output_index":1,"item":{"type":"function_call","id":"fc_2","call_id":"b","name":"g","arguments":"{}"}`, itemDone, done},
			[]wire.Part{callPart("a", "f", `{"x":1}`), callPart("b", "g", `{}`)}, wire.StopTool},
		{"a custom tool", []string{started, `response.output_item.added "output_index":0,"item":{"type":"custom_tool_call","id":"ctc_1","call_id":"a","name":"patch","input":""}`,
			`response.custom_tool_call_input.delta "output_index":0,"delta":"*** Be"`, `response.custom_tool_call_input.done "output_index":0,"input":"*** Begin"`,
			`response.output_item.done "output_index":0,"item":{"type":"custom_tool_call","id":"ctc_1","call_id":"a","name":"patch","input":"*** Begin"}`, done},
			[]wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "a", Name: "patch", Args: "*** Begin", Custom: true}}}, wire.StopTool},
		{"reasoning", []string{started, `response.output_item.added "output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}`, `response.reasoning_summary_text.delta "output_index":0,"summary_index":0,"delta":"one"`,
			`response.reasoning_summary_text.delta "output_index":0,"summary_index":1,"delta":"two"`,
			`response.output_item.done "output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"one"},{"type":"summary_text","text":"two"}],"encrypted_content":"enc/="}`,
			`response.output_text.delta "output_index":1,"content_index":0,"delta":"x"`, done},
			[]wire.Part{{Kind: wire.ThoughtPart, Text: "one\n\ntwo", Thought: &wire.Thinking{Opaque: "enc/=", Origin: origin}}, text("x")}, wire.StopEnd},
		{"reasoning that is opaque alone", []string{started, `response.output_item.done "output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"enc"}`, done},
			[]wire.Part{{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: "enc", Origin: origin}}}, wire.StopEnd},
		{"reasoning as text", []string{started, `response.reasoning_text.delta "output_index":0,"content_index":0,"delta":"hm"`, `response.output_item.done "output_index":0,"item":{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`, done},
			[]wire.Part{thought("hm")}, wire.StopEnd},
		{"reasoning of which there is nothing to see", []string{started, `response.output_item.done "output_index":0,"item":{"type":"reasoning","summary":[]}`, `response.output_text.delta "output_index":1,"delta":"x"`, done}, []wire.Part{text("x")}, wire.StopEnd},
		{"refusal", []string{started, `response.refusal.delta "output_index":0,"content_index":0,"delta":"no"`, `response.refusal.done "output_index":0,"content_index":0,"refusal":"no!"`, done}, []wire.Part{{Kind: wire.RefusalPart, Text: "no!"}}, wire.StopFilter},
		{"length", []string{started, `response.output_text.delta "output_index":0,"delta":"x"`, `response.incomplete "response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`}, []wire.Part{text("x")}, wire.StopLength},
		{"filter", []string{started, `response.output_text.delta "output_index":0,"delta":"x"`, `response.incomplete "response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}`}, []wire.Part{text("x")}, wire.StopFilter},
		{"the provider's own items", []string{started, `response.output_item.added "output_index":0,"item":{"type":"web_search_call","id":"ws"}`, `response.web_search_call.searching "output_index":0,"item_id":"ws"`, `response.output_item.done "output_index":0,"item":{"type":"web_search_call","id":"ws"}`,
			`response.output_text.delta "output_index":1,"delta":"x"`, done}, []wire.Part{text("x")}, wire.StopEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stream(c.events...)
			a := answerOf(t, s)
			wiretest.Same(t, c.parts, a.Parts)
			if a.Stop != c.stop {
				t.Errorf("stop %d, want %d", a.Stop, c.stop)
			}
			m := Codec.Meter(true)
			m.Write([]byte(s))
			if st := m.State(); !st.Ended || !st.Content || st.Fault != nil || st.ID != "resp_1" || st.Stop != c.stop || st.Chars == 0 && !st.Signed && len(st.Calls) == 0 {
				t.Errorf("the meter saw %+v", st)
			}
			out := encoded(&wire.Request{Model: "m"}, decode(t, s))
			checkEvents(t, out)
			again, f := wiretest.Collect(decode(t, out))
			if f != nil {
				t.Fatal(f)
			}
			for i, p := range again.Parts { // what was opaque is sealed now
				if p.Thought != nil {
					if x, ok := wire.Unseal(p.Thought.Opaque); ok {
						again.Parts[i].Thought = x
					}
				}
				again.Parts[i].Item = ""
			}
			wiretest.Same(t, a.Parts, again.Parts)
			if a.Stop != again.Stop {
				t.Errorf("stop %d became %d", a.Stop, again.Stop)
			}
		})
	}
}

// checkEvents checks what the SDKs' helpers for streams rely on: the numbers of the sequence, items and parts that are added before they grow and done once,
// and a last event that has all that came.
func checkEvents(t *testing.T, s string) {
	t.Helper()
	type part struct {
		text string
		done bool
	}
	var items []map[string]*part
	var typs []string
	closed := map[int]bool{}
	list := wiretest.Data(t, s)
	for i, f := range list {
		r := gjson.Parse(f)
		typ := r.Get("type").Str
		typs = append(typs, typ)
		if n := r.Get("sequence_number"); !n.Exists() || n.Int() != int64(i) {
			t.Errorf("event %d has the number %s", i, n.Raw)
		}
		out := int(r.Get("output_index").Int())
		key := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(typ, ".delta"), ".done"), ".added")
		switch {
		case typ == "response.output_item.added":
			if out != len(items) {
				t.Errorf("item %d is added where %d is next", out, len(items))
			}
			if r.Get("item.id").Str == "" {
				t.Errorf("an item without an id: %s", f)
			}
			items = append(items, map[string]*part{})
		case typ == "response.output_item.done":
			if out >= len(items) || closed[out] {
				t.Fatalf("item %d is done, and not open", out)
			}
			closed[out] = true
			for k, p := range items[out] {
				if !p.done {
					t.Errorf("item %d is done, and %s of it is not", out, k)
				}
			}
		case r.Get("output_index").Exists():
			if out >= len(items) || closed[out] {
				t.Fatalf("%s of item %d, which is not open", typ, out)
			}
			p := items[out][key]
			if p == nil {
				p = &part{}
				items[out][key] = p
			}
			if p.done {
				t.Errorf("%s after it was done", typ)
			}
			if strings.HasSuffix(typ, ".delta") {
				p.text += r.Get("delta").Str
			}
			if strings.HasSuffix(typ, ".done") {
				p.done = true
				whole := r.Get("text").Str + r.Get("arguments").Str + r.Get("input").Str + r.Get("refusal").Str
				if !strings.Contains(typ, "part.done") && whole != p.text {
					t.Errorf("%s has %q, and the pieces %q", typ, whole, p.text)
				}
			}
		}
	}
	if len(typs) < 3 || typs[0] != "response.created" || typs[1] != "response.in_progress" {
		t.Fatalf("events %v", typs)
	}
	last := gjson.Parse(list[len(list)-1]).Get("response")
	if "response."+last.Get("status").Str != typs[len(typs)-1] || len(last.Get("output").Array()) != len(items) || len(closed) != len(items) {
		t.Errorf("the last of %d items, %d done: %s", len(items), len(closed), list[len(list)-1])
	}
	for _, k := range []string{"tools", "tool_choice", "parallel_tool_calls", "text.format.type", "metadata", "error", "incomplete_details", "usage", "id", "created_at", "object", "model"} {
		if !last.Get(k).Exists() {
			t.Errorf("the response has no %s", k)
		}
	}
}

func TestATruncatedStreamIsNeverASuccess(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":              "",
		"cut in the text":      stream(started, `response.output_text.delta "output_index":0,"delta":"x"`),
		"cut before its end":   stream(started, `response.output_item.done "output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}`),
		"a frame cut in two":   stream(started) + `data: {"type":"response.comp`,
		"[DONE] without end":   stream(started) + "data: [DONE]\n\n",
		"a call without names": stream(started, `response.output_item.done "output_index":0,"item":{"type":"function_call","arguments":"{}"}`),
	} {
		list := decode(t, s)
		if last := list[len(list)-1]; last.Kind != wire.Broken || last.Fault.Class != agent.StreamBroken {
			t.Errorf("%s: ended with %+v", name, last)
		}
		m := Codec.Meter(true)
		m.Write([]byte(s))
		if m.State().Ended {
			t.Errorf("%s: the meter says that it ended", name)
		}
		checkBroken(t, name, encoded(&wire.Request{}, list))
		checkBroken(t, name, s+string(m.(wire.Breaker).Broken(&wire.Fault{Class: agent.StreamBroken, Message: "cut"})))
		checkBroken(t, name, string(Codec.BrokenFrame(&wire.Fault{Class: agent.StreamBroken, Message: "cut"})))
	}
}

func checkBroken(t *testing.T, name, s string) {
	t.Helper()
	list := wiretest.Data(t, s)
	if len(list) < 2 {
		t.Fatalf("%s: %q", name, s)
	}
	failed, last := gjson.Parse(list[len(list)-2]), gjson.Parse(list[len(list)-1])
	if strings.Contains(s, "response.completed\n") || failed.Get("type").Str != "response.failed" || failed.Get("response.status").Str != "failed" || failed.Get("response.error.code").Str != "stream_broken" ||
		last.Get("type").Str != "error" || last.Get("error.message").Str == "" || last.Get("message").Str == "" || last.Get("code").Str != "stream_broken" {
		t.Errorf("%s: the client gets %s and %s", name, failed.Raw, last.Raw)
	}
	if last.Get("sequence_number").Int() != failed.Get("sequence_number").Int()+1 {
		t.Errorf("%s: the sequence ends with %s and %s", name, failed.Get("sequence_number").Raw, last.Get("sequence_number").Raw)
	}
}

func TestABrokenPassedStreamGoesOnWithItsOwnIDAndNumbers(t *testing.T) {
	m := Codec.Meter(true)
	m.Write([]byte(stream(started, `response.output_text.delta "sequence_number":41,"output_index":0,"delta":"x"`)))
	list := wiretest.Data(t, string(m.(wire.Breaker).Broken(&wire.Fault{Class: agent.Overloaded, Message: "busy"})))
	f := gjson.Parse(list[0])
	if f.Get("response.id").Str != "resp_1" || f.Get("sequence_number").Int() != 42 || f.Get("response.error.code").Str != "server_is_overloaded" {
		t.Errorf("%s", f.Raw)
	}
}

func TestAnErrorWithinAStreamIsThatError(t *testing.T) {
	for event, want := range map[string]agent.FaultClass{
		`error "code":"rate_limit_exceeded","message":"slow","param":null,"sequence_number":3`:                                    agent.RateLimited,
		`error "error":{"type":"server_error","code":"server_is_overloaded","message":"busy"}`:                                    agent.Overloaded,
		`response.failed "response":{"id":"r","status":"failed","error":{"code":"context_length_exceeded","message":"too long"}}`: agent.ContextLength,
		`response.failed "response":{"id":"r","status":"failed","error":{"code":"insufficient_quota","message":"pay"}}`:           agent.QuotaExhausted,
		`response.failed "response":{"id":"r","status":"failed","error":{"code":"server_error","message":"x"},` + usageJSON + `}`: agent.ServerFault,
		`response.failed "response":{"id":"r","status":"failed","error":{"code":"invalid_prompt","message":"x"}}`:                 agent.ContentFault,
		`response.cancelled "response":{"id":"r","status":"cancelled"}`:                                                           agent.ServerFault,
	} {
		s := stream(started, `response.output_text.delta "output_index":0,"delta":"x"`, event)
		_, f := wiretest.Collect(decode(t, s))
		if f == nil || f.Class != want || f.Message == "" {
			t.Errorf("%s: %+v", event, f)
		}
		m := Codec.Meter(true)
		m.Write([]byte(s))
		if got := m.State(); got.Fault == nil || got.Fault.Class != want || got.Ended || !got.Content || strings.Contains(event, "usage") != got.Usage.Known {
			t.Errorf("%s: the meter saw %+v", event, got)
		}
	}
}

// Fault 1, 11 of docs/design/gateway-faults.md: what is read of a cache is charged once, and the client and the ledger see the same figures.
func TestCachedTokensAreCountedOnce(t *testing.T) {
	want := agent.ModelTokens{Input: 1000, CacheRead: 200, CacheWrite: 600, CacheWrite1h: 100, Output: 80, Reasoning: 30}
	s := stream(started, `response.output_text.delta "output_index":0,"delta":"x"`, done)
	list := decode(t, s)
	a, _ := wiretest.Collect(list)
	wiretest.Same(t, want, a.Usage.Tokens)
	if a.Tier != "flex" {
		t.Errorf("tier %q", a.Tier)
	}
	m := Codec.Meter(true)
	m.Write([]byte(s))
	wiretest.Same(t, want, m.State().Usage.Tokens)
	if m.State().Tier != "flex" {
		t.Errorf("tier %q", m.State().Tier)
	}
	body := `{"id":"resp_1","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],` + usageJSON + `}`
	whole, err := Codec.DecodeAnswer([]byte(body), origin)
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Same(t, want, whole.Usage.Tokens)
	w := Codec.Meter(false)
	w.Write([]byte(body))
	if st := w.State(); !st.Ended || !st.Content || st.Usage.Tokens != want || st.Chars != 1 {
		t.Errorf("%+v", st)
	}
	out := wiretest.Data(t, encoded(&wire.Request{}, list))
	wiretest.Same(t, want, collectUsage(t, out[len(out)-1]))
}

func collectUsage(t *testing.T, frame string) agent.ModelTokens {
	t.Helper()
	a, f := wiretest.Collect(Codec.Decoder(origin).Frame("", []byte(frame)))
	if f != nil {
		t.Fatal(f)
	}
	return a.Usage.Tokens
}

// Fault 5 of docs/design/gateway-faults.md: the arguments of a tool are there, however they come.
func TestNoArgumentsOfAToolAreLost(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"whole": {[]string{`{"x":1}`}, `{"x":1}`}, "in pieces": {[]string{`{"x"`, `:1`, `}`}, `{"x":1}`}, "none": {nil, "{}"}, "empty": {[]string{""}, "{}"},
	} {
		list := []wire.Event{{Kind: wire.Begin, ID: "c", Model: "m"}, {Kind: wire.PartBegin, Part: callPart("a", "f", "")}}
		for _, p := range c.pieces {
			list = append(list, wire.Event{Kind: wire.PartDelta, Text: p})
		}
		out := encoded(&wire.Request{}, append(list, wire.Event{Kind: wire.PartEnd}, wire.Event{Kind: wire.End, Stop: wire.StopTool}))
		checkEvents(t, out)
		a := answerOf(t, out)
		if len(a.Parts) != 1 || a.Parts[0].Call.Args != c.want || a.Stop != wire.StopTool {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestPartsSideBySide(t *testing.T) {
	out := encoded(&wire.Request{Tools: []wire.Tool{{Name: "patch", Custom: true}}}, []wire.Event{
		{Kind: wire.Begin, ID: "c", Model: "m"}, {Kind: wire.Ping},
		{Kind: wire.PartBegin, Index: 0, Part: thought("")}, {Kind: wire.PartBegin, Index: 1, Part: text("")}, {Kind: wire.PartDelta, Index: 0, Text: "h"}, {Kind: wire.PartDelta, Index: 1, Text: "a<b"}, {Kind: wire.PartDelta, Index: 0, Text: "m"},
		{Kind: wire.PartEnd, Index: 1},
		{Kind: wire.PartBegin, Index: 2, Part: callPart("p", "patch", "")}, {Kind: wire.PartDelta, Index: 2, Text: `{"input":"go`}, {Kind: wire.PartEnd, Index: 0}, {Kind: wire.PartDelta, Index: 2, Text: `"}`}, {Kind: wire.PartEnd, Index: 2},
		{Kind: wire.End, Stop: wire.StopTool}})
	checkEvents(t, out)
	wiretest.Same(t, []wire.Part{thought("hm"), text("a<b"), {Kind: wire.CallPart, Call: &wire.ToolCall{ID: "p", Name: "patch", Args: "go", Custom: true}}}, answerOf(t, out).Parts)
	if !strings.Contains(out, ": ping\n\n") {
		t.Error("no ping")
	}
	r := sse.NewReader(strings.NewReader(out), wire.MaxFrame)
	for {
		name, data, err := r.Next()
		if err != nil {
			break
		}
		if name != gjson.GetBytes(data, "type").Str {
			t.Errorf("the event %s is named %s", data, name)
		}
	}
}
