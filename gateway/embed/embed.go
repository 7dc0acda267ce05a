// Package embed speaks OpenAI's embeddings. They pass between two sides of this protocol, and are translated into no other.
package embed

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

func (codec) Protocol() agent.Protocol { return agent.EmbedProtocol }

func embeds(op wire.Op) error {
	if op == wire.Embed {
		return nil
	}
	return agent.Errorf(agent.Invalid, "embeddings make vectors of texts, and nothing else: for answers ask a model whose provider speaks openai-chat, openai-responses, anthropic or gemini")
}

var errTranslate = agent.Errorf(agent.Invalid, "embeddings cannot be translated to another protocol: ask for a model whose provider speaks openai-embeddings")

func (codec) Peek(op wire.Op, _ string, body []byte) (wire.Peek, error) {
	var p wire.Peek
	if err := embeds(op); err != nil {
		return p, err
	}
	o, err := openai.Read(body)
	if err != nil {
		return p, err
	}
	if p.Model, err = openai.Model(o); err != nil {
		return p, err
	}
	p.User = openai.User(o)
	in := o.Get("input")
	switch {
	case in.Type == gjson.String:
		p.Text = len(in.Str)
	case in.IsArray():
		in.ForEach(func(_, v gjson.Result) bool {
			switch {
			case v.Type == gjson.String:
				p.Text += len(v.Str)
			case v.Type == gjson.Number: // a token, of some four bytes
				p.Text += 4
			case v.IsArray():
				v.ForEach(func(_, _ gjson.Result) bool { p.Text += 4; return true })
			case v.IsObject(): // a host's own: text, or an image
				if t := v.Get("text"); t.Type == gjson.String {
					p.Text += len(t.Str)
				} else {
					p.Media++
				}
			}
			return true
		})
	default:
		return p, agent.Errorf(agent.Invalid, "input: a text, or a list of texts or tokens, is required")
	}
	return p, nil
}

func (codec) Patch(op wire.Op, _, query string, header http.Header, body []byte, to wire.Target) (wire.Call, error) {
	if err := embeds(op); err != nil {
		return wire.Call{}, err
	}
	o, err := openai.Read(body)
	if err != nil {
		return wire.Call{}, err
	}
	return wire.Call{Path: "/embeddings", Query: openai.Query(query), Header: openai.Header(header, false), Body: openai.SetModel(o, to.Model)}, nil
}

// Meter reads an answer when it is whole: usage comes last.
func (codec) Meter(bool) wire.Meter { return wire.WholeMeter(whole) }

func whole(body []byte) wire.MeterState {
	if !raw.Valid(body) {
		return wire.MeterState{}
	}
	r := gjson.ParseBytes(body)
	if e := r.Get("error"); e.IsObject() {
		return wire.MeterState{Fault: openai.StreamFault(r)}
	}
	data := r.Get("data")
	return wire.MeterState{Content: data.IsArray(), Ended: data.IsArray(), Usage: openai.Usage(r.Get("usage")), Model: r.Get("model").String(), Stop: wire.StopEnd}
}

func (codec) Decode(op wire.Op, _ string, _ http.Header, _ []byte) (*wire.Request, error) {
	if err := embeds(op); err != nil {
		return nil, err
	}
	return nil, errTranslate
}

func (codec) Encode(op wire.Op, _ *wire.Request, _ wire.Target) (wire.Call, error) {
	if err := embeds(op); err != nil {
		return wire.Call{}, err
	}
	return wire.Call{}, errTranslate
}

func (codec) DecodeAnswer([]byte, wire.Origin) (*wire.Answer, error) { return nil, errTranslate }

func (codec) EncodeAnswer(*wire.Answer, *wire.Request) ([]byte, error) { return nil, errTranslate }

func (codec) Decoder(wire.Origin) wire.Decoder { return refuser{} }

func (codec) Encoder(*wire.Request) wire.Encoder { return refuser{} }

// refuser ends each stream with an error: there are none of embeddings.
type refuser struct{}

func fault() *wire.Fault {
	return &wire.Fault{Class: agent.InvalidRequest, Own: true, Message: "embeddings are not streamed"}
}

func (refuser) Frame(string, []byte) []wire.Event {
	return []wire.Event{{Kind: wire.Broken, Fault: fault()}}
}
func (refuser) Close() []wire.Event { return []wire.Event{{Kind: wire.Broken, Fault: fault()}} }
func (refuser) ContentType() string { return "text/event-stream" }
func (refuser) Append(b []byte, e wire.Event) []byte {
	if e.Kind == wire.Begin {
		return append(b, codec{}.BrokenFrame(fault())...)
	}
	return b
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
