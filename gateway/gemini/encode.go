package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// request is a request of the protocol, in the order in which its fields are sent.
type request struct {
	Model    string          `json:"model,omitempty"` // within a request that counts
	System   *content        `json:"systemInstruction,omitempty"`
	Tools    []any           `json:"tools,omitempty"`
	Choice   *toolConfig     `json:"toolConfig,omitempty"`
	Contents []*content      `json:"contents"`
	Config   *generateConfig `json:"generationConfig,omitempty"`
}

type content struct {
	Role  string     `json:"role,omitempty"`
	Parts []wirePart `json:"parts"`
}

type wirePart struct {
	Text      *string           `json:"text,omitempty"`
	Thought   bool              `json:"thought,omitempty"`
	Call      *functionCall     `json:"functionCall,omitempty"`
	Response  *functionResponse `json:"functionResponse,omitempty"`
	Inline    *inlineData       `json:"inlineData,omitempty"`
	File      *fileData         `json:"fileData,omitempty"`
	Signature string            `json:"thoughtSignature,omitempty"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type functionResponse struct {
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
	Parts    []wirePart      `json:"parts,omitempty"`
}

type inlineData struct {
	MIME string `json:"mimeType"`
	Data string `json:"data"`
}

type fileData struct {
	MIME string `json:"mimeType,omitempty"`
	URI  string `json:"fileUri"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	JSON        json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type declarations struct {
	Functions []function `json:"functionDeclarations"`
}

type toolConfig struct {
	Calling calling `json:"functionCallingConfig"`
}

type calling struct {
	Mode    string   `json:"mode"`
	Allowed []string `json:"allowedFunctionNames,omitempty"`
}

func (codec) Encode(op wire.Op, r *wire.Request, to wire.Target) (wire.Call, error) {
	e := &encoding{r: r, to: to, model: to.Model, names: map[string]string{}}
	if e.model == "" {
		e.model = r.Model
	}
	out, err := e.request(op)
	if err != nil {
		return wire.Call{}, err
	}
	at := place{version: "/v1beta", method: "generateContent"}
	c := wire.Call{Header: http.Header{}}
	var v any = out
	switch {
	case op == wire.Count:
		at.method = "countTokens"
		out.Model = "models/" + strings.TrimPrefix(e.model, "models/")
		v = map[string]any{"generateContentRequest": out}
	case r.Stream:
		at.method, c.Query = "streamGenerateContent", "alt=sse"
	}
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	if err := w.Encode(v); err != nil {
		return wire.Call{}, agent.Wrap(agent.Internal, err, "the request could not be written")
	}
	c.Path, c.Body = at.path(e.model), bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	c.Header.Set("Content-Type", "application/json")
	return c, nil
}

type encoding struct {
	r     *wire.Request
	to    wire.Target
	model string
	names map[string]string // of the calls that came before, by id
}

func (e *encoding) request(op wire.Op) (*request, error) {
	r := e.r
	out := &request{Contents: []*content{}}
	if p := r.Parallel; p != nil && !*p && len(r.Tools) > 0 {
		return nil, invalid("parallel_tool_calls: the Gemini protocol cannot be told to make one call at a time; leave it out")
	}
	if len(r.System) > 0 {
		out.System = &content{}
		for i, p := range r.System {
			if p.Kind != wire.TextPart {
				return nil, invalid("system.%d: only text can be instructed", i)
			}
			if p.Text != "" {
				out.System.Parts = append(out.System.Parts, wirePart{Text: new(p.Text)})
			}
		}
		if out.System.Parts == nil {
			out.System = nil
		}
	}
	if err := e.tools(out); err != nil {
		return nil, err
	}
	if err := e.contents(out); err != nil {
		return nil, err
	}
	if op == wire.Count {
		return out, nil
	}
	return out, e.config(out)
}

func (e *encoding) tools(out *request) error {
	var functions []function
	for i, t := range e.r.Tools {
		if t.Native != nil {
			if t.Of != agent.GeminiProtocol {
				return invalid("tools.%d: %s is a tool of another provider's own; the Gemini protocol has no form for it", i, raw.Show(t.Name))
			}
			out.Tools = append(out.Tools, t.Native)
			continue
		}
		if !goodName(t.Name) {
			return invalid("tools.%d.name: %s; the Gemini protocol takes letters, digits and _ . : -, beginning with a letter or _, at most 64", i, raw.Show(t.Name))
		}
		f := function{Name: t.Name, Description: t.Description}
		schema := t.Schema
		if t.Custom {
			schema = wire.CustomSchema
		}
		if raw.Valid(schema) && onlyObject(gjson.ParseBytes(schema)) {
			schema = nil
		}
		if len(schema) > 0 {
			if o, ok := toOpenAPI(schema); ok {
				f.Parameters = o
			} else {
				f.JSON = schema
			}
		}
		functions = append(functions, f)
	}
	if len(functions) > 0 {
		out.Tools = append(out.Tools, declarations{functions})
	}
	if len(functions) == 0 {
		return nil
	}
	c := e.r.Choice
	switch c.Kind {
	case wire.ChoiceAuto:
		out.Choice = &toolConfig{calling{Mode: "AUTO"}}
		if len(c.Among) > 0 {
			out.Choice = &toolConfig{calling{Mode: "VALIDATED", Allowed: c.Among}}
		}
	case wire.ChoiceNone:
		out.Choice = &toolConfig{calling{Mode: "NONE"}}
	case wire.ChoiceAny:
		out.Choice = &toolConfig{calling{Mode: "ANY", Allowed: c.Among}}
	case wire.ChoiceTool:
		out.Choice = &toolConfig{calling{Mode: "ANY", Allowed: []string{c.Name}}}
	case wire.ChoiceUnset:
	}
	return nil
}

// onlyObject reports whether a schema says no more than that it is an object without fields.
func onlyObject(v gjson.Result) bool {
	if t := v.Get("type").String(); t != "" && t != "object" {
		return false
	}
	plain := true
	v.ForEach(func(k, x gjson.Result) bool {
		switch k.Str {
		case "type", "$schema", "title", "description", "required":
		case "properties":
			plain = plain && strings.TrimSpace(strings.Trim(x.Raw, "{}")) == ""
		case "additionalProperties":
			plain = plain && x.IsBool()
		default:
			plain = false
		}
		return plain
	})
	return plain
}

func goodName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '.' || c == ':' || c == '-')) {
			return false
		}
	}
	return true
}

// contents writes the turns: those of one role after another become one, and in a turn of the user results come first, in the order of their calls.
func (e *encoding) contents(out *request) error {
	for i, m := range e.r.Messages {
		c := &content{Role: "user"}
		var err error
		at := fmt.Sprintf("messages.%d", i)
		if m.Role == wire.Assistant {
			c.Role = "model"
			c.Parts, err = e.said(m.Parts, at)
		} else {
			c.Parts, err = e.heard(m.Parts, at)
		}
		if err != nil {
			return err
		}
		if len(c.Parts) == 0 {
			continue
		}
		if n := len(out.Contents); n > 0 && out.Contents[n-1].Role == c.Role {
			out.Contents[n-1].Parts = append(out.Contents[n-1].Parts, c.Parts...)
			continue
		}
		out.Contents = append(out.Contents, c)
	}
	if len(out.Contents) == 0 {
		return invalid("messages: at least one that says something is needed")
	}
	for i, c := range out.Contents {
		if c.Role == "user" {
			order := map[string]int{}
			if i > 0 {
				for j, p := range out.Contents[i-1].Parts {
					if p.Call != nil {
						order[p.Call.ID] = j
					}
				}
			}
			rank := func(p wirePart) int {
				if p.Response == nil {
					return 1 << 20
				}
				if n, ok := order[p.Response.ID]; ok {
					return n
				}
				return 1<<20 - 1
			}
			slices.SortStableFunc(c.Parts, func(a, b wirePart) int { return rank(a) - rank(b) })
			continue
		}
		e.validate(c)
	}
	for _, c := range out.Contents { // ids of our own have done their work
		for j := range c.Parts {
			if f := c.Parts[j].Call; f != nil {
				f.ID = known(f.ID)
			}
			if f := c.Parts[j].Response; f != nil {
				f.ID = known(f.ID)
			}
		}
	}
	return nil
}

func known(id string) string {
	if strings.HasPrefix(id, madeID) {
		return ""
	}
	return id
}

// validate marks the first call of a turn that has no signature: models from Gemini 3 on refuse one without.
func (e *encoding) validate(c *content) {
	if !levelled(e.model) {
		return
	}
	for i := range c.Parts {
		if c.Parts[i].Call == nil {
			continue
		}
		if c.Parts[i].Signature == "" {
			c.Parts[i].Signature = skipSignature
		}
		return
	}
}

// said writes what the model said.
func (e *encoding) said(parts []wire.Part, at string) ([]wirePart, error) {
	var list []wirePart
	waiting := "" // a signature for the call that follows
	for i, p := range parts {
		switch p.Kind {
		case wire.TextPart, wire.RefusalPart:
			if p.Text != "" {
				list = append(list, wirePart{Text: new(p.Text)})
			}
		case wire.ThoughtPart:
			s := e.sign(p.Thought)
			switch {
			case s == "":
			case p.Text != "":
				list = append(list, wirePart{Text: new(p.Text), Thought: true, Signature: s})
			case i+1 < len(parts) && parts[i+1].Kind == wire.CallPart && e.sign(parts[i+1].Thought) == "":
				waiting = s
			case len(list) > 0 && list[len(list)-1].Signature == "" && !list[len(list)-1].Thought:
				list[len(list)-1].Signature = s
			default:
				list = append(list, wirePart{Text: new(""), Signature: s})
			}
		case wire.CallPart:
			if p.Call == nil {
				continue
			}
			c, err := call(p.Call, fmt.Sprintf("%s.%d", at, i))
			if err != nil {
				return nil, err
			}
			e.names[p.Call.ID] = p.Call.Name
			s := e.sign(p.Thought)
			if s == "" {
				s = waiting
			}
			waiting = ""
			list = append(list, wirePart{Call: c, Signature: s})
		case wire.MediaPart:
			m, err := blob(p.Media, fmt.Sprintf("%s.%d", at, i))
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		case wire.ResultPart:
			return nil, invalid("%s.%d: a result of a tool is of the user", at, i)
		}
	}
	return list, nil
}

// sign returns a thought's signature if it may go where the request goes.
func (e *encoding) sign(t *wire.Thinking) string {
	if t == nil || !t.Origin.Fits(e.to.Origin) {
		return ""
	}
	return t.Opaque
}

func call(c *wire.ToolCall, at string) (*functionCall, error) {
	args := c.Args
	switch {
	case c.Custom:
		args = wire.WrapCustom(args)
	case args == "":
		args = "{}"
	}
	if !raw.Valid([]byte(args)) || !gjson.Parse(args).IsObject() {
		return nil, invalid("%s: the arguments of the call %s are not a JSON object", at, raw.Show(c.Name))
	}
	return &functionCall{ID: c.ID, Name: c.Name, Args: json.RawMessage(args)}, nil
}

// heard writes what the user and tools said.
func (e *encoding) heard(parts []wire.Part, at string) ([]wirePart, error) {
	var list []wirePart
	for i, p := range parts {
		at := fmt.Sprintf("%s.%d", at, i)
		switch p.Kind {
		case wire.TextPart, wire.RefusalPart:
			if p.Text != "" {
				list = append(list, wirePart{Text: new(p.Text)})
			}
		case wire.MediaPart:
			m, err := blob(p.Media, at)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		case wire.ResultPart:
			r, err := e.result(p.Result, at)
			if err != nil {
				return nil, err
			}
			list = append(list, wirePart{Response: r})
		case wire.CallPart:
			return nil, invalid("%s: a call of a tool is of the assistant", at)
		case wire.ThoughtPart:
		}
	}
	return list, nil
}

func (e *encoding) result(r *wire.ToolResult, at string) (*functionResponse, error) {
	if r == nil {
		return nil, invalid("%s: the result is missing", at)
	}
	out := &functionResponse{ID: r.CallID, Name: e.names[r.CallID]}
	if out.Name == "" {
		out.Name = r.Name
	}
	if out.Name == "" {
		return nil, invalid("%s: the result is of the call %s, which is not among the messages before it", at, raw.Show(r.CallID))
	}
	var text strings.Builder
	for i, p := range r.Parts {
		switch p.Kind {
		case wire.MediaPart:
			m, err := blob(p.Media, fmt.Sprintf("%s.%d", at, i))
			if err != nil {
				return nil, err
			}
			out.Parts = append(out.Parts, m)
		case wire.TextPart, wire.RefusalPart:
			if text.Len() > 0 {
				text.WriteByte('\n')
			}
			text.WriteString(p.Text)
		case wire.ThoughtPart, wire.CallPart, wire.ResultPart:
			return nil, invalid("%s.%d: a result of a tool has text, images and files alone", at, i)
		}
	}
	s := text.String()
	switch {
	case r.Failed:
		out.Response = append(raw.AppendString([]byte(`{"error":`), s), '}')
	case strings.HasPrefix(strings.TrimSpace(s), "{") && raw.Valid([]byte(s)):
		out.Response = json.RawMessage(s)
	default:
		out.Response = append(raw.AppendString([]byte(`{"output":`), s), '}')
	}
	return out, nil
}

// kinds are those of files whose URL tells it.
var kinds = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif", ".heic": "image/heic", ".pdf": "application/pdf",
}

func blob(m *wire.Blob, at string) (wirePart, error) {
	switch {
	case m == nil:
		return wirePart{}, invalid("%s: the image or file is missing", at)
	case m.Data != "":
		if m.MIME == "" {
			return wirePart{}, invalid("%s: the kind of the data is missing, such as image/png", at)
		}
		return wirePart{Inline: &inlineData{m.MIME, m.Data}}, nil
	case m.URL != "":
		mime := m.MIME
		if mime == "" {
			clean, _, _ := strings.Cut(m.URL, "?")
			mime = kinds[strings.ToLower(path.Ext(clean))]
		}
		if mime == "" && m.Image {
			mime = "image/jpeg"
		}
		return wirePart{File: &fileData{mime, m.URL}}, nil
	case ownFile(m.FileID):
		return wirePart{File: &fileData{m.MIME, m.FileID}}, nil
	case m.FileID != "":
		return wirePart{}, invalid("%s: the file %s is kept by another provider; send its data", at, raw.Show(m.FileID))
	}
	return wirePart{}, invalid("%s: the image or file has no data, no URL and no id", at)
}
