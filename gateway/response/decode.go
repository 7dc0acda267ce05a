package response

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// untranslated refuses the fields that no other protocol has a word for and that change what is asked for.
func untranslated(o raw.Object) error {
	for _, f := range o.Fields {
		v, why := f.Value, ""
		set := v.Type != gjson.Null && v.Type != gjson.False
		switch f.Name {
		case "previous_response_id", "conversation":
			why = "answers of translated models are not kept; send the whole conversation in input"
		case "background", "prompt":
			why = "ask for a model whose provider speaks responses"
		case "top_logprobs":
			set, why = set && v.Num != 0, "ask for a model whose provider speaks responses"
		case "include":
			set = false
			v.ForEach(func(_, x gjson.Result) bool { set = set || strings.Contains(x.Str, "logprobs"); return !set })
			why = "log probabilities are not to be had of this model's provider"
		default:
			continue
		}
		if set {
			return bad("%s: cannot be translated to the protocol of this model's provider: %s", f.Name, why)
		}
	}
	return nil
}

func (codec) Decode(op wire.Op, _ string, _ http.Header, body []byte) (*wire.Request, error) {
	if _, err := pathOf(op); err != nil {
		return nil, err
	}
	o, err := openai.Read(body)
	if err != nil {
		return nil, err
	}
	if _, err := openai.Model(o); err != nil {
		return nil, err
	}
	if err := untranslated(o); err != nil {
		return nil, err
	}
	var q request
	if err := openai.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	r := &wire.Request{
		Model: q.Model, Parallel: q.Parallel, MaxTokens: q.MaxTokens, Temperature: q.Temperature, TopP: q.TopP, Stream: q.Stream, CacheKey: q.CacheKey,
		Tier: q.Tier, User: q.User, Metadata: q.Metadata, ForgetSafe: q.Store != nil && !*q.Store,
	}
	if r.User == "" {
		r.User = q.Safety
	}
	if q.Instructions != "" {
		r.System = []wire.Part{{Kind: wire.TextPart, Text: q.Instructions}}
	}
	if err := reason(r, &q); err != nil {
		return nil, err
	}
	if q.Text != nil && q.Text.Format != nil {
		switch f := q.Text.Format; f.Type {
		case "text":
		case "json_object":
			r.Format = &wire.Format{}
		case "json_schema":
			if len(f.Schema) == 0 {
				return nil, bad("text.format.schema: is required")
			}
			r.Format = &wire.Format{Name: f.Name, Schema: f.Schema, Strict: f.Strict}
		default:
			return nil, bad("text.format.type: %s cannot be translated", raw.Show(f.Type))
		}
	}
	for i, t := range q.Tools {
		x, err := toolOf(fmt.Sprintf("tools[%d]", i), t)
		if err != nil {
			return nil, err
		}
		r.Tools = append(r.Tools, x)
	}
	if r.Choice, err = choiceOf(q.Choice); err != nil {
		return nil, err
	}
	return r, input(r, q.Input)
}

func reason(r *wire.Request, q *request) error {
	opaque := false
	for _, s := range q.Include {
		opaque = opaque || s == "reasoning.encrypted_content"
	}
	if q.Reasoning == nil && !opaque {
		return nil
	}
	r.Reasoning = &wire.Reasoning{Opaque: opaque}
	if q.Reasoning == nil {
		return nil
	}
	r.Reasoning.Effort, r.Reasoning.Summary = q.Reasoning.Effort, q.Reasoning.Summary
	if r.Reasoning.Summary == "" {
		r.Reasoning.Summary = q.Reasoning.Old
	}
	return openai.CheckEffort("reasoning.effort", q.Reasoning.Effort)
}

func toolOf(field string, v json.RawMessage) (wire.Tool, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := openai.Unmarshal(v, &head); err != nil || head.Type == "" {
		return wire.Tool{}, bad("%s.type: is required", field)
	}
	if head.Type != "function" && head.Type != "custom" {
		return wire.Tool{Name: head.Type, Native: v, Of: agent.ResponseProtocol}, nil
	}
	var t tool
	if err := openai.Unmarshal(v, &t); err != nil {
		return wire.Tool{}, bad("%s: %s", field, agent.AsError(err).Msg)
	}
	if t.Name == "" {
		return wire.Tool{}, bad("%s.name: is required", field)
	}
	x := wire.Tool{Name: t.Name, Description: t.Description, Strict: t.Strict, Schema: openai.Some(t.Parameters)}
	if t.Type == "custom" {
		x.Custom, x.Strict, x.Schema = true, nil, nil
		if gjson.GetBytes(t.Format, "type").Str == "grammar" {
			x.Schema = t.Format
		}
	}
	return x, nil
}

func choiceOf(v json.RawMessage) (wire.Choice, error) {
	r := gjson.ParseBytes(v)
	if r.Type == gjson.Null {
		return wire.Choice{}, nil
	}
	if r.Type == gjson.String {
		return openai.ChoiceWord("tool_choice", r.Str)
	}
	switch r.Get("type").String() {
	case "function", "custom":
		if name := r.Get("name").String(); name != "" {
			return wire.Choice{Kind: wire.ChoiceTool, Name: name}, nil
		}
		return wire.Choice{}, bad("tool_choice.name: is required")
	case "allowed_tools":
		c, err := openai.ChoiceWord("tool_choice.mode", r.Get("mode").String())
		if err != nil {
			return c, err
		}
		for i, t := range r.Get("tools").Array() {
			name := t.Get("name")
			if name.Type != gjson.String {
				return c, bad("tool_choice.tools[%d]: cannot be translated", i)
			}
			c.Among = append(c.Among, name.Str)
		}
		return c, nil
	}
	return wire.Choice{}, bad("tool_choice: a tool of the provider's own cannot be translated")
}

// input reads the conversation. What the model said between two words of the user is one message; so are results of tools and what the user says after them.
func input(r *wire.Request, v json.RawMessage) error {
	in := gjson.ParseBytes(v)
	if in.Type == gjson.String {
		r.Messages = append(r.Messages, wire.Message{Role: wire.User, Parts: []wire.Part{{Kind: wire.TextPart, Text: in.Str}}})
		return nil
	}
	if !in.IsArray() {
		return bad("input: must be text or a list of items")
	}
	signs := map[string]*wire.Thinking{} // of calls
	for i, x := range in.Array() {
		if err := addItem(r, fmt.Sprintf("input[%d]", i), x, signs); err != nil {
			return err
		}
	}
	for _, m := range r.Messages {
		for i := range m.Parts {
			if c := m.Parts[i].Call; c != nil && signs[c.ID] != nil {
				m.Parts[i].Thought = signs[c.ID]
			}
		}
	}
	return nil
}

func addItem(r *wire.Request, field string, v gjson.Result, signs map[string]*wire.Thinking) error {
	if !v.IsObject() {
		return bad("%s: must be an object", field)
	}
	kind := v.Get("type").String()
	if kind == "" {
		kind = "message"
	}
	switch kind {
	case "message", "reasoning", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output":
	case "item_reference":
		id := v.Get("id").String()
		if id == "" {
			return bad("%s.id: is required", field)
		}
		assist(r, []wire.Part{{Kind: wire.TextPart, Item: id, Ref: true}})
		return nil
	default:
		return bad("%s: an item of type %s cannot be translated to the protocol of this model's provider", field, raw.Show(kind))
	}
	var x item
	if err := openai.Unmarshal([]byte(v.Raw), &x); err != nil {
		return bad("%s: %s", field, agent.AsError(err).Msg)
	}
	x.Type = kind
	switch kind {
	case "message":
		return addMessage(r, field, x)
	case "function_call_output", "custom_tool_call_output":
		if x.CallID == "" {
			return bad("%s.call_id: is required", field)
		}
		parts, err := contents(field+".output", x.Output)
		if err != nil {
			return err
		}
		p := wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: x.CallID, Parts: parts}}
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == wire.User && last(r.Messages[n-1]) == wire.ResultPart {
			r.Messages[n-1].Parts = append(r.Messages[n-1].Parts, p)
			return nil
		}
		r.Messages = append(r.Messages, wire.Message{Role: wire.User, Parts: []wire.Part{p}})
		return nil
	}
	parts, err := said(field, x, nil, signs)
	if err == nil {
		assist(r, parts)
	}
	return err
}

func last(m wire.Message) wire.PartKind {
	if n := len(m.Parts); n > 0 {
		return m.Parts[n-1].Kind
	}
	return wire.TextPart
}

func assist(r *wire.Request, parts []wire.Part) {
	if len(parts) == 0 {
		return
	}
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == wire.Assistant {
		r.Messages[n-1].Parts = append(r.Messages[n-1].Parts, parts...)
		return
	}
	r.Messages = append(r.Messages, wire.Message{Role: wire.Assistant, Parts: parts})
}

func addMessage(r *wire.Request, field string, x item) error {
	parts, err := contents(field+".content", x.Content)
	if err != nil {
		return err
	}
	switch x.Role {
	case "system", "developer":
		for _, p := range parts {
			if p.Kind != wire.TextPart {
				return bad("%s.content: instructions must be text", field)
			}
		}
		r.System = append(r.System, parts...)
	case "user":
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == wire.User && len(r.Messages[n-1].Parts) > 0 && r.Messages[n-1].Parts[0].Kind == wire.ResultPart {
			r.Messages[n-1].Parts = append(r.Messages[n-1].Parts, parts...)
			return nil
		}
		r.Messages = append(r.Messages, wire.Message{Role: wire.User, Parts: parts})
	case "assistant":
		assist(r, parts)
	default:
		return bad("%s.role: must be user, assistant, system or developer", field)
	}
	return nil
}

// said reads an item of what a model said: of a client's conversation, or of the answer of the provider from. Opaque data that sits on a call goes to signs.
func said(field string, x item, from *wire.Origin, signs map[string]*wire.Thinking) ([]wire.Part, error) {
	switch x.Type {
	case "message":
		return contents(field+".content", x.Content)
	case "function_call", "custom_tool_call":
		if x.CallID == "" && from != nil {
			x.CallID = x.ID
		}
		if x.CallID == "" || x.Name == "" {
			return nil, bad("%s: call_id and name are required", field)
		}
		c := &wire.ToolCall{ID: x.CallID, Name: x.Name, Custom: x.Type == "custom_tool_call"}
		if c.Custom {
			if x.Input != nil {
				c.Args = *x.Input
			}
		} else {
			c.Args = "{}"
			if x.Args != nil {
				c.Args = openai.Args(openai.String(*x.Args))
			}
		}
		return []wire.Part{{Kind: wire.CallPart, Call: c}}, nil
	case "reasoning":
		p := wire.Part{Kind: wire.ThoughtPart, Text: thoughtText(x)}
		if x.Encrypted != "" {
			o := wire.Origin{Protocol: agent.ResponseProtocol.String()}
			t, call, ok := wire.UnsealCall(x.Encrypted)
			switch {
			case from != nil:
				t = &wire.Thinking{Opaque: x.Encrypted, Origin: *from}
			case !ok:
				t = &wire.Thinking{Opaque: x.Encrypted, Origin: o}
			case call != "":
				signs[call] = t
				return nil, nil
			}
			p.Thought = t
		}
		if p.Text == "" && p.Thought == nil {
			return nil, nil
		}
		return []wire.Part{p}, nil
	}
	return nil, nil
}

// thoughtText is what may be read of a thought: its summary, or else the text itself.
func thoughtText(x item) string {
	for _, list := range []json.RawMessage{x.Summary, x.Content} {
		var texts []string
		for _, s := range gjson.ParseBytes(list).Array() {
			if t := s.Get("text").String(); t != "" {
				texts = append(texts, t)
			}
		}
		if len(texts) > 0 {
			return strings.Join(texts, "\n\n")
		}
	}
	return ""
}

func contents(field string, v json.RawMessage) ([]wire.Part, error) {
	r := gjson.ParseBytes(v)
	switch {
	case r.Type == gjson.Null:
		return nil, nil
	case r.Type == gjson.String:
		if r.Str == "" {
			return nil, nil
		}
		return []wire.Part{{Kind: wire.TextPart, Text: r.Str}}, nil
	case !r.IsArray():
		return nil, bad("%s: must be text or a list of parts", field)
	}
	var list []content
	if err := openai.Unmarshal(v, &list); err != nil {
		return nil, bad("%s: %s", field, agent.AsError(err).Msg)
	}
	var parts []wire.Part
	for i, x := range list {
		p, err := piece(fmt.Sprintf("%s[%d]", field, i), x)
		if err != nil {
			return nil, err
		}
		if p.Kind != wire.TextPart || p.Text != "" {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

func piece(at string, x content) (wire.Part, error) {
	var b *wire.Blob
	var err error
	switch x.Type {
	case "input_text", "output_text", "text":
		p := wire.Part{Kind: wire.TextPart}
		if x.Text != nil {
			p.Text = *x.Text
		}
		return p, nil
	case "refusal":
		return wire.Part{Kind: wire.RefusalPart, Text: x.Refusal}, nil
	case "input_image":
		if x.FileID != "" {
			b = &wire.Blob{FileID: x.FileID, Image: true}
		} else {
			b, err = openai.URLBlob(at+".image_url", x.ImageURL, true)
		}
		if err == nil {
			b.Detail = x.Detail
		}
	case "input_file":
		if x.FileURL != "" {
			b, err = openai.URLBlob(at+".file_url", x.FileURL, false)
			if err == nil {
				b.Name = x.FileName
			}
		} else {
			b, err = openai.FileBlob(at, x.FileID, x.FileName, x.FileData)
		}
	case "input_audio":
		if x.Audio == nil || x.Audio.Data == "" || x.Audio.Format == "" {
			return wire.Part{}, bad("%s.input_audio: data and format are required", at)
		}
		b = &wire.Blob{MIME: openai.AudioMIME(x.Audio.Format), Data: x.Audio.Data}
	default:
		return wire.Part{}, bad("%s.type: %s cannot be translated", at, raw.Show(x.Type))
	}
	return wire.Part{Kind: wire.MediaPart, Media: b}, err
}
