package gemini

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

func (codec) Decode(op wire.Op, path string, _ http.Header, body []byte) (*wire.Request, error) {
	at := placeOf(path)
	if at.model == "" {
		return nil, invalid("the path names no model; it is /v1beta/models/MODEL:generateContent")
	}
	o, err := read(body)
	if err != nil {
		return nil, err
	}
	if op == wire.Count {
		if o, err = asked(o); err != nil {
			return nil, err
		}
	}
	r := &wire.Request{Model: at.model, Stream: at.streams(), Array: at.array()}
	if v := field(o, "cachedContent"); v.String() != "" {
		return nil, invalid("cachedContent: only a provider of the Gemini protocol has it, and the model asked for is served in another")
	}
	if err := config(field(o, "generationConfig"), r); err != nil {
		return nil, err
	}
	if err := tools(o, r); err != nil {
		return nil, err
	}
	field(o, "labels").ForEach(func(k, v gjson.Result) bool {
		if r.Metadata == nil {
			r.Metadata = map[string]string{}
		}
		r.Metadata[k.Str] = v.String()
		return true
	})
	r.Tier = strings.ToLower(field(o, "serviceTier").String())
	if err := system(field(o, "systemInstruction"), r); err != nil {
		return nil, err
	}
	if err := contents(o.Get("contents"), r); err != nil {
		return nil, err
	}
	return r, nil
}

func system(v gjson.Result, r *wire.Request) error {
	if v.Type == gjson.String {
		r.System = []wire.Part{{Text: v.Str}}
		return nil
	}
	i := -1
	var failed error
	list(v.Get("parts"), func(p gjson.Result) bool {
		i++
		t := p.Get("text")
		if !t.Exists() {
			failed = invalid("systemInstruction.parts[%d]: only text can be instructed", i)
			return false
		}
		r.System = append(r.System, wire.Part{Text: t.String()})
		return true
	})
	return failed
}

// list calls each for the elements of v, or for v itself when it is an object: the protocol takes one for a list of one.
func list(v gjson.Result, each func(gjson.Result) bool) {
	if v.IsObject() {
		each(v)
		return
	}
	v.ForEach(func(_, x gjson.Result) bool { return each(x) })
}

func config(c gjson.Result, r *wire.Request) error {
	number := func(name string, to **float64) {
		if v := get(c, name); v.Type == gjson.Number {
			*to = new(v.Num)
		}
	}
	whole := func(name string, to **int64) {
		if v := get(c, name); v.Type == gjson.Number {
			*to = new(int64(v.Num))
		}
	}
	number("temperature", &r.Temperature)
	number("topP", &r.TopP)
	number("presencePenalty", &r.Presence)
	number("frequencyPenalty", &r.Frequency)
	whole("topK", &r.TopK)
	whole("maxOutputTokens", &r.MaxTokens)
	whole("seed", &r.Seed)
	if n := get(c, "candidateCount"); n.Int() > 1 {
		return invalid("generationConfig.candidateCount: one answer is made, and %d were asked for", n.Int())
	}
	for _, name := range []string{"responseLogprobs", "speechConfig", "imageConfig"} {
		if v := get(c, name); v.IsObject() || v.Type == gjson.True {
			return invalid("generationConfig.%s: has no form in the protocol of the model asked for", name)
		}
	}
	bad := ""
	list(get(c, "responseModalities"), func(v gjson.Result) bool {
		if !strings.EqualFold(v.String(), "TEXT") {
			bad = v.String()
		}
		return bad == ""
	})
	if bad != "" {
		return invalid("generationConfig.responseModalities: %s has no form in the protocol of the model asked for", raw.Show(bad))
	}
	get(c, "stopSequences").ForEach(func(_, v gjson.Result) bool {
		r.Stop = append(r.Stop, v.String())
		return true
	})
	switch mime := get(c, "responseMimeType").String(); mime {
	case "", "text/plain":
	case "application/json":
		r.Format = &wire.Format{Strict: new(true)}
		if s := get(c, "responseJsonSchema"); s.IsObject() {
			r.Format.Schema = json.RawMessage(s.Raw)
		} else if s := c.Get("_responseJsonSchema"); s.IsObject() {
			r.Format.Schema = json.RawMessage(s.Raw)
		} else if s := get(c, "responseSchema"); s.IsObject() {
			r.Format.Schema = fromOpenAPI(s)
		} else {
			r.Format.Strict = nil
		}
	default:
		return invalid("generationConfig.responseMimeType: %s has no form in the protocol of the model asked for", raw.Show(mime))
	}
	t := get(c, "thinkingConfig")
	if !t.IsObject() {
		return nil
	}
	r.Reasoning = &wire.Reasoning{Effort: strings.ToLower(get(t, "thinkingLevel").String())}
	if r.Reasoning.Effort == "thinking_level_unspecified" {
		r.Reasoning.Effort = ""
	}
	if b := get(t, "thinkingBudget"); b.Type == gjson.Number {
		switch n := b.Int(); {
		case n < 0:
			r.Reasoning.Adapt = true
		case n == 0:
			r.Reasoning.Effort = "none"
		default:
			r.Reasoning.Budget = new(n)
		}
	}
	if get(t, "includeThoughts").Bool() {
		r.Reasoning.Summary = "auto"
	}
	return nil
}

func tools(o raw.Object, r *wire.Request) error {
	var failed error
	i := -1
	list(o.Get("tools"), func(t gjson.Result) bool {
		i++
		t.ForEach(func(k, v gjson.Result) bool {
			if k.Str != "functionDeclarations" && k.Str != "function_declarations" {
				native := append(append([]byte("{"), k.Raw...), ':')
				native = append(append(native, v.Raw...), '}')
				r.Tools = append(r.Tools, wire.Tool{Name: k.Str, Native: native, Of: agent.GeminiProtocol})
				return true
			}
			list(v, func(f gjson.Result) bool {
				tool := wire.Tool{Name: f.Get("name").String(), Description: f.Get("description").String()}
				if tool.Name == "" {
					failed = invalid("tools[%d].functionDeclarations: a function needs a name", i)
					return false
				}
				if s := get(f, "parametersJsonSchema"); s.IsObject() {
					tool.Schema = json.RawMessage(s.Raw)
				} else if s := f.Get("parameters"); s.IsObject() {
					tool.Schema = fromOpenAPI(s)
				}
				r.Tools = append(r.Tools, tool)
				return true
			})
			return failed == nil
		})
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	c := get(field(o, "toolConfig"), "functionCallingConfig")
	var among []string
	get(c, "allowedFunctionNames").ForEach(func(_, v gjson.Result) bool {
		among = append(among, v.String())
		return true
	})
	switch mode := strings.ToUpper(c.Get("mode").String()); mode {
	case "":
		return nil
	case "MODE_UNSPECIFIED":
	case "AUTO":
		r.Choice.Kind = wire.ChoiceAuto
	case "VALIDATED":
		r.Choice = wire.Choice{Kind: wire.ChoiceAuto, Among: among}
	case "ANY":
		r.Choice = wire.Choice{Kind: wire.ChoiceAny, Among: among}
		if len(among) == 1 {
			r.Choice = wire.Choice{Kind: wire.ChoiceTool, Name: among[0]}
		}
	case "NONE":
		r.Choice.Kind = wire.ChoiceNone
	default:
		return invalid("toolConfig.functionCallingConfig.mode: %s is not known; AUTO, ANY, NONE and VALIDATED are", raw.Show(mode))
	}
	return nil
}

// history gives ids to calls that have none, and finds the calls that results without an id are of: by name, the earliest one that is not answered.
type history struct {
	n            int                   // calls until now
	byID, byName map[string][]*waiting // in the order of the calls
}

// waiting is a call of a tool, until it is answered.
type waiting struct {
	id, name string
	answered bool
}

// madeID begins ids that no provider gave. They mean nothing to a provider, and are not sent to one of this protocol.
const madeID = "skep_"

func (h *history) call(c *wire.ToolCall) {
	if c.ID == "" {
		c.ID = fmt.Sprintf("%scall_%d", madeID, h.n)
	}
	h.n++
	if h.byID == nil {
		h.byID, h.byName = map[string][]*waiting{}, map[string][]*waiting{}
	}
	w := &waiting{id: c.ID, name: c.Name}
	h.byID[w.id] = append(h.byID[w.id], w)
	h.byName[w.name] = append(h.byName[w.name], w)
}

func (h *history) answer(r *wire.ToolResult) bool {
	calls, key := h.byID, r.CallID
	if key == "" {
		calls, key = h.byName, r.Name
	}
	list := calls[key]
	for len(list) > 0 && list[0].answered { // found by its other name
		list = list[1:]
	}
	if len(list) == 0 {
		delete(calls, key)
		return r.CallID != ""
	}
	w := list[0]
	w.answered, calls[key] = true, list[1:]
	r.CallID = w.id
	if r.Name == "" {
		r.Name = w.name
	}
	return true
}

func contents(v gjson.Result, r *wire.Request) error {
	if v.Type == gjson.String {
		r.Messages = []wire.Message{{Parts: []wire.Part{{Text: v.Str}}}}
		return nil
	}
	var h history
	var text strings.Builder // of a thought in pieces, the last part
	var failed error
	i := -1
	list(v, func(c gjson.Result) bool {
		i++
		m := wire.Message{}
		switch role := c.Get("role").String(); role {
		case "", "user", "function":
		case "model":
			m.Role = wire.Assistant
		default:
			failed = invalid("contents[%d].role: %s is not known; user and model are", i, raw.Show(role))
			return false
		}
		// Clients that keep the chunks of a stream send each as a turn of its own.
		more := m.Role == wire.Assistant && len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].Role == wire.Assistant
		if more {
			m = r.Messages[len(r.Messages)-1]
		}
		j := -1
		list(c.Get("parts"), func(p gjson.Result) bool {
			j++
			parts, err := part(p, fmt.Sprintf("contents[%d].parts[%d]", i, j), &h)
			if err != nil {
				failed = err
				return false
			}
			if p.Get("thought").Bool() && goesOn(m.Parts, parts[0]) {
				last := &m.Parts[len(m.Parts)-1]
				if text.Len() == 0 {
					text.WriteString(last.Text)
				}
				text.WriteString(parts[0].Text)
				last.Text, last.Thought = text.String(), parts[0].Thought
				return true
			}
			text.Reset()
			m.Parts = append(m.Parts, parts...)
			return true
		})
		if more {
			r.Messages[len(r.Messages)-1] = m
		} else {
			r.Messages = append(r.Messages, m)
		}
		return failed == nil
	})
	if failed == nil && len(r.Messages) == 0 {
		return invalid("contents: at least one is needed")
	}
	return failed
}

// goesOn reports whether a thought is the next piece of the one before it, which has no signature yet: streams have them in pieces, and the signature last.
func goesOn(before []wire.Part, p wire.Part) bool {
	if len(before) == 0 || p.Kind != wire.ThoughtPart {
		return false
	}
	last := before[len(before)-1]
	return last.Kind == wire.ThoughtPart && last.Thought == nil
}

// part reads a part. A signature that sits on text becomes a part of its own after it: nothing else has a place for it there.
func part(v gjson.Result, at string, h *history) ([]wire.Part, error) {
	sign := thought(get(v, "thoughtSignature").String())
	signed := func(p wire.Part) []wire.Part {
		if sign == nil {
			return []wire.Part{p}
		}
		return []wire.Part{p, {Kind: wire.ThoughtPart, Thought: sign}}
	}
	switch {
	case v.Get("thought").Bool():
		return []wire.Part{{Kind: wire.ThoughtPart, Text: v.Get("text").String(), Thought: sign}}, nil
	case get(v, "functionCall").IsObject():
		c := get(v, "functionCall")
		call := &wire.ToolCall{ID: c.Get("id").String(), Name: c.Get("name").String(), Args: arguments(c.Get("args"))}
		if call.Name == "" {
			return nil, invalid("%s.functionCall.name: is missing", at)
		}
		h.call(call)
		return []wire.Part{{Kind: wire.CallPart, Call: call, Thought: sign}}, nil
	case get(v, "functionResponse").IsObject():
		r, err := response(get(v, "functionResponse"), at)
		if err != nil {
			return nil, err
		}
		if !h.answer(r) {
			return nil, invalid("%s.functionResponse: no call of %s waits for it", at, raw.Show(r.Name))
		}
		return signed(wire.Part{Kind: wire.ResultPart, Result: r}), nil
	case get(v, "inlineData").IsObject() || get(v, "fileData").IsObject():
		b, err := media(v, at)
		if err != nil {
			return nil, err
		}
		return signed(wire.Part{Kind: wire.MediaPart, Media: b}), nil
	case v.Get("text").Exists():
		if v.Get("text").String() == "" && sign != nil {
			return []wire.Part{{Kind: wire.ThoughtPart, Thought: sign}}, nil
		}
		return signed(wire.Part{Text: v.Get("text").String()}), nil
	}
	name := "an empty part"
	v.ForEach(func(k, _ gjson.Result) bool {
		name = raw.Show(k.Str)
		return name == "thoughtSignature"
	})
	return nil, invalid("%s: %s has no form in the protocol of the model asked for", at, name)
}

func arguments(v gjson.Result) string {
	if !v.IsObject() {
		return "{}"
	}
	return v.Raw
}

func response(v gjson.Result, at string) (*wire.ToolResult, error) {
	r := &wire.ToolResult{CallID: v.Get("id").String(), Name: v.Get("name").String()}
	body := v.Get("response")
	fields, only := 0, gjson.Result{}
	name := ""
	body.ForEach(func(k, x gjson.Result) bool {
		fields++
		name, only = k.Str, x
		return true
	})
	text := body.Raw
	if fields == 1 && only.Type == gjson.String {
		switch name {
		case "output", "result":
			text = only.Str
		case "error":
			text, r.Failed = only.Str, true
		}
	}
	if text != "" {
		r.Parts = append(r.Parts, wire.Part{Text: text})
	}
	i := -1
	var failed error
	v.Get("parts").ForEach(func(_, p gjson.Result) bool {
		i++
		b, err := media(p, fmt.Sprintf("%s.functionResponse.parts[%d]", at, i))
		if err != nil {
			failed = err
			return false
		}
		r.Parts = append(r.Parts, wire.Part{Kind: wire.MediaPart, Media: b})
		return true
	})
	return r, failed
}

func media(v gjson.Result, at string) (*wire.Blob, error) {
	d := get(v, "inlineData")
	f := get(v, "fileData")
	b := &wire.Blob{}
	switch {
	case d.IsObject():
		b.MIME, b.Data, b.Name = get(d, "mimeType").String(), standard(d.Get("data").String()), get(d, "displayName").String()
		if b.MIME == "" || b.Data == "" {
			return nil, invalid("%s.inlineData: needs mimeType and data", at)
		}
	case f.IsObject():
		uri := get(f, "fileUri").String()
		if uri == "" {
			return nil, invalid("%s.fileData.fileUri: is missing", at)
		}
		b.MIME = get(f, "mimeType").String()
		if ownFile(uri) {
			b.FileID = uri
		} else {
			b.URL = uri
		}
	default:
		return nil, invalid("%s: neither inlineData nor fileData is in it", at)
	}
	b.Image = strings.HasPrefix(b.MIME, "image/")
	return b, nil
}

// ownFile reports whether a URI is of a file that the protocol's provider keeps.
func ownFile(uri string) bool {
	return strings.HasPrefix(uri, "gs://") || strings.Contains(uri, "generativelanguage.googleapis.com/")
}

// standard turns base64 into its standard alphabet with padding: clients send it in both.
func standard(s string) string {
	if strings.ContainsAny(s, "-_") {
		s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
	}
	if n := len(s) % 4; n > 1 && !strings.HasSuffix(s, "=") {
		s += "=="[:4-n]
	}
	return s
}
