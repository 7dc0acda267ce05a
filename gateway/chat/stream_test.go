package chat

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
	"github.com/tidwall/gjson"
)

func TestStreams(t *testing.T) {
	const finish = `"delta":{},"finish_reason":"tool_calls"`
	for _, c := range []struct {
		name   string
		chunks []string
		parts  []wire.Part
		stop   wire.Stop
	}{
		{"text", []string{`"delta":{"role":"assistant","content":""}`, `"delta":{"content":"Hel"}`, `"delta":{"content":"lo"}`, `"delta":{},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{text("Hello")}, wire.StopEnd},
		{"length", []string{`"delta":{"content":"a"},"finish_reason":"length"`, "[DONE]"}, []wire.Part{text("a")}, wire.StopLength},
		{"filter", []string{`"delta":{"content":"a"}`, `"delta":{},"finish_reason":"content_filter"`, "[DONE]"}, []wire.Part{text("a")}, wire.StopFilter},
		{"refusal", []string{`"delta":{"refusal":"I can"}`, `"delta":{"refusal":"not"}`, `"delta":{},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{{Kind: wire.RefusalPart, Text: "I cannot"}}, wire.StopFilter},
		{"reasoning_content, then text", []string{`"delta":{"reasoning_content":"hm"}`, `"delta":{"reasoning_content":"m","content":null}`, `"delta":{"content":"yes"},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{thought("hmm"), text("yes")}, wire.StopEnd},
		{"reasoning", []string{`"delta":{"reasoning":"hm","content":""}`, `"delta":{"content":"yes"},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{thought("hm"), text("yes")}, wire.StopEnd},
		{"content as parts", []string{`"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`, `"delta":{"content":[{"type":"text","text":"yes"}]},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{thought("hm"), text("yes")}, wire.StopEnd},
		{"the end says stop, though there is a call", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`, `"delta":{},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{callPart("a", "f", "{}")}, wire.StopTool},
		{"arguments in pieces", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`,
			`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}`, `"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{"x":1}`)}, wire.StopTool},
		{"arguments at once, as an object", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x": 1}}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{"x": 1}`)}, wire.StopTool},
		{"arguments null", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":null}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{}`)}, wire.StopTool},
		{"calls side by side", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}`, `"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}`,
			`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1"}},{"index":1,"function":{"arguments":"\"y\":2}"}}]}`, `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{"x":1}`), callPart("b", "g", `{"y":2}`)}, wire.StopTool},
		{"one index for all calls", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`, `"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{}`), callPart("b", "g", `{"y":2}`)}, wire.StopTool},
		{"no index", []string{`"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}`, `"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}`,
			`"delta":{"tool_calls":[{"id":"b","function":{"name":"g","arguments":"{}"}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{}`), callPart("b", "g", `{}`)}, wire.StopTool},
		{"the name comes late", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]}`, `"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":":1}"}}]}`, finish, "[DONE]"},
			[]wire.Part{callPart("a", "f", `{"x":1}`)}, wire.StopTool},
		{"a custom tool", []string{`"delta":{"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"patch","input":"*** Be"}}]}`, `"delta":{"tool_calls":[{"index":0,"custom":{"input":"gin"}}]}`, finish, "[DONE]"},
			[]wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "a", Name: "patch", Args: "*** Begin", Custom: true}}}, wire.StopTool},
		{"the old function_call", []string{`"delta":{"function_call":{"name":"f","arguments":"{"}}`, `"delta":{"function_call":{"arguments":"}"}}`, `"delta":{},"finish_reason":"function_call"`, "[DONE]"},
			[]wire.Part{callPart("ID", "f", `{}`)}, wire.StopTool},
		{"no [DONE]", []string{`"delta":{"content":"a"}`, `"delta":{},"finish_reason":"stop"`}, []wire.Part{text("a")}, wire.StopEnd},
		{"another choice", []string{`{"id":"c1","choices":[{"index":1,"delta":{"content":"no"}}]}`, `"delta":{"content":"a"},"finish_reason":"stop"`, "[DONE]"}, []wire.Part{text("a")}, wire.StopEnd},
		{"a first chunk without choices", []string{`{"id":"c1","choices":[],"prompt_filter_results":[]}`, `"delta":{"content":"a"},"finish_reason":"stop"`, "[DONE]"}, []wire.Part{text("a")}, wire.StopEnd},
		{"an image", []string{`"delta":{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},"finish_reason":"stop"`, "[DONE]"},
			[]wire.Part{{Kind: wire.MediaPart, Media: &wire.Blob{MIME: "image/png", Data: "AAAA", Image: true}}}, wire.StopEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := answerOf(t, c.chunks...)
			if len(a.Parts) == 1 && c.parts[0].Call != nil && c.parts[0].Call.ID == "ID" {
				if !strings.HasPrefix(a.Parts[0].Call.ID, "call_") {
					t.Errorf("made the id %q", a.Parts[0].Call.ID)
				}
				a.Parts[0].Call.ID = "ID"
			}
			wiretest.Same(t, c.parts, a.Parts)
			if a.Stop != c.stop {
				t.Errorf("stop %d, want %d", a.Stop, c.stop)
			}
			m := Codec.Meter(true)
			m.Write([]byte(stream(c.chunks...)))
			if s := m.State(); !s.Ended || !s.Content || s.Fault != nil || s.ID != "c1" {
				t.Errorf("the meter saw %+v", s)
			}
			// Once more, out of our own encoder.
			r := &wire.Request{StreamUse: true}
			again, f := wiretest.Collect(decode(t, encoded(r, decode(t, stream(c.chunks...)))))
			if f != nil {
				t.Fatal(f)
			}
			for i := range again.Parts {
				if a.Parts[i].Call != nil && a.Parts[i].Call.ID == "ID" {
					again.Parts[i].Call.ID = "ID"
				}
			}
			wiretest.Same(t, a.Parts, again.Parts)
		})
	}
}

func TestATruncatedStreamIsNeverASuccess(t *testing.T) {
	for name, chunks := range map[string][]string{
		"cut in the text":       {`"delta":{"content":"a"}`},
		"cut in a call":         {`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"city\":\"Pa"}}]}`},
		"[DONE] in a call":      {`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"city\":\"Pa"}}]}`, "[DONE]"},
		"[DONE] alone":          {"[DONE]"},
		"nothing":               {},
		"a frame cut in two":    {`"delta":{"content":"a"}`, `{"id":"c1","cho`},
		"a call without a name": {`"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}`, `"delta":{},"finish_reason":"tool_calls"`, "[DONE]"},
	} {
		list := decode(t, stream(chunks...))
		if last := list[len(list)-1]; last.Kind != wire.Broken || last.Fault.Class != agent.StreamBroken {
			t.Errorf("%s: ended with %+v", name, last)
		}
		m := Codec.Meter(true)
		m.Write([]byte(stream(chunks...)[:max(len(stream(chunks...))-1, 0)]))
		if name != "[DONE] in a call" && name != "[DONE] alone" && name != "a call without a name" && m.State().Ended {
			t.Errorf("%s: the meter says that it ended", name)
		}
		last := wiretest.Data(t, stream(chunks...)[:max(len(stream(chunks...))-1, 0)]+string(m.(wire.Breaker).Broken(&wire.Fault{Class: agent.StreamBroken, Message: "cut"})))
		if e := gjson.Get(last[len(last)-1], "error"); e.Get("message").Str != "cut" || e.Get("code").Str != "stream_broken" {
			t.Errorf("%s: the passed stream ends with %q", name, last)
		}
		out := encoded(&wire.Request{}, list)
		if strings.Contains(out, "[DONE]") || !strings.Contains(out, `data: {"error":{"message":`) {
			t.Errorf("%s: the client gets %q", name, out)
		}
	}
}

func TestAnErrorWithinAStreamIsThatError(t *testing.T) {
	for body, want := range map[string]agent.FaultClass{
		`{"error":{"message":"The server is overloaded","type":"server_error","code":"server_is_overloaded"}}`:                         agent.Overloaded,
		`{"error":{"message":"Overloaded","type":"overloaded_error"}}`:                                                                 agent.Overloaded,
		`{"error":{"message":"Rate limit","code":429}}`:                                                                                agent.RateLimited,
		`{"error":{"message":"x","code":"insufficient_quota"}}`:                                                                        agent.QuotaExhausted,
		`{"error":"the model runner stopped"}`:                                                                                         agent.StreamBroken,
		`{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502,"message":"Provider disconnected"}}]}`: agent.ServerFault,
	} {
		s := stream(`"delta":{"content":"a"}`, body, "[DONE]")
		_, f := wiretest.Collect(decode(t, s))
		if f == nil || f.Class != want || f.Message == "" {
			t.Errorf("%s: %+v", body, f)
		}
		m := Codec.Meter(true)
		m.Write([]byte(s))
		if got := m.State(); got.Fault == nil || got.Fault.Class != want || got.Ended || !got.Content {
			t.Errorf("%s: the meter saw %+v", body, got)
		}
	}
}

const usageChunk = `{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":80,"total_tokens":1080,"prompt_tokens_details":{"cached_tokens":200,"cache_write_tokens":700},"completion_tokens_details":{"reasoning_tokens":30}}}`

// Fault 1, 11, 13 of docs/design/gateway-faults.md: what is read of a cache is charged once, and the client and the ledger see the same figures.
func TestCachedTokensAreCountedOnce(t *testing.T) {
	want := agent.ModelTokens{Input: 1000, CacheRead: 200, CacheWrite: 700, Output: 80, Reasoning: 30}
	s := stream(`"delta":{"content":"a"}`, `"delta":{},"finish_reason":"stop"`, usageChunk, "[DONE]")
	list := decode(t, s)
	a, _ := wiretest.Collect(list)
	wiretest.Same(t, want, a.Usage.Tokens)
	m := Codec.Meter(true)
	m.Write([]byte(s))
	wiretest.Same(t, want, m.State().Usage.Tokens)
	body := `{"id":"c","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":` + gjson.Get(usageChunk, "usage").Raw + `}`
	whole, err := Codec.DecodeAnswer([]byte(body), origin)
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Same(t, want, whole.Usage.Tokens)
	w := Codec.Meter(false)
	w.Write([]byte(body[:50]))
	if w.State().Ended {
		t.Error("half an answer ended")
	}
	w.Write([]byte(body[50:]))
	if st := w.State(); !st.Ended || !st.Content || st.Stop != wire.StopEnd {
		t.Errorf("%+v", st)
	}
	wiretest.Same(t, want, w.State().Usage.Tokens)

	// The way back: the figures of the client are those that came.
	out := wiretest.Data(t, encoded(&wire.Request{StreamUse: true}, list))
	u := gjson.Get(out[len(out)-2], "usage")
	for k, n := range map[string]int64{"prompt_tokens": 1000, "completion_tokens": 80, "total_tokens": 1080, "prompt_tokens_details.cached_tokens": 200,
		"prompt_tokens_details.cache_write_tokens": 700, "completion_tokens_details.reasoning_tokens": 30} {
		if u.Get(k).Int() != n {
			t.Errorf("%s is %s", k, u.Get(k).Raw)
		}
	}
	if gjson.Get(out[len(out)-2], "choices").Raw != "[]" || gjson.Get(out[0], "usage").Raw != "null" {
		t.Errorf("usage stands in %v", out)
	}
	if s := encoded(&wire.Request{}, list); strings.Contains(s, "usage") {
		t.Errorf("a client that did not ask for usage gets it: %s", s)
	}
}

func TestUsageThatSomeHostsTellElsewhere(t *testing.T) {
	for _, s := range []string{
		stream(`{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2}}]}`, "[DONE]"),
		stream(`{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2}}}`, "[DONE]"),
		stream(`{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, "[DONE]"),
		stream(`{"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, "[DONE]"),
	} {
		a, f := wiretest.Collect(decode(t, s))
		if f != nil || !a.Usage.Known || a.Usage.Tokens != (agent.ModelTokens{Input: 5, Output: 2}) {
			t.Errorf("%s: %+v %v", s, a.Usage, f)
		}
		m := Codec.Meter(true)
		m.Write([]byte(s))
		wiretest.Same(t, agent.ModelTokens{Input: 5, Output: 2}, m.State().Usage.Tokens)
	}
	if a, _ := wiretest.Collect(decode(t, stream(`"delta":{},"finish_reason":"stop"`, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, "[DONE]"))); !a.Usage.Known {
		t.Error("an explicit zero is not known")
	}
}

// Fault 5 of docs/design/gateway-faults.md: the arguments of a tool are there, however they come.
func TestNoArgumentsOfAToolAreLost(t *testing.T) {
	begin := wire.Event{Kind: wire.PartBegin, Part: callPart("a", "f", "")}
	end := []wire.Event{{Kind: wire.PartEnd}, {Kind: wire.End, Stop: wire.StopTool}}
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"whole": {[]string{`{"x":1}`}, `{"x":1}`}, "in pieces": {[]string{`{"x"`, `:1`, `}`}, `{"x":1}`}, "none": {nil, "{}"}, "empty": {[]string{""}, "{}"},
	} {
		list := []wire.Event{{Kind: wire.Begin, ID: "c", Model: "m"}, begin}
		for _, p := range c.pieces {
			list = append(list, wire.Event{Kind: wire.PartDelta, Text: p})
		}
		a, f := wiretest.Collect(decode(t, encoded(&wire.Request{}, append(list, end...))))
		if f != nil || len(a.Parts) != 1 || a.Parts[0].Call.Args != c.want || a.Stop != wire.StopTool {
			t.Errorf("%s: %+v %v", name, a, f)
		}
	}
}

// Issues 6 and 7: calls are numbered from 0 among themselves, and later pieces have their number alone.
func TestToolCallsAreNumberedFromZeroAfterTextAndThoughts(t *testing.T) {
	list := []wire.Event{{Kind: wire.Begin, ID: "c", Model: "m"},
		{Kind: wire.PartBegin, Index: 0, Part: thought("")}, {Kind: wire.PartDelta, Index: 0, Text: "hm"}, {Kind: wire.PartEnd, Index: 0},
		{Kind: wire.PartBegin, Index: 1, Part: text("")}, {Kind: wire.PartDelta, Index: 1, Text: "so"}, {Kind: wire.PartEnd, Index: 1},
		{Kind: wire.PartBegin, Index: 2, Part: callPart("a", "f", "")}, {Kind: wire.PartBegin, Index: 3, Part: callPart("b", "g", "")},
		{Kind: wire.PartDelta, Index: 3, Text: "{}"}, {Kind: wire.PartDelta, Index: 2, Text: `{"x":1}`}, {Kind: wire.PartEnd, Index: 3}, {Kind: wire.PartEnd, Index: 2},
		{Kind: wire.End, Stop: wire.StopTool}}
	seen := map[int64]int{}
	for _, f := range wiretest.Data(t, encoded(&wire.Request{}, list)) {
		c := gjson.Get(f, "choices.0.delta.tool_calls.0")
		if !c.Exists() {
			continue
		}
		n := c.Get("index").Int()
		seen[n]++
		if first := seen[n] == 1; c.Get("id").Exists() != first || c.Get("function.name").Exists() != first {
			t.Errorf("piece %d of call %d is %s", seen[n], n, c.Raw)
		}
	}
	wiretest.Same(t, map[int64]int{0: 2, 1: 2}, seen)
}

// Fault 7 of docs/design/gateway-faults.md: a host that gives no ids gets calls with one stable id each; one that repeats them changes nothing.
func TestIdsOfCallsAreStable(t *testing.T) {
	piece := func(id, args string) string {
		return `"delta":{"tool_calls":[{"index":0,` + id + `"function":{` + args + `}}]}`
	}
	a := answerOf(t, piece("", `"name":"f","arguments":"{"`), piece("", `"arguments":"}"`), `"delta":{},"finish_reason":"tool_calls"`, "[DONE]")
	b := answerOf(t, piece("", `"name":"f","arguments":"{"`), piece("", `"arguments":"}"`), `"delta":{},"finish_reason":"tool_calls"`, "[DONE]")
	if len(a.Parts) != 1 || a.Parts[0].Call.ID == "" || a.Parts[0].Call.ID == b.Parts[0].Call.ID {
		t.Errorf("%+v and %+v", a.Parts, b.Parts)
	}
	c := answerOf(t, piece(`"id":"x",`, `"name":"f","arguments":"{"`), piece(`"id":"x",`, `"name":"f","arguments":"}"`), `"delta":{},"finish_reason":"tool_calls"`, "[DONE]")
	wiretest.Same(t, []wire.Part{callPart("x", "f", "{}")}, c.Parts)
}

func TestAPassedStreamGetsNoUsageThatNobodyAskedFor(t *testing.T) {
	in := stream(`"delta":{"content":"a"}`, `"delta":{},"finish_reason":"stop"`, usageChunk, "[DONE]")
	c, err := Codec.Patch(wire.Generate, path, "", nil, []byte(`{"model":"m","stream":true,"messages":[]}`), wire.Target{Model: "m"})
	if err != nil || c.Strip == nil {
		t.Fatal(err)
	}
	f := sse.NewFilter(wire.MaxFrame, c.Strip)
	out := string(f.Flush(f.Append(nil, []byte(in))))
	if want := strings.Replace(in, "data: "+usageChunk+"\n\n", "", 1); out != want {
		t.Errorf("passed %q", out)
	}
	for _, keep := range []string{
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, `{"choices":[],"prompt_filter_results":[],"usage":null}`,
		`{"choices":[],"error":{"message":"x"},"usage":{"prompt_tokens":1}}`, `[DONE]`, `{`, `{"choices":[]}`,
	} {
		if c.Strip("", []byte(keep)) {
			t.Errorf("left out %s", keep)
		}
	}
}

func TestPingsAreComments(t *testing.T) {
	if s := encoded(nil, []wire.Event{{Kind: wire.Ping}}); s != ": ping\n\n" {
		t.Errorf("%q", s)
	}
}
