package gemini

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/wiretest"
)

func FuzzRequest(f *testing.F) {
	f.Add("/v1beta/models/m:streamGenerateContent?alt=sse", []byte(full))
	f.Add(askPath, []byte(`{"contents":[{"role":"model","parts":[{"text":"","thoughtSignature":"c2tlcDEuZTMw"}]}]}`))
	f.Add("/v1beta/models/m:countTokens", []byte(`{"generate_content_request":{"model":"models/m","contents":{"parts":{"text":"a"}}}}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		for _, op := range []wire.Op{wire.Generate, wire.Count} {
			wiretest.Request(t, Codec, op, path, body, target)
		}
	})
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"required":["a"],"$defs":{"b":{"type":["string","null"],"enum":["x",null]}}}`))
	f.Add([]byte(`{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true,"min_length":"3"}},"any_of":[{"type":"NUMBER"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, ok := toOpenAPI(b); ok && !json.Valid(out) {
			t.Errorf("no JSON: %s", out)
		}
		if json.Valid(b) {
			if out := fromOpenAPI(gjson.ParseBytes(b)); !json.Valid(out) {
				t.Errorf("no JSON: %s", out)
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(strings.Join(toolStream, "\n")), false)
	f.Add([]byte(strings.Join(toolStream, "\n")), true)
	f.Add([]byte(`{"promptFeedback":{"blockReason":"SAFETY"}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, array bool) {
		r, m := &wire.Request{Array: array}, Codec.Meter(true)
		var frames []wiretest.Frame
		for line := range bytes.Lines(data) {
			frames = append(frames, wiretest.Frame{Data: string(bytes.TrimSpace(line))})
			if array {
				m.Write(line)
			} else {
				m.Write(append(append([]byte("data: "), line...), '\n'))
			}
		}
		m.State()
		m.(wire.Breaker).Broken(nil)
		list := wiretest.Decode(t, Codec.Decoder(here), frames...)
		chunksOf(t, r, wiretest.Encode(Codec.Encoder(r), list))
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(toolStream[5]), 200)
	f.Add([]byte(`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x.RetryInfo","retryDelay":"3s"}]}}]`), 429)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		wiretest.Fault(t, Codec, status, body)
		wiretest.Answer(t, Codec, here, body, agent.Unavailable)
	})
}
