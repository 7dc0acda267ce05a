package response

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
	f.Add([]byte(stream(started, `response.output_item.added "output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"a","name":"f"}`, `response.function_call_arguments.delta "output_index":0,"delta":"{"`, `response.output_text.delta "output_index":1,"content_index":0,"delta":"x"`, `response.output_item.done "output_index":2,"item":{"type":"reasoning","encrypted_content":"e","summary":[{"text":"x"}]}`, done)))
	f.Add([]byte("data: {\"error\":{\"message\":\"x\"}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) <= 1<<16 {
			wiretest.Stream(t, Codec, origin, stream)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]},{"type":"reasoning","encrypted_content":"e"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) { wiretest.Answer(t, Codec, origin, body, agent.Invalid) })
}
