package message

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

var here = wire.Origin{Protocol: own, Provider: "anthropic", Model: "claude-opus-4-8", Secret: "k"}

// target is a model that takes adaptive thinking.
var target = wire.Target{Model: "claude-opus-4-8", Origin: here}

func decode(t *testing.T, body string) *wire.Request {
	t.Helper()
	r, err := Codec.Decode(wire.Generate, "/v1/messages", http.Header{}, []byte(body))
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

// events decodes a stream of frames, and its end.
func events(frames ...string) []wire.Event {
	d := Codec.Decoder(here)
	var all []wire.Event
	for _, f := range frames {
		all = append(all, d.Frame("", []byte(f))...)
	}
	return append(all, d.Close()...)
}

// framesOf reads what an encoder made: each frame is JSON.
func framesOf(t *testing.T, b []byte) []wiretest.Frame {
	t.Helper()
	list := wiretest.Frames(t, string(b))
	for _, f := range list {
		if !json.Valid([]byte(f.Data)) {
			t.Errorf("a frame is no JSON: %s", f.Data)
		}
	}
	return list
}

// back reads a stream that an encoder made.
func back(t *testing.T, b []byte) (*wire.Answer, *wire.Fault) {
	t.Helper()
	return wiretest.Collect(wiretest.Decode(t, Codec.Decoder(here), framesOf(t, b)...))
}

const (
	startFrame = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-8","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40},"output_tokens":1}}}`
	stopFrame  = `{"type":"message_stop"}`
)

func endFrame(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":77,"output_tokens_details":{"thinking_tokens":30}}}`
}

// toolStream has thoughts with a signature, redacted ones, text, a call in pieces and one without arguments.
var toolStream = []string{
	startFrame,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqoB+/sig=="}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"RED+/acted=="}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I'll look."}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Pa"}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"ris\"}"}}`,
	`{"type":"content_block_stop","index":3}`,
	`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{}}}`,
	`{"type":"content_block_stop","index":4}`,
	endFrame("tool_use"),
	stopFrame,
}

// toolAnswer is what toolStream says.
func toolAnswer() *wire.Answer {
	return &wire.Answer{
		ID: "msg_1", Model: "claude-opus-4-8", Stop: wire.StopTool,
		Parts: []wire.Part{
			{Kind: wire.ThoughtPart, Text: "Let me see.", Thought: &wire.Thinking{Opaque: "EqoB+/sig==", Origin: here}},
			{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: "RED+/acted==", Redacted: true, Origin: here}},
			{Text: "I'll look."},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "toolu_1", Name: "weather", Args: `{"city": "Paris"}`}},
			{Kind: wire.CallPart, Call: &wire.ToolCall{ID: "toolu_2", Name: "now", Args: "{}"}},
		},
		Usage: wire.Usage{Known: true, Tokens: agent.ModelTokens{
			Input: 2103, CacheRead: 2000, CacheWrite: 60, CacheWrite1h: 40, Output: 77, Reasoning: 30,
		}},
	}
}
