package chat

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
	"github.com/tidwall/gjson"
)

const full = `{
  "model": "gpt-x",  "messages": [
    {"role":"developer","content":"Be brief."},
    {"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},
      {"type":"image_url","image_url":{"url":"https://example.org/a.png"}},{"type":"input_audio","input_audio":{"data":"BBBB","format":"mp3"}},
      {"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,CCCC"}}]},
    {"role":"assistant","content":"Let me see.","reasoning_content":"hm","tool_calls":[
      {"id":"a","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}},{"id":"b","type":"function","function":{"name":"look","arguments":""}}]},
    {"role":"tool","tool_call_id":"a","content":"a cat"},
    {"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"a dog"}]},
    {"role":"user","content":"And?"}],
  "tools":[{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"type":"object","properties":{"b":{},"a":{}}},"strict":true}}],
  "tool_choice":{"type":"function","function":{"name":"look"}}, "parallel_tool_calls":false, "max_completion_tokens":100, "temperature":0, "top_p":0.5,
  "frequency_penalty":0.1,"presence_penalty":0.2,"seed":7,"stop":["x","y"],"reasoning_effort":"low",
  "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}},
  "stream":true,"stream_options":{"include_usage":true},"prompt_cache_key":"k","service_tier":"flex","user":"u","unknown_field":{"z":1,"a":2}}`

func fullRequest() *wire.Request {
	return &wire.Request{
		Model: "gpt-x", System: []wire.Part{text("Be brief.")},
		Messages: []wire.Message{
			{Role: wire.User, Parts: []wire.Part{text("What is it?"),
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "AAAA", Image: true, Detail: "low"}},
				{Kind: wire.MediaPart, Media: &wire.Blob{URL: "https://example.org/a.png", Image: true}},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "audio/mpeg", Data: "BBBB"}},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "application/pdf", Data: "CCCC", Name: "a.pdf"}}}},
			{Role: wire.Assistant, Parts: []wire.Part{thought("hm"), text("Let me see."), callPart("a", "look", `{"at": 1}`), callPart("b", "look", "{}")}},
			{Role: wire.User, Parts: []wire.Part{
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "a", Parts: []wire.Part{text("a cat")}}},
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "b", Parts: []wire.Part{text("a dog")}}}, text("And?")}},
		},
		Tools:  []wire.Tool{{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object","properties":{"b":{},"a":{}}}`), Strict: new(true)}},
		Choice: wire.Choice{Kind: wire.ChoiceTool, Name: "look"}, Parallel: new(false), MaxTokens: new(int64(100)), Temperature: new(0.0), TopP: new(0.5),
		Frequency: new(0.1), Presence: new(0.2), Seed: new(int64(7)), Stop: []string{"x", "y"}, Reasoning: &wire.Reasoning{Effort: "low"},
		Format: &wire.Format{Name: "n", Schema: []byte(`{"type":"object"}`), Strict: new(true)},
		Stream: true, StreamUse: true, CacheKey: "k", Tier: "flex", User: "u",
	}
}

func TestDecodeKnowsEachField(t *testing.T) {
	r, err := Codec.Decode(wire.Generate, path, nil, []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Same(t, fullRequest(), r)
}

func TestDecodeOfEncodeIsTheSame(t *testing.T) {
	for _, model := range []string{"gpt-x", "gpt-5.2"} {
		for name, r := range map[string]*wire.Request{
			"full": fullRequest(),
			"choices": {Messages: []wire.Message{{Role: wire.User, Parts: []wire.Part{text("hi")}}}, Tools: []wire.Tool{{Name: "f", Schema: []byte(`{"type":"object"}`)}, {Name: "g", Schema: []byte(`{}`)}},
				Choice: wire.Choice{Kind: wire.ChoiceAny, Among: []string{"g"}}, Format: &wire.Format{}},
			"refusal": {Messages: []wire.Message{{Role: wire.User, Parts: []wire.Part{text("hi")}}, {Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.RefusalPart, Text: "no"}}}}},
		} {
			r.Model = model
			c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: model, Origin: origin})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := Codec.Decode(wire.Generate, path, nil, c.Body)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, c.Body)
			}
			if model == "gpt-5.2" && len(r.Messages) == 3 { // OpenAI's own models take no thoughts
				r.Messages[1].Parts = r.Messages[1].Parts[1:]
			}
			wiretest.Same(t, r, got)
			tokens := "max_tokens"
			if model == "gpt-5.2" {
				tokens = "max_completion_tokens"
			}
			if r.MaxTokens != nil && gjson.GetBytes(c.Body, tokens).Int() != 100 {
				t.Errorf("%s is not in %s", tokens, c.Body)
			}
		}
	}
}

func TestCustomTools(t *testing.T) {
	grammar := []byte(`{"type":"grammar","syntax":"lark","definition":"start: x"}`)
	r := &wire.Request{Tools: []wire.Tool{{Name: "patch", Description: "Patches.", Custom: true, Schema: grammar}}, Messages: []wire.Message{
		{Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "a", Name: "patch", Args: "*** \"x\"", Custom: true}}}}}}
	c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "gpt-5"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Codec.Decode(wire.Generate, path, nil, c.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Model = "gpt-5"
	wiretest.Same(t, r, got)
	// Hosts that have no such tools get a function with one field, and its arguments are unpacked for the client.
	c, err = Codec.Encode(wire.Generate, r, wire.Target{Model: "llama"})
	if err != nil {
		t.Fatal(err)
	}
	if f := gjson.GetBytes(c.Body, "tools.0.function"); f.Get("parameters").Raw != string(wire.CustomSchema) || !strings.Contains(f.Get("description").Str, "start: x") {
		t.Errorf("%s", c.Body)
	}
	if a := gjson.GetBytes(c.Body, "messages.0.tool_calls.0.function.arguments").Str; a != `{"input":"*** \"x\""}` {
		t.Errorf("arguments %s", a)
	}
	b, err := Codec.EncodeAnswer(&wire.Answer{Parts: []wire.Part{callPart("a", "patch", `{"input":"go"}`)}, Stop: wire.StopTool}, r)
	if err != nil {
		t.Fatal(err)
	}
	if x := gjson.GetBytes(b, "choices.0.message.tool_calls.0"); x.Get("type").Str != "custom" || x.Get("custom.input").Str != "go" {
		t.Errorf("%s", b)
	}
	list := []wire.Event{{Kind: wire.PartBegin, Part: callPart("a", "patch", "")}, {Kind: wire.PartDelta, Text: `{"inp`}, {Kind: wire.PartDelta, Text: `ut":"go"}`}, {Kind: wire.PartEnd}, {Kind: wire.End, Stop: wire.StopTool}}
	a, _ := wiretest.Collect(decode(t, encoded(r, list)))
	wiretest.Same(t, []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "a", Name: "patch", Args: "go", Custom: true}}}, a.Parts)
}

func TestWhatCannotBeTranslatedIsNamed(t *testing.T) {
	for field, want := range map[string]string{
		`"n":2`: "n", `"logprobs":true`: "logprobs", `"top_logprobs":3`: "top_logprobs", `"logit_bias":{"50256":-100}`: "logit_bias",
		`"modalities":["text","audio"]`: "modalities", `"audio":{"voice":"alloy"}`: "audio", `"web_search_options":{}`: "web_search_options",
		`"functions":[{"name":"f"}]`: "functions", `"function_call":"auto"`: "function_call",
		`"tool_choice":{"type":"x"}`: "tool_choice", `"tool_choice":"maybe"`: "tool_choice", `"response_format":{"type":"xml"}`: "response_format.type",
		`"reasoning_effort":"huge"`: "reasoning_effort", `"stop":7`: "stop", `"tools":[{"type":"function"}]`: "tools[0].function.name",
		`"temperature":"hot"`:                                           "temperature",
		`"messages":[{"role":"wizard"}]`:                                "messages[0].role",
		`"messages":[{"role":"tool"}]`:                                  "messages[0].tool_call_id",
		`"messages":[{"role":"user","content":[{"type":"video_url"}]}]`: "messages[0].content[0].type",
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,x"}}]}]`: "messages[0].content[0].image_url.url",
		`"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]`:                  "messages[0].tool_calls[0].id",
		`"messages":[{"role":"assistant","function_call":{"name":"f"}}]`:                              "messages[0].function_call",
	} {
		_, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m",`+field+`}`))
		if e := agent.AsError(err); err == nil || e.Kind != agent.Invalid || !strings.HasPrefix(e.Msg, want+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, field := range []string{`"n":1`, `"logprobs":false`, `"logit_bias":{}`, `"modalities":["text"]`, `"verbosity":"low"`, `"prediction":{"type":"content"}`, `"prompt_cache_retention":"24h"`,
		`"store":true`, `"metadata":{"a":"b"}`, `"whatever":[1]`, `"top_logprobs":null`} {
		if _, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","messages":[],`+field+`}`)); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := Codec.Encode(wire.Generate, &wire.Request{Tools: []wire.Tool{{Name: "web_search", Native: []byte(`{"type":"web_search"}`), Of: agent.ResponseProtocol}}}, wire.Target{})
	if err == nil || !strings.HasPrefix(err.Error(), "tools[0]: ") {
		t.Errorf("a tool of another's own: %v", err)
	}
	if _, err := Codec.Peek(wire.Count, path, []byte(`{"model":"m"}`)); err == nil {
		t.Error("counts tokens")
	}
}

func TestPeek(t *testing.T) {
	p, err := Codec.Peek(wire.Generate, path, []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if p.Text < 150 || p.Text > 500 {
		t.Errorf("%d bytes of text", p.Text)
	}
	p.Text, p.Parsed = 0, nil
	wiretest.Same(t, wire.Peek{Model: "gpt-x", Stream: true, MaxTokens: 100, Media: 4, Tools: true, User: "u", Calls: []string{"a", "b"}}, p)
	p, err = Codec.Peek(wire.Generate, path, []byte(`{"model":"m","messages":[{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}],"tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a"}]}`))
	if err != nil || !p.Signed || p.Last != "a" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, body := range []string{``, `[]`, `"x"`, `{`, `{}`, `{"model":7}`, `{"model":""}`, `{"model":"m","stream":"yes"}`, `{"model":"m","max_tokens":-1}`, `{"model":"m"} x`,
		strings.Repeat("[", 100000), `{"model":"m","x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`} {
		if _, err := Codec.Peek(wire.Generate, path, []byte(body)); agent.AsError(err) == nil || agent.AsError(err).Kind != agent.Invalid {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

func TestAModelCannotBeSmuggledIn(t *testing.T) {
	for _, body := range []string{`{"model":"cheap","model":"dear"}`, `{"model":"cheap","mod\u0065l":"dear"}`, `{"model":"cheap","Model":"dear"}`, `{"model":"cheap","stream":false,"stream":true}`} {
		if _, err := Codec.Peek(wire.Generate, path, []byte(body)); err == nil {
			t.Errorf("%s passed", body)
		}
		if _, err := Codec.Patch(wire.Generate, path, "", nil, []byte(body), wire.Target{Model: "cheap"}); err == nil {
			t.Errorf("%s was patched", body)
		}
	}
}

func TestPassedBytesStayAsTheyAre(t *testing.T) {
	c, err := Codec.Patch(wire.Generate, path, "api-version=1&key=vk", http.Header{"Authorization": {"Bearer vk"}, "Cookie": {"a"}, "Openai-Beta": {"x=1"}, "Openai-Organization": {"org"}},
		[]byte(full), wire.Target{Model: "gpt-x"})
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Body) != full {
		t.Errorf("the same model: %s", c.Body)
	}
	if c.Path != "/chat/completions" || c.Query != "api-version=1" || c.Strip != nil {
		t.Errorf("%+v", c)
	}
	wiretest.Same(t, http.Header{"Accept": {"text/event-stream"}, "Content-Type": {"application/json"}, "Openai-Beta": {"x=1"}}, c.Header)
	c, err = Codec.Patch(wire.Generate, path, "", nil, []byte(full), wire.Target{Model: `other/"x"`})
	if want := strings.Replace(full, `"gpt-x"`, `"other/\"x\""`, 1); err != nil || string(c.Body) != want {
		t.Errorf("another model: %s", c.Body)
	}
	for in, want := range map[string]string{
		` {"b":1,"model":"m","stream":true}`:                                                    ` {"stream_options":{"include_usage":true},"b":1,"model":"m","stream":true}`,
		`{"model":"m","stream":true,"stream_options":null,"a":1}`:                               `{"model":"m","stream":true,"stream_options":{"include_usage":true},"a":1}`,
		`{"model":"m","stream":true,"stream_options":{"x": 1,"include_usage" : false},"a": 1 }`: `{"model":"m","stream":true,"stream_options":{"x": 1,"include_usage" : true},"a": 1 }`,
		`{"model":"m","stream":true,"stream_options":{}}`:                                       `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","stream":false}`:                                                          `{"model":"m","stream":false}`,
	} {
		c, err := Codec.Patch(wire.Generate, path, "", nil, []byte(in), wire.Target{Model: "m"})
		if err != nil || string(c.Body) != want {
			t.Errorf("%s became %s, %v", in, c.Body, err)
		}
		if asked := strings.Contains(in, `"stream":false`); (c.Strip == nil) != asked {
			t.Errorf("%s: strip %v", in, c.Strip != nil)
		}
	}
}

// Fault 9 and 20 of docs/design/gateway-faults.md: three turns with tools, and the provider gets its opaque data back as it was, in its place, while another gets none of it.
func TestSignaturesComeBackUnchanged(t *testing.T) {
	anthropic := wire.Origin{Protocol: "anthropic", Provider: "a", Model: "claude", Secret: "k"}
	a := &wire.Answer{ID: "1", Model: "claude", Stop: wire.StopTool, Parts: []wire.Part{
		{Kind: wire.ThoughtPart, Text: "first <thought>\n", Thought: &wire.Thinking{Opaque: "sig+1/=", Origin: anthropic}},
		text("So."),
		{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: "redacted", Redacted: true, Origin: anthropic}},
		{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c1", Name: "f", Args: "{}"}, Thought: &wire.Thinking{Opaque: "on the call", Origin: anthropic}},
		callPart("c2", "g", "{}"),
	}}
	body, err := Codec.EncodeAnswer(a, &wire.Request{})
	if err != nil {
		t.Fatal(err)
	}
	whole := gjson.GetBytes(body, "choices.0.message").Raw
	// A client that streams joins what it gets.
	var details []string
	var streamed strings.Builder
	for _, f := range wiretest.Data(t, encoded(&wire.Request{}, a.Events())) {
		gjson.Get(f, "choices.0.delta.reasoning_details").ForEach(func(_, d gjson.Result) bool { details = append(details, d.Raw); return true })
		streamed.WriteString(gjson.Get(f, "choices.0.delta.reasoning_content").Str)
	}
	if streamed.String() != "first <thought>\n" {
		t.Errorf("thoughts %q", &streamed)
	}
	joined := `{"role":"assistant","content":"So.","reasoning_content":"first","reasoning_details":[` + strings.Join(details, ",") + `],"tool_calls":` + gjson.Get(whole, "tool_calls").Raw + `}`
	for name, message := range map[string]string{"whole": whole, "streamed": joined} {
		r, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","messages":[`+message+`,{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool","tool_call_id":"c2","content":"2"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a.Parts, r.Messages[0].Parts, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"sig+1", "redacted", "on the call", "first"} {
			if strings.Contains(string(c.Body), s) {
				t.Errorf("another provider gets %q: %s", s, c.Body)
			}
		}
	}
}

func TestAProvidersOwnDetailsGoBackToItByteForByte(t *testing.T) {
	const list = `[{"type":"reasoning.text","text":"h <b>","signature":"s/1","index":0},{"type":"reasoning.encrypted","data":"d==","id":null,"index":1}]`
	for name, a := range map[string]*wire.Answer{
		"whole": func() *wire.Answer {
			a, err := Codec.DecodeAnswer([]byte(`{"id":"c","choices":[{"message":{"content":"x","reasoning":"h <b>","reasoning_details":`+list+`},"finish_reason":"stop"}]}`), origin)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}(),
		"streamed": answerOf(t, `"delta":{"reasoning":"h ","reasoning_details":[{"type":"reasoning.text","text":"h ","index":0}]}`, `"delta":{"reasoning":"<b>","reasoning_details":[{"type":"reasoning.text","text":"<b>","index":0}]}`,
			`"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"s/1","index":0}]}`, `"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"d==","id":null,"index":1}]}`,
			`"delta":{"content":"x"},"finish_reason":"stop"`, "[DONE]"),
	} {
		if len(a.Parts) != 2 || a.Parts[0].Kind != wire.ThoughtPart || a.Parts[0].Text != "h <b>" || a.Parts[0].Thought == nil {
			t.Fatalf("%s: %+v", name, a.Parts)
		}
		body, _ := Codec.EncodeAnswer(a, &wire.Request{})
		r, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","messages":[`+gjson.GetBytes(body, "choices.0.message").Raw+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		got := gjson.GetBytes(c.Body, "messages.0.reasoning_details").Raw
		if name == "whole" && got != list {
			t.Errorf("%s went back as %s", name, got)
		}
		for _, want := range []string{`"signature":"s/1"`, `"data":"d=="`, `"text":"h \u003cb\u003e"`} {
			if name == "whole" {
				want = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(want)
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s is not in %s", name, want, got)
			}
		}
	}
	// Opaque data that comes after the text is kept too.
	a := answerOf(t, `"delta":{"content":"x"}`, `"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"late"}]}`, `"delta":{},"finish_reason":"stop"`, "[DONE]")
	if len(a.Parts) != 2 || a.Parts[1].Thought == nil || !strings.Contains(a.Parts[1].Thought.Opaque, "late") {
		t.Errorf("%+v", a.Parts)
	}
}

func TestResultsOfTools(t *testing.T) {
	image := wire.Part{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "AAAA", Image: true}}
	r := &wire.Request{Messages: []wire.Message{{Role: wire.User, Parts: []wire.Part{
		{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "a", Parts: []wire.Part{image}}},
		{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "b", Failed: true}}, text("go on")}}}}
	c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	m := gjson.GetBytes(c.Body, "messages").Array()
	if len(m) != 3 || m[0].Get("role").Str != "tool" || m[1].Get("tool_call_id").Str != "b" || m[1].Get("content").Str == "" || m[2].Get("role").Str != "user" ||
		m[2].Get("content.1.image_url.url").Str != "data:image/png;base64,AAAA" || m[2].Get("content.2.text").Str != "go on" {
		t.Errorf("%s", c.Body)
	}
	r, err = Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"city\":\"Pa"}}]}]}`))
	if err != nil || r.Messages[0].Parts[0].Call.Args != `{"invalid_arguments":"{\"city\":\"Pa"}` {
		t.Errorf("arguments that are no JSON: %+v, %v", r, err)
	}
}

func TestAnswers(t *testing.T) {
	for reason, want := range map[string]wire.Stop{"stop": wire.StopEnd, "length": wire.StopLength, "tool_calls": wire.StopTool, "content_filter": wire.StopFilter, "function_call": wire.StopTool} {
		a, err := Codec.DecodeAnswer([]byte(`{"id":"c","model":"m","created":1700000000,"service_tier":"flex","choices":[{"message":{"content":"x"},"finish_reason":"`+reason+`"}]}`), origin)
		if err != nil || a.Stop != want || a.Tier != "flex" || a.Created.Unix() != 1700000000 {
			t.Fatalf("%s: %+v, %v", reason, a, err)
		}
		b, err := Codec.EncodeAnswer(a, &wire.Request{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Codec.DecodeAnswer(b, origin)
		if err != nil {
			t.Fatal(err)
		}
		wiretest.Same(t, a, again)
	}
	b, err := Codec.EncodeAnswer(&wire.Answer{ID: "c", Model: "m", Parts: []wire.Part{thought("hm"), text("a"), text("b"), {Kind: wire.RefusalPart, Text: "no"}, callPart("i", "f", "")}, Stop: wire.StopTool}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"role":"assistant","content":"ab","refusal":"no","reasoning_content":"hm","tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	if got := gjson.GetBytes(b, "choices.0.message").Raw; got != want {
		t.Errorf("%s", got)
	}
	for _, body := range []string{``, `{}`, `{"choices":[]}`, `{"error":{"message":"x"}}`, `{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}`, `{"choices":[{"finish_reason":"error"}]}`} {
		if _, err := Codec.DecodeAnswer([]byte(body), origin); err == nil {
			t.Errorf("%s is an answer", body)
		}
	}
}
