package gemini

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

var (
	here   = wire.Origin{Protocol: own, Provider: "google", Model: "gemini-3-pro", Secret: "k"}
	target = wire.Target{Model: "gemini-3-pro", Origin: here}
	older  = wire.Target{Model: "gemini-2.5-flash", Origin: wire.Origin{Protocol: own, Provider: "google", Model: "gemini-2.5-flash"}}
)

const askPath = "/v1beta/models/gemini-3-pro:generateContent"

func decode(t *testing.T, body string) *wire.Request {
	t.Helper()
	r, err := Codec.Decode(wire.Generate, askPath, http.Header{}, []byte(body))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	return r
}

func encode(t *testing.T, r *wire.Request, to wire.Target) string {
	t.Helper()
	c, err := Codec.Encode(wire.Generate, r, to)
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return string(c.Body)
}

func events(chunks ...string) []wire.Event {
	d := Codec.Decoder(here)
	var all []wire.Event
	for _, c := range chunks {
		all = append(all, d.Frame("", []byte(c))...)
	}
	return append(all, d.Close()...)
}

// chunksOf reads a stream as a client gets it, in the form that r asked for.
func chunksOf(t *testing.T, r *wire.Request, b []byte) []string {
	t.Helper()
	var list []string
	if r != nil && r.Array {
		var all []json.RawMessage
		if err := json.Unmarshal(b, &all); err != nil {
			t.Fatalf("the array is no JSON: %v\n%s", err, b)
		}
		for _, c := range all {
			list = append(list, string(c))
		}
		return list
	}
	list = wiretest.Data(t, string(b))
	for _, c := range list {
		if !json.Valid([]byte(c)) {
			t.Errorf("a chunk is no JSON: %s", c)
		}
	}
	return list
}

// toolStream has thoughts, text, and parallel calls of which the first is signed and none has an id.
var toolStream = []string{
	`{"candidates":[{"content":{"role":"model","parts":[{"text":"I think","thought":true}]},"index":0}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100},"modelVersion":"gemini-3-pro","responseId":"r1"}`,
	`{"candidates":[{"content":{"role":"model","parts":[{"text":" so.","thought":true}]},"index":0}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":2,"totalTokenCount":110},"modelVersion":"gemini-3-pro","responseId":"r1"}`,
	`{"candidates":[{"content":{"role":"model","parts":[{"text":"I"}]},"index":0}],"modelVersion":"gemini-3-pro","responseId":"r1"}`,
	`{"candidates":[{"content":{"role":"model","parts":[{"text":" look."}]},"index":0}],"modelVersion":"gemini-3-pro","responseId":"r1"}`,
	`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"CiQB/sig+=="},{"functionCall":{"name":"now","args":{}}}]},"index":0}],"modelVersion":"gemini-3-pro","responseId":"r1"}`,
	`{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":30,"toolUsePromptTokenCount":5,"totalTokenCount":155},"modelVersion":"gemini-3-pro","responseId":"r1"}`,
}

func toolAnswer() *wire.Answer {
	return &wire.Answer{
		ID: "r1", Model: "gemini-3-pro", Stop: wire.StopTool,
		Parts: []wire.Part{
			{Kind: wire.ThoughtPart, Text: "I think so."},
			{Text: "I look."},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: callID("r1", 0), Name: "weather", Args: `{"city":"Paris"}`}, Thought: &wire.Thinking{Opaque: "CiQB/sig+==", Origin: here}},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: callID("r1", 1), Name: "now", Args: `{}`}},
		},
		Usage: wire.Usage{Known: true, Tokens: agent.ModelTokens{Input: 105, CacheRead: 60, Output: 50, Reasoning: 30}},
	}
}
