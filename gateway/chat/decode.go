package chat

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func bad(format string, args ...any) error { return agent.Errorf(agent.Invalid, format, args...) }

// untranslated refuses the fields that no other protocol has a word for and that change what is asked for.
func untranslated(o raw.Object) error {
	refuse := func(name string) error {
		return bad("%s: cannot be translated to the protocol of this model's provider; leave it out, or ask for a model whose provider speaks chat completions", name)
	}
	for _, f := range o.Fields {
		v := f.Value
		set := v.Type != gjson.Null && v.Type != gjson.False
		switch f.Name {
		case "n":
			set = set && v.Num != 1
		case "top_logprobs":
			set = set && v.Num != 0
		case "logit_bias":
			set = v.IsObject() && len(v.Map()) > 0
		case "modalities":
			set = false
			v.ForEach(func(_, m gjson.Result) bool { set = set || m.Str != "text"; return !set })
		case "functions":
			set = v.IsArray() && len(v.Array()) > 0
		case "logprobs", "audio", "web_search_options", "function_call":
		default:
			continue
		}
		if set {
			return refuse(f.Name)
		}
	}
	return nil
}

func (codec) Decode(op wire.Op, _ string, _ http.Header, body []byte) (*wire.Request, error) {
	if err := generates(op); err != nil {
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
		Model: q.Model, Parallel: q.Parallel, MaxTokens: q.MaxDone, Temperature: q.Temperature, TopP: q.TopP, TopK: q.TopK, Frequency: q.Frequency,
		Presence: q.Presence, Seed: q.Seed, Stream: q.Stream, CacheKey: q.CacheKey, Tier: q.Tier, User: q.User, Metadata: q.Metadata,
		ForgetSafe: q.Store != nil && !*q.Store, StreamUse: q.Options != nil && q.Options.Usage,
	}
	if r.MaxTokens == nil {
		r.MaxTokens = q.MaxTokens
	}
	if r.User == "" {
		r.User = q.Safety
	}
	if r.Stop, err = stops(q.Stop); err != nil {
		return nil, err
	}
	effort := q.Effort
	if q.Reasoning != nil {
		if effort == "" {
			effort = q.Reasoning.Effort
		}
		r.Reasoning = &wire.Reasoning{Budget: q.Reasoning.Budget, Hidden: q.Reasoning.Exclude}
	}
	if err := openai.CheckEffort("reasoning_effort", effort); err != nil {
		return nil, err
	}
	if effort != "" {
		if r.Reasoning == nil {
			r.Reasoning = &wire.Reasoning{}
		}
		r.Reasoning.Effort = effort
	}
	if r.Format, err = formatOf(q.Format); err != nil {
		return nil, err
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
	for i, t := range q.Messages {
		if err := add(r, fmt.Sprintf("messages[%d]", i), t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func stops(v json.RawMessage) ([]string, error) {
	switch r := gjson.ParseBytes(v); {
	case r.Type == gjson.Null:
		return nil, nil
	case r.Type == gjson.String:
		return []string{r.Str}, nil
	case r.IsArray():
		var list []string
		for _, s := range r.Array() {
			if s.Type != gjson.String {
				return nil, bad("stop: must be a string or a list of strings")
			}
			list = append(list, s.Str)
		}
		return list, nil
	}
	return nil, bad("stop: must be a string or a list of strings")
}

func formatOf(f *format) (*wire.Format, error) {
	switch {
	case f == nil || f.Type == "text":
		return nil, nil
	case f.Type == "json_object":
		return &wire.Format{}, nil
	case f.Type == "json_schema" && f.Schema != nil && len(f.Schema.Schema) > 0:
		return &wire.Format{Name: f.Schema.Name, Schema: f.Schema.Schema, Strict: f.Schema.Strict}, nil
	case f.Type == "json_schema":
		return nil, bad("response_format.json_schema.schema: is required")
	}
	return nil, bad("response_format.type: %s cannot be translated", raw.Show(f.Type))
}

func toolOf(field string, v json.RawMessage) (wire.Tool, error) {
	var t tool
	if err := openai.Unmarshal(v, &t); err != nil {
		return wire.Tool{}, bad("%s: %s", field, agent.AsError(err).Msg)
	}
	switch {
	case t.Type == "function" && t.Function != nil && t.Function.Name != "":
		return wire.Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: openai.Some(t.Function.Parameters), Strict: t.Function.Strict}, nil
	case t.Type == "custom" && t.Custom != nil && t.Custom.Name != "":
		return wire.Tool{Name: t.Custom.Name, Description: t.Custom.Description, Custom: true, Schema: flatten(t.Custom.Format)}, nil
	case t.Type == "function" || t.Type == "custom":
		return wire.Tool{}, bad("%s.%s.name: is required", field, t.Type)
	case t.Type == "":
		return wire.Tool{}, bad("%s.type: is required", field)
	}
	return wire.Tool{Name: t.Type, Native: v, Of: agent.ChatProtocol}, nil
}

// flatten makes the canonical form of a custom tool's format, which is that of responses: {"type": "grammar", "syntax": ..., "definition": ...}.
func flatten(f json.RawMessage) json.RawMessage {
	if g := gjson.GetBytes(f, "grammar"); g.IsObject() {
		b, _ := json.Marshal(openai.Grammar{Type: "grammar", Syntax: g.Get("syntax").String(), Definition: g.Get("definition").String()})
		return b
	}
	return nil
}

func choiceOf(v json.RawMessage) (wire.Choice, error) {
	r := gjson.ParseBytes(v)
	if r.Type == gjson.Null {
		return wire.Choice{}, nil
	}
	if r.Type == gjson.String {
		return openai.ChoiceWord("tool_choice", r.Str)
	}
	switch kind := r.Get("type").String(); kind {
	case "function", "custom":
		name := r.Get(kind + ".name").String()
		if name == "" {
			return wire.Choice{}, bad("tool_choice.%s.name: is required", kind)
		}
		return wire.Choice{Kind: wire.ChoiceTool, Name: name}, nil
	case "allowed_tools":
		c, err := openai.ChoiceWord("tool_choice.allowed_tools.mode", r.Get("allowed_tools.mode").String())
		if err != nil {
			return c, err
		}
		for i, t := range r.Get("allowed_tools.tools").Array() {
			name := t.Get(t.Get("type").String() + ".name")
			if name.Type != gjson.String {
				return c, bad("tool_choice.allowed_tools.tools[%d]: cannot be translated", i)
			}
			c.Among = append(c.Among, name.Str)
		}
		return c, nil
	}
	return wire.Choice{}, bad("tool_choice: cannot be translated")
}

// add appends a message. Results of tools, and what the user says after them, are one message of the user's.
func add(r *wire.Request, field string, t turn) error {
	switch t.Role {
	case "system", "developer":
		parts, err := contents(field+".content", t.Content)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if p.Kind != wire.TextPart {
				return bad("%s.content: instructions must be text", field)
			}
		}
		r.System = append(r.System, parts...)
	case "user":
		parts, err := contents(field+".content", t.Content)
		if err != nil {
			return err
		}
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == wire.User && answers(r.Messages[n-1]) {
			r.Messages[n-1].Parts = append(r.Messages[n-1].Parts, parts...)
			return nil
		}
		r.Messages = append(r.Messages, wire.Message{Role: wire.User, Parts: parts})
	case "tool":
		if t.CallID == "" {
			return bad("%s.tool_call_id: is required", field)
		}
		parts, err := contents(field+".content", t.Content)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if p.Kind != wire.TextPart && p.Kind != wire.MediaPart {
				return bad("%s.content: must be text or images", field)
			}
		}
		p := wire.Part{Kind: wire.ResultPart, Result: &wire.ToolResult{CallID: t.CallID, Parts: parts}}
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == wire.User && onlyAnswers(r.Messages[n-1]) {
			r.Messages[n-1].Parts = append(r.Messages[n-1].Parts, p)
			return nil
		}
		r.Messages = append(r.Messages, wire.Message{Role: wire.User, Parts: []wire.Part{p}})
	case "assistant":
		if t.Function != nil {
			return bad("%s.function_call: cannot be translated; use tool_calls", field)
		}
		parts, err := said(field, t, nil)
		if err != nil {
			return err
		}
		if len(parts) > 0 {
			r.Messages = append(r.Messages, wire.Message{Role: wire.Assistant, Parts: parts})
		}
	case "function":
		return bad("%s.role: function cannot be translated; use tool", field)
	default:
		return bad("%s.role: must be system, developer, user, assistant or tool", field)
	}
	return nil
}

func answers(m wire.Message) bool { return len(m.Parts) > 0 && m.Parts[0].Kind == wire.ResultPart }

func onlyAnswers(m wire.Message) bool {
	return len(m.Parts) > 0 && m.Parts[len(m.Parts)-1].Kind == wire.ResultPart
}

// said reads what a model said, in a message of a client's, or in a whole answer of the provider from. A provider may give a call no id.
func said(field string, t turn, from *wire.Origin) ([]wire.Part, error) {
	parts, err := contents(field+".content", t.Content)
	if err != nil {
		return nil, err
	}
	if t.Refusal != "" {
		parts = append(parts, wire.Part{Kind: wire.RefusalPart, Text: t.Refusal})
	}
	for i, x := range t.Images {
		if x.Image == nil {
			continue
		}
		b, err := openai.URLBlob(fmt.Sprintf("%s.images[%d]", field, i), x.Image.URL, true)
		if err != nil {
			return nil, err
		}
		parts = append(parts, wire.Part{Kind: wire.MediaPart, Media: b})
	}
	for i, c := range t.Calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", field, i)
		if c.ID == "" && from == nil {
			return nil, bad("%s.id: is required", at)
		}
		if c.ID == "" {
			c.ID = openai.NewID("call_")
		}
		x := &wire.ToolCall{ID: c.ID}
		switch {
		case c.Custom != nil:
			x.Name, x.Args, x.Custom = c.Custom.Name, c.Custom.Input, true
		case c.Function != nil:
			x.Name, x.Args = c.Function.Name, openai.Args(c.Function.Args)
		}
		if x.Name == "" {
			return nil, bad("%s: the name of the tool is required", at)
		}
		parts = append(parts, wire.Part{Kind: wire.CallPart, Call: x})
	}
	return think(parts, t, from), nil
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
	var list []part
	if err := openai.Unmarshal(v, &list); err != nil {
		return nil, bad("%s: %s", field, agent.AsError(err).Msg)
	}
	var parts []wire.Part
	for i, x := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		p, err := content(at, x)
		if err != nil {
			return nil, err
		}
		if p.Kind != wire.TextPart && p.Kind != wire.ThoughtPart || p.Text != "" {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

func content(at string, x part) (wire.Part, error) {
	var b *wire.Blob
	var err error
	switch x.Type {
	case "text":
		return wire.Part{Kind: wire.TextPart, Text: x.Text}, nil
	case "refusal":
		return wire.Part{Kind: wire.RefusalPart, Text: x.Refusal}, nil
	case "thinking": // text, or a list of texts
		var text string
		t := gjson.ParseBytes(x.Thinking)
		if t.Type == gjson.String {
			text = t.Str
		}
		if t.IsArray() {
			for _, p := range t.Array() {
				text += p.Get("text").String()
			}
		}
		return wire.Part{Kind: wire.ThoughtPart, Text: text}, nil
	case "image_url":
		if x.Image == nil {
			return wire.Part{}, bad("%s.image_url: is required", at)
		}
		if b, err = openai.URLBlob(at+".image_url.url", x.Image.URL, true); err == nil {
			b.Detail = x.Image.Detail
		}
	case "input_audio":
		if x.Audio == nil || x.Audio.Data == "" || x.Audio.Format == "" {
			return wire.Part{}, bad("%s.input_audio: data and format are required", at)
		}
		b = &wire.Blob{MIME: openai.AudioMIME(x.Audio.Format), Data: x.Audio.Data}
	case "file":
		if x.File == nil {
			return wire.Part{}, bad("%s.file: is required", at)
		}
		b, err = openai.FileBlob(at+".file", x.File.ID, x.File.Name, x.File.Data)
	default:
		return wire.Part{}, bad("%s.type: %s cannot be translated", at, raw.Show(x.Type))
	}
	return wire.Part{Kind: wire.MediaPart, Media: b}, err
}
