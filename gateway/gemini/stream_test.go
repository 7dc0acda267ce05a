package gemini

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestStreamIsReadWhole(t *testing.T) {
	a, f := wiretest.Collect(events(toolStream...))
	if f != nil {
		t.Fatal(f)
	}
	if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(a)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestStreamIsWrittenAsItWasReadInBothForms(t *testing.T) {
	for _, array := range []bool{false, true} {
		r := &wire.Request{Array: array}
		chunks := chunksOf(t, r, wiretest.Encode(Codec.Encoder(r), events(toolStream...)))
		a, f := wiretest.Collect(events(chunks...))
		if f != nil {
			t.Fatal(f)
		}
		if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(a)); d != "" {
			t.Errorf("array %v: -want +got:\n%s", array, d)
		}
	}
}

// Fault 11: what the model thought is of the output, also of that which is billed.
func TestUserIsToldThoughtsAsOutput(t *testing.T) {
	a, _ := wiretest.Collect(events(toolStream...))
	m := Codec.Meter(true)
	for _, c := range toolStream {
		m.Write([]byte("data: " + c + "\r\n\r\n"))
	}
	if d := cmp.Diff(a.Usage, m.State().Usage); d != "" {
		t.Errorf("what passes is counted in another way than what is translated, -decoder +meter:\n%s", d)
	}
	chunks := chunksOf(t, nil, wiretest.Encode(Codec.Encoder(nil), events(toolStream...)))
	u := gjson.Get(chunks[len(chunks)-1], "usageMetadata")
	wiretest.SameJSON(t, u.Raw, `{"promptTokenCount":105,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":30,"totalTokenCount":155}`)
}

// Fault 1: cached tokens are of the prompt, once.
func TestUserPaysForCachedTokensOnce(t *testing.T) {
	u := usageOf(gjson.Parse(`{"promptTokenCount":1000,"cachedContentTokenCount":200,"candidatesTokenCount":1}`))
	if want := (agent.ModelTokens{Input: 1000, CacheRead: 200, Output: 1}); u.Tokens != want || !u.Known {
		t.Errorf("got %+v, want %+v", u, want)
	}
	u = usageOf(gjson.Parse(`{"promptTokenCount":1000,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":300},{"modality":"TEXT","tokenCount":700}],"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":100}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":9}]}`))
	if u.Tokens.AudioIn != 200 || u.Tokens.AudioOut != 9 {
		t.Errorf("got %+v", u.Tokens)
	}
	if u := usageOf(gjson.Parse(`{"promptTokenCount":0}`)); !u.Known {
		t.Error("a zero that was told is not known")
	}
}

// Fault 13: each chunk repeats what was used until then.
func TestUserIsNotChargedForEachChunk(t *testing.T) {
	c := func(n string) string {
		return `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":` + n + `}}`
	}
	a, f := wiretest.Collect(events(c("1"), c("2"), c("3"))) // some models tell a reason with each
	if f != nil || a.Usage.Tokens.Input != 10 || a.Usage.Tokens.Output != 3 || a.Parts[0].Text != "aaa" {
		t.Errorf("got %+v, %v", a, f)
	}
}

// Fault 10: the signature of the first of parallel calls reaches its call again, through a client that keeps what it got.
func TestUserKeepsTheSignatureOfACall(t *testing.T) {
	a, _ := wiretest.Collect(events(toolStream...))
	b, err := Codec.EncodeAnswer(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := decode(t, `{"contents":[{"parts":[{"text":"a"}]},`+gjson.GetBytes(b, "candidates.0.content").Raw+`,
		{"parts":[{"functionResponse":{"name":"now","response":{"output":"9"}}},{"functionResponse":{"name":"weather","response":{"sky":"blue"}}}]}]}`)
	out := encode(t, r, target)
	wiretest.SameJSON(t, gjson.Get(out, "contents.1.parts.1").Raw, `{"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"CiQB/sig+=="}`)
	wiretest.SameJSON(t, gjson.Get(out, "contents.1.parts.2").Raw, `{"functionCall":{"name":"now","args":{}}}`)
	wiretest.SameJSON(t, gjson.Get(out, "contents.2.parts").Raw, `[{"functionResponse":{"name":"weather","response":{"sky":"blue"}}},{"functionResponse":{"name":"now","response":{"output":"9"}}}]`)
}

func TestSignatureOnTextComesBackOnText(t *testing.T) {
	a, f := wiretest.Collect(events(`{"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}`, `{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"T=="}]},"finishReason":"STOP"}]}`))
	if f != nil {
		t.Fatal(f)
	}
	out := encode(t, &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}, {Role: wire.Assistant, Parts: a.Parts}}}, target)
	wiretest.SameJSON(t, gjson.Get(out, "contents.1.parts").Raw, `[{"text":"hi","thoughtSignature":"T=="}]`)
}

func TestThoughtBeforeACallSignsIt(t *testing.T) {
	sign := &wire.Thinking{Opaque: "S==", Origin: here}
	r := &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}, {Role: wire.Assistant, Parts: []wire.Part{
		{Text: "x"}, {Kind: wire.ThoughtPart, Thought: sign}, {Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "f"}},
	}}}}
	wiretest.SameJSON(t, gjson.Get(encode(t, r, target), "contents.1.parts").Raw, `[{"text":"x"},{"functionCall":{"id":"c","name":"f","args":{}},"thoughtSignature":"S=="}]`)
}

func TestHistoryOfAnotherModelIsMarked(t *testing.T) {
	foreign := &wire.Thinking{Opaque: "EqoB", Origin: wire.Origin{Protocol: "anthropic"}}
	call := func(id string) wire.Part {
		return wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: id, Name: "f", Args: "{}"}}
	}
	r := &wire.Request{Messages: []wire.Message{{Parts: []wire.Part{{Text: "a"}}}, {Role: wire.Assistant, Parts: []wire.Part{
		{Kind: wire.ThoughtPart, Text: "secret", Thought: foreign}, call("1"), call("2"),
	}}}}
	wiretest.SameJSON(t, gjson.Get(encode(t, r, target), "contents.1.parts").Raw,
		`[{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"id":"2","name":"f","args":{}}}]`)
	if s := encode(t, r, older); strings.Contains(s, "thoughtSignature") || strings.Contains(s, "secret") {
		t.Errorf("got %s", s)
	}
}

// Fault 9: signatures of others pass through clients of this protocol, in base64, as their SDKs want it.
func TestUserKeepsThoughtsOfAnotherProvider(t *testing.T) {
	foreign := wire.Thinking{Opaque: "Eqo/+B==", Origin: wire.Origin{Protocol: "anthropic", Provider: "a"}}
	a := &wire.Answer{Stop: wire.StopEnd, Parts: []wire.Part{{Kind: wire.ThoughtPart, Text: "hm", Thought: &foreign}, {Text: "x"}}}
	b, err := Codec.EncodeAnswer(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := gjson.GetBytes(b, "candidates.0.content").Raw
	for _, s := range []string{body, strings.NewReplacer("+", "-", "=", "").Replace(body)} { // some send it in the other alphabet
		r := decode(t, `{"contents":[{"parts":[{"text":"a"}]},`+s+`]}`)
		if d := cmp.Diff(&foreign, r.Messages[1].Parts[0].Thought); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if out := encode(t, r, target); strings.Contains(out, "thoughtSignature") {
			t.Errorf("sent to another provider: %s", out)
		}
	}
}

// Fault 5: a call whose arguments come in pieces is written when it is whole; without any they are {}.
func TestUserGetsTheArgumentsOfACallHoweverTheyCome(t *testing.T) {
	begin := wire.Event{Kind: wire.PartBegin, Part: wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "f"}}}
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{{"whole", []string{`{"a":1}`}, `{"a":1}`}, {"pieces", []string{`{"a`, "", `":1}`}, `{"a":1}`}, {"none", nil, `{}`}} {
		t.Run(c.name, func(t *testing.T) {
			list := []wire.Event{{Kind: wire.Begin}, begin}
			for _, p := range c.pieces {
				list = append(list, wire.Event{Kind: wire.PartDelta, Text: p})
			}
			list = append(list, wire.Event{Kind: wire.PartEnd}, wire.Event{Kind: wire.End, Stop: wire.StopTool})
			chunks := chunksOf(t, nil, wiretest.Encode(Codec.Encoder(nil), list))
			if got := gjson.Get(chunks[0], "candidates.0.content.parts.0.functionCall.args").Raw; got != c.want || len(chunks) != 2 {
				t.Errorf("got %s in %d chunks, want %s", got, len(chunks), c.want)
			}
			if r := gjson.Get(chunks[1], "candidates.0.finishReason").Str; r != "STOP" {
				t.Errorf("reason %s", r)
			}
		})
	}
}

// Fault 8: a call that was cut is no call.
func TestUserNeverGetsACutCall(t *testing.T) {
	for _, array := range []bool{false, true} {
		r := &wire.Request{Array: array}
		chunks := chunksOf(t, r, wiretest.Encode(Codec.Encoder(r), []wire.Event{
			{Kind: wire.Begin}, {Kind: wire.PartBegin, Part: wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "f"}}},
			{Kind: wire.PartDelta, Text: `{"city":"Pa`}, {Kind: wire.End, Stop: wire.StopTool},
		}))
		if len(chunks) != 1 || !gjson.Get(chunks[0], "error.message").Exists() {
			t.Errorf("got %v", chunks)
		}
	}
}

func TestUserSeesThatAStreamBroke(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []string
		class  agent.FaultClass
	}{
		{"cut", toolStream[:4], agent.StreamBroken},
		{"cut after a call", toolStream[:5], agent.StreamBroken},
		{"nothing", nil, agent.StreamBroken},
		{"overloaded", append(slices.Clone(toolStream[:3]), `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`), agent.Overloaded},
		{"internal", append(slices.Clone(toolStream[:3]), `{"error":{"code":500,"message":"boom","status":"INTERNAL"}}`), agent.StreamBroken},
		{"no JSON", []string{`{"cand`}, agent.StreamBroken},
		{"pieces of arguments", []string{`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}`}, agent.StreamBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := events(c.chunks...)
			if _, f := wiretest.Collect(list); f == nil || f.Class != c.class {
				t.Fatalf("got %+v, want class %s", f, c.class)
			}
			for _, array := range []bool{false, true} {
				r := &wire.Request{Array: array}
				chunks := chunksOf(t, r, wiretest.Encode(Codec.Encoder(r), list))
				if last := chunks[len(chunks)-1]; !gjson.Get(last, "error.message").Exists() || !gjson.Get(last, "error.code").Exists() {
					t.Errorf("array %v: the last chunk is %s", array, last)
				}
				for _, x := range chunks {
					if gjson.Get(x, "candidates.0.finishReason").Exists() {
						t.Error("the stream ends cleanly")
					}
				}
			}
		})
	}
}

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]wire.Stop{
		"STOP": wire.StopEnd, "MAX_TOKENS": wire.StopLength, "SAFETY": wire.StopFilter, "RECITATION": wire.StopFilter, "BLOCKLIST": wire.StopFilter, "PROHIBITED_CONTENT": wire.StopFilter,
		"SPII": wire.StopFilter, "IMAGE_SAFETY": wire.StopFilter, "CONTINUATION": wire.StopPause, "MALFORMED_FUNCTION_CALL": wire.StopBroken, "UNEXPECTED_TOOL_CALL": wire.StopBroken,
		"TOO_MANY_TOOL_CALLS": wire.StopBroken, "OTHER": wire.StopUnknown,
	} {
		a, err := Codec.DecodeAnswer([]byte(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"`+reason+`"}]}`), here)
		if err != nil || a.Stop != want {
			t.Errorf("%s: got %v, %v", reason, a, err)
		}
	}
	for stop, want := range map[wire.Stop]string{
		wire.StopEnd: "STOP", wire.StopSequence: "STOP", wire.StopTool: "STOP", wire.StopLength: "MAX_TOKENS", wire.StopFilter: "SAFETY", wire.StopPause: "CONTINUATION", wire.StopBroken: "MALFORMED_FUNCTION_CALL",
	} {
		b, err := Codec.EncodeAnswer(&wire.Answer{Stop: stop}, nil)
		if err != nil || gjson.GetBytes(b, "candidates.0.finishReason").Str != want {
			t.Errorf("%v: %s, %v", stop, b, err)
		}
	}
}

func TestPromptThatIsBlocked(t *testing.T) {
	const body = `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7}}`
	a, err := Codec.DecodeAnswer([]byte(body), here)
	if err != nil || a.Stop != wire.StopFilter || a.Usage.Tokens.Input != 7 || len(a.Parts) != 1 || a.Parts[0].Kind != wire.RefusalPart {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, f := wiretest.Collect(events(body)); f != nil || a.Stop != wire.StopFilter {
		t.Errorf("got %+v, %v", a, f)
	}
	m := Codec.Meter(true)
	m.Write([]byte("data: " + body + "\n\n"))
	if s := m.State(); !s.Ended || s.Stop != wire.StopFilter {
		t.Errorf("got %+v", s)
	}
}

func TestIdsOfCallsAreStable(t *testing.T) {
	a, _ := wiretest.Collect(events(toolStream...))
	b, _ := wiretest.Collect(events(toolStream...))
	if a.Parts[2].Call.ID != b.Parts[2].Call.ID || a.Parts[2].Call.ID == a.Parts[3].Call.ID {
		t.Errorf("ids %s, %s, %s", a.Parts[2].Call.ID, b.Parts[2].Call.ID, a.Parts[3].Call.ID)
	}
	c, _ := wiretest.Collect(events(strings.ReplaceAll(strings.Join(toolStream[4:5], ""), "r1", "r2"), toolStream[5]))
	if c.Parts[0].Call.ID == a.Parts[2].Call.ID {
		t.Error("two answers share an id")
	}
	if len(a.Parts[2].Call.ID) > 40 {
		t.Errorf("%s is too long for some protocols", a.Parts[2].Call.ID)
	}
	d, _ := wiretest.Collect(events(`{"candidates":[{"content":{"parts":[{"functionCall":{"id":"own-1","name":"f","args":{}}}]},"finishReason":"STOP"}]}`))
	if d.Parts[0].Call.ID != "own-1" {
		t.Errorf("the provider's id became %s", d.Parts[0].Call.ID)
	}
}

func TestMeterReadsWhatPassesInBothForms(t *testing.T) {
	sse := "data: " + strings.Join(toolStream, "\r\n\r\ndata: ") + "\r\n\r\n"
	array := "[" + strings.Join(toolStream, "\n,\r\n") + "\n]\n"
	for _, all := range []string{sse, array} {
		for _, size := range []int{1, 13, len(all)} {
			m := Codec.Meter(true)
			for b := range slices.Chunk([]byte(all), size) {
				m.Write(b)
			}
			s := m.State()
			s.Usage.Raw = nil
			want := wire.MeterState{Content: true, Ended: true, Usage: toolAnswer().Usage, Model: "gemini-3-pro", ID: "r1", Stop: wire.StopTool, Signed: true,
				Chars: len(`I think so.I look.{"city":"Paris"}{}`), Calls: []string{signID("CiQB/sig+==")}}
			if d := cmp.Diff(want, s); d != "" {
				t.Errorf("%.10q in pieces of %d, -want +got:\n%s", all, size, d)
			}
		}
	}
}

func TestBrokenStreamEndsInItsForm(t *testing.T) {
	f := &wire.Fault{Class: agent.StreamBroken, Message: "cut", After: 1500 * time.Millisecond}
	elements := strings.Join(toolStream[:2], ",\n")
	for _, c := range []struct {
		name, passed string
		array        bool
	}{
		{"array, after an element", "[" + elements, true},
		{"array, after a comma", "[" + elements + "\n,\r\n", true},
		{"array, at the start", "[", true},
		{"events", "data: " + toolStream[0] + "\n\n", false},
		{"events, cut in a frame", "data: " + toolStream[0] + "\n\ndata: {\"cand", false},
		{"events, nothing", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := Codec.Meter(true)
			m.Write([]byte(c.passed))
			all := append([]byte(c.passed), m.(wire.Breaker).Broken(f)...)
			var last string
			if c.array {
				chunks := chunksOf(t, &wire.Request{Array: true}, all)
				last = chunks[len(chunks)-1]
			} else {
				s := strings.TrimSpace(string(all))
				last = s[strings.LastIndex(s, "\n\ndata: ")+1:]
				last = strings.TrimPrefix(strings.TrimSpace(last), "data: ")
			}
			wiretest.SameJSON(t, last, `{"error":{"code":500,"message":"cut","status":"INTERNAL","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"}]}}`)
			if m.State().Ended {
				t.Error("the stream has ended")
			}
		})
	}
	m := Codec.Meter(true)
	m.Write([]byte("[" + strings.Join(toolStream, ",")))
	if m.State().Ended {
		t.Error("an array that is not closed has ended")
	}
	m = Codec.Meter(true)
	m.Write([]byte("[" + elements + `,{"candidates":[{"con`))
	if s := string(m.(wire.Breaker).Broken(f)); !strings.Contains(s, `"message":"cut"`) {
		t.Errorf("got %s", s)
	}
}
