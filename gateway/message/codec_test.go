package message

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func TestPeek(t *testing.T) {
	p, err := Codec.Peek(wire.Generate, "/v1/messages", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if p.Text < 200 || p.Text > len(full) {
		t.Errorf("%d bytes of text", p.Text)
	}
	p.Text, p.Parsed = 0, nil
	want := wire.Peek{Model: "claude-opus-4-8", Stream: true, MaxTokens: 1000, Media: 5, Tools: true, User: "u1", Signed: true, Last: "toolu_2", Calls: []string{"toolu_1", "toolu_2"}}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for name, body := range map[string]string{"model": `{}`, "twice": `{"model":"a","model":"b"}`, "JSON": `{`, "object": `[]`} {
		_, err := Codec.Peek(wire.Generate, "", []byte(body))
		wiretest.Refused(t, err, name)
	}
}

func TestPassedBytesAreTheSame(t *testing.T) {
	const body = "{ \"unknown\":{\"z\":1,\"a\":2},\n\t\"model\" : \"claude-opus-4-8\" , \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 <b>\"}],\"max_tokens\":1,\"cache_control\":{\"type\":\"ephemeral\"}}"
	h := http.Header{"Anthropic-Version": {Second}, "Anthropic-Beta": {"a-1,b-2"}, "Authorization": {"Bearer x"}, "X-Api-Key": {"k"}, "Cookie": {"c"}}
	c, err := Codec.Patch(wire.Generate, "/v1/messages", "beta=true&key=secret", h, []byte(body), target)
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Body) != body {
		t.Errorf("got %s", c.Body)
	}
	want := http.Header{"Anthropic-Version": {Second}, "Anthropic-Beta": {"a-1,b-2"}, "Content-Type": {"application/json"}}
	if d := cmp.Diff(want, c.Header); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if c.Path != "/v1/messages" || c.Query != "beta=true" {
		t.Errorf("%s?%s", c.Path, c.Query)
	}
	c, err = Codec.Patch(wire.Generate, "/v1/messages", "", nil, []byte(body), wire.Target{Model: "other", Origin: here})
	if want := strings.Replace(body, `"claude-opus-4-8"`, `"other"`, 1); err != nil || string(c.Body) != want {
		t.Errorf("got %s, %v\nwant %s", c.Body, err, want)
	}
	if c.Header.Get("anthropic-version") != First {
		t.Errorf("version %s", c.Header.Get("anthropic-version"))
	}
}

func TestPassedSignaturesOfOthersAreLeftOut(t *testing.T) {
	sealed := wire.Seal(&wire.Thinking{Opaque: "gem", Origin: wire.Origin{Protocol: "gemini"}})
	mine := wire.Seal(&wire.Thinking{Opaque: "sig", Origin: here})
	f := func(blocks string) string {
		return `{"model":"claude-opus-4-8","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}, {"role":"assistant","content":[` + blocks + `]} ,{"role":"user","content":"b"}]}`
	}
	bad := `{"type":"thinking","thinking":"x","signature":"` + sealed + `"}`
	for _, c := range []struct{ name, in, want string }{
		{"first", bad + ` , {"type":"text","text":"t"}`, `{"type":"text","text":"t"}`},
		{"last", `{"type":"text","text":"t"} , ` + bad, `{"type":"text","text":"t"}`},
		{"middle", `{"type":"text","text":"t"}, ` + bad + `,{"type":"text","text":"u"}`, `{"type":"text","text":"t"}, {"type":"text","text":"u"}`},
		{"two", bad + `,` + bad + `,{"type":"text","text":"t"},` + bad + `, ` + bad, `{"type":"text","text":"t"}`},
		{"unsigned", `{"type":"thinking","thinking":"x","signature":""},{"type":"text","text":"t"}`, `{"type":"text","text":"t"}`},
		{"alone", bad, bad},
		{"mine", `{"type":"thinking","thinking":"x","signature":"` + mine + `"}`, `{"type":"thinking","thinking":"x","signature":"` + mine + `"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Codec.Patch(wire.Generate, "/v1/messages", "", nil, []byte(f(c.in)), target)
			if err != nil || string(got.Body) != f(c.want) {
				t.Errorf("%v\n got %s\nwant %s", err, got.Body, f(c.want))
			}
		})
	}
}

func TestKey(t *testing.T) {
	for version, want := range map[string]http.Header{
		First:  {"Anthropic-Version": {First}, "X-Api-Key": {"k"}},
		Second: {"Anthropic-Version": {Second}, "Authorization": {"Bearer k"}},
	} {
		h := http.Header{"Anthropic-Version": {version}}
		Codec.Key(h, "k")
		if d := cmp.Diff(want, h); d != "" {
			t.Errorf("%s: -want +got:\n%s", version, d)
		}
	}
}

const wholeAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-8","content":[
	{"type":"thinking","thinking":"Let me see.","signature":"EqoB+/sig=="},{"type":"redacted_thinking","data":"RED+/acted=="},{"type":"text","text":"I'll look."},
	{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city": "Paris"}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}],
	"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,
	"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40},"output_tokens":77,"output_tokens_details":{"thinking_tokens":30}}}`

func TestWholeAnswer(t *testing.T) {
	a, err := Codec.DecodeAnswer([]byte(wholeAnswer), here)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(a)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b, err := Codec.EncodeAnswer(a, &wire.Request{})
	if err != nil {
		t.Fatal(err)
	}
	wiretest.SameJSON(t, string(b), wholeAnswer)
	m := Codec.Meter(false)
	m.Write([]byte(wholeAnswer[:100]))
	if m.State().Ended {
		t.Error("a part of a body is whole")
	}
	m.Write([]byte(wholeAnswer[100:]))
	s := m.State()
	if !s.Ended || s.Usage.Tokens != a.Usage.Tokens || s.Stop != wire.StopTool || len(s.Calls) != 2 || !s.Signed || s.ID != "msg_1" {
		t.Errorf("got %+v", s)
	}
}

// Fault 1: what was read from the cache and written to it is of the input once.
func TestUserPaysForCachedTokensOnce(t *testing.T) {
	a, err := Codec.DecodeAnswer([]byte(`{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":100,"cache_creation_input_tokens":700,"cache_read_input_tokens":200,"output_tokens":1}}`), here)
	if err != nil {
		t.Fatal(err)
	}
	want := agent.ModelTokens{Input: 1000, CacheRead: 200, CacheWrite: 700, Output: 1}
	if a.Usage.Tokens != want || !a.Usage.Known {
		t.Errorf("got %+v, want %+v", a.Usage.Tokens, want)
	}
	b, err := Codec.EncodeAnswer(a, nil)
	if u := gjson.GetBytes(b, "usage"); err != nil || u.Get("input_tokens").Int() != 100 || u.Get("cache_creation_input_tokens").Int() != 700 || u.Get("cache_read_input_tokens").Int() != 200 {
		t.Errorf("written as %s, %v", u.Raw, err)
	}
}

func TestZeroIsKnown(t *testing.T) {
	a, err := Codec.DecodeAnswer([]byte(`{"content":[],"usage":{"input_tokens":0,"output_tokens":0}}`), here)
	if err != nil || !a.Usage.Known {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, err = Codec.DecodeAnswer([]byte(`{"content":[]}`), here); err != nil || a.Usage.Known {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]wire.Stop{
		"end_turn": wire.StopEnd, "stop_sequence": wire.StopSequence, "max_tokens": wire.StopLength, "model_context_window_exceeded": wire.StopLength,
		"tool_use": wire.StopTool, "refusal": wire.StopFilter, "pause_turn": wire.StopPause, "new_one": wire.StopUnknown,
	} {
		a, err := Codec.DecodeAnswer([]byte(`{"content":[{"type":"text","text":"a"}],"stop_reason":"`+reason+`","stop_sequence":"X"}`), here)
		if err != nil || a.Stop != want {
			t.Errorf("%s: got %v, %v", reason, a.Stop, err)
		}
		s, f := wiretest.Collect(events(startFrame, endFrame(reason), stopFrame))
		if f != nil || s.Stop != want {
			t.Errorf("%s in a stream: got %v, %v", reason, s.Stop, f)
		}
	}
	for stop, want := range map[wire.Stop]string{
		wire.StopEnd: "end_turn", wire.StopSequence: "stop_sequence", wire.StopLength: "max_tokens", wire.StopTool: "tool_use", wire.StopFilter: "refusal", wire.StopPause: "pause_turn",
	} {
		b, err := Codec.EncodeAnswer(&wire.Answer{Stop: stop, StopText: "X"}, nil)
		if err != nil || gjson.GetBytes(b, "stop_reason").Str != want {
			t.Errorf("%v: %s, %v", stop, b, err)
		}
		if (gjson.GetBytes(b, "stop_sequence").Str == "X") != (stop == wire.StopSequence) || gjson.GetBytes(b, "stop_details").Exists() != (stop == wire.StopFilter) {
			t.Errorf("%v: %s", stop, b)
		}
	}
}

func TestWhyAModelRefusedIsTold(t *testing.T) {
	a, err := Codec.DecodeAnswer([]byte(`{"content":[],"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"I won't."}}`), here)
	if err != nil || a.Stop != wire.StopFilter || len(a.Parts) != 1 || a.Parts[0].Kind != wire.RefusalPart || a.Parts[0].Text != "I won't." {
		t.Fatalf("got %+v, %v", a, err)
	}
	b, err := Codec.EncodeAnswer(a, nil)
	if err != nil || gjson.GetBytes(b, "stop_details.explanation").Str != "I won't." {
		t.Errorf("%s, %v", b, err)
	}
}

func TestBadAnswers(t *testing.T) {
	for _, body := range []string{"", "{", "[]", `{}`, `{"content":[{"type":"tool_use","id":"","name":"f"}]}`, strings.Repeat("[", 1000)} {
		if _, err := Codec.DecodeAnswer([]byte(body), here); err == nil || agent.KindOf(err) != agent.Unavailable {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	cut := &wire.Answer{Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "f", Args: `{"a`}}}}
	if _, err := Codec.EncodeAnswer(cut, nil); err == nil {
		t.Error("a call that was cut is told as a whole one")
	}
}

func TestFaults(t *testing.T) {
	body := func(typ, message, details string) string {
		return `{"type":"error","error":{"type":"` + typ + `","message":"` + message + `"` + details + `},"request_id":"req_1"}`
	}
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		body   string
		class  agent.FaultClass
	}{
		{"rate", 429, http.Header{"Retry-After": {"7"}}, body("rate_limit_error", "slow", ""), agent.RateLimited},
		{"429 without Retry-After", 429, nil, body("rate_limit_error", "limit", ""), agent.QuotaExhausted},
		{"429 that may be tried", 429, http.Header{"X-Should-Retry": {"true"}}, body("rate_limit_error", "limit", ""), agent.RateLimited},
		{"spend limit", 429, http.Header{"Retry-After": {"7"}}, body("rate_limit_error", "x", `,"details":{"error_code":"enforced_spend_limit_reached"}`), agent.QuotaExhausted},
		{"contract", 429, http.Header{"Retry-After": {"7"}}, body("rate_limit_error", "x", `,"details":{"error_code":"contract_spend_limit_reached"}`), agent.QuotaExhausted},
		{"linked", 429, http.Header{"Retry-After": {"7"}}, body("rate_limit_error", "x", `,"details":{"error_code":"linked_organization_spend_limit_reached"}`), agent.QuotaExhausted},
		{"ramp", 429, http.Header{"Retry-After": {"7"}}, body("rate_limit_error", "x", `,"details":{"error_code":"ramp_limit_exceeded"}`), agent.QuotaExhausted},
		{"credit", 400, nil, body("invalid_request_error", "Your credit balance is too low to access the API", ""), agent.QuotaExhausted},
		{"billing", 402, nil, body("billing_error", "pay", ""), agent.QuotaExhausted},
		{"overloaded", 529, nil, body("overloaded_error", "Overloaded", ""), agent.Overloaded},
		{"unavailable", 503, nil, "<html>", agent.Overloaded},
		{"server", 500, nil, body("api_error", "boom", ""), agent.ServerFault},
		{"bad gateway", 502, nil, "", agent.ServerFault},
		{"timeout", 504, nil, body("timeout_error", "x", ""), agent.ServerFault},
		{"key", 401, nil, body("authentication_error", "invalid x-api-key", ""), agent.AuthFault},
		{"permission", 403, nil, body("permission_error", "no", ""), agent.AuthFault},
		{"too long", 400, nil, body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", ""), agent.ContextLength},
		{"too long with output", 400, nil, body("invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2 > 3", ""), agent.ContextLength},
		{"marks", 400, nil, body("invalid_request_error", "A maximum of 4 blocks with cache_control may be provided. Found 5.", ""), agent.InvalidRequest},
		{"not found", 404, nil, body("not_found_error", "model: x", ""), agent.InvalidRequest},
		{"too large", 413, nil, body("request_too_large", "Request exceeds the maximum size", ""), agent.InvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Codec.DecodeFault(c.status, c.header, []byte(c.body))
			if f.Class != c.class || f.Status != c.status || f.Message == "" {
				t.Errorf("got %+v, want class %s", f, c.class)
			}
			// It is told in the dialect, and means the same when it is read again.
			status, h, b := Codec.EncodeFault(f)
			if g := Codec.DecodeFault(status, h, b); g.Class != c.class || g.Message != f.Message || g.Request != f.Request {
				t.Errorf("told as %d %s, which is %s", status, b, g.Class)
			}
		})
	}
	f := Codec.DecodeFault(429, http.Header{"Retry-After": {"7"}, "Request-Id": {"req_2"}, "X-Should-Retry": {"false"}, "Set-Cookie": {"x"}, "Anthropic-Ratelimit-Requests-Remaining": {"0"}},
		[]byte(body("rate_limit_error", "messages.3.content: no", "")))
	if f.After != 7*time.Second || f.Request != "req_2" || f.Final == nil || !*f.Final || f.Param != "messages.3.content" {
		t.Errorf("got %+v", f)
	}
	if d := cmp.Diff(http.Header{"Retry-After": {"7"}, "Anthropic-Ratelimit-Requests-Remaining": {"0"}}, f.Header); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	_, h, b := Codec.EncodeFault(f)
	if h.Get("Retry-After") != "7" || h.Get("X-Should-Retry") != "false" || h.Get("Request-Id") != "req_2" || gjson.GetBytes(b, "request_id").Str != "req_2" {
		t.Errorf("%v %s", h, b)
	}
}

func TestFaultsOfOthersInThisDialect(t *testing.T) {
	for _, c := range []struct {
		f      wire.Fault
		status int
		typ    string
	}{
		{wire.Fault{Class: agent.RateLimited, Status: 429}, 429, "rate_limit_error"},
		{wire.Fault{Class: agent.QuotaExhausted, Status: 429, Code: "insufficient_quota"}, 429, "rate_limit_error"},
		{wire.Fault{Class: agent.Overloaded, Status: 503}, 529, "overloaded_error"},
		{wire.Fault{Class: agent.ServerFault}, 502, "api_error"},
		{wire.Fault{Class: agent.AuthFault, Status: 401}, 401, "authentication_error"},
		{wire.Fault{Class: agent.InvalidRequest, Status: 404}, 404, "not_found_error"},
		{wire.Fault{Class: agent.ContextLength, Status: 400}, 400, "invalid_request_error"},
		{wire.Fault{Class: agent.StreamBroken}, 502, "api_error"},
	} {
		status, _, b := Codec.EncodeFault(&c.f)
		if status != c.status || gjson.GetBytes(b, "error.type").Str != c.typ || gjson.GetBytes(b, "type").Str != "error" {
			t.Errorf("%s: %d %s", c.f.Class, status, b)
		}
	}
}

func TestModels(t *testing.T) {
	l := Codec.(wire.Lister)
	m := wire.ModelInfo{ID: "@cheap", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	wiretest.SameJSON(t, string(l.EncodeModels([]wire.ModelInfo{m, {ID: "b", Name: "B", Input: 5}})), `{"data":[{"type":"model","id":"@cheap","display_name":"@cheap","created_at":"2026-01-02T03:04:05Z"},
		{"type":"model","id":"b","display_name":"B","created_at":"1970-01-01T00:00:00Z","max_input_tokens":5}],"has_more":false,"first_id":"@cheap","last_id":"b"}`)
	wiretest.SameJSON(t, string(l.EncodeModels(nil)), `{"data":[],"has_more":false,"first_id":null,"last_id":null}`)
}
