package gemini_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

// A client of one protocol, a provider of the other: what the provider signed comes back to it byte for byte, through a stream of the client's.
func TestUserLoopsWithToolsAcrossProtocols(t *testing.T) {
	google := wire.Origin{Protocol: "gemini", Provider: "google", Model: "gemini-3-pro"}
	claude := wire.Origin{Protocol: "anthropic", Provider: "anthropic", Model: "claude-opus-4-8"}
	for _, c := range []struct {
		name             string
		client, provider wire.Codec
		from             wire.Origin
		frames           []string
		back             func(t *testing.T, stream []byte) (path, body string)
		want             []string
	}{
		{
			"messages to Gemini", message.Codec, gemini.Codec, google,
			[]string{
				`{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}],"usageMetadata":{"promptTokenCount":9},"responseId":"r"}`,
				`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"Sig/+=="},{"functionCall":{"name":"g","args":{}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"thoughtsTokenCount":2}}`,
			},
			backByMessages,
			[]string{`{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"Sig/+=="},{"functionCall":{"name":"g","args":{}}}`, `"functionResponse":{"name":"f"`, `"functionResponse":{"name":"g"`},
		},
		{
			"Gemini to messages", gemini.Codec, message.Codec, claude,
			[]string{
				`{"type":"message_start","message":{"id":"msg_1","model":"claude-opus-4-8","usage":{"input_tokens":9,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Sig/+=="}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`,
				`{"type":"content_block_stop","index":1}`,
				`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_2","name":"g","input":{}}}`,
				`{"type":"content_block_stop","index":2}`,
				`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":6}}`, `{"type":"message_stop"}`,
			},
			backByGemini,
			[]string{`{"type":"thinking","thinking":"hm","signature":"Sig/+=="}`, `{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}`,
				`{"type":"tool_result","tool_use_id":"toolu_1"`, `{"type":"tool_result","tool_use_id":"toolu_2"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dec, enc := c.provider.Decoder(c.from), c.client.Encoder(&wire.Request{Model: "m", Stream: true})
			var stream []byte
			for _, f := range c.frames {
				for _, e := range dec.Frame("", []byte(f)) {
					stream = enc.Append(stream, e)
				}
			}
			for _, e := range dec.Close() {
				stream = enc.Append(stream, e)
			}
			path, body := c.back(t, stream)
			r, err := c.client.Decode(wire.Generate, path, http.Header{}, []byte(body))
			if err != nil {
				t.Fatalf("%v\n%s", err, body)
			}
			call, err := c.provider.Encode(wire.Generate, r, wire.Target{Model: c.from.Model, Origin: c.from})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(call.Body), want) {
					t.Errorf("%s is missing in\n%s", want, call.Body)
				}
			}
			other := c.from
			other.Provider = "another"
			if call, err = c.provider.Encode(wire.Generate, r, wire.Target{Model: c.from.Model, Origin: other}); err != nil || strings.Contains(string(call.Body), "Sig/+==") {
				t.Errorf("a signature goes to another provider: %s, %v", call.Body, err)
			}
		})
	}
}

// backByMessages is what a client of messages sends after a stream: the blocks that it got, and results.
func backByMessages(t *testing.T, stream []byte) (path, body string) {
	var blocks, results []string
	p := sse.Parser{Max: wire.MaxFrame}
	kind, text, signature, input, head := "", "", "", "", gjson.Result{}
	if err := p.Write(stream, func(_ string, data []byte) {
		v := gjson.ParseBytes(data)
		switch v.Get("type").Str {
		case "content_block_start":
			head = v.Get("content_block")
			kind, text, signature, input = head.Get("type").Str, "", "", ""
		case "content_block_delta":
			d := v.Get("delta")
			text += d.Get("thinking").Str + d.Get("text").Str
			signature += d.Get("signature").Str
			input += d.Get("partial_json").Str
		case "content_block_stop":
			switch kind {
			case "thinking":
				blocks = append(blocks, `{"type":"thinking","thinking":"`+text+`","signature":"`+signature+`"}`)
			case "tool_use":
				if input == "" {
					input = "{}"
				}
				blocks = append(blocks, `{"type":"tool_use","id":"`+head.Get("id").Str+`","name":"`+head.Get("name").Str+`","input":`+input+`}`)
				results = append(results, `{"type":"tool_result","tool_use_id":"`+head.Get("id").Str+`","content":"ok"}`)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return "/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[` + strings.Join(blocks, ",") +
		`]},{"role":"user","content":[` + strings.Join(results, ",") + `]}]}`
}

// backByGemini is what a client of Gemini sends after a stream: the parts that it got, and results.
func backByGemini(t *testing.T, stream []byte) (path, body string) {
	var turns, results []string
	p := sse.Parser{Max: wire.MaxFrame}
	if err := p.Write(stream, func(_ string, data []byte) {
		gjson.GetBytes(data, "candidates.0.content.parts").ForEach(func(_, x gjson.Result) bool {
			turns = append(turns, `{"role":"model","parts":[`+x.Raw+`]}`) // as its SDK keeps the chunks of a stream
			if f := x.Get("functionCall"); f.Exists() {
				results = append(results, `{"functionResponse":{"id":"`+f.Get("id").Str+`","name":"`+f.Get("name").Str+`","response":{"output":"ok"}}}`)
			}
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	return "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"go"}]},` + strings.Join(turns, ",") +
		`,{"role":"user","parts":[` + strings.Join(results, ",") + `]}]}`
}
