// Package chat speaks OpenAI's chat completions.
package chat

import (
	"net/http"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// Codec is the protocol.
var Codec wire.Codec = codec{}

type codec struct{}

const path = "/chat/completions"

func (codec) Protocol() agent.Protocol { return agent.ChatProtocol }

func generates(op wire.Op) error {
	if op == wire.Generate {
		return nil
	}
	if op == wire.Count {
		return agent.Errorf(agent.Invalid, "chat completions cannot count the tokens of a request")
	}
	return agent.Errorf(agent.Invalid, "chat completions make answers, and nothing else")
}

func (codec) Peek(op wire.Op, _ string, body []byte) (wire.Peek, error) {
	var p wire.Peek
	if err := generates(op); err != nil {
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
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		n, err := openai.Count(o, name)
		if err != nil {
			return p, err
		}
		p.MaxTokens = max(p.MaxTokens, n)
	}
	p.User = openai.User(o)
	for _, name := range []string{"tools", "functions"} {
		if v := o.Get(name); v.IsArray() {
			p.Text += len(v.Raw)
			v.ForEach(func(_, _ gjson.Result) bool { p.Tools = true; return false })
		}
	}
	p.Text += len(o.Get("response_format").Raw)
	o.Get("messages").ForEach(func(_, m gjson.Result) bool {
		peekMessage(&p, m)
		return true
	})
	return p, nil
}

func peekMessage(p *wire.Peek, m gjson.Result) {
	var role string
	m.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "role":
			role = v.Str
		case "content":
			if v.IsArray() {
				v.ForEach(func(_, part gjson.Result) bool {
					switch part.Get("type").Str {
					case "image_url", "input_audio", "file", "image":
						p.Media++
					default:
						p.Text += len(part.Get("text").Str)
					}
					return true
				})
				return true
			}
			p.Text += len(v.Str)
		case "tool_calls":
			v.ForEach(func(_, c gjson.Result) bool {
				p.Text += len(c.Get("function.arguments").String()) + len(c.Get("function.name").Str) + len(c.Get("custom.input").Str)
				return true
			})
		case "reasoning_content", "reasoning":
			p.Text += len(v.Str)
		case "reasoning_details":
			v.ForEach(func(_, d gjson.Result) bool {
				if d.Get("data").Type == gjson.String || d.Get("signature").Type == gjson.String {
					p.Signed = true
				}
				return true
			})
		case "tool_call_id":
			p.Answers(v.Str)
		}
		return true
	})
	if role == "user" {
		p.Last = ""
	}
}

func (codec) Patch(op wire.Op, _, query string, header http.Header, body []byte, to wire.Target) (wire.Call, error) {
	if err := generates(op); err != nil {
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
	c := wire.Call{Path: path, Query: openai.Query(query), Header: openai.Header(header, stream), Body: openai.SetModel(o, to.Model)}
	if !stream {
		return c, nil
	}
	options := o.Get("stream_options")
	value := []byte(`{"include_usage":true}`)
	if options.IsObject() {
		in, err := openai.Read([]byte(options.Raw))
		if err != nil {
			return wire.Call{}, agent.Errorf(agent.Invalid, "stream_options: %s", agent.AsError(err).Msg)
		}
		if in.Get("include_usage").Type == gjson.True {
			return c, nil
		}
		value = in.Set("include_usage", []byte("true"))
	} else if options.Exists() && options.Type != gjson.Null {
		return wire.Call{}, agent.Errorf(agent.Invalid, "stream_options: must be an object")
	}
	if o, err = openai.Read(c.Body); err != nil {
		return wire.Call{}, err
	}
	c.Body = o.Set("stream_options", value)
	c.Strip = onlyUsage
	return c, nil
}

// onlyUsage reports whether a chunk has nothing but usage in it: it comes when it is asked for alone.
func onlyUsage(_ string, data []byte) bool {
	if len(data) > 16<<10 {
		return false
	}
	r := gjson.ParseBytes(data)
	c := r.Get("choices")
	return c.IsArray() && len(c.Array()) == 0 && r.Get("usage").IsObject() && !r.Get("error").IsObject() && !r.Get("prompt_filter_results").Exists()
}

func (codec) DecodeFault(status int, header http.Header, body []byte) *wire.Fault {
	return openai.DecodeFault(status, header, body)
}

func (codec) EncodeFault(f *wire.Fault) (int, http.Header, []byte) { return openai.EncodeFault(f) }

func (codec) BrokenFrame(f *wire.Fault) []byte {
	b := append([]byte(`{"error":`), openai.ErrorObject(f)...)
	return sse.Append(nil, "", append(b, '}'))
}

func (codec) Key(h http.Header, key string) { openai.Key(h, key) }

// object reads a nested object in which each field is once.
func object(field string, r gjson.Result) (raw.Object, error) {
	o, err := raw.Read([]byte(r.Raw))
	if err != nil {
		return o, agent.Errorf(agent.Invalid, "%s: %s", field, agent.AsError(err).Msg)
	}
	return o, nil
}
