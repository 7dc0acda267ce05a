package gemini

import (
	"crypto/rand"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func badAnswer(format string, args ...any) error {
	return agent.Errorf(agent.Unavailable, format, args...)
}

// stopOf reads a reason. called tells that the model made a call, which the protocol has no reason for.
func stopOf(reason string, called bool) wire.Stop {
	switch reason {
	case "", "FINISH_REASON_UNSPECIFIED":
		return wire.StopUnknown
	case "STOP":
		if called {
			return wire.StopTool
		}
		return wire.StopEnd
	case "MAX_TOKENS":
		return wire.StopLength
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE":
		return wire.StopBroken
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE":
		return wire.StopFilter
	case "CONTINUATION":
		return wire.StopPause
	}
	if strings.HasPrefix(reason, "IMAGE_") {
		return wire.StopFilter
	}
	return wire.StopUnknown
}

func stopName(s wire.Stop) string {
	switch s {
	case wire.StopLength:
		return "MAX_TOKENS"
	case wire.StopFilter:
		return "SAFETY"
	case wire.StopPause:
		return "CONTINUATION"
	case wire.StopBroken:
		return "MALFORMED_FUNCTION_CALL"
	case wire.StopUnknown, wire.StopEnd, wire.StopSequence, wire.StopTool:
	}
	return "STOP"
}

// usageOf reads usageMetadata: candidates come without thoughts, and what tools brought is apart.
func usageOf(v gjson.Result) wire.Usage {
	if !v.IsObject() {
		return wire.Usage{}
	}
	n := func(name string) int64 { return max(v.Get(name).Int(), 0) }
	audio := func(name string) (sum int64) {
		v.Get(name).ForEach(func(_, d gjson.Result) bool {
			if d.Get("modality").Str == "AUDIO" {
				sum += max(d.Get("tokenCount").Int(), 0)
			}
			return true
		})
		return sum
	}
	t := agent.ModelTokens{
		Input: n("promptTokenCount") + n("toolUsePromptTokenCount"), CacheRead: n("cachedContentTokenCount"),
		Output: n("candidatesTokenCount") + n("thoughtsTokenCount"), Reasoning: n("thoughtsTokenCount"),
		AudioIn: max(audio("promptTokensDetails")-audio("cacheTokensDetails"), 0), AudioOut: audio("candidatesTokensDetails"),
	}
	u := wire.Usage{Tokens: t, Known: v.Get("promptTokenCount").Exists() || v.Get("totalTokenCount").Exists() || v.Get("candidatesTokenCount").Exists()}
	if u.Known && len(v.Raw) <= agent.MaxRawUsage {
		u.Raw = json.RawMessage(v.Raw)
	}
	return u
}

// tierOf reads the service tier that usage was told for.
func tierOf(v gjson.Result) string {
	return strings.ToLower(bounded(v.Get("usageMetadata").Get("serviceTier")))
}

func appendUsage(b []byte, u wire.Usage) []byte {
	t := u.Tokens
	w := object{b: append(b, '{')}
	n := func(name string, n int64, always bool) {
		if n > 0 || always {
			w.key(name)
			w.b = strconv.AppendInt(w.b, n, 10)
		}
	}
	audio := func(name string, n int64) {
		if n > 0 {
			w.key(name)
			w.b = append(strconv.AppendInt(append(w.b, `[{"modality":"AUDIO","tokenCount":`...), n, 10), "}]"...)
		}
	}
	n("promptTokenCount", t.Input, true)
	n("cachedContentTokenCount", t.CacheRead, false)
	n("candidatesTokenCount", max(t.Output-t.Reasoning, 0), true)
	n("thoughtsTokenCount", t.Reasoning, false)
	n("totalTokenCount", t.Input+t.Output, true)
	audio("promptTokensDetails", t.AudioIn)
	audio("candidatesTokensDetails", t.AudioOut)
	return append(w.b, '}')
}

// callID makes an id for the nth call of an answer that has none: the same each time that the answer is read.
func callID(answer string, n int) string {
	if answer == "" {
		answer = rand.Text()
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(answer))
	return madeID + strconv.FormatUint(h.Sum64(), 16) + "_" + strconv.Itoa(n)
}

const blockedText = "the prompt was blocked"

func (codec) DecodeAnswer(body []byte, from wire.Origin) (*wire.Answer, error) {
	if len(body) > wire.MaxFrame {
		return nil, badAnswer("the provider's answer is longer than %d bytes", wire.MaxFrame)
	}
	if !raw.Valid(body) {
		return nil, badAnswer("the provider's answer is not valid JSON")
	}
	d := &decoder{from: from}
	d.from.Protocol = own
	var c wire.Collector
	v := gjson.ParseBytes(body)
	if !v.IsObject() {
		return nil, badAnswer("the provider's answer is not a JSON object")
	}
	d.chunk(v)
	events := d.events
	for _, e := range append(events, d.Close()...) {
		if e.Kind == wire.Broken {
			return nil, agent.Wrap(agent.Unavailable, e.Fault, e.Fault.Message)
		}
		c.Add(e)
	}
	return c.Answer(), nil
}

func (codec) EncodeAnswer(a *wire.Answer, r *wire.Request) ([]byte, error) {
	b := append([]byte(nil), `{"candidates":[{"content":{"parts":[`...)
	n := 0
	for _, p := range a.Parts {
		if !readableCall(p) {
			return nil, badAnswer(brokenCall)
		}
		before := len(b)
		if n > 0 {
			b = append(b, ',')
		}
		var ok bool
		if b, ok = appendPart(b, p); !ok {
			b = b[:before]
			continue
		}
		n++
	}
	b = append(b, `],"role":"model"},"finishReason":`...)
	b = raw.AppendString(b, stopName(a.Stop))
	b = append(b, `,"index":0}],"usageMetadata":`...)
	b = appendUsage(b, a.Usage)
	b = appendHead(b, a.Model, a.ID, r)
	return append(b, '}'), nil
}

// brokenCall is what a client is told of a call whose arguments are no JSON object.
const brokenCall = "the model made a call of a tool that cannot be read; ask again"

func readableCall(p wire.Part) bool {
	if p.Kind != wire.CallPart || p.Call == nil || p.Call.Args == "" {
		return true
	}
	return raw.Valid([]byte(p.Call.Args)) && gjson.Parse(p.Call.Args).IsObject()
}

func appendHead(b []byte, model, id string, r *wire.Request) []byte {
	if model == "" && r != nil {
		model = r.Model
	}
	b = append(b, `,"modelVersion":`...)
	b = raw.AppendString(b, model)
	if id != "" {
		b = append(b, `,"responseId":`...)
		b = raw.AppendString(b, id)
	}
	return b
}

// appendPart appends a part as an answer has it; ok is false when there is nothing to say.
func appendPart(b []byte, p wire.Part) (out []byte, ok bool) {
	w := object{b: append(b, '{')}
	switch p.Kind {
	case wire.TextPart, wire.RefusalPart:
		if p.Text == "" {
			return b, false
		}
		w.set("text", raw.AppendString(nil, p.Text))
	case wire.ThoughtPart:
		if p.Text == "" && p.Thought == nil {
			return b, false
		}
		w.set("text", raw.AppendString(nil, p.Text))
		w.set("thought", []byte("true"))
	case wire.CallPart:
		if p.Call == nil || p.Call.Name == "" {
			return b, false
		}
		args := p.Call.Args
		if args == "" {
			args = "{}"
		}
		w.key("functionCall")
		in := object{b: append(w.b, '{')}
		if p.Call.ID != "" {
			in.set("id", raw.AppendString(nil, p.Call.ID))
		}
		in.set("name", raw.AppendString(nil, p.Call.Name))
		in.set("args", []byte(args))
		w.b = append(in.b, '}')
	case wire.MediaPart:
		m := p.Media
		switch {
		case m == nil:
			return b, false
		case m.Data != "":
			w.key("inlineData")
			in := object{b: append(w.b, '{')}
			in.set("mimeType", raw.AppendString(nil, m.MIME))
			in.set("data", raw.AppendString(nil, m.Data))
			w.b = append(in.b, '}')
		default:
			uri := m.URL
			if uri == "" {
				uri = m.FileID
			}
			w.key("fileData")
			in := object{b: append(w.b, '{')}
			in.set("mimeType", raw.AppendString(nil, m.MIME))
			in.set("fileUri", raw.AppendString(nil, uri))
			w.b = append(in.b, '}')
		}
	case wire.ResultPart:
		return b, false
	}
	if p.Thought != nil && p.Thought.Opaque != "" {
		w.set("thoughtSignature", raw.AppendString(nil, signature(p.Thought)))
	}
	return append(w.b, '}'), true
}
