package response

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
	"github.com/tidwall/gjson"
)

const full = `{
  "model": "gpt-5.2",  "instructions":"Be brief.", "input": [
    {"type":"message","role":"user","content":[{"type":"input_text","text":"What is it?"},{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"low"},
      {"type":"input_image","image_url":"https://example.org/a.png","detail":"auto"},{"type":"input_audio","input_audio":{"data":"BBBB","format":"mp3"}},
      {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,CCCC"},{"type":"input_file","file_url":"https://example.org/b.pdf"}]},
    {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"enc/="},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see.","annotations":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"a","name":"look","arguments":"{\"at\": 1}"},
    {"type":"function_call","call_id":"b","name":"look","arguments":""},
    {"type":"custom_tool_call","call_id":"c","name":"patch","input":"*** Begin"},
    {"type":"function_call_output","call_id":"a","output":"a cat"},
    {"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"a dog"},{"type":"input_image","image_url":"data:image/png;base64,DDDD","detail":"high"}]},
    {"type":"custom_tool_call_output","call_id":"c","output":"Done!"},
    {"role":"user","content":"And?"}],
  "tools":[{"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"b":{},"a":{}}},"strict":true},
    {"type":"custom","name":"patch","description":"Patches.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}}],
  "tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"look"},{"type":"custom","name":"patch"}]}, "parallel_tool_calls":false,
  "max_output_tokens":100, "temperature":0, "top_p":0.5, "reasoning":{"effort":"low","summary":"auto"}, "include":["reasoning.encrypted_content"], "store":false,
  "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"},
  "stream":true,"prompt_cache_key":"k","service_tier":"flex","user":"u","metadata":{"a":"b"},"unknown_field":{"z":1,"a":2}}`

func media(b wire.Blob) wire.Part { return wire.Part{Kind: wire.MediaPart, Media: &b} }

func resultPart(id string, parts ...wire.Part) wire.Part {
	return wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: id, Parts: parts}}
}

func fullRequest() *wire.Request {
	return &wire.Request{
		Model: "gpt-5.2", System: []wire.Part{text("Be brief.")},
		Messages: []wire.Message{
			{Role: wire.User, Parts: []wire.Part{text("What is it?"),
				media(wire.Blob{MIME: "image/png", Data: "AAAA", Image: true, Detail: "low"}), media(wire.Blob{URL: "https://example.org/a.png", Image: true, Detail: "auto"}),
				media(wire.Blob{MIME: "audio/mpeg", Data: "BBBB"}), media(wire.Blob{MIME: "application/pdf", Data: "CCCC", Name: "a.pdf"}), media(wire.Blob{URL: "https://example.org/b.pdf"})}},
			{Role: wire.Assistant, Parts: []wire.Part{
				{Kind: wire.ThoughtPart, Text: "hm", Thought: &wire.Thinking{Opaque: "enc/=", Origin: wire.Origin{Protocol: "openai-responses"}}},
				text("Let me see."), callPart("a", "look", `{"at": 1}`), callPart("b", "look", "{}"),
				{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "patch", Args: "*** Begin", Custom: true}}}},
			{Role: wire.User, Parts: []wire.Part{resultPart("a", text("a cat")),
				resultPart("b", text("a dog"), media(wire.Blob{MIME: "image/png", Data: "DDDD", Image: true, Detail: "high"})), resultPart("c", text("Done!")), text("And?")}},
		},
		Tools: []wire.Tool{{Name: "look", Description: "Looks.", Schema: []byte(`{"type":"object","properties":{"b":{},"a":{}}}`), Strict: new(true)},
			{Name: "patch", Description: "Patches.", Custom: true, Schema: []byte(`{"type":"grammar","syntax":"lark","definition":"start: x"}`)}},
		Choice: wire.Choice{Kind: wire.ChoiceAny, Among: []string{"look", "patch"}}, Parallel: new(false), MaxTokens: new(int64(100)), Temperature: new(0.0), TopP: new(0.5),
		Reasoning: &wire.Reasoning{Effort: "low", Summary: "auto", Opaque: true}, Format: &wire.Format{Name: "n", Schema: []byte(`{"type":"object"}`), Strict: new(true)},
		Stream: true, CacheKey: "k", Tier: "flex", User: "u", Metadata: map[string]string{"a": "b"}, ForgetSafe: true,
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
	r := fullRequest()
	c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "gpt-5.2", Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Codec.Decode(wire.Generate, path, nil, c.Body)
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Same(t, r, got)
	if c.Path != path || gjson.GetBytes(c.Body, "store").Raw != "false" {
		t.Errorf("%s %s", c.Path, c.Body)
	}
	// What opaque data precedes stays in order: reasoning, then the call that it led to.
	var kinds []string
	for _, x := range gjson.GetBytes(c.Body, "input.#.type").Array() {
		kinds = append(kinds, x.Str)
	}
	wiretest.Same(t, []string{"message", "reasoning", "message", "function_call", "function_call", "custom_tool_call", "function_call_output", "function_call_output", "custom_tool_call_output", "message"}, kinds)

	c, err = Codec.Encode(wire.Count, r, wire.Target{Model: "gpt-5.2"})
	if err != nil || c.Path != "/responses/input_tokens" || gjson.GetBytes(c.Body, "stream").Exists() || gjson.GetBytes(c.Body, "max_output_tokens").Exists() {
		t.Errorf("%s %s %v", c.Path, c.Body, err)
	}
	n, err := codec{}.DecodeCount(codec{}.EncodeCount(42))
	if n != 42 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestWhatCannotBeTranslatedIsNamed(t *testing.T) {
	for field, want := range map[string]string{
		`"previous_response_id":"resp_1"`: "previous_response_id", `"conversation":"conv_1"`: "conversation", `"background":true`: "background", `"prompt":{"id":"p"}`: "prompt",
		`"top_logprobs":2`: "top_logprobs", `"include":["message.output_text.logprobs"]`: "include", `"text":{"format":{"type":"xml"}}`: "text.format.type",
		`"reasoning":{"effort":"huge"}`: "reasoning.effort", `"tool_choice":{"type":"web_search_preview"}`: "tool_choice", `"tools":[{"type":"function"}]`: "tools[0].name",
		`"tools":[{}]`:                        "tools[0].type",
		`"input":7`:                           "input",
		`"input":["x"]`:                       "input[0]",
		`"input":[{"type":"item_reference"}]`: "input[0].id",
		`"input":[{"role":"user","content":"x"},{"type":"computer_call"}]`:                   "input[1]",
		`"input":[{"type":"compaction","encrypted_content":"x"}]`:                            "input[0]",
		`"input":[{"type":"local_shell_call"}]`:                                              "input[0]",
		`"input":[{"type":"function_call","name":"f"}]`:                                      "input[0]",
		`"input":[{"type":"function_call_output","output":"x"}]`:                             "input[0].call_id",
		`"input":[{"role":"wizard","content":"x"}]`:                                          "input[0].role",
		`"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:x"}]}]`:  "input[0].content[0].image_url",
		`"input":[{"role":"user","content":[{"type":"input_video"}]}]`:                       "input[0].content[0].type",
		`"input":[{"type":"function_call_output","call_id":"a","output":[{"type":"oops"}]}]`: "input[0].output[0].type",
		`"temperature":"hot"`: "temperature",
	} {
		body := `{"model":"m",` + field
		if !strings.Contains(field, `"input"`) {
			body += `,"input":"hi"`
		}
		_, err := Codec.Decode(wire.Generate, path, nil, []byte(body+`}`))
		if e := agent.AsError(err); err == nil || e.Kind != agent.Invalid || !strings.HasPrefix(e.Msg, want+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, field := range []string{`"previous_response_id":null`, `"background":false`, `"store":true`, `"truncation":"auto"`, `"max_tool_calls":3`, `"text":{"verbosity":"low"}`, `"include":["web_search_call.action.sources"]`,
		`"stream_options":{"include_obfuscation":false}`, `"client_metadata":{"a":1}`} {
		if _, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","input":"hi",`+field+`}`)); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	for want, r := range map[string]*wire.Request{
		"stop: ":                 {Stop: []string{"x"}},
		"tools[0]: ":             {Tools: []wire.Tool{{Name: "google_search", Native: []byte(`{}`), Of: agent.GeminiProtocol}}},
		"messages[0].parts[0]: ": {Messages: []wire.Message{{Parts: []wire.Part{media(wire.Blob{FileID: "file_1"})}}}},
	} {
		if _, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m"}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestNativeItemsAndToolsPassToTheirOwnProtocol(t *testing.T) {
	const body = `{"model":"m","previous_response_id":"resp_1","input":[{"type":"item_reference","id":"x"},{"type":"compaction","encrypted_content":"y"},{"type":"local_shell_call","z":1}],"tools":[{"type":"tool_search"},{"type":"web_search"}]}`
	c, err := Codec.Patch(wire.Generate, path, "", nil, []byte(body), wire.Target{Model: "m"})
	if err != nil || string(c.Body) != body {
		t.Errorf("%s, %v", c.Body, err)
	}
	r, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","input":"hi","tools":[{"type":"web_search","size":"low"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m"})
	if err != nil || gjson.GetBytes(e.Body, "tools.0").Raw != `{"type":"web_search","size":"low"}` {
		t.Errorf("%s, %v", e.Body, err)
	}
}

func TestPassedBytesStayAsTheyAre(t *testing.T) {
	c, err := Codec.Patch(wire.Generate, path, "key=vk", http.Header{"X-Api-Key": {"vk"}, "Session_id": {"s"}}, []byte(full), wire.Target{Model: "gpt-5.2"})
	if err != nil || string(c.Body) != full || c.Query != "" || c.Strip != nil {
		t.Errorf("%+v, %v", c, err)
	}
	wiretest.Same(t, http.Header{"Accept": {"text/event-stream"}, "Content-Type": {"application/json"}, "Session_id": {"s"}}, c.Header)
	c, _ = Codec.Patch(wire.Generate, path, "", nil, []byte(full), wire.Target{Model: "other"})
	if want := strings.Replace(full, `"gpt-5.2"`, `"other"`, 1); string(c.Body) != want {
		t.Errorf("%s", c.Body)
	}
	if _, err := Codec.Patch(wire.Generate, path, "", nil, []byte(`{"model":"a","model":"b"}`), wire.Target{Model: "a"}); err == nil {
		t.Error("a model was smuggled in")
	}
}

func TestPeek(t *testing.T) {
	p, err := Codec.Peek(wire.Generate, path, []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if p.Text < 300 || p.Text > 900 {
		t.Errorf("%d bytes of text", p.Text)
	}
	p.Text, p.Parsed = 0, nil
	wiretest.Same(t, wire.Peek{Model: "gpt-5.2", Stream: true, MaxTokens: 100, Media: 6, Tools: true, User: "u", Signed: true, Calls: []string{"a", "b", "c"}}, p)
	p, err = Codec.Peek(wire.Generate, path, []byte(`{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"x"}]}`))
	if err != nil || p.Last != "a" || p.Signed {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = Codec.Peek(wire.Generate, path, []byte(`{"model":"m","input":"four"}`)); p.Text != 4 || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

// Fault 9 and 20 of docs/design/gateway-faults.md: a client of responses (Codex speaks nothing else) sends encrypted reasoning back, which goes opaque to where it came from, and nowhere else.
func TestEncryptedReasoningComesBackOpaqueAndNeverAsText(t *testing.T) {
	from := wire.Origin{Protocol: "anthropic", Provider: "a", Model: "claude", Secret: "k"}
	a := &wire.Answer{ID: "1", Model: "claude", Stop: wire.StopTool, Parts: []wire.Part{
		{Kind: wire.ThoughtPart, Text: "first <thought>\n\nsecond", Thought: &wire.Thinking{Opaque: "sig+1/=", Origin: from}}, text("So."),
		{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: "redacted", Redacted: true, Origin: from}},
		{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c1", Name: "f", Args: "{}"}, Thought: &wire.Thinking{Opaque: "on the call", Origin: from}},
		callPart("c2", "g", "{}"),
	}}
	body, err := Codec.EncodeAnswer(a, &wire.Request{})
	if err != nil {
		t.Fatal(err)
	}
	out := wiretest.Data(t, encoded(&wire.Request{}, a.Events()))
	checkEvents(t, encoded(&wire.Request{}, a.Events()))
	for name, items := range map[string]string{"whole": gjson.GetBytes(body, "output").Raw, "streamed": gjson.Get(out[len(out)-1], "response.output").Raw} {
		in := strings.TrimSuffix(items, "]") + `,{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":"2"}]`
		for turn := range 3 {
			r, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"model":"m","input":`+in+`}`))
			if err != nil {
				t.Fatal(err)
			}
			wiretest.Same(t, a.Parts, r.Messages[2*turn].Parts)
			c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "m", Origin: origin})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{"sig+1", "redacted", "on the call", "first"} {
				if strings.Contains(string(c.Body), s) {
					t.Errorf("%s: another provider gets %q: %s", name, s, c.Body)
				}
			}
			in = strings.TrimSuffix(in, "]") + "," + strings.TrimPrefix(items, "[")
			in = strings.TrimSuffix(in, "]") + `,{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":"2"}]`
		}
	}
	// OpenAI's own goes to OpenAI as it is, before the call.
	r, err := Codec.Decode(wire.Generate, path, nil, []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "gpt-5.2", Origin: origin})
	if err != nil || gjson.GetBytes(c.Body, "input.1.encrypted_content").Str != "enc/=" {
		t.Errorf("%s, %v", c.Body, err)
	}
}

func TestEncode(t *testing.T) {
	r := &wire.Request{MaxTokens: new(int64(1)), Tools: []wire.Tool{{Name: "f"}, {Name: "patch", Custom: true}}, Choice: wire.Choice{Kind: wire.ChoiceTool, Name: "f"},
		Messages: []wire.Message{{Role: wire.Assistant, Parts: []wire.Part{thought("unsigned"), {Kind: wire.CallPart, Call: &wire.ToolCall{ID: "a", Name: "patch", Args: "x", Custom: true}}}},
			{Parts: []wire.Part{resultPart("a"), {Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "b", Failed: true}}}}}}
	c, err := Codec.Encode(wire.Generate, r, wire.Target{Model: "gpt-4.1"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"max_output_tokens": "16", "tools.0.strict": "false", "tools.0.parameters.type": `"object"`, "tools.1.type": `"function"`, "input.#": "3", "input.0.arguments": `"{\"input\":\"x\"}"`,
		"input.1.type": `"function_call_output"`, "input.1.output": `""`, "input.2.output": `"The tool failed."`, "tool_choice.name": `"f"`, "include": "", "reasoning": "",
	} {
		if got := gjson.GetBytes(c.Body, path).Raw; got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for model, want := range map[string]bool{"gpt-5": true, "openai/o4-mini": true, "gpt-4.1": false, "gpt-5-chat-latest": false, "llama": false} {
		c, err := Codec.Encode(wire.Generate, &wire.Request{}, wire.Target{Model: model})
		if err != nil || gjson.GetBytes(c.Body, "include").Exists() != want {
			t.Errorf("%s: %s %v", model, c.Body, err)
		}
	}
	for budget, want := range map[int64]string{0: "none", 1024: "minimal", 4000: "low", 16000: "medium", 32000: "high"} {
		c, err := Codec.Encode(wire.Generate, &wire.Request{Reasoning: &wire.Reasoning{Budget: &budget}}, wire.Target{Model: "m"})
		if err != nil || gjson.GetBytes(c.Body, "reasoning.effort").Str != want {
			t.Errorf("%d tokens: %s %v", budget, c.Body, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	for tail, want := range map[string]wire.Stop{
		`"status":"completed"`: wire.StopEnd, `"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`: wire.StopLength,
		`"status":"incomplete","incomplete_details":{"reason":"content_filter"}`: wire.StopFilter,
	} {
		a, err := Codec.DecodeAnswer([]byte(`{"id":"r","model":"m","created_at":1700000000,"error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],`+tail+`}`), origin)
		if err != nil || a.Stop != want || a.Created.Unix() != 1700000000 {
			t.Fatalf("%s: %+v, %v", tail, a, err)
		}
		b, err := Codec.EncodeAnswer(a, fullRequest())
		if err != nil {
			t.Fatal(err)
		}
		again, err := Codec.DecodeAnswer(b, origin)
		if err != nil {
			t.Fatal(err)
		}
		a.Tier = "flex" // as asked for
		wiretest.Same(t, a, again)
		for path, want := range map[string]string{"tools.1.type": `"custom"`, "tool_choice.mode": `"required"`, "text.format.name": `"n"`, "reasoning.effort": `"low"`, "store": "false", "previous_response_id": "null", "metadata.a": `"b"`} {
			if got := gjson.GetBytes(b, path).Raw; got != want {
				t.Errorf("%s is %s, want %s", path, got, want)
			}
		}
	}
	for _, body := range []string{``, `{}`, `{"output":7}`, `{"error":{"message":"x"},"output":[]}`, `{"status":"failed","output":[]}`, `{"output":[{"type":"function_call"}]}`} {
		if _, err := Codec.DecodeAnswer([]byte(body), origin); err == nil {
			t.Errorf("%s is an answer", body)
		}
	}
}
