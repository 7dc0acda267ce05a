package gemini

import (
	"encoding/base64"
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
	p, err := Codec.Peek(wire.Generate, "/v1beta/models/prov/gemini-3-pro:streamGenerateContent", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if p.Text < 200 || p.Text > len(full) {
		t.Errorf("%d bytes of text", p.Text)
	}
	p.Text = 0
	// The last result has no id, so the last signature stands for it.
	want := wire.Peek{Model: "prov/gemini-3-pro", Stream: true, MaxTokens: 100, Media: 3, Tools: true, Signed: true, Last: signID("S2=="), Calls: []string{"c1", signID("S2==")}}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for path, model := range map[string]string{
		"/v1beta/models/@cheap:generateContent": "@cheap", "/v1/models/a%2Fb:countTokens": "a/b", "/v1beta/tunedModels/x:generateContent?key=k": "tunedModels/x",
	} {
		if p, err := Codec.Peek(wire.Generate, path, []byte(`{}`)); err != nil || p.Model != model {
			t.Errorf("%s: got %+v, %v", path, p, err)
		}
	}
	_, err = Codec.Peek(wire.Generate, askPath, []byte(`{"contents":[],"contents":[]}`))
	wiretest.Refused(t, err, "contents")
}

// Fault 10: a request that answers signed calls is known by what the provider signed, with ids and without.
func TestUserStaysWithTheProviderThatSigned(t *testing.T) {
	m := Codec.Meter(true)
	for _, c := range toolStream {
		m.Write([]byte("data: " + c + "\n\n"))
	}
	p, err := Codec.Peek(wire.Generate, askPath, []byte(`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"CiQB/sig+=="}]},
		{"parts":[{"functionResponse":{"name":"weather","response":{}}}]}]}`))
	if calls := m.State().Calls; err != nil || len(calls) != 1 || calls[0] != p.Last {
		t.Errorf("the answer had %v, the request answers %q; %v", calls, p.Last, err)
	}
}

func TestPassedBytesAreTheSame(t *testing.T) {
	const body = "{ \"safetySettings\":[{\"z\":1,\"a\":2}],\n\t\"contents\" : [{\"parts\":{\"text\":\"\\u00e9 <b>\"}}] }"
	h := http.Header{"X-Goog-Api-Key": {"k"}, "Cookie": {"c"}}
	c, err := Codec.Patch(wire.Generate, "/v1beta/models/gemini-3-pro:streamGenerateContent", "key=k&alt=sse", h, []byte(body), target)
	if err != nil || string(c.Body) != body || c.Path != "/v1beta/models/gemini-3-pro:streamGenerateContent" || c.Query != "alt=sse" {
		t.Errorf("got %s?%s %s, %v", c.Path, c.Query, c.Body, err)
	}
	if d := cmp.Diff(http.Header{"Content-Type": {"application/json"}}, c.Header); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	c, err = Codec.Patch(wire.Generate, "/v1beta/models/@cheap:generateContent", "", nil, []byte(body), target)
	if err != nil || string(c.Body) != body || c.Path != askPath {
		t.Errorf("got %s %s, %v", c.Path, c.Body, err)
	}
	const count = `{"generateContentRequest": {"contents":[] , "model":"models/@cheap"}}`
	c, err = Codec.Patch(wire.Count, "/v1beta/models/@cheap:countTokens", "", nil, []byte(count), target)
	if want := strings.Replace(count, "@cheap", "gemini-3-pro", 1); err != nil || string(c.Body) != want {
		t.Errorf("got %s, %v; want %s", c.Body, err, want)
	}
}

func TestPassedSignaturesOfOthersAreLeftOut(t *testing.T) {
	sealed := signature(&wire.Thinking{Opaque: "sig", Origin: wire.Origin{Protocol: "anthropic"}})
	if _, err := base64.StdEncoding.DecodeString(sealed); err != nil {
		t.Errorf("a sealed signature is no base64, which SDKs want: %v", err)
	}
	f := func(parts string) string {
		return `{"x":1 ,"contents":[{"parts":[{"text":"a"}]}, {"role":"model","parts":[` + parts + `]} ]}`
	}
	for _, c := range []struct{ name, in, want string }{
		{"text", `{"text":"t", "thoughtSignature":"` + sealed + `"} , {"text":"u"}`, `{"text":"t"} , {"text":"u"}`},
		{"call", `{"functionCall":{"name":"f","args":{ }},"thoughtSignature":"` + sealed + `"}`, `{"functionCall":{"name":"f","args":{ }},"thoughtSignature":"skip_thought_signature_validator"}`},
		{"alone", `{"thoughtSignature":"` + sealed + `"}`, `{"text":""}`},
		{"own", `{"text":"t","thoughtSignature":"CiQB=="}`, `{"text":"t","thoughtSignature":"CiQB=="}`},
	} {
		got, err := Codec.Patch(wire.Generate, askPath, "", nil, []byte(f(c.in)), target)
		if err != nil || string(got.Body) != f(c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, got.Body, f(c.want))
		}
	}
}

func TestKey(t *testing.T) {
	h := http.Header{}
	Codec.Key(h, "k")
	if h.Get("x-goog-api-key") != "k" {
		t.Errorf("got %v", h)
	}
}

func TestWholeAnswer(t *testing.T) {
	const body = `{"candidates":[{"content":{"role":"model","parts":[{"text":"I think so.","thought":true},{"text":"I look."},
		{"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"CiQB/sig+=="},{"functionCall":{"name":"now","args":{}}}]},"finishReason":"STOP","index":0}],
		"usageMetadata":{"promptTokenCount":105,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":30,"totalTokenCount":155},"modelVersion":"gemini-3-pro","responseId":"r1"}`
	a, err := Codec.DecodeAnswer([]byte(body), here)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(toolAnswer(), wiretest.NoRaw(a)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b, err := Codec.EncodeAnswer(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Codec.DecodeAnswer(b, here)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wiretest.NoRaw(a), wiretest.NoRaw(again)); d != "" {
		t.Errorf("written and read, -want +got:\n%s", d)
	}
	m := Codec.Meter(false)
	m.Write([]byte(body[:50]))
	if m.State().Ended {
		t.Error("a part of a body is whole")
	}
	m.Write([]byte(body[50:]))
	if s := m.State(); !s.Ended || s.Usage.Tokens != a.Usage.Tokens || s.Stop != wire.StopTool || !s.Signed {
		t.Errorf("got %+v", s)
	}
}

func TestPictureInAnAnswer(t *testing.T) {
	const body = `{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"iVBO"}}]},"finishReason":"STOP"}]}`
	a, err := Codec.DecodeAnswer([]byte(body), here)
	if err != nil || len(a.Parts) != 1 || a.Parts[0].Media == nil || !a.Parts[0].Media.Image {
		t.Fatalf("got %+v, %v", a, err)
	}
	b, err := Codec.EncodeAnswer(a, nil)
	if err != nil || gjson.GetBytes(b, "candidates.0.content.parts.0.inlineData.data").Str != "iVBO" {
		t.Errorf("got %s, %v", b, err)
	}
}

func TestBadAnswers(t *testing.T) {
	for _, body := range []string{"", "{", "[]", "{}", `{"candidates":[]}`, `{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`, `{"error":{"code":500,"message":"x"}}`} {
		if _, err := Codec.DecodeAnswer([]byte(body), here); err == nil || agent.KindOf(err) != agent.Unavailable {
			t.Errorf("%s: %v", body, err)
		}
	}
	cut := &wire.Answer{Parts: []wire.Part{{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "c", Name: "f", Args: `{"a`}}}}
	if _, err := Codec.EncodeAnswer(cut, nil); err == nil {
		t.Error("a call that was cut is told as a whole one")
	}
}

func TestFaults(t *testing.T) {
	body := func(code, status, message, details string) string {
		return `{"error":{"code":` + code + `,"message":"` + message + `","status":"` + status + `","details":[` + details + `]}}`
	}
	const (
		retry  = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"13.5s"}`
		minute = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}`
		day    = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
		badKey = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}`
	)
	for _, c := range []struct {
		name   string
		status int
		body   string
		class  agent.FaultClass
		after  time.Duration
	}{
		{"rate", 429, body("429", "RESOURCE_EXHAUSTED", "slow", retry+","+minute), agent.RateLimited, 13500 * time.Millisecond},
		{"rate, nothing said", 429, body("429", "RESOURCE_EXHAUSTED", "Resource has been exhausted", ""), agent.RateLimited, 0},
		{"daily quota", 429, body("429", "RESOURCE_EXHAUSTED", "quota", day+","+retry), agent.QuotaExhausted, 13500 * time.Millisecond},
		{"credit", 429, body("429", "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted", ""), agent.QuotaExhausted, 0},
		{"in a list", 429, "[" + body("429", "RESOURCE_EXHAUSTED", "slow", retry) + "]", agent.RateLimited, 13500 * time.Millisecond},
		{"overloaded", 503, body("503", "UNAVAILABLE", "The model is overloaded", ""), agent.Overloaded, 0},
		{"internal", 500, body("500", "INTERNAL", "boom", ""), agent.ServerFault, 0},
		{"deadline", 504, body("504", "DEADLINE_EXCEEDED", "late", ""), agent.ServerFault, 0},
		{"key", 400, body("400", "INVALID_ARGUMENT", "API key not valid.", badKey), agent.AuthFault, 0},
		{"no permission", 403, body("403", "PERMISSION_DENIED", "no", ""), agent.AuthFault, 0},
		{"unauthenticated", 401, body("401", "UNAUTHENTICATED", "no", ""), agent.AuthFault, 0},
		{"too long", 400, body("400", "INVALID_ARGUMENT", "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).", ""), agent.ContextLength, 0},
		{"invalid", 400, body("400", "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts.", ""), agent.InvalidRequest, 0},
		{"no model", 404, body("404", "NOT_FOUND", "models/x is not found", ""), agent.InvalidRequest, 0},
		{"page", 502, "<html>", agent.ServerFault, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Codec.DecodeFault(c.status, nil, []byte(c.body))
			if f.Class != c.class || f.Status != c.status || f.Message == "" || f.After != c.after {
				t.Errorf("got %+v, want class %s after %s", f, c.class, c.after)
			}
			if strings.Contains(c.name, "key") || c.class == agent.QuotaExhausted {
				return
			}
			status, h, b := Codec.EncodeFault(f)
			if g := Codec.DecodeFault(status, h, b); g.Class != c.class || g.Message != f.Message {
				t.Errorf("told as %d %s, which is %s", status, b, g.Class)
			}
		})
	}
	f := Codec.DecodeFault(400, http.Header{"X-Request-Id": {"r9"}, "X-Should-Retry": {"false"}}, []byte(body("400", "INVALID_ARGUMENT", "bad", `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"contents[0]"}]}`)))
	if f.Param != "contents[0]" || f.Request != "r9" || f.Final == nil || !*f.Final {
		t.Errorf("got %+v", f)
	}
	status, h, b := Codec.EncodeFault(&wire.Fault{Class: agent.RateLimited, Message: "slow", After: 1500 * time.Millisecond, Request: "r9", Param: "p"})
	wiretest.SameJSON(t, string(b), `{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"},
		{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"p"}]},{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":"r9"}]}}`)
	if status != 429 || h.Get("Retry-After") != "2" || h.Get("X-Request-Id") != "r9" {
		t.Errorf("%d %v", status, h)
	}
	if s, _, b := Codec.EncodeFault(&wire.Fault{Class: agent.Overloaded, Status: 529}); s != 503 || gjson.GetBytes(b, "error.status").Str != "UNAVAILABLE" {
		t.Errorf("%d %s", s, b)
	}
}

func TestModels(t *testing.T) {
	l := Codec.(wire.Lister)
	wiretest.SameJSON(t, string(l.EncodeModels([]wire.ModelInfo{{ID: "@cheap", Input: 5, Output: 6}})), `{"models":[{"name":"models/@cheap","baseModelId":"@cheap","version":"","displayName":"@cheap",
		"inputTokenLimit":5,"outputTokenLimit":6,"supportedGenerationMethods":["generateContent","streamGenerateContent","countTokens"]}]}`)
	wiretest.SameJSON(t, string(l.EncodeModels(nil)), `{"models":[]}`)
}
