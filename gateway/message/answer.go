package message

import (
	"crypto/rand"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// stops are the reasons of the protocol.
var stops = map[string]wire.Stop{
	"end_turn": wire.StopEnd, "stop_sequence": wire.StopSequence, "max_tokens": wire.StopLength, "model_context_window_exceeded": wire.StopLength,
	"tool_use": wire.StopTool, "refusal": wire.StopFilter, "pause_turn": wire.StopPause,
}

// stopName is the way back. A call that is none has no name: it is an error.
func stopName(s wire.Stop) string {
	switch s {
	case wire.StopSequence:
		return "stop_sequence"
	case wire.StopLength:
		return "max_tokens"
	case wire.StopTool:
		return "tool_use"
	case wire.StopFilter:
		return "refusal"
	case wire.StopPause:
		return "pause_turn"
	case wire.StopUnknown, wire.StopEnd, wire.StopBroken:
	}
	return "end_turn"
}

func badAnswer(format string, args ...any) error {
	return agent.Errorf(agent.Unavailable, format, args...)
}

// brokenCall is what a client is told of wire.StopBroken.
const brokenCall = "the model made a call of a tool that cannot be read; ask again"

const noMedia = "the model answered with an image or a file, for which the Anthropic protocol has no form"

// readable reads an answer's bytes.
func readable(body []byte) (gjson.Result, error) {
	if len(body) > wire.MaxFrame {
		return gjson.Result{}, badAnswer("the provider's answer is longer than %d bytes", wire.MaxFrame)
	}
	if !raw.Valid(body) {
		return gjson.Result{}, badAnswer("the provider's answer is not valid JSON")
	}
	v := gjson.ParseBytes(body)
	if !v.IsObject() {
		return v, badAnswer("the provider's answer is not a JSON object")
	}
	return v, nil
}

func (codec) DecodeAnswer(body []byte, from wire.Origin) (*wire.Answer, error) {
	v, err := readable(body)
	if err != nil {
		return nil, err
	}
	if !v.Get("content").IsArray() {
		return nil, badAnswer("the provider's answer has no content")
	}
	from.Protocol = own
	a := &wire.Answer{ID: v.Get("id").String(), Model: v.Get("model").String()}
	v.Get("content").ForEach(func(_, b gjson.Result) bool {
		switch b.Get("type").Str {
		case "text":
			a.Parts = append(a.Parts, wire.Part{Kind: wire.TextPart, Text: b.Get("text").String()})
		case "thinking":
			p := wire.Part{Kind: wire.ThoughtPart, Text: b.Get("thinking").String()}
			if s := b.Get("signature").String(); s != "" {
				p.Thought = &wire.Thinking{Opaque: s, Origin: from}
			}
			a.Parts = append(a.Parts, p)
		case "redacted_thinking":
			a.Parts = append(a.Parts, wire.Part{Kind: wire.ThoughtPart, Thought: &wire.Thinking{Opaque: b.Get("data").String(), Redacted: true, Origin: from}})
		case "tool_use":
			c := &wire.ToolCall{ID: b.Get("id").String(), Name: b.Get("name").String(), Args: arguments(b.Get("input"))}
			if c.ID == "" || c.Name == "" {
				err = badAnswer("the provider's answer has a call of a tool without an id or a name")
				return false
			}
			a.Parts = append(a.Parts, wire.Part{Kind: wire.CallPart, Call: c})
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	a.Stop, a.StopText = stops[v.Get("stop_reason").Str], v.Get("stop_sequence").String()
	if why := v.Get("stop_details").Get("explanation").String(); a.Stop == wire.StopFilter && why != "" {
		a.Parts = append(a.Parts, wire.Part{Kind: wire.RefusalPart, Text: why})
	}
	var f figures
	f.take(v.Get("usage"))
	a.Usage, a.Tier = f.usage(), f.tier
	return a, nil
}

// answerID is an id as the protocol's clients know them.
func answerID(id string) string {
	switch {
	case id == "":
		return "msg_" + rand.Text()
	case strings.HasPrefix(id, "msg_"):
		return cleanID(id)
	}
	return "msg_" + cleanID(id)
}

func modelOf(model string, r *wire.Request) string {
	if model == "" && r != nil {
		return r.Model
	}
	return model
}

func (codec) EncodeAnswer(a *wire.Answer, r *wire.Request) ([]byte, error) {
	if a.Stop == wire.StopBroken {
		return nil, badAnswer(brokenCall)
	}
	b := append(make([]byte, 0, 1024), `{"id":`...)
	b = raw.AppendString(b, answerID(a.ID))
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = raw.AppendString(b, modelOf(a.Model, r))
	b = append(b, `,"content":[`...)
	first := true
	next := func() {
		if !first {
			b = append(b, ',')
		}
		first = false
	}
	why := ""
	for _, p := range a.Parts {
		switch p.Kind {
		case wire.TextPart, wire.RefusalPart:
			if p.Kind == wire.RefusalPart {
				why = p.Text
			}
			next()
			b = append(b, `{"type":"text","text":`...)
			b = append(raw.AppendString(b, p.Text), '}')
		case wire.ThoughtPart:
			if p.Text == "" && p.Thought == nil {
				continue
			}
			next()
			b = appendThought(b, p.Text, p.Thought)
		case wire.CallPart:
			if p.Call == nil {
				continue
			}
			if p.Thought != nil { // this protocol has no place for it on a call, so it goes before
				next()
				b = appendThought(b, "", p.Thought)
			}
			args := p.Call.Args
			if args == "" {
				args = "{}"
			}
			if !raw.Valid([]byte(args)) || !gjson.Parse(args).IsObject() {
				return nil, badAnswer(brokenCall)
			}
			next()
			b = append(b, `{"type":"tool_use","id":`...)
			b = raw.AppendString(b, cleanID(p.Call.ID))
			b = append(b, `,"name":`...)
			b = raw.AppendString(b, p.Call.Name)
			b = append(b, `,"input":`...)
			b = append(append(b, args...), '}')
		case wire.MediaPart:
			return nil, invalid(noMedia)
		case wire.ResultPart:
		}
	}
	b = append(b, `],`...)
	b = appendStop(b, a.Stop, a.StopText, why)
	b = append(b, `,"usage":`...)
	b = appendUsage(b, a.Usage, a.Tier)
	return append(b, '}'), nil
}

func appendStop(b []byte, s wire.Stop, text, why string) []byte {
	b = append(b, `"stop_reason":`...)
	b = raw.AppendString(b, stopName(s))
	b = append(b, `,"stop_sequence":`...)
	if s == wire.StopSequence && text != "" {
		b = raw.AppendString(b, text)
	} else {
		b = append(b, "null"...)
	}
	if s == wire.StopFilter {
		b = append(b, `,"stop_details":{"type":"refusal","category":null,"explanation":`...)
		if why == "" {
			b = append(b, "null"...)
		} else {
			b = raw.AppendString(b, why)
		}
		b = append(b, '}')
	}
	return b
}

// signature is opaque data as clients get it: this protocol's own as it is, that of others sealed.
func signature(t *wire.Thinking) string {
	switch {
	case t == nil:
		return ""
	case t.Origin.Protocol == own:
		return t.Opaque
	}
	return wire.Seal(t)
}

func appendThought(b []byte, text string, t *wire.Thinking) []byte {
	if t != nil && t.Redacted && t.Origin.Protocol == own {
		b = append(b, `{"type":"redacted_thinking","data":`...)
		return append(raw.AppendString(b, t.Opaque), '}')
	}
	b = append(b, `{"type":"thinking","thinking":`...)
	b = raw.AppendString(b, text)
	b = append(b, `,"signature":`...)
	return append(raw.AppendString(b, signature(t)), '}')
}
