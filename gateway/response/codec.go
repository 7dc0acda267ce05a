// Package response speaks OpenAI's responses.
package response

import (
	"net/http"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// Codec is the protocol. It is a wire.Counter and a wire.Lister too.
var Codec wire.Codec = codec{}

var _ wire.Counter = codec{}

type codec struct{}

const (
	path      = "/responses"
	countPath = "/responses/input_tokens"
)

func (codec) Protocol() agent.Protocol { return agent.ResponseProtocol }

func bad(format string, args ...any) error { return agent.Errorf(agent.Invalid, format, args...) }

func pathOf(op wire.Op) (string, error) {
	switch op {
	case wire.Generate:
		return path, nil
	case wire.Count:
		return countPath, nil
	}
	return "", bad("responses make answers and count tokens, and nothing else")
}

func (codec) Peek(op wire.Op, _ string, body []byte) (wire.Peek, error) {
	var p wire.Peek
	if _, err := pathOf(op); err != nil {
		return p, err
	}
	o, err := openai.Read(body)
	if err != nil {
		return p, err
	}
	p.Parsed = o
	if p.Model, err = openai.Model(o); err != nil {
		return p, err
	}
	if p.Stream, err = openai.Bool(o, "stream"); err != nil {
		return p, err
	}
	if p.MaxTokens, err = openai.Count(o, "max_output_tokens"); err != nil {
		return p, err
	}
	p.User = openai.User(o)
	p.Text = len(o.Get("instructions").Str) + len(o.Get("text").Raw)
	if v := o.Get("tools"); v.IsArray() {
		p.Text += len(v.Raw)
		v.ForEach(func(_, _ gjson.Result) bool { p.Tools = true; return false })
	}
	in := o.Get("input")
	if in.Type == gjson.String {
		p.Text += len(in.Str)
	}
	if in.IsArray() {
		in.ForEach(func(_, item gjson.Result) bool { peekItem(&p, item); return true })
	}
	return p, nil
}

func peekItem(p *wire.Peek, item gjson.Result) {
	item.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "content", "output", "summary":
			peekContent(p, v)
		case "arguments", "input":
			p.Text += len(v.String())
		case "encrypted_content":
			p.Signed = p.Signed || v.Type == gjson.String && v.Str != ""
		case "role":
			if v.Str == "user" {
				p.Last = ""
			}
		case "type":
			if id := item.Get("call_id"); id.Type == gjson.String && (v.Str == "function_call_output" || v.Str == "custom_tool_call_output") {
				p.Answers(id.Str)
			}
		}
		return true
	})
}

func peekContent(p *wire.Peek, v gjson.Result) {
	if !v.IsArray() {
		p.Text += len(v.String())
		return
	}
	v.ForEach(func(_, part gjson.Result) bool {
		switch part.Get("type").Str {
		case "input_image", "input_file", "input_audio", "computer_screenshot":
			p.Media++
		default:
			p.Text += len(part.Get("text").Str)
		}
		return true
	})
}

func (codec) Patch(op wire.Op, _, query string, header http.Header, body []byte, to wire.Target) (wire.Call, error) {
	at, err := pathOf(op)
	if err != nil {
		return wire.Call{}, err
	}
	o, err := raw.Parsed(to.Parsed, body)
	if err != nil {
		return wire.Call{}, err
	}
	stream, err := openai.Bool(o, "stream")
	if err != nil {
		return wire.Call{}, err
	}
	return wire.Call{Path: at, Query: openai.Query(query), Header: openai.Header(header, stream && op == wire.Generate), Body: openai.SetModel(o, to.Model)}, nil
}

func (codec) DecodeFault(status int, header http.Header, body []byte) *wire.Fault {
	return openai.DecodeFault(status, header, body)
}

func (codec) EncodeFault(f *wire.Fault) (int, http.Header, []byte) { return openai.EncodeFault(f) }

func (codec) BrokenFrame(f *wire.Fault) []byte { return broken(nil, f, nil, 0) }

// broken appends how a stream ends that failed: response.failed, which clients that follow the response's state want, and the event error, at which the
// SDKs throw. response is what the stream told last of the response, if anything; seq is the next number of the sequence.
func broken(b []byte, f *wire.Fault, response []byte, seq int64) []byte {
	code := openai.ErrorCode(f)
	failed := openai.JSON(map[string]string{"code": code, "message": openai.Clean(f.Message)})
	o, err := raw.Read(response)
	if err != nil || len(response) == 0 {
		o, _ = raw.Read([]byte(`{"id":"","object":"response","output":[]}`))
	}
	for _, kv := range []struct {
		k string
		v []byte
	}{{"error", failed}, {"status", []byte(`"failed"`)}} {
		o, _ = raw.Read(o.Set(kv.k, kv.v))
	}
	b = event(b, "response.failed", seq, "response", o.Bytes)
	param := []byte("null")
	if f.Param != "" {
		param = openai.String(f.Param)
	}
	return event(b, "error", seq+1, "code", openai.String(code), "message", openai.String(openai.Clean(f.Message)), "param", param, "error", openai.ErrorObject(f))
}

// event appends an event: its type, its number, and its fields, each a name and JSON.
func event(b []byte, typ string, seq int64, fields ...any) []byte {
	data := make([]byte, 0, 256)
	data = append(data, `{"type":"`...)
	data = append(data, typ...)
	data = append(data, `","sequence_number":`...)
	data = appendInt(data, seq)
	for i := 0; i+1 < len(fields); i += 2 {
		data = append(data, `,"`...)
		data = append(data, fields[i].(string)...)
		data = append(data, `":`...)
		switch v := fields[i+1].(type) {
		case []byte:
			data = append(data, v...)
		case rawJSON:
			data = append(data, v...)
		case int:
			data = appendInt(data, int64(v))
		case string:
			data = raw.AppendString(data, v)
		}
	}
	return sse.Append(b, typ, append(data, '}'))
}

func (codec) Key(h http.Header, key string) { openai.Key(h, key) }

func (codec) DecodeCount(body []byte) (int64, error) {
	if raw.Valid(body) {
		if n := gjson.GetBytes(body, "input_tokens"); n.Type == gjson.Number && n.Num >= 0 && n.Num < 1<<53 {
			return int64(n.Num), nil
		}
	}
	return 0, bad("the provider's answer has no input_tokens")
}

func (codec) EncodeCount(tokens int64) []byte {
	return append(appendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), tokens), '}')
}
