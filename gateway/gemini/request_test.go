package gemini

import (
	"encoding/json"
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
  "systemInstruction": {"parts":[{"text":"Be brief."}]},
  "tools": [{"functionDeclarations":[{"name":"weather","description":"of a city","parameters":{"type":"OBJECT","properties":{"city":{"type":"STRING","nullable":true}},"required":["city"]}},{"name":"now"}]}],
  "toolConfig": {"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["weather"]}},
  "contents": [
    {"role":"user","parts":[{"text":"Weather?"},{"inlineData":{"mimeType":"image/png","data":"iVBO"}},{"fileData":{"mimeType":"image/png","fileUri":"https://example.com/a.png"}},
      {"fileData":{"mimeType":"application/pdf","fileUri":"https://generativelanguage.googleapis.com/v1beta/files/1"}}]},
    {"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"S1=="},{"text":"I look."},{"functionCall":{"id":"c1","name":"weather","args":{"city":"Paris"}},"thoughtSignature":"S2=="},{"functionCall":{"name":"weather","args":{"city":"Rome"}}}]},
    {"role":"user","parts":[{"functionResponse":{"id":"c1","name":"weather","response":{"sky":"blue"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"functionResponse":{"name":"weather","response":{"error":"no"}}},{"text":"Go on."}]}
  ],
  "generationConfig": {"temperature":0.5,"topP":0.9,"topK":40,"maxOutputTokens":100,"stopSequences":["END"],"presencePenalty":0.1,"frequencyPenalty":0.2,"seed":7,
    "responseMimeType":"application/json","responseSchema":{"type":"OBJECT","properties":{"a":{"type":"INTEGER","format":"int32"}}},"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"high"}}
}`

func wantFull() *wire.Request {
	sign := func(s string) *wire.Thinking {
		return &wire.Thinking{Opaque: s, Origin: wire.Origin{Protocol: own}}
	}
	return &wire.Request{
		Model: "gemini-3-pro", System: []wire.Part{{Text: "Be brief."}},
		Tools: []wire.Tool{
			{Name: "weather", Description: "of a city", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":["string","null"]}},"required":["city"]}`)},
			{Name: "now"},
		},
		Choice:      wire.Choice{Kind: wire.ChoiceTool, Name: "weather"},
		Temperature: new(0.5), TopP: new(0.9), TopK: new(int64(40)), MaxTokens: new(int64(100)), Stop: []string{"END"}, Presence: new(0.1), Frequency: new(0.2), Seed: new(int64(7)),
		Format:    &wire.Format{Strict: new(true), Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer","format":"int32"}}}`)},
		Reasoning: &wire.Reasoning{Effort: "high", Summary: "auto"},
		Messages: []wire.Message{
			{Parts: []wire.Part{
				{Text: "Weather?"},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "iVBO", Image: true}},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", URL: "https://example.com/a.png", Image: true}},
				{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "application/pdf", FileID: "https://generativelanguage.googleapis.com/v1beta/files/1"}},
			}},
			{Role: wire.Assistant, Parts: []wire.Part{
				{Kind: wire.ThoughtPart, Text: "hm", Thought: sign("S1==")},
				{Text: "I look."},
				{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c1", Name: "weather", Args: `{"city":"Paris"}`}, Thought: sign("S2==")},
				{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "skep_call_1", Name: "weather", Args: `{"city":"Rome"}`}},
			}},
			{Parts: []wire.Part{
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "c1", Name: "weather", Parts: []wire.Part{{Text: `{"sky":"blue"}`}, {Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "AAAA", Image: true}}}}},
				{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "skep_call_1", Name: "weather", Failed: true, Parts: []wire.Part{{Text: "no"}}}},
				{Text: "Go on."},
			}},
		},
	}
}

func TestRequestIsReadWhole(t *testing.T) {
	got := decode(t, full)
	if d := cmp.Diff(wantFull(), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	body := encode(t, got, target)
	wiretest.SameJSON(t, body, full)
	if d := cmp.Diff(wantFull(), decode(t, body)); d != "" {
		t.Errorf("written and read, -want +got:\n%s", d)
	}
}

func TestNamesWithUnderscoresAreRead(t *testing.T) {
	underscored := full
	for _, name := range []string{"systemInstruction", "functionDeclarations", "toolConfig", "functionCallingConfig", "allowedFunctionNames", "inlineData", "mimeType", "fileData", "fileUri",
		"thoughtSignature", "functionCall", "functionResponse", "generationConfig", "topP", "topK", "maxOutputTokens", "stopSequences", "presencePenalty", "frequencyPenalty",
		"responseMimeType", "responseSchema", "thinkingConfig", "includeThoughts", "thinkingLevel"} {
		underscored = strings.ReplaceAll(underscored, `"`+name+`"`, `"`+snake(name)+`"`)
	}
	if d := cmp.Diff(wantFull(), decode(t, underscored)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	_, err := Codec.Decode(wire.Generate, askPath, nil, []byte(`{"contents":[],"generationConfig":{},"generation_config":{}}`))
	wiretest.Refused(t, err, "generationConfig")
}

func TestStreamsAreAskedForInTwoForms(t *testing.T) {
	for path, want := range map[string][2]bool{
		"/v1beta/models/m:generateContent":                       {false, false},
		"/v1beta/models/m:streamGenerateContent":                 {true, true},
		"/v1beta/models/m:streamGenerateContent?alt=sse":         {true, false},
		"/v1beta/models/m:streamGenerateContent?key=k&alt=sse":   {true, false},
		"/v1beta/models/m:streamGenerateContent?alt=json":        {true, true},
		"/v1beta/models/prov%2Fm:streamGenerateContent?$alt=sse": {true, false},
	} {
		r, err := Codec.Decode(wire.Generate, path, nil, []byte(`{"contents":[{"parts":[{"text":"a"}]}]}`))
		if err != nil || r.Stream != want[0] || r.Array != want[1] {
			t.Errorf("%s: got %+v, %v", path, r, err)
		}
	}
	c, err := Codec.Encode(wire.Generate, &wire.Request{Stream: true, Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}, wire.Target{Model: "a b/c"})
	if err != nil || c.Path != "/v1beta/models/a%20b/c:streamGenerateContent" || c.Query != "alt=sse" {
		t.Errorf("got %s?%s, %v", c.Path, c.Query, err)
	}
}

func TestThinking(t *testing.T) {
	for _, c := range []struct {
		name   string
		to     wire.Target
		reason wire.Reasoning
		want   string
	}{
		{"effort, new", target, wire.Reasoning{Effort: "medium"}, `{"thinkingLevel":"medium"}`},
		{"most, new", target, wire.Reasoning{Effort: "max", Summary: "auto"}, `{"includeThoughts":true,"thinkingLevel":"high"}`},
		{"none, new", target, wire.Reasoning{Effort: "none", Summary: "auto"}, `{"thinkingLevel":"minimal"}`},
		{"effort, old", older, wire.Reasoning{Effort: "medium"}, `{"thinkingBudget":8192}`},
		{"none, old", older, wire.Reasoning{Effort: "none"}, `{"thinkingBudget":0}`},
		{"budget", target, wire.Reasoning{Budget: new(int64(900))}, `{"thinkingBudget":900}`},
		{"both, old", older, wire.Reasoning{Effort: "low", Budget: new(int64(900))}, `{"thinkingBudget":900}`},
		{"adaptive", older, wire.Reasoning{Adapt: true}, `{"thinkingBudget":-1}`},
		{"hidden", target, wire.Reasoning{Effort: "low", Summary: "auto", Hidden: true}, `{"thinkingLevel":"low"}`},
		{"nothing", target, wire.Reasoning{}, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := encode(t, &wire.Request{Reasoning: &c.reason, Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}, c.to)
			if got := gjson.Get(body, "generationConfig.thinkingConfig").Raw; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for body, want := range map[string]*wire.Reasoning{
		`{"thinkingBudget":-1}`:    {Adapt: true},
		`{"thinkingBudget":0}`:     {Effort: "none"},
		`{"thinkingBudget":5}`:     {Budget: new(int64(5))},
		`{"thinkingLevel":"HIGH"}`: {Effort: "high"},
		`{"includeThoughts":true}`: {Summary: "auto"},
	} {
		r := decode(t, `{"contents":[{"parts":[{"text":"a"}]}],"generationConfig":{"thinkingConfig":`+body+`}}`)
		if d := cmp.Diff(want, r.Reasoning); d != "" {
			t.Errorf("%s: -want +got:\n%s", body, d)
		}
	}
}

func TestChoice(t *testing.T) {
	for want, c := range map[string]wire.Choice{
		`{"mode":"AUTO"}`: {Kind: wire.ChoiceAuto}, `{"mode":"NONE"}`: {Kind: wire.ChoiceNone}, `{"mode":"ANY"}`: {Kind: wire.ChoiceAny},
		`{"mode":"ANY","allowedFunctionNames":["f"]}`:           {Kind: wire.ChoiceTool, Name: "f"},
		`{"mode":"ANY","allowedFunctionNames":["f","g"]}`:       {Kind: wire.ChoiceAny, Among: []string{"f", "g"}},
		`{"mode":"VALIDATED","allowedFunctionNames":["f","g"]}`: {Kind: wire.ChoiceAuto, Among: []string{"f", "g"}},
	} {
		r := &wire.Request{Model: "gemini-3-pro", Choice: c, Tools: []wire.Tool{{Name: "f"}}, Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}
		body := encode(t, r, target)
		if got := gjson.Get(body, "toolConfig.functionCallingConfig").Raw; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if d := cmp.Diff(r, decode(t, body)); d != "" {
			t.Errorf("%s: -want +got:\n%s", want, d)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(s string) string { return `{"contents":[{"parts":[{"text":"a"}]}],` + s + `}` }
	for _, c := range []struct{ name, path, body, field string }{
		{"model", "/v1beta/models", `{}`, "path"},
		{"contents", askPath, `{}`, "contents"},
		{"JSON", askPath, `{"`, "JSON"},
		{"role", askPath, `{"contents":[{"role":"robot","parts":[{"text":"a"}]}]}`, "contents[0].role"},
		{"code", askPath, `{"contents":[{"role":"model","parts":[{"executableCode":{"code":"x"}}]}]}`, "executableCode"},
		{"cached", askPath, with(`"cachedContent":"cachedContents/1"`), "cachedContent"},
		{"candidates", askPath, with(`"generationConfig":{"candidateCount":2}`), "candidateCount"},
		{"pictures", askPath, with(`"generationConfig":{"responseModalities":["TEXT","IMAGE"]}`), "responseModalities"},
		{"MIME", askPath, with(`"generationConfig":{"responseMimeType":"text/x.enum"}`), "responseMimeType"},
		{"mode", askPath, with(`"toolConfig":{"functionCallingConfig":{"mode":"MAYBE"}}`), "mode"},
		{"nameless", askPath, with(`"tools":[{"functionDeclarations":[{"description":"x"}]}]`), "tools[0]"},
		{"result of nothing", askPath, `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{}}}]}]}`, "contents[0].parts[0].functionResponse"},
		{"system image", askPath, with(`"systemInstruction":{"parts":[{"inlineData":{}}]}`), "systemInstruction.parts[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Codec.Decode(wire.Generate, c.path, http.Header{}, []byte(c.body))
			wiretest.Refused(t, err, c.field)
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	said := func(p wire.Part) *wire.Request {
		return &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}, p}}}}
	}
	tool := func(x wire.Tool) *wire.Request {
		r := said(wire.Part{Text: "b"})
		r.Tools = []wire.Tool{x}
		return r
	}
	single := tool(wire.Tool{Name: "f"})
	single.Parallel = new(false)
	wild := said(wire.Part{Text: "b"})
	wild.Reasoning = &wire.Reasoning{Effort: "wild"}
	for _, c := range []struct {
		name  string
		r     *wire.Request
		field string
	}{
		{"one call at a time", single, "parallel_tool_calls"},
		{"native tool of another", tool(wire.Tool{Name: "shell", Native: json.RawMessage(`{}`), Of: agent.ResponseProtocol}), "tools.0"},
		{"name of a tool", tool(wire.Tool{Name: "1a"}), "tools.0.name"},
		{"effort", wild, "effort"},
		{"file of another", said(wire.Part{Kind: wire.MediaPart, Media: &wire.Blob{FileID: "file-1"}}), "messages.0.1"},
		{"result of nothing", said(wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: "x"}}), "messages.0.1"},
		{"cut arguments", &wire.Request{Messages: []wire.Message{{Role: wire.Assistant, Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "x", Name: "f", Args: `{"a`}}}}}}, "messages.0.0"},
		{"nothing said", &wire.Request{}, "messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Codec.Encode(wire.Generate, c.r, target)
			wiretest.Refused(t, err, c.field)
		})
	}
}

func TestNativeToolsGoToTheirOwnProtocol(t *testing.T) {
	r := decode(t, `{"contents":[{"parts":[{"text":"a"}]}],"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"f"}]}]}`)
	if !r.Tools[0].Of.Chats() || r.Tools[0].Of != agent.GeminiProtocol {
		t.Fatalf("got %+v", r.Tools)
	}
	wiretest.SameJSON(t, gjson.Get(encode(t, r, target), "tools").Raw, `[{"googleSearch":{}},{"functionDeclarations":[{"name":"f"}]}]`)
}

func TestSchema(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{"$schema":"x","type":"object","properties":{"b":{"type":"string","minLength":1,"default":"x"},"a":{"type":"number","exclusiveMinimum":0}},"required":["b","zz"],"additionalProperties":false}`,
			`{"type":"OBJECT","properties":{"b":{"type":"STRING","minLength":1},"a":{"type":"NUMBER"}},"required":["b"]}`},
		{"null", `{"type":["string","null"],"enum":["a",null]}`, `{"type":"STRING","enum":["a"],"nullable":true}`},
		{"any of null", `{"anyOf":[{"type":"integer"},{"type":"null"}],"description":"d"}`, `{"description":"d","anyOf":[{"type":"INTEGER"}],"nullable":true}`},
		{"one of", `{"oneOf":[{"type":"integer"},{"type":"string"}]}`, `{"anyOf":[{"type":"INTEGER"},{"type":"STRING"}]}`},
		{"const", `{"const":"x"}`, `{"type":"STRING","enum":["x"]}`},
		{"reference", `{"type":"object","properties":{"p":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"type":"array","items":{"$ref":"#/$defs/s"}},"s":{"type":"string","format":"uri"}}}`,
			`{"type":"OBJECT","properties":{"p":{"type":"ARRAY","items":{"type":"STRING"}}}}`},
		{"all of one", `{"allOf":[{"type":"string","format":"date-time"}]}`, `{"type":"STRING","format":"date-time"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := toOpenAPI(json.RawMessage(c.in))
			if !ok || string(got) != c.want {
				t.Errorf("got %s, %v; want %s", got, ok, c.want)
			}
		})
	}
	// What would mean something else goes as JSON schema, as it is.
	for _, s := range []string{
		`{"type":"object","properties":{"next":{"$ref":"#"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","properties":{"a":{}}}`, `{"enum":[1,2],"type":"integer"}`,
		`{"type":["string","integer"]}`, `{"type":"array","prefixItems":[{"type":"string"}]}`, `{"allOf":[{"type":"string"},{"minLength":1}]}`,
	} {
		r := &wire.Request{Tools: []wire.Tool{{Name: "f", Schema: json.RawMessage(s)}}, Format: &wire.Format{Schema: json.RawMessage(s)}, Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}}}
		body := encode(t, r, target)
		if got := gjson.Get(body, "tools.0.functionDeclarations.0"); got.Get("parametersJsonSchema").Raw != s || got.Get("parameters").Exists() {
			t.Errorf("%s: got %s", s, got.Raw)
		}
		if got := gjson.Get(body, "generationConfig"); got.Get("responseJsonSchema").Raw != s || got.Get("responseSchema").Exists() {
			t.Errorf("%s: got %s", s, got.Raw)
		}
	}
	// References that make a small schema large are not followed.
	big := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{"d30":{"type":"string"}`
	for i := range 30 {
		ref := `{"$ref":"#/$defs/d` + string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10)) + `"}`
		ref = strings.Replace(ref, "/d0", "/d", 1)
		big += `,"d` + strings.TrimPrefix(string(rune('0'+i/10))+string(rune('0'+i%10)), "0") + `":{"type":"object","properties":{"x":` + ref + `,"y":` + ref + `}}`
	}
	if _, ok := toOpenAPI(json.RawMessage(big + "}}")); ok {
		t.Error("a schema of a billion fields was written out")
	}
}

func TestCount(t *testing.T) {
	c, err := Codec.Encode(wire.Count, decode(t, full), target)
	if err != nil || c.Path != "/v1beta/models/gemini-3-pro:countTokens" {
		t.Fatal(c.Path, err)
	}
	r := gjson.GetBytes(c.Body, "generateContentRequest")
	if r.Get("model").Str != "models/gemini-3-pro" || !r.Get("systemInstruction").Exists() || !r.Get("tools").Exists() || r.Get("generationConfig").Exists() {
		t.Errorf("got %s", c.Body)
	}
	back, err := Codec.Decode(wire.Count, c.Path, nil, c.Body)
	if err != nil || len(back.Messages) != 3 || len(back.Tools) != 2 {
		t.Errorf("got %+v, %v", back, err)
	}
	if p, err := Codec.Peek(wire.Count, c.Path, c.Body); err != nil || p.Media != 3 || !p.Tools {
		t.Errorf("got %+v, %v", p, err)
	}
	counter := Codec.(wire.Counter)
	if n, err := counter.DecodeCount(counter.EncodeCount(42)); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
