package response

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// minTokens is the least that OpenAI takes for max_output_tokens. Clients of other protocols ask for less to find out whether a key works.
const minTokens = 16

type encoding struct {
	to     wire.Target
	thinks bool
	custom map[string]bool // tools that take free text
	calls  map[string]bool // ids of calls of such
}

func (codec) Encode(op wire.Op, r *wire.Request, to wire.Target) (wire.Call, error) {
	at, err := pathOf(op)
	if err != nil {
		return wire.Call{}, err
	}
	model := to.Model
	if model == "" {
		model = r.Model
	}
	if len(r.Stop) > 0 {
		return wire.Call{}, bad("stop: stop sequences cannot be translated to responses; leave them out, or ask for a model whose provider speaks another protocol")
	}
	e := &encoding{to: to, thinks: openai.Thinks(model), custom: map[string]bool{}, calls: map[string]bool{}}
	q := request{
		Model: model, Temperature: r.Temperature, TopP: r.TopP, Stream: r.Stream, CacheKey: r.CacheKey, Tier: r.Tier, User: r.User, Metadata: r.Metadata,
		Store: new(false), // nobody could ask for what is kept: the whole conversation is in each request
	}
	if r.MaxTokens != nil {
		q.MaxTokens = new(max(*r.MaxTokens, minTokens))
	}
	effort := openai.Effort(r.Reasoning)
	if r.Reasoning != nil && (effort != "" || r.Reasoning.Summary != "") {
		q.Reasoning = &reasoning{Effort: effort, Summary: r.Reasoning.Summary}
	}
	if e.thinks || r.Reasoning != nil && (r.Reasoning.Opaque || effort != "" && effort != "none") {
		q.Include = []string{"reasoning.encrypted_content"}
	}
	if f := r.Format; f != nil {
		q.Text = &textOptions{Format: formatOf(f)}
	}
	if q.Tools, err = e.tools(r.Tools); err != nil {
		return wire.Call{}, err
	}
	if len(q.Tools) > 0 {
		q.Parallel, q.Choice = r.Parallel, e.choice(r.Choice)
	}
	var system []string
	for i, p := range r.System {
		if p.Kind != wire.TextPart {
			return wire.Call{}, bad("system[%d]: instructions must be text", i)
		}
		system = append(system, p.Text)
	}
	q.Instructions = strings.Join(system, "\n\n")
	items := []item{}
	for i, m := range r.Messages {
		field := "messages[" + strconv.Itoa(i) + "]"
		if m.Role == wire.Assistant {
			items, err = e.said(items, field, m.Parts)
		} else {
			items, err = e.asked(items, field, m.Parts)
		}
		if err != nil {
			return wire.Call{}, err
		}
	}
	q.Input = openai.JSON(items)
	if op == wire.Count { // that call knows less
		q.Store, q.Stream, q.Include, q.MaxTokens, q.Temperature, q.TopP, q.Tier, q.User, q.Metadata, q.CacheKey = nil, false, nil, nil, nil, nil, "", "", nil, ""
	}
	body, err := openai.Marshal(&q)
	if err != nil {
		return wire.Call{}, agent.Wrap(agent.Invalid, err, "the request cannot be written as JSON")
	}
	return wire.Call{Path: at, Header: openai.Header(nil, q.Stream), Body: body}, nil
}

func formatOf(f *wire.Format) *format {
	if f.Schema == nil {
		return &format{Type: "json_object"}
	}
	name := f.Name
	if name == "" {
		name = "answer"
	}
	return &format{Type: "json_schema", Name: name, Schema: f.Schema, Strict: f.Strict}
}

func (e *encoding) tools(list []wire.Tool) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for i, t := range list {
		x := tool{Type: "function", Name: t.Name, Description: t.Description}
		switch {
		case t.Native != nil && t.Of == agent.ResponseProtocol:
			out = append(out, t.Native)
			continue
		case t.Native != nil:
			return nil, bad("tools[%d]: the tool %s is the provider's own, of %s, and cannot be translated to responses", i, raw.Show(t.Name), t.Of)
		case t.Custom && e.thinks:
			e.custom[t.Name] = true
			x.Type, x.Format = "custom", t.Schema
		case t.Custom:
			if g := gjson.GetBytes(t.Schema, "definition"); g.Str != "" {
				x.Description = strings.TrimSpace(x.Description + "\n\nThe input must follow this grammar:\n" + g.Str)
			}
			x.Parameters, x.Strict = wire.CustomSchema, new(false)
		default:
			// Without a word, functions are strict here, which many schemas are not fit for.
			if x.Strict = t.Strict; x.Strict == nil {
				x.Strict = new(false)
			}
			x.Parameters = openai.Schema(t.Schema)
		}
		out = append(out, openai.JSON(x))
	}
	return out, nil
}

func (e *encoding) choice(c wire.Choice) json.RawMessage {
	one := func(name string) map[string]string {
		kind := "function"
		if e.custom[name] {
			kind = "custom"
		}
		return map[string]string{"type": kind, "name": name}
	}
	if c.Kind == wire.ChoiceTool {
		return openai.JSON(one(c.Name))
	}
	w := openai.Word(c)
	if w == "" {
		return nil
	}
	if len(c.Among) > 0 {
		list := make([]any, len(c.Among))
		for i, name := range c.Among {
			list[i] = one(name)
		}
		return openai.JSON(map[string]any{"type": "allowed_tools", "mode": w, "tools": list})
	}
	return openai.String(w)
}

// asked appends what the user said: results first, then the rest as a message.
func (e *encoding) asked(items []item, field string, parts []wire.Part) ([]item, error) {
	var rest []content
	for i, p := range parts {
		at := field + ".parts[" + strconv.Itoa(i) + "]"
		if p.Kind != wire.ResultPart {
			c, err := pieceOf(at, p)
			if err != nil {
				return nil, err
			}
			rest = append(rest, c)
			continue
		}
		if p.Result == nil || p.Result.CallID == "" {
			return nil, bad("%s: the id of the call is required", at)
		}
		out, err := result(at, p.Result)
		if err != nil {
			return nil, err
		}
		x := item{Type: "function_call_output", CallID: p.Result.CallID, Output: out}
		if e.calls[x.CallID] {
			x.Type = "custom_tool_call_output"
		}
		items = append(items, x)
	}
	if len(rest) > 0 {
		items = append(items, item{Type: "message", Role: "user", Content: openai.JSON(rest)})
	}
	return items, nil
}

func result(at string, r *wire.ToolResult) (json.RawMessage, error) {
	if len(r.Parts) == 0 {
		if r.Failed {
			return openai.String("The tool failed."), nil
		}
		return openai.String(""), nil
	}
	if len(r.Parts) == 1 && r.Parts[0].Kind == wire.TextPart {
		return openai.String(r.Parts[0].Text), nil
	}
	list := make([]content, 0, len(r.Parts))
	for _, p := range r.Parts {
		c, err := pieceOf(at, p)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return openai.JSON(list), nil
}

func pieceOf(at string, p wire.Part) (content, error) {
	if p.Kind == wire.TextPart {
		return content{Type: "input_text", Text: &p.Text}, nil
	}
	b := p.Media
	if p.Kind != wire.MediaPart || b == nil {
		return content{}, bad("%s: this kind of content cannot be sent in responses", at)
	}
	switch {
	case b.FileID != "":
		return content{}, bad("%s: a file that was uploaded to another provider cannot be sent; send its bytes", at)
	case openai.IsImage(b):
		detail := b.Detail
		if detail == "" {
			detail = "auto"
		}
		return content{Type: "input_image", ImageURL: openai.BlobURL(b), Detail: detail}, nil
	case openai.AudioFormat(b) != "" && b.Data != "":
		return content{Type: "input_audio", Audio: &audio{Data: b.Data, Format: openai.AudioFormat(b)}}, nil
	case b.Data != "":
		name := b.Name
		if name == "" {
			name = "file"
			if b.MIME == "application/pdf" {
				name = "file.pdf"
			}
		}
		return content{Type: "input_file", FileName: name, FileData: openai.BlobURL(b)}, nil
	case b.URL != "":
		return content{Type: "input_file", FileURL: b.URL}, nil
	}
	return content{}, bad("%s: there is nothing in it", at)
}

// said appends what the model said. A thought goes along only to where it came from, with its opaque data and before what followed it.
func (e *encoding) said(items []item, field string, parts []wire.Part) ([]item, error) {
	var words []content
	flush := func() {
		if len(words) > 0 {
			items = append(items, item{Type: "message", Role: "assistant", Content: openai.JSON(words)})
			words = nil
		}
	}
	for i, p := range parts {
		at := field + ".parts[" + strconv.Itoa(i) + "]"
		switch p.Kind {
		case wire.TextPart:
			if p.Text != "" { // such as Gemini's clients send of a stream's last chunk
				words = append(words, content{Type: "output_text", Text: &p.Text})
			}
		case wire.RefusalPart:
			words = append(words, content{Type: "refusal", Refusal: p.Text})
		case wire.ThoughtPart:
			if p.Thought != nil && p.Thought.Opaque != "" && p.Thought.Origin.Fits(e.to.Origin) {
				flush()
				items = append(items, thoughtItem("", "", p.Text, p.Thought.Opaque))
			}
		case wire.CallPart:
			if p.Call == nil || p.Call.ID == "" || p.Call.Name == "" {
				return nil, bad("%s: a call needs an id and a name", at)
			}
			flush()
			c := *p.Call
			switch {
			case c.Custom && e.thinks:
				e.calls[c.ID] = true
			case c.Custom:
				c.Custom, c.Args = false, wire.WrapCustom(c.Args)
			case strings.TrimSpace(c.Args) == "":
				c.Args = "{}"
			}
			items = append(items, callItem("", "", c))
		default:
			return nil, bad("%s: this kind of content cannot be what a model said in responses", at)
		}
	}
	flush()
	return items, nil
}
