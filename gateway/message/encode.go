package message

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// request is a request of the protocol, in the order in which its fields are sent.
type request struct {
	Model         string          `json:"model"`
	MaxTokens     int64           `json:"max_tokens,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
	Tools         []any           `json:"tools,omitempty"`
	Choice        *choice         `json:"tool_choice,omitempty"`
	System        []block         `json:"system,omitempty"`
	Messages      []message       `json:"messages"`
	Thinking      *thinking       `json:"thinking,omitempty"`
	Output        *output         `json:"output_config,omitempty"`
	Temperature   *float64        `json:"temperature,omitempty"`
	TopP          *float64        `json:"top_p,omitempty"`
	TopK          *int64          `json:"top_k,omitempty"`
	StopSequences []string        `json:"stop_sequences,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	Tier          string          `json:"service_tier,omitempty"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict,omitempty"`
	Cache       *cache          `json:"cache_control,omitempty"`
}

type choice struct {
	Type     string `json:"type"`
	Name     string `json:"name,omitempty"`
	Parallel *bool  `json:"disable_parallel_tool_use,omitempty"`
}

type thinking struct {
	Type    string `json:"type"`
	Budget  int64  `json:"budget_tokens,omitempty"`
	Display string `json:"display,omitempty"`
}

type output struct {
	Effort string  `json:"effort,omitempty"`
	Format *format `json:"format,omitempty"`
}

type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is content. Pointers tell an empty string from none.
type block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Source    *blockSource    `json:"source,omitempty"`
	Title     string          `json:"title,omitempty"`
	CallID    string          `json:"tool_use_id,omitempty"`
	Content   []block         `json:"content,omitempty"`
	Failed    bool            `json:"is_error,omitempty"`
	Cache     *cache          `json:"cache_control,omitempty"`
	mark      *wire.CacheMark // asked for
}

type blockSource struct {
	Type   string `json:"type"`
	MIME   string `json:"media_type,omitempty"`
	Data   string `json:"data,omitempty"`
	URL    string `json:"url,omitempty"`
	FileID string `json:"file_id,omitempty"`
}

type cache struct {
	Type string `json:"type"`
	TTL  string `json:"ttl,omitempty"`
}

func (codec) Encode(op wire.Op, r *wire.Request, to wire.Target) (wire.Call, error) {
	e := encoding{r: r, to: to}
	if len(r.Choice.Among) > 0 {
		e.among = map[string]bool{}
		for _, name := range r.Choice.Among {
			e.among[name] = true
		}
	}
	out, err := e.request(op)
	if err != nil {
		return wire.Call{}, err
	}
	body, err := marshal(out)
	if err != nil {
		return wire.Call{}, agent.Wrap(agent.Internal, err, "the request could not be written")
	}
	c := wire.Call{Path: askPath, Body: body, Header: http.Header{}}
	if op == wire.Count {
		c.Path = countPath
	}
	// The first version takes every field that is written here; the second refuses temperature and its like.
	c.Header.Set(headerVersion, First)
	c.Header.Set("Content-Type", "application/json")
	return c, nil
}

type encoding struct {
	r     *wire.Request
	to    wire.Target
	among map[string]bool // the only tools of ours that are offered; nil for all
}

// offers reports whether a tool is passed on: others than those of r.Choice.Among are left out, but for a provider's own.
func (e encoding) offers(t wire.Tool) bool {
	return t.Native != nil || e.among == nil || e.among[t.Name]
}

func (e encoding) request(op wire.Op) (*request, error) {
	r := e.r
	out := &request{Model: e.to.Model, Messages: []message{}, StopSequences: r.Stop, TopK: r.TopK, TopP: r.TopP}
	if out.Model == "" {
		out.Model = r.Model
	}
	for _, f := range []struct {
		name string
		v    *float64
	}{{"frequency_penalty", r.Frequency}, {"presence_penalty", r.Presence}} {
		if f.v != nil && *f.v != 0 {
			return nil, invalid("%s: the Anthropic protocol has no such thing; leave it out", f.name)
		}
	}
	if t := r.Temperature; t != nil {
		if *t < 0 || *t > 1 {
			return nil, invalid("temperature: the Anthropic protocol takes 0 to 1, and %g was asked for", *t)
		}
		out.Temperature = t
	}
	if err := e.tools(out); err != nil {
		return nil, err
	}
	system, err := e.parts(r.System, "system", wire.User)
	if err != nil {
		return nil, err
	}
	out.System = system
	if err := e.messages(out); err != nil {
		return nil, err
	}
	e.marks(out)
	if err := e.thinking(out); err != nil {
		return nil, err
	}
	if op == wire.Count {
		return &request{Model: out.Model, Tools: out.Tools, Choice: out.Choice, System: out.System, Messages: out.Messages, Thinking: out.Thinking}, nil
	}
	if err := e.format(out); err != nil {
		return nil, err
	}
	out.Stream = r.Stream
	if r.User != "" {
		out.Metadata = append(raw.AppendString([]byte(`{"user_id":`), r.User), '}')
	}
	switch r.Tier {
	case "auto", "priority":
		out.Tier = "auto"
	case "default", "standard", "standard_only":
		out.Tier = "standard_only"
	}
	return out, nil
}

func (e encoding) tools(out *request) error {
	r := e.r
	for i, t := range r.Tools {
		if t.Native != nil {
			if t.Of != agent.MessageProtocol {
				return invalid("tools.%d: %s is a tool of another provider's own; the Anthropic protocol has no form for it", i, raw.Show(named(t)))
			}
			out.Tools = append(out.Tools, json.RawMessage(t.Native))
			continue
		}
		if !e.offers(t) {
			continue
		}
		if !goodName(t.Name) {
			return invalid("tools.%d.name: %s; the Anthropic protocol takes letters, digits, _ and -, at most 128", i, raw.Show(t.Name))
		}
		w := &tool{Name: t.Name, Description: t.Description, Schema: t.Schema, Strict: t.Strict}
		switch {
		case t.Custom:
			w.Schema = wire.CustomSchema
		case len(w.Schema) == 0:
			w.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
		case !gjson.GetBytes(w.Schema, "type").Exists() && raw.Valid(w.Schema): // this protocol wants the type told
			if o, err := raw.Read(w.Schema); err == nil {
				w.Schema = o.Set("type", []byte(`"object"`))
			}
		}
		out.Tools = append(out.Tools, w)
	}
	if len(out.Tools) == 0 {
		return nil
	}
	switch r.Choice.Kind {
	case wire.ChoiceAuto:
		out.Choice = &choice{Type: "auto"}
	case wire.ChoiceAny:
		out.Choice = &choice{Type: "any"}
	case wire.ChoiceNone:
		out.Choice = &choice{Type: "none"}
	case wire.ChoiceTool:
		out.Choice = &choice{Type: "tool", Name: r.Choice.Name}
	}
	if p := r.Parallel; p != nil && r.Choice.Kind != wire.ChoiceNone {
		if out.Choice == nil && !*p {
			out.Choice = &choice{Type: "auto"}
		}
		if out.Choice != nil {
			out.Choice.Parallel = new(!*p)
		}
	}
	return nil
}

func named(t wire.Tool) string {
	if t.Name != "" {
		return t.Name
	}
	if k := gjson.GetBytes(t.Native, "type").String(); k != "" {
		return k
	}
	return string(t.Native)
}

func goodName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	return cleanID(s) == s
}

// cleanID makes an id of what the protocol takes for one.
func cleanID(s string) string {
	for i := range len(s) {
		if !idByte(s[i]) {
			b := []byte(s)
			for j := range b {
				if !idByte(b[j]) {
					b[j] = '_'
				}
			}
			return string(b)
		}
	}
	return s
}

func idByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// messages writes the turns: those of one role after another become one, and results come first in it.
func (e encoding) messages(out *request) error {
	for i, m := range e.r.Messages {
		content, err := e.parts(m.Parts, fmt.Sprintf("messages.%d", i), m.Role)
		if err != nil {
			return err
		}
		if len(content) == 0 {
			continue
		}
		role := "user"
		if m.Role == wire.Assistant {
			role = "assistant"
		}
		if n := len(out.Messages); n > 0 && out.Messages[n-1].Role == role {
			out.Messages[n-1].Content = append(out.Messages[n-1].Content, content...)
			continue
		}
		out.Messages = append(out.Messages, message{role, content})
	}
	for _, m := range out.Messages {
		if m.Role == "user" {
			slices.SortStableFunc(m.Content, func(a, b block) int { return order(a) - order(b) })
		}
	}
	if len(out.Messages) == 0 {
		return invalid("messages: at least one that says something is needed")
	}
	return nil
}

func order(b block) int {
	if b.Type == "tool_result" {
		return 0
	}
	return 1
}

func (e encoding) parts(parts []wire.Part, at string, role wire.Role) ([]block, error) {
	var list []block
	for i, p := range parts {
		b, ok, err := e.part(p, fmt.Sprintf("%s.%d", at, i), role)
		if err != nil {
			return nil, err
		}
		if !ok {
			if p.Cache != nil && len(list) > 0 && list[len(list)-1].mark == nil && markable(list[len(list)-1]) {
				list[len(list)-1].mark = p.Cache
			}
			continue
		}
		if markable(b) {
			b.mark = p.Cache
		}
		list = append(list, b)
	}
	return list, nil
}

func markable(b block) bool { return b.Type != "thinking" && b.Type != "redacted_thinking" }

// part writes a part; ok is false when nothing is to be said.
func (e encoding) part(p wire.Part, at string, role wire.Role) (b block, ok bool, err error) {
	switch p.Kind {
	case wire.TextPart, wire.RefusalPart:
		return block{Type: "text", Text: new(p.Text)}, p.Text != "", nil
	case wire.ThoughtPart:
		t := p.Thought
		if t == nil || t.Opaque == "" || !t.Origin.Fits(e.to.Origin) {
			return b, false, nil // thoughts without a signature are refused by the protocol
		}
		if t.Redacted {
			return block{Type: "redacted_thinking", Data: t.Opaque}, true, nil
		}
		return block{Type: "thinking", Thinking: new(p.Text), Signature: new(t.Opaque)}, true, nil
	case wire.CallPart:
		b, err := call(p.Call, at)
		return b, err == nil, err
	case wire.ResultPart:
		if p.Result == nil {
			return b, false, nil
		}
		content, err := e.parts(p.Result.Parts, at+".result", wire.User)
		return block{Type: "tool_result", CallID: cleanID(p.Result.CallID), Content: content, Failed: p.Result.Failed}, true, err
	case wire.MediaPart:
		if p.Media == nil {
			return b, false, nil
		}
		if role == wire.Assistant {
			return b, false, invalid("%s: the Anthropic protocol takes no images or files in what the assistant said", at)
		}
		b, err := blob(p.Media, at)
		return b, true, err
	}
	return b, false, invalid("%s: a part of a kind that is not known", at)
}

func call(c *wire.ToolCall, at string) (block, error) {
	if c == nil {
		return block{}, invalid("%s: the call is missing", at)
	}
	args := c.Args
	switch {
	case c.Custom:
		args = wire.WrapCustom(args)
	case args == "":
		args = "{}"
	}
	if !raw.Valid([]byte(args)) || !gjson.Parse(args).IsObject() {
		return block{}, invalid("%s: the arguments of the call %s are not a JSON object", at, raw.Show(c.Name))
	}
	return block{Type: "tool_use", ID: cleanID(c.ID), Name: cleanID(c.Name), Input: json.RawMessage(args)}, nil
}

// marks puts the cache marks on: at most MaxMarks. Of more, those that cover most stay: the last of the tools, the last of the system prompt, and then
// the last ones of the messages.
func (e encoding) marks(out *request) {
	type place struct {
		to   **cache
		mark *wire.CacheMark
	}
	var tools, system, messages []place
	at := 0
	for _, t := range e.r.Tools {
		if !e.offers(t) {
			continue
		}
		w, ours := out.Tools[at].(*tool)
		at++
		if ours && t.Cache != nil {
			tools = append(tools, place{&w.Cache, t.Cache})
		}
	}
	native := 0
	for _, t := range e.r.Tools {
		if t.Native != nil && t.Cache != nil {
			native++
		}
	}
	each := func(list []block, into *[]place) {
		for i := range list {
			for j := range list[i].Content {
				if b := &list[i].Content[j]; b.mark != nil {
					*into = append(*into, place{&b.Cache, b.mark})
				}
			}
			if b := &list[i]; b.mark != nil {
				*into = append(*into, place{&b.Cache, b.mark})
			}
		}
	}
	each(out.System, &system)
	for i := range out.Messages {
		each(out.Messages[i].Content, &messages)
	}
	room := max(MaxMarks-native, 0)
	if len(tools)+len(system)+len(messages) > room {
		last := func(p []place, n int) []place { return p[max(len(p)-n, 0):] }
		tools, system = last(tools, 1), last(system, 1)
		if len(tools)+len(system) > room {
			tools = nil
		}
		messages = last(messages, max(room-len(tools)-len(system), 0))
		system = last(system, room)
	}
	for _, p := range slices.Concat(tools, system, messages) {
		c := &cache{Type: "ephemeral"}
		if p.mark.TTL == "1h" || p.mark.TTL == "5m" {
			c.TTL = p.mark.TTL
		}
		*p.to = c
	}
}
