package chat

import (
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func FuzzRequest(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"model":"m","messages":[{"role":"tool","tool_call_id":"a"}],"input":[{"type":"function_call","call_id":"a","name":"f"}],"tool_choice":{"type":"allowed_tools"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		wiretest.Request(t, Codec, wire.Generate, path, body, wire.Target{Model: "gpt-5", Origin: origin})
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(stream(`"delta":{"content":"a"}`, `"delta":{"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s","index":0}],"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"index":1,"custom":{"name":"g","input":"x"}}]}`, `"delta":{"function_call":{"name":"f"}},"finish_reason":"stop"`, usageChunk, "[DONE]")))
	f.Add([]byte("data: {\"error\":{\"message\":\"x\"}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) <= 1<<16 {
			wiretest.Stream(t, Codec, origin, stream)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"choices":[{"message":{"content":"x","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]},"finish_reason":"stop"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) { wiretest.Answer(t, Codec, origin, body, agent.Invalid) })
}
