package message

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func invalid(format string, args ...any) error { return agent.Errorf(agent.Invalid, format, args...) }

func (codec) Decode(op wire.Op, _ string, header http.Header, body []byte) (*wire.Request, error) {
	o, err := raw.Read(body)
	if err != nil {
		return nil, err
	}
	d := decoding{o: o, second: header.Get(headerVersion) == Second}
	return d.request(op)
}

type decoding struct {
	o      raw.Object
	second bool // version 2026-10-21
}

func (d decoding) request(op wire.Op) (*wire.Request, error) {
	o := d.o
	r := &wire.Request{Model: o.Get("model").String(), Stream: o.Get("stream").Bool()}
	if r.Model == "" {
		return nil, invalid("model: name the model to ask")
	}
	for _, name := range []string{"mcp_servers", "container"} {
		if v := o.Get(name); v.Exists() && v.Type != gjson.Null && v.Raw != "[]" {
			return nil, invalid("%s: only a provider of the Anthropic protocol has it, and the model asked for is served in another", name)
		}
	}
	if n := o.Get("max_tokens"); n.Type == gjson.Number {
		if n.Int() < 1 {
			return nil, invalid("max_tokens: must be at least 1")
		}
		r.MaxTokens = new(n.Int())
	} else if op == wire.Generate {
		return nil, invalid("max_tokens: must be a number, at least 1")
	}
	for _, f := range []struct {
		name string
		to   **float64
	}{{"temperature", &r.Temperature}, {"top_p", &r.TopP}} {
		if v := o.Get(f.name); v.Type == gjson.Number {
			*f.to = new(v.Num)
		}
	}
	if v := o.Get("top_k"); v.Type == gjson.Number {
		r.TopK = new(v.Int())
	}
	if d.second {
		for _, name := range []string{"temperature", "top_p", "top_k"} {
			if v := o.Get(name); v.Exists() {
				return nil, invalid("%s: version %s of the protocol has no such field; leave it out, or send anthropic-version: %s", name, Second, First)
			}
		}
	}
	o.Get("stop_sequences").ForEach(func(_, v gjson.Result) bool {
		r.Stop = append(r.Stop, v.String())
		return true
	})
	r.User = o.Get("metadata").Get("user_id").String()
	switch o.Get("service_tier").Str {
	case "auto":
		r.Tier = "auto"
	case "standard_only":
		r.Tier = "default"
	}
	d.thinking(r)
	if err := d.format(r); err != nil {
		return nil, err
	}
	if err := d.tools(r); err != nil {
		return nil, err
	}
	system, err := d.blocks(o.Get("system"), "system", wire.User, 0)
	if err != nil {
		return nil, err
	}
	r.System = system
	if err := d.messages(r); err != nil {
		return nil, err
	}
	if c := mark(o.Get("cache_control")); c != nil {
		d.markLast(r, c)
	}
	return r, nil
}

func (d decoding) thinking(r *wire.Request) {
	t, effort := d.o.Get("thinking"), d.o.Get("output_config").Get("effort").Str
	kind := t.Get("type").Str
	if kind == "" && effort == "" {
		return
	}
	r.Reasoning = &wire.Reasoning{Effort: effort}
	switch kind {
	case "enabled":
		if b := t.Get("budget_tokens"); b.Type == gjson.Number {
			r.Reasoning.Budget = new(b.Int())
		}
		r.Reasoning.Summary = "auto"
	case "adaptive":
		r.Reasoning.Adapt = true
		r.Reasoning.Summary = "auto"
	case "disabled":
		r.Reasoning.Effort = "none"
	}
	if kind != "disabled" && t.Get("display").Str == "omitted" {
		r.Reasoning.Hidden, r.Reasoning.Summary = true, ""
	}
}

func (d decoding) format(r *wire.Request) error {
	f := d.o.Get("output_config").Get("format")
	if !f.IsObject() {
		f = d.o.Get("output_format")
	}
	if !f.IsObject() {
		return nil
	}
	if t := f.Get("type").Str; t != "json_schema" {
		return invalid("output_config.format.type: %s is not known here; json_schema is", raw.Show(t))
	}
	s := f.Get("schema")
	if !s.IsObject() {
		return invalid("output_config.format.schema: must be a JSON schema")
	}
	r.Format = &wire.Format{Schema: json.RawMessage(s.Raw), Strict: new(true)}
	return nil
}

func (d decoding) tools(r *wire.Request) error {
	var failed error
	i := 0
	d.o.Get("tools").ForEach(func(_, t gjson.Result) bool {
		defer func() { i++ }()
		name := t.Get("name").Str
		if kind := t.Get("type").Str; kind != "" && kind != "custom" {
			r.Tools = append(r.Tools, wire.Tool{Name: name, Native: json.RawMessage(t.Raw), Of: agent.MessageProtocol, Cache: mark(t.Get("cache_control"))})
			return true
		}
		if name == "" {
			failed = invalid("tools.%d.name: a tool needs a name", i)
			return false
		}
		tool := wire.Tool{Name: name, Description: t.Get("description").Str, Cache: mark(t.Get("cache_control"))}
		if s := t.Get("input_schema"); s.IsObject() {
			tool.Schema = json.RawMessage(s.Raw)
		}
		if s := t.Get("strict"); s.IsBool() {
			tool.Strict = new(s.Bool())
		}
		r.Tools = append(r.Tools, tool)
		return true
	})
	c := d.o.Get("tool_choice")
	switch kind := c.Get("type").Str; kind {
	case "":
	case "auto":
		r.Choice.Kind = wire.ChoiceAuto
	case "any":
		r.Choice.Kind = wire.ChoiceAny
	case "none":
		r.Choice.Kind = wire.ChoiceNone
	case "tool":
		r.Choice = wire.Choice{Kind: wire.ChoiceTool, Name: c.Get("name").Str}
	default:
		return invalid("tool_choice.type: %s is not known; auto, any, tool and none are", raw.Show(kind))
	}
	if p := c.Get("disable_parallel_tool_use"); p.IsBool() {
		r.Parallel = new(!p.Bool())
	}
	return failed
}

func (d decoding) messages(r *wire.Request) error {
	list := d.o.Get("messages")
	if !list.IsArray() {
		return invalid("messages: must be a list")
	}
	var failed error
	i := 0
	list.ForEach(func(_, m gjson.Result) bool {
		at := fmt.Sprintf("messages.%d", i)
		i++
		role := wire.User
		switch kind := m.Get("role").Str; kind {
		case "user", "system":
		case "assistant":
			role = wire.Assistant
		default:
			failed = invalid("%s.role: %s is not known; user and assistant are", at, raw.Show(kind))
			return false
		}
		parts, err := d.blocks(m.Get("content"), at+".content", role, 0)
		if err != nil {
			failed = err
			return false
		}
		if m.Get("role").Str == "system" {
			r.System = append(r.System, parts...)
			return true
		}
		r.Messages = append(r.Messages, wire.Message{Role: role, Parts: parts})
		return true
	})
	if failed == nil && len(r.Messages) == 0 {
		return invalid("messages: at least one is needed")
	}
	return failed
}

// blocks reads content: a string, or a list of blocks. depth is 1 in the result of a tool.
func (d decoding) blocks(content gjson.Result, at string, role wire.Role, depth int) ([]wire.Part, error) {
	switch {
	case content.Type == gjson.String:
		if content.Str == "" {
			return nil, nil
		}
		return []wire.Part{{Kind: wire.TextPart, Text: content.Str}}, nil
	case !content.Exists() || content.Type == gjson.Null:
		return nil, nil
	case !content.IsArray():
		return nil, invalid("%s: must be a string or a list of blocks", at)
	}
	var parts []wire.Part
	var failed error
	i := 0
	content.ForEach(func(_, b gjson.Result) bool {
		p, err := d.block(b, fmt.Sprintf("%s.%d", at, i), role, depth)
		i++
		if err != nil {
			failed = err
			return false
		}
		parts = append(parts, p)
		return true
	})
	return parts, failed
}

func (d decoding) block(b gjson.Result, at string, role wire.Role, depth int) (wire.Part, error) {
	p := wire.Part{Cache: mark(b.Get("cache_control"))}
	kind := b.Get("type").Str
	switch kind {
	case "text":
		p.Text = b.Get("text").String()
		if d.second && role == wire.User && b.Get("citations").IsArray() {
			return p, invalid("%s.citations: version %s of the protocol refuses citations on text of the user", at, Second)
		}
		return p, nil
	case "image", "document":
		if d.second && kind == "document" && role == wire.Assistant {
			return p, invalid("%s: version %s of the protocol refuses documents in messages of the assistant", at, Second)
		}
		blob, err := source(b, at, kind)
		p.Kind, p.Media = wire.MediaPart, blob
		return p, err
	}
	if depth > 0 {
		return p, invalid("%s.type: %s has no form in the protocol of the model asked for", at, raw.Show(kind))
	}
	switch kind {
	case "thinking":
		p.Kind, p.Text, p.Thought = wire.ThoughtPart, b.Get("thinking").String(), thought(b.Get("signature").String(), false)
	case "redacted_thinking":
		p.Kind, p.Thought = wire.ThoughtPart, thought(b.Get("data").String(), true)
	case "tool_use":
		p.Kind, p.Call = wire.CallPart, &wire.ToolCall{ID: b.Get("id").String(), Name: b.Get("name").String(), Args: arguments(b.Get("input"))}
		if p.Call.ID == "" || p.Call.Name == "" {
			return p, invalid("%s: a tool_use needs an id and a name", at)
		}
	case "tool_result":
		r := &wire.ToolResult{CallID: b.Get("tool_use_id").String(), Failed: b.Get("is_error").Bool()}
		if r.CallID == "" {
			return p, invalid("%s.tool_use_id: say which call the result is of", at)
		}
		parts, err := d.blocks(b.Get("content"), at+".content", role, depth+1)
		r.Parts = parts
		p.Kind, p.Result = wire.ResultPart, r
		return p, err
	default:
		return p, invalid("%s.type: %s has no form in the protocol of the model asked for", at, raw.Show(kind))
	}
	return p, nil
}

func arguments(v gjson.Result) string {
	if !v.IsObject() {
		return "{}"
	}
	return v.Raw
}

// thought reads a signature or redacted data: it may be another provider's, sealed.
func thought(s string, redacted bool) *wire.Thinking {
	if s == "" {
		return nil
	}
	if t, ok := wire.Unseal(s); ok {
		return t
	}
	return &wire.Thinking{Opaque: s, Redacted: redacted, Origin: wire.Origin{Protocol: own}}
}

func mark(v gjson.Result) *wire.CacheMark {
	if v.Get("type").Str != "ephemeral" {
		return nil
	}
	return &wire.CacheMark{TTL: v.Get("ttl").Str}
}

// markLast sets a mark on the last part of the prompt.
func (d decoding) markLast(r *wire.Request, c *wire.CacheMark) {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		parts := r.Messages[i].Parts
		for j := len(parts) - 1; j >= 0; j-- {
			if parts[j].Kind == wire.ThoughtPart {
				continue
			}
			if parts[j].Cache == nil {
				parts[j].Cache = c
			}
			return
		}
	}
}

func source(b gjson.Result, at, kind string) (*wire.Blob, error) {
	s := b.Get("source")
	blob := &wire.Blob{Image: kind == "image", Name: b.Get("title").String()}
	switch t := s.Get("type").Str; t {
	case "base64":
		blob.MIME, blob.Data = s.Get("media_type").String(), s.Get("data").String()
		if blob.MIME == "" || blob.Data == "" {
			return nil, invalid("%s.source: needs media_type and data", at)
		}
	case "url":
		if blob.URL = s.Get("url").String(); blob.URL == "" {
			return nil, invalid("%s.source.url: is missing", at)
		}
		if kind == "document" {
			blob.MIME = "application/pdf"
		}
	case "file":
		if blob.FileID = s.Get("file_id").String(); blob.FileID == "" {
			return nil, invalid("%s.source.file_id: is missing", at)
		}
	case "text":
		blob.MIME, blob.Data = "text/plain", base64.StdEncoding.EncodeToString([]byte(s.Get("data").String()))
	case "content":
		var text strings.Builder
		c := s.Get("content")
		if c.Type == gjson.String {
			text.WriteString(c.Str)
		}
		bad := ""
		c.ForEach(func(_, x gjson.Result) bool {
			if k := x.Get("type").Str; k != "text" && c.IsArray() {
				bad = k
				return false
			}
			text.WriteString(x.Get("text").String())
			return true
		})
		if bad != "" {
			return nil, invalid("%s.source.content: %s within a document has no form in the protocol of the model asked for", at, raw.Show(bad))
		}
		blob.MIME, blob.Data = "text/plain", base64.StdEncoding.EncodeToString([]byte(text.String()))
	default:
		return nil, invalid("%s.source.type: %s is not known", at, raw.Show(t))
	}
	return blob, nil
}
