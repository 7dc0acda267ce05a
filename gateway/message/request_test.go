package message

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

const full = `{
  "model": "claude-opus-4-8", "max_tokens": 1000, "stream": true,
  "system": [{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
  "tools": [
    {"name":"weather","description":"of a city","input_schema":{"type":"object","properties":{"city":{"type":"string"}}},"strict":true,"cache_control":{"type":"ephemeral"}},
    {"type":"web_search_20250305","name":"web_search","max_uses":2}
  ],
  "tool_choice": {"type":"auto","disable_parallel_tool_use":true},
  "thinking": {"type":"adaptive","display":"summarized"}, "output_config": {"effort":"high","format":{"type":"json_schema","schema":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}},
  "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END"], "metadata": {"user_id":"u1"}, "service_tier": "standard_only",
  "messages": [
    {"role":"user","content":[{"type":"text","text":"Weather?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}},
      {"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},{"type":"document","title":"T","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"}},
      {"type":"document","source":{"type":"file","file_id":"file_1"}}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"S1=="},{"type":"thinking","thinking":"","signature":"S2=="},{"type":"redacted_thinking","data":"R=="},
      {"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Paris"}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"sunny"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
      {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":[{"type":"text","text":"no clock"}],"cache_control":{"type":"ephemeral","ttl":"5m"}},{"type":"text","text":"Go on."}]}
  ]}`

func TestRequestIsReadWhole(t *testing.T) {
	thought := func(s string) *wire.Thinking { return &wire.Thinking{Opaque: s, Origin: wire.Origin{Protocol: own}} }
	want := &wire.Request{
		Model: "claude-opus-4-8", MaxTokens: new(int64(1000)), Stream: true, Temperature: new(0.5), TopP: new(0.9), TopK: new(int64(40)), Stop: []string{"END"},
		User: "u1", Tier: "default", Parallel: new(false), Choice: wire.Choice{Kind: wire.ChoiceAuto},
		Reasoning: &wire.Reasoning{Effort: "high", Adapt: true, Summary: "auto"},
		Format:    &wire.Format{Strict: new(true), Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`)},
		System:    []wire.Part{{Text: "Be brief.", Cache: &wire.CacheMark{TTL: "1h"}}},
		Tools: []wire.Tool{
			{Name: "weather", Description: "of a city", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`), Strict: new(true), Cache: &wire.CacheMark{}},
			{Name: "web_search", Native: json.RawMessage(`{"type":"web_search_20250305","name":"web_search","max_uses":2}`), Of: agent.MessageProtocol},
		},
		Messages: []wire.Message{
			{Parts: []wire.Part{
				{Text: "Weather?"},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "iVBO", Image: true}},
				{Kind: wire.MediaPart, Media: &wire.Blob{URL: "https://example.com/a.png", Image: true}},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "application/pdf", Data: "JVBE", Name: "T"}},
				{Kind: wire.MediaPart, Media: &wire.Blob{FileID: "file_1"}},
			}},
			{Role: wire.Assistant, Parts: []wire.Part{
				{Kind: wire.ThoughtPart, Text: "hm", Thought: thought("S1==")},
				{Kind: wire.ThoughtPart, Thought: thought("S2==")},
				{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: "R==", Redacted: true, Origin: wire.Origin{Protocol: own}}},
				{Text: "I look."},
				{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "toolu_1", Name: "weather", Args: `{"city":"Paris"}`}},
				{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "toolu_2", Name: "now", Args: `{}`}},
			}},
			{Parts: []wire.Part{
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "toolu_1", Parts: []wire.Part{{Text: "sunny"}, {Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "AAAA", Image: true}}}}},
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "toolu_2", Failed: true, Parts: []wire.Part{{Text: "no clock"}}}, Cache: &wire.CacheMark{TTL: "5m"}},
				{Text: "Go on."},
			}},
		},
	}
	got := decode(t, full)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// What is written is read as the same, and is the same JSON.
	body := encode(t, got, target)
	if d := cmp.Diff(want, decode(t, body)); d != "" {
		t.Errorf("written and read, -want +got:\n%s", d)
	}
	wiretest.SameJSON(t, body, full)
}

// Faults 9 and 10 of thoughts: three turns with calls of tools, and the signatures come back byte for byte, in their order.
func TestUserKeepsSignedThoughtsOverThreeTurnsOfTools(t *testing.T) {
	history := []wire.Message{{Parts: []wire.Part{{Text: "go"}}}}
	var signatures []string
	for turn := range 3 {
		s := fmt.Sprintf("Sig/+%d==", turn)
		signatures = append(signatures, s)
		frames := []string{
			startFrame,
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"` + s + `"}}`,
			`{"type":"content_block_stop","index":0}`,
			fmt.Sprintf(`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_%d","name":"f","input":{}}}`, turn),
			`{"type":"content_block_stop","index":1}`, endFrame("tool_use"), stopFrame,
		}
		a, f := back(t, wiretest.Encode(Codec.Encoder(nil), events(frames...))) // through a client of this protocol
		if f != nil {
			t.Fatal(f)
		}
		history = append(history, wire.Message{Role: wire.Assistant, Parts: a.Parts}, wire.Message{Parts: []wire.Part{
			{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: fmt.Sprintf("toolu_%d", turn), Parts: []wire.Part{{Text: "ok"}}}},
		}})
	}
	var got []string
	gjson.Parse(encode(t, &wire.Request{Messages: history}, target)).Get("messages").ForEach(func(_, m gjson.Result) bool {
		if b := m.Get("content.0"); b.Get("type").Str == "thinking" {
			got = append(got, b.Get("signature").Str)
		}
		return true
	})
	if d := cmp.Diff(signatures, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestThoughtsOfAnotherProviderStayHere(t *testing.T) {
	gemini := &wire.Thinking{Opaque: "gem", Origin: wire.Origin{Protocol: "gemini", Provider: "google"}}
	a := &wire.Answer{Stop: wire.StopTool, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c1", Name: "f", Args: "{}"}, Thought: gemini}}}
	body, err := Codec.EncodeAnswer(a, &wire.Request{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	// A client sends back what it got.
	r := decode(t, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":`+gjson.GetBytes(body, "content").Raw+`}]}`)
	if d := cmp.Diff(gemini, r.Messages[1].Parts[0].Thought); d != "" {
		t.Errorf("the origin is lost, -want +got:\n%s", d)
	}
	if s := encode(t, r, target); strings.Contains(s, "thinking") {
		t.Errorf("sent to another provider: %s", s)
	}
}

func TestResultsComeFirstAndRolesAlternate(t *testing.T) {
	r := &wire.Request{Messages: []wire.Message{
		{Parts: []wire.Part{{Text: "a"}}}, {Parts: []wire.Part{{Text: "b"}}},
		{Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "call.1", Name: "f"}}}},
		{Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "call.2", Name: "f", Args: `{"x":1}`}}}},
		{Parts: []wire.Part{{Text: "wait"}}},
		{Parts: []wire.Part{{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "call.1"}}}},
		{Parts: []wire.Part{{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "call.2", Parts: []wire.Part{{Text: "2"}}}}}},
	}}
	wiretest.SameJSON(t, gjson.Get(encode(t, r, target), "messages").Raw, `[
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"f","input":{}},{"type":"tool_use","id":"call_2","name":"f","input":{"x":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1"},{"type":"tool_result","tool_use_id":"call_2","content":[{"type":"text","text":"2"}]},{"type":"text","text":"wait"}]}]`)
}

// Fault 19: more than four marks are refused for good.
func TestUserIsNotRefusedForTooManyCacheMarks(t *testing.T) {
	mark := &wire.CacheMark{}
	r := &wire.Request{
		System: []wire.Part{{Text: "s1", Cache: mark}, {Text: "s2", Cache: mark}},
		Tools:  []wire.Tool{{Name: "a", Cache: mark}, {Name: "b", Cache: mark}},
	}
	for i := range 4 {
		r.Messages = append(r.Messages, wire.Message{Role: wire.Role(i % 2), Parts: []wire.Part{{Text: fmt.Sprint(i), Cache: mark}}})
	}
	r.Messages = append(r.Messages, wire.Message{Parts: []wire.Part{{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "c"}, Cache: mark}}})
	body := encode(t, r, target)
	if n := strings.Count(body, "cache_control"); n != MaxMarks {
		t.Errorf("%d marks: %s", n, body)
	}
	for _, path := range []string{"tools.1.cache_control", "system.1.cache_control", "messages.4.content.0.cache_control", "messages.3.content.0.cache_control"} {
		if !gjson.Get(body, path).Exists() {
			t.Errorf("the mark %s is gone: %s", path, body)
		}
	}
	four := decode(t, full)
	if n := strings.Count(encode(t, four, target), "cache_control"); n != 3 {
		t.Errorf("three marks became %d", n)
	}
}

func TestTopLevelMarkIsOfTheLastPart(t *testing.T) {
	r := decode(t, `{"model":"m","max_tokens":1,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}]}`)
	if r.Messages[0].Parts[0].Cache != nil || r.Messages[1].Parts[0].Cache == nil {
		t.Errorf("got %+v", r.Messages)
	}
}

func TestThinking(t *testing.T) {
	for _, c := range []struct {
		name, model  string
		reason       wire.Reasoning
		max          *int64
		choice       wire.ChoiceKind
		want, output string
		tokens       int64
	}{
		{"effort, new model", "claude-opus-4-8", wire.Reasoning{Effort: "high"}, nil, 0, `{"type":"adaptive"}`, `{"effort":"high"}`, DefaultMaxTokens},
		{"minimal", "claude-sonnet-5", wire.Reasoning{Effort: "minimal"}, nil, 0, `{"type":"adaptive"}`, `{"effort":"low"}`, DefaultMaxTokens},
		{"budget, new model", "claude-opus-4-8", wire.Reasoning{Budget: new(int64(20000))}, nil, 0, `{"type":"adaptive"}`, `{"effort":"high"}`, DefaultMaxTokens},
		{"effort, old model", "claude-sonnet-4-5-20250929", wire.Reasoning{Effort: "medium"}, nil, 0, `{"type":"enabled","budget_tokens":8192}`, ``, DefaultMaxTokens + 8192},
		{"adaptive, old model", "anthropic/claude-3-7-sonnet-latest", wire.Reasoning{Adapt: true}, new(int64(20000)), 0, `{"type":"enabled","budget_tokens":8192}`, ``, 20000},
		{"budget over the limit", "claude-opus-4-20250514", wire.Reasoning{Budget: new(int64(9000))}, new(int64(4000)), 0, `{"type":"enabled","budget_tokens":2000}`, ``, 4000},
		{"limit too small", "claude-opus-4-1", wire.Reasoning{Effort: "low"}, new(int64(1000)), 0, ``, ``, 1000},
		{"none", "claude-opus-4-8", wire.Reasoning{Effort: "none"}, nil, 0, `{"type":"disabled"}`, ``, DefaultMaxTokens},
		{"hidden", "claude-opus-4-8", wire.Reasoning{Adapt: true, Hidden: true}, nil, 0, `{"type":"adaptive","display":"omitted"}`, ``, DefaultMaxTokens},
		{"shown", "claude-opus-4-8", wire.Reasoning{Adapt: true, Summary: "detailed"}, nil, 0, `{"type":"adaptive","display":"summarized"}`, ``, DefaultMaxTokens},
		{"forced call", "claude-opus-4-8", wire.Reasoning{Effort: "low"}, nil, wire.ChoiceAny, ``, `{"effort":"low"}`, DefaultMaxTokens},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}, Reasoning: &c.reason, MaxTokens: c.max, Choice: wire.Choice{Kind: c.choice}, Tools: []wire.Tool{{Name: "f"}}}
			body := encode(t, r, wire.Target{Model: c.model, Origin: here})
			if got := gjson.Get(body, "thinking").Raw; got != c.want {
				t.Errorf("thinking %s, want %s", got, c.want)
			}
			if got := gjson.Get(body, "output_config").Raw; got != c.output {
				t.Errorf("output_config %s, want %s", got, c.output)
			}
			if got := gjson.Get(body, "max_tokens").Int(); got != c.tokens {
				t.Errorf("max_tokens %d, want %d", got, c.tokens)
			}
		})
	}
	for body, want := range map[string]*wire.Reasoning{
		`"thinking":{"type":"enabled","budget_tokens":2000}`:                                  {Budget: new(int64(2000)), Summary: "auto"},
		`"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"max"}`: {Effort: "max", Adapt: true, Hidden: true},
		`"thinking":{"type":"disabled"}`:                                                      {Effort: "none"},
		`"output_config":{"effort":"low"}`:                                                    {Effort: "low"},
	} {
		r := decode(t, `{"model":"m","max_tokens":1,`+body+`,"messages":[{"role":"user","content":"a"}]}`)
		if d := cmp.Diff(want, r.Reasoning); d != "" {
			t.Errorf("%s: -want +got:\n%s", body, d)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(s string) string {
		return `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}],` + s + `}`
	}
	content := func(role, s string) string {
		return `{"model":"m","max_tokens":1,"messages":[{"role":"` + role + `","content":[` + s + `]}]}`
	}
	for _, c := range []struct{ name, version, body, field string }{
		{"no model", First, `{"max_tokens":1,"messages":[{"role":"user","content":"a"}]}`, "model"},
		{"no max_tokens", First, `{"model":"m","messages":[{"role":"user","content":"a"}]}`, "max_tokens"},
		{"no messages", First, `{"model":"m","max_tokens":1}`, "messages"},
		{"empty messages", First, `{"model":"m","max_tokens":1,"messages":[]}`, "messages"},
		{"field twice", First, `{"model":"m","model":"n","max_tokens":1,"messages":[]}`, "model"},
		{"MCP", First, with(`"mcp_servers":[{"type":"url"}]`), "mcp_servers"},
		{"container", First, with(`"container":"c"`), "container"},
		{"choice", First, with(`"tool_choice":{"type":"some"}`), "tool_choice.type"},
		{"nameless tool", First, with(`"tools":[{"input_schema":{}}]`), "tools.0.name"},
		{"format", First, with(`"output_format":{"type":"xml"}`), "output_config.format.type"},
		{"role", First, `{"model":"m","max_tokens":1,"messages":[{"role":"robot","content":"a"}]}`, "messages.0.role"},
		{"server tool", First, content("assistant", `{"type":"server_tool_use","id":"x","name":"web_search","input":{}}`), "messages.0.content.0.type"},
		{"source", First, content("user", `{"type":"image","source":{"type":"ftp"}}`), "messages.0.content.0.source.type"},
		{"call in result", First, content("user", `{"type":"tool_result","tool_use_id":"x","content":[{"type":"tool_use"}]}`), "messages.0.content.0.content.0.type"},
		{"temperature", Second, with(`"temperature":1`), "temperature"},
		{"top_k", Second, with(`"top_k":1`), "top_k"},
		{"document of the assistant", Second, content("assistant", `{"type":"document","source":{"type":"text","data":"a"}}`), "messages.0.content.0"},
		{"citations of the user", Second, content("user", `{"type":"text","text":"a","citations":[]}`), "citations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Codec.Decode(wire.Generate, "/v1/messages", http.Header{"Anthropic-Version": {c.version}}, []byte(c.body))
			wiretest.Refused(t, err, c.field)
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	ask := func(parts ...wire.Part) *wire.Request {
		return &wire.Request{Messages: []wire.Message{{Parts: append([]wire.Part{{Text: "a"}}, parts...)}}}
	}
	with := func(f func(*wire.Request)) *wire.Request {
		r := ask()
		f(r)
		return r
	}
	media := func(b wire.Blob) wire.Part { return wire.Part{Kind: wire.MediaPart, Media: &b} }
	for _, c := range []struct {
		name  string
		r     *wire.Request
		field string
	}{
		{"temperature", with(func(r *wire.Request) { r.Temperature = new(1.5) }), "temperature"},
		{"penalty", with(func(r *wire.Request) { r.Frequency = new(0.5) }), "frequency_penalty"},
		{"any JSON", with(func(r *wire.Request) { r.Format = &wire.Format{} }), "response_format"},
		{"native tool of another", with(func(r *wire.Request) {
			r.Tools = []wire.Tool{{Name: "shell", Native: json.RawMessage(`{}`), Of: agent.ResponseProtocol}}
		}), "tools.0"},
		{"name of a tool", with(func(r *wire.Request) { r.Tools = []wire.Tool{{Name: "a.b"}} }), "tools.0.name"},
		{"effort", with(func(r *wire.Request) { r.Reasoning = &wire.Reasoning{Effort: "wild"} }), "effort"},
		{"sound", ask(media(wire.Blob{MIME: "audio/wav", Data: "AAAA"})), "messages.0.1"},
		{"empty file", ask(media(wire.Blob{})), "messages.0.1"},
		{"image of the assistant", &wire.Request{Messages: []wire.Message{{Role: wire.Assistant, Parts: []wire.Part{media(wire.Blob{URL: "u", Image: true})}}}}, "messages.0.0"},
		{"cut arguments", &wire.Request{Messages: []wire.Message{{Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "x", Name: "f", Args: `{"a`}}}}}}, "messages.0.0"},
		{"nothing said", &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: ""}}}}}, "messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Codec.Encode(wire.Generate, c.r, target)
			wiretest.Refused(t, err, c.field)
		})
	}
}

func TestTemperatureGoesInTheVersionThatTakesIt(t *testing.T) {
	r := &wire.Request{Temperature: new(0.2), Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}
	c, err := Codec.Encode(wire.Generate, r, target)
	if err != nil || c.Header.Get("anthropic-version") != First || gjson.GetBytes(c.Body, "temperature").Num != 0.2 {
		t.Errorf("got %v, %v, %s", err, c.Header, c.Body)
	}
}

func TestCustomToolsTakeAnObject(t *testing.T) {
	r := &wire.Request{
		Tools: []wire.Tool{{Name: "apply_patch", Custom: true}},
		Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}, {Role: wire.Assistant, Parts: []wire.Part{
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "apply_patch", Args: "*** \"Begin\"", Custom: true}},
		}}},
	}
	body := encode(t, r, target)
	wiretest.SameJSON(t, gjson.Get(body, "tools.0.input_schema").Raw, string(wire.CustomSchema))
	if s := wire.UnwrapCustom(gjson.Get(body, "messages.1.content.0.input").Raw); s != "*** \"Begin\"" {
		t.Errorf("got %q", s)
	}
}

func TestFormatIsClosed(t *testing.T) {
	r := &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}
	r.Format = &wire.Format{Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":"integer"}}}}}}`)}
	wiretest.SameJSON(t, gjson.Get(encode(t, r, target), "output_config.format").Raw,
		`{"type":"json_schema","schema":{"type":"object","additionalProperties":false,"properties":{"a":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"b":{"type":"integer"}}}}}}}`)
}

func TestCount(t *testing.T) {
	c, err := Codec.Encode(wire.Count, decode(t, full), target)
	if err != nil || c.Path != "/v1/messages/count_tokens" {
		t.Fatal(c.Path, err)
	}
	for _, name := range []string{"max_tokens", "stream", "temperature", "metadata", "stop_sequences"} {
		if gjson.GetBytes(c.Body, name).Exists() {
			t.Errorf("%s is sent", name)
		}
	}
	counter := Codec.(wire.Counter)
	if n, err := counter.DecodeCount(counter.EncodeCount(42)); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := Codec.Decode(wire.Count, "", http.Header{}, []byte(`{"model":"m","messages":[{"role":"user","content":"a"}]}`)); err != nil {
		t.Errorf("a count needs no max_tokens: %v", err)
	}
}
