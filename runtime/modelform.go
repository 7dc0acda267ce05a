package runtime

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/internal/phrase"
)

// Bounds of images and files that go to a model, in bytes. Those of the session are a path in what the code asks, so its size says nothing of theirs.
const (
	maxMedia    = 8 << 20                 // of one
	maxAllMedia = gateway.MaxBody / 4 * 3 // of all that one request has: in base64, what others may send to the gateway
)

var partNames = map[wire.PartKind]string{
	wire.TextPart: "text", wire.ThoughtPart: "reasoning", wire.CallPart: "tool-call", wire.ResultPart: "tool-result", wire.RefusalPart: "refusal",
}

// partName is what code calls a part.
func partName(k wire.PartKind) string { return partNames[k] }

var stopNames = map[wire.Stop]string{
	wire.StopEnd: "end", wire.StopSequence: "end", wire.StopLength: "length", wire.StopTool: "tool", wire.StopFilter: "filter", wire.StopPause: "pause",
}

func stopName(s wire.Stop) string {
	if name, ok := stopNames[s]; ok {
		return name
	}
	return "unknown"
}

// modelRequest reads what code asks of a model.
func (b *toolbox) modelRequest(ctx context.Context, q abi.ModelAsk) (*wire.Request, error) {
	r := &wire.Request{
		Model: q.Model, Temperature: q.Temperature, TopP: q.TopP, Stop: q.Stop, User: q.User,
	}
	if q.MaxTokens < 0 {
		return nil, agent.Errorf(agent.Invalid, "max_tokens: %d is below 0", q.MaxTokens)
	}
	if q.MaxTokens > 0 {
		r.MaxTokens = &q.MaxTokens
	}
	if q.System != "" {
		r.System = []wire.Part{{Kind: wire.TextPart, Text: q.System}}
	}
	if len(q.Messages) == 0 {
		return nil, agent.Errorf(agent.Invalid, "messages: there are none; a model is asked at least one")
	}
	room := maxAllMedia
	for i, m := range q.Messages {
		w := wire.Message{}
		switch m.Role {
		case "user":
		case "assistant":
			w.Role = wire.Assistant
		default:
			return nil, agent.Errorf(agent.Invalid, "messages[%d].role: %q is neither user nor assistant; what the model shall keep to is in system", i, phrase.Clip(m.Role, maxName))
		}
		var err error
		if w.Parts, err = b.wireParts(ctx, fmt.Sprintf("messages[%d].content", i), m.Content, &room); err != nil {
			return nil, err
		}
		r.Messages = append(r.Messages, w)
	}
	for i, t := range q.Tools {
		if t.Name == "" {
			return nil, agent.Errorf(agent.Invalid, "tools[%d].name: it is missing", i)
		}
		r.Tools = append(r.Tools, wire.Tool{Name: t.Name, Description: t.Description, Schema: json.RawMessage(t.Schema)})
	}
	switch q.Choice {
	case "":
	case "auto":
		r.Choice.Kind = wire.ChoiceAuto
	case "none":
		r.Choice.Kind = wire.ChoiceNone
	case "any":
		r.Choice.Kind = wire.ChoiceAny
	default:
		if !slices.ContainsFunc(q.Tools, func(t abi.ModelTool) bool { return t.Name == q.Choice }) {
			return nil, agent.Errorf(agent.Invalid, "choice: %q is none of auto, none, any and the names of the tools", phrase.Clip(q.Choice, maxName))
		}
		r.Choice = wire.Choice{Kind: wire.ChoiceTool, Name: q.Choice}
	}
	if q.Reasoning != nil {
		r.Reasoning = &wire.Reasoning{Effort: q.Reasoning.Effort, Opaque: true, Hidden: !q.Reasoning.Show}
		if q.Reasoning.Budget > 0 {
			r.Reasoning.Budget = &q.Reasoning.Budget
		}
		if q.Reasoning.Show {
			r.Reasoning.Summary = "auto"
		}
	}
	if q.Format != nil {
		r.Format = &wire.Format{Name: q.Format.Name, Schema: json.RawMessage(q.Format.Schema)}
	}
	if q.Cache {
		mark(r)
	}
	return r, nil
}

// mark asks for the instructions and all that was said before to be cached.
func mark(r *wire.Request) {
	if n := len(r.System); n > 0 {
		r.System[n-1].Cache = &wire.CacheMark{}
	}
	if last := r.Messages[len(r.Messages)-1].Parts; len(last) > 0 {
		last[len(last)-1].Cache = &wire.CacheMark{}
	}
}

// wireParts reads the pieces of a message. room is how many bytes its images and files may have yet.
func (b *toolbox) wireParts(ctx context.Context, where string, parts abi.ModelParts, room *int) ([]wire.Part, error) {
	out := make([]wire.Part, 0, len(parts))
	for i, p := range parts {
		at := fmt.Sprintf("%s[%d]", where, i)
		w, err := b.wirePart(ctx, at, p, room)
		if err != nil {
			return nil, err
		}
		if p.Opaque != "" {
			w.Thought = &wire.Thinking{Opaque: p.Opaque, Redacted: p.Redacted}
			if len(p.Origin) > 0 {
				if err := json.Unmarshal(p.Origin, &w.Thought.Origin); err != nil {
					return nil, agent.Errorf(agent.Invalid, "%s.origin: it is not as the answer had it", at)
				}
			}
		}
		out = append(out, w)
	}
	return out, nil
}

func (b *toolbox) wirePart(ctx context.Context, at string, p abi.ModelPart, room *int) (w wire.Part, err error) {
	switch p.Type {
	case "text":
		return wire.Part{Kind: wire.TextPart, Text: p.Text}, nil
	case "reasoning":
		return wire.Part{Kind: wire.ThoughtPart, Text: p.Text}, nil
	case "refusal":
		return wire.Part{Kind: wire.RefusalPart, Text: p.Text}, nil
	case "tool-call":
		return wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: p.ID, Name: p.Name, Args: openai.Args(json.RawMessage(p.Args))}}, nil
	case "tool-result":
		w = wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: p.ID, Name: p.Name, Failed: p.Failed}}
		w.Result.Parts, err = b.wireParts(ctx, at+".result", p.Result, room)
		return w, err
	case "image", "file":
		m := &wire.Blob{MIME: p.MIME, URL: p.URL, Name: p.Name, Image: p.Type == "image"}
		if p.File != "" {
			if err := b.session(); err != nil {
				return w, err
			}
			f, body, err := b.r.store.ReadFile(ctx, b.job.App, b.job.Session, p.File, 0, int64(min(maxMedia, *room)+1))
			if err != nil {
				return w, err
			}
			p.Data, m.Name = body, p.File
			if m.MIME == "" {
				m.MIME = f.Type
			}
		}
		switch {
		case len(p.Data) > maxMedia:
			return w, agent.Exceeded(agent.LimitInput, "%s: it has more than %d bytes", at, maxMedia)
		case len(p.Data) > *room:
			return w, agent.Exceeded(agent.LimitInput, "%s: the images and files of the request have more than %d bytes in all", at, maxAllMedia)
		case len(p.Data) > 0:
			*room -= len(p.Data)
			m.Data = base64.StdEncoding.EncodeToString(p.Data)
		case p.URL == "":
			return w, agent.Errorf(agent.Invalid, "%s: it has none of data, url and file", at)
		}
		if m.MIME == "" && m.URL == "" {
			return w, agent.Errorf(agent.Invalid, "%s.mime: it is missing, such as image/png", at)
		}
		m.Image = m.Image || strings.HasPrefix(m.MIME, "image/")
		return wire.Part{Kind: wire.MediaPart, Media: m}, nil
	}
	return w, agent.Errorf(agent.Invalid, "%s.type: %q is none of text, reasoning, tool-call, tool-result, image and file", at, phrase.Clip(p.Type, maxName))
}

// modelAnswer returns an answer as code gets it.
func modelAnswer(a *wire.Answer) abi.ModelAnswer {
	out := abi.ModelAnswer{ID: a.ID, Model: a.Model, Stop: stopName(a.Stop), Usage: modelUsage(a.Usage.Tokens), Content: abi.ModelParts{}}
	for _, p := range a.Parts {
		part := abi.ModelPart{Type: partName(p.Kind), Text: p.Text}
		if p.Thought != nil {
			part.Opaque, part.Redacted = p.Thought.Opaque, p.Thought.Redacted
			part.Origin = encode(p.Thought.Origin)
		}
		switch {
		case p.Kind == wire.CallPart && p.Call != nil:
			part.ID, part.Name, part.Args = p.Call.ID, p.Call.Name, callArgs(p.Call.Args)
		case p.Kind == wire.MediaPart && p.Media != nil:
			part.Type = "file"
			if p.Media.Image {
				part.Type = "image"
			}
			part.MIME, part.URL, part.Name = p.Media.MIME, p.Media.URL, p.Media.Name
			part.Data, _ = base64.StdEncoding.DecodeString(p.Media.Data)
		}
		out.Content = append(out.Content, part)
	}
	return out
}

// callArgs returns the arguments of a call as JSON. What a model wrote that is none is given as a text, so that the code can tell it so.
func callArgs(text string) abi.Raw {
	switch {
	case text == "":
		return abi.Raw("{}")
	case json.Valid([]byte(text)):
		return abi.Raw(text)
	}
	return encode(text)
}

func modelUsage(t agent.ModelTokens) abi.ModelUsage {
	return abi.ModelUsage{Input: t.Input, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite + t.CacheWrite1h, Output: t.Output, Reasoning: t.Reasoning}
}
