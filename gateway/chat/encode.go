package chat

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// encoding makes a request.
type encoding struct {
	to     wire.Target
	thinks bool // the model is one of OpenAI's that reason, and takes more
	own    bool // it is one of OpenAI's, and takes no thoughts
	custom map[string]bool
}

func (codec) Encode(op wire.Op, r *wire.Request, to wire.Target) (wire.Call, error) {
	if err := generates(op); err != nil {
		return wire.Call{}, err
	}
	model := to.Model
	if model == "" {
		model = r.Model
	}
	e := encoding{to: to, thinks: openai.Thinks(model), own: openai.Own(model), custom: map[string]bool{}}
	q := request{
		Model: model, Temperature: r.Temperature, TopP: r.TopP, Frequency: r.Frequency, Presence: r.Presence, Seed: r.Seed,
		Effort: openai.Effort(r.Reasoning), Stream: r.Stream, CacheKey: r.CacheKey, Tier: r.Tier, User: r.User,
	}
	if r.Stream {
		q.Options = &options{Usage: true}
	}
	if e.thinks {
		q.MaxDone = r.MaxTokens
	} else {
		q.MaxTokens = r.MaxTokens
	}
	if len(r.Stop) > 0 {
		q.Stop = openai.JSON(r.Stop)
	}
	if f := r.Format; f != nil {
		q.Format = &format{Type: "json_object"}
		if f.Schema != nil {
			q.Format.Type = "json_schema"
			name := f.Name
			if name == "" {
				name = "answer"
			}
			q.Format.Schema = &schema{Name: name, Schema: f.Schema, Strict: f.Strict}
		}
	}
	for i, t := range r.Tools {
		x, err := e.tool(i, t)
		if err != nil {
			return wire.Call{}, err
		}
		q.Tools = append(q.Tools, x)
	}
	if len(q.Tools) > 0 {
		q.Parallel = r.Parallel
		var err error
		if q.Choice, err = e.choice(r.Choice); err != nil {
			return wire.Call{}, err
		}
	}
	if len(r.System) > 0 {
		c, err := e.contents("system", r.System)
		if err != nil {
			return wire.Call{}, err
		}
		q.Messages = append(q.Messages, turn{Role: "system", Content: c})
	}
	for i, m := range r.Messages {
		var err error
		field := "messages[" + itoa(i) + "]"
		if m.Role == wire.Assistant {
			q.Messages, err = e.said(q.Messages, field, m.Parts)
		} else {
			q.Messages, err = e.asked(q.Messages, field, m.Parts)
		}
		if err != nil {
			return wire.Call{}, err
		}
	}
	body, err := openai.Marshal(&q)
	if err != nil {
		return wire.Call{}, agent.Wrap(agent.Invalid, err, "the request cannot be written as JSON")
	}
	return wire.Call{Path: path, Header: openai.Header(nil, r.Stream), Body: body}, nil
}

func (e *encoding) tool(i int, t wire.Tool) (json.RawMessage, error) {
	switch {
	case t.Native != nil && t.Of == agent.ChatProtocol:
		return t.Native, nil
	case t.Native != nil:
		return nil, bad("tools[%d]: the tool %s is the provider's own, of %s, and cannot be translated to chat completions", i, raw.Show(t.Name), t.Of)
	case t.Custom && e.thinks:
		e.custom[t.Name] = true
		c := customSpec{Name: t.Name, Description: t.Description}
		var g openai.Grammar
		if t.Schema != nil && json.Unmarshal(t.Schema, &g) == nil && g.Type == "grammar" {
			c.Format = openai.JSON(map[string]any{"type": "grammar", "grammar": map[string]string{"syntax": g.Syntax, "definition": g.Definition}})
		}
		return openai.JSON(tool{Type: "custom", Custom: &c}), nil
	case t.Custom:
		d := t.Description
		if g := gjson.GetBytes(t.Schema, "definition"); g.Str != "" {
			d = strings.TrimSpace(d + "\n\nThe input must follow this grammar:\n" + g.Str)
		}
		return openai.JSON(tool{Type: "function", Function: &functionSpec{Name: t.Name, Description: d, Parameters: wire.CustomSchema}}), nil
	}
	return openai.JSON(tool{Type: "function", Function: &functionSpec{Name: t.Name, Description: t.Description, Parameters: openai.Schema(t.Schema), Strict: t.Strict}}), nil
}

func (e *encoding) kind(name string) string {
	if e.custom[name] {
		return "custom"
	}
	return "function"
}

func (e *encoding) choice(c wire.Choice) (json.RawMessage, error) {
	one := func(name string) map[string]any {
		return map[string]any{"type": e.kind(name), e.kind(name): map[string]string{"name": name}}
	}
	if c.Kind == wire.ChoiceTool {
		return openai.JSON(one(c.Name)), nil
	}
	w := openai.Word(c)
	if len(c.Among) > 0 && w != "" {
		list := make([]any, len(c.Among))
		for i, name := range c.Among {
			list[i] = one(name)
		}
		return openai.JSON(map[string]any{"type": "allowed_tools", "allowed_tools": map[string]any{"mode": w, "tools": list}}), nil
	}
	if w == "" {
		return nil, nil
	}
	return openai.String(w), nil
}

// contents makes content: text alone when it is one text, else a list of parts.
func (e *encoding) contents(field string, parts []wire.Part) (json.RawMessage, error) {
	if len(parts) == 1 && parts[0].Kind == wire.TextPart {
		return openai.String(parts[0].Text), nil
	}
	list := make([]part, 0, len(parts))
	for i, p := range parts {
		x, err := piece(p)
		if err != nil {
			return nil, bad("%s.content[%d]: %s", field, i, agent.AsError(err).Msg)
		}
		list = append(list, x)
	}
	return openai.JSON(list), nil
}

func piece(p wire.Part) (part, error) {
	switch p.Kind {
	case wire.TextPart:
		return part{Type: "text", Text: p.Text}, nil
	case wire.RefusalPart:
		return part{Type: "refusal", Refusal: p.Text}, nil
	case wire.MediaPart:
		b := p.Media
		switch {
		case b == nil:
		case b.FileID != "":
			return part{}, bad("a file that was uploaded to another provider cannot be sent; send its bytes")
		case openai.IsImage(b):
			return part{Type: "image_url", Image: &imageURL{URL: openai.BlobURL(b), Detail: b.Detail}}, nil
		case openai.AudioFormat(b) != "" && b.Data != "":
			return part{Type: "input_audio", Audio: &audio{Data: b.Data, Format: openai.AudioFormat(b)}}, nil
		case b.Data != "":
			name := b.Name
			if name == "" {
				name = "file"
				if b.MIME == "application/pdf" {
					name = "file.pdf"
				}
			}
			return part{Type: "file", File: &file{Name: name, Data: openai.BlobURL(b)}}, nil
		case b.URL != "":
			return part{}, bad("a file by its address cannot be sent in chat completions; send its bytes")
		}
	}
	return part{}, bad("this kind of content cannot be sent in chat completions")
}

// asked appends what a user's message is: results of tools first, each a message of its own, then the rest. Images in results come after them, since a
// result here is text.
func (e *encoding) asked(list []turn, field string, parts []wire.Part) ([]turn, error) {
	var rest, shown []wire.Part
	for i, p := range parts {
		if p.Kind != wire.ResultPart {
			rest = append(rest, p)
			continue
		}
		if p.Result == nil || p.Result.CallID == "" {
			return nil, bad("%s.parts[%d]: the id of the call is required", field, i)
		}
		var text []wire.Part
		said := false
		for _, x := range p.Result.Parts {
			if x.Kind != wire.MediaPart {
				text = append(text, x)
				continue
			}
			if !said {
				said = true
				shown = append(shown, wire.Part{Kind: wire.TextPart, Text: "What the tool call " + p.Result.CallID + " returned besides text:"})
			}
			shown = append(shown, x)
		}
		c := openai.String("")
		if len(text) > 0 {
			var err error
			if c, err = e.contents(field, text); err != nil {
				return nil, err
			}
		} else if said {
			c = openai.String("The result follows in the next message.")
		} else if p.Result.Failed {
			c = openai.String("The tool failed.")
		}
		list = append(list, turn{Role: "tool", CallID: p.Result.CallID, Content: c})
	}
	rest = append(shown, rest...)
	if len(rest) == 0 {
		return list, nil
	}
	c, err := e.contents(field, rest)
	if err != nil {
		return nil, err
	}
	return append(list, turn{Role: "user", Content: c}), nil
}

// said appends a message of the model's. Text is one string; thoughts go as text, and as the provider's own list to where it came from.
func (e *encoding) said(list []turn, field string, parts []wire.Part) ([]turn, error) {
	t := turn{Role: "assistant"}
	var text, refusal, thought strings.Builder
	for i, p := range parts {
		switch p.Kind {
		case wire.TextPart:
			text.WriteString(p.Text)
		case wire.RefusalPart:
			refusal.WriteString(p.Text)
		case wire.ThoughtPart:
			if p.Thought == nil {
				if !e.own {
					thought.WriteString(p.Text)
				}
				continue
			}
			if !p.Thought.Origin.Fits(e.to.Origin) {
				continue // another's: neither what is opaque nor its text
			}
			thought.WriteString(p.Text)
			if d := gjson.Parse(p.Thought.Opaque); d.IsArray() && gjson.Valid(p.Thought.Opaque) {
				for _, x := range d.Array() {
					t.Details = append(t.Details, json.RawMessage(x.Raw))
				}
			}
		case wire.CallPart:
			if p.Call == nil || p.Call.ID == "" || p.Call.Name == "" {
				return nil, bad("%s.parts[%d]: a call needs an id and a name", field, i)
			}
			t.Calls = append(t.Calls, e.call(p.Call))
		case wire.MediaPart:
			x, err := piece(p)
			if err != nil || x.Image == nil {
				return nil, bad("%s.parts[%d]: media that a model made cannot be sent in chat completions unless they are images", field, i)
			}
			t.Images = append(t.Images, x)
		default:
			return nil, bad("%s.parts[%d]: cannot be what a model said", field, i)
		}
	}
	t.Refusal, t.Thought = refusal.String(), thought.String()
	if text.Len() > 0 {
		t.Content = openai.String(text.String())
	} else if len(t.Calls) == 0 && t.Refusal == "" {
		t.Content = openai.String("")
	}
	return append(list, t), nil
}

func (e *encoding) call(c *wire.ToolCall) call {
	x := call{ID: c.ID, Type: "function"}
	switch {
	case c.Custom && e.thinks:
		x.Type, x.Custom = "custom", &custom{Name: c.Name, Input: c.Args}
	case c.Custom:
		x.Function = &function{Name: c.Name, Args: openai.String(wire.WrapCustom(c.Args))}
	default:
		x.Function = &function{Name: c.Name, Args: openai.String(args(c.Args))}
	}
	return x
}

func args(s string) string {
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	return s
}
