package message

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

// marshal writes v without escapes that JSON does not need.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// budgets are what efforts mean for models that take a number of tokens.
var budgets = map[string]int64{"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}

// minBudget is the least number of tokens to think with.
const minBudget = 1024

// effortOf is what a number of tokens means for models that take an effort.
func effortOf(budget int64) string {
	switch {
	case budget <= 4096:
		return "low"
	case budget <= 12288:
		return "medium"
	case budget <= 24576:
		return "high"
	}
	return "max"
}

// budgeted reports whether a model knows no adaptive thinking: those before Claude 4.6.
func budgeted(model string) bool {
	m := strings.NewReplacer(".", "-", "@", "-").Replace(strings.ToLower(path.Base(model)))
	if strings.Contains(m, "claude-3") || strings.Contains(m, "claude-2") {
		return true
	}
	_, rest, ok := strings.Cut(m, "claude-")
	if !ok {
		return false
	}
	family, version, _ := strings.Cut(rest, "-")
	if family != "opus" && family != "sonnet" && family != "haiku" {
		return false
	}
	major, minor, _ := strings.Cut(version, "-")
	if minor, _, _ = strings.Cut(minor, "-"); len(minor) > 2 { // a date
		minor = ""
	}
	return major == "4" && (minor == "" || len(minor) == 1 && minor[0] < '6')
}

func (e encoding) thinking(out *request) error {
	r := e.r.Reasoning
	limit := e.r.MaxTokens
	out.MaxTokens = DefaultMaxTokens
	if limit != nil {
		out.MaxTokens = *limit
	}
	if r == nil {
		return nil
	}
	if r.Effort == "none" || r.Budget != nil && *r.Budget == 0 {
		out.Thinking = &thinking{Type: "disabled"}
		return nil
	}
	effort := r.Effort
	if effort == "minimal" {
		effort = "low"
	}
	switch effort {
	case "", "low", "medium", "high", "xhigh", "max":
	default:
		return invalid("reasoning effort: %s is not known", raw.Show(r.Effort))
	}
	forced := out.Choice != nil && (out.Choice.Type == "any" || out.Choice.Type == "tool") // thoughts and a forced call exclude each other
	display := ""
	switch {
	case r.Hidden:
		display = "omitted"
	case r.Summary != "":
		display = "summarized"
	}
	if !budgeted(out.Model) {
		if effort == "" && r.Budget != nil && *r.Budget > 0 {
			effort = effortOf(*r.Budget)
		}
		if effort != "" {
			out.Output = &output{Effort: effort}
		}
		if !forced {
			out.Thinking = &thinking{Type: "adaptive", Display: display}
		}
		return nil
	}
	budget := budgets[effort]
	if r.Budget != nil && *r.Budget > 0 {
		budget = *r.Budget
	}
	if budget == 0 {
		budget = budgets["medium"]
	}
	budget = max(budget, minBudget)
	if limit == nil {
		out.MaxTokens = budget + DefaultMaxTokens
	} else if budget >= *limit { // what is thought is of what may be said
		budget = *limit / 2
	}
	if budget >= minBudget && !forced {
		out.Thinking = &thinking{Type: "enabled", Budget: budget}
		if display == "omitted" {
			out.Thinking.Display = display
		}
	}
	return nil
}

func (e encoding) format(out *request) error {
	f := e.r.Format
	if f == nil {
		return nil
	}
	if len(f.Schema) == 0 {
		return invalid("response_format: the Anthropic protocol makes JSON by a schema alone; give one (json_schema), or leave it out")
	}
	if out.Output == nil {
		out.Output = &output{}
	}
	out.Output.Format = &format{Type: "json_schema", Schema: closed(f.Schema)}
	return nil
}

// closed returns a schema whose objects take no fields but those they name, where they do not say: the protocol wants it said. A schema that says it
// everywhere is returned as it is.
func closed(schema json.RawMessage) json.RawMessage {
	var v any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if d.Decode(&v) != nil || !closeObjects(v, 0) {
		return schema
	}
	if b, err := marshal(v); err == nil {
		return b
	}
	return schema
}

func closeObjects(v any, depth int) (changed bool) {
	if depth > 64 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		_, has := v["properties"].(map[string]any)
		if _, said := v["additionalProperties"]; has && !said && v["type"] == "object" {
			v["additionalProperties"] = false
			changed = true
		}
		for _, x := range v {
			changed = closeObjects(x, depth+1) || changed
		}
	case []any:
		for _, x := range v {
			changed = closeObjects(x, depth+1) || changed
		}
	}
	return changed
}

func blob(m *wire.Blob, at string) (block, error) {
	b := block{Type: "document", Title: m.Name, Source: &blockSource{}}
	if m.Image || strings.HasPrefix(m.MIME, "image/") {
		b.Type, b.Title = "image", ""
	}
	switch {
	case m.Data != "":
		if m.MIME == "" {
			return b, invalid("%s: the kind of the data is missing, such as image/png", at)
		}
		if b.Type == "document" && strings.HasPrefix(m.MIME, "text/") {
			text, err := base64.StdEncoding.DecodeString(m.Data)
			if err != nil {
				return b, invalid("%s: the data is not base64", at)
			}
			*b.Source = blockSource{Type: "text", MIME: "text/plain", Data: string(text)}
			return b, nil
		}
		if b.Type == "document" && m.MIME != "application/pdf" {
			return b, invalid("%s: the Anthropic protocol takes images, PDF and plain text, and this is %s", at, raw.Show(m.MIME))
		}
		*b.Source = blockSource{Type: "base64", MIME: m.MIME, Data: m.Data}
	case m.URL != "":
		if b.Type == "document" && m.MIME != "" && m.MIME != "application/pdf" {
			return b, invalid("%s: the Anthropic protocol takes images and PDF by URL, and this is %s", at, raw.Show(m.MIME))
		}
		*b.Source = blockSource{Type: "url", URL: m.URL}
	case m.FileID != "":
		*b.Source = blockSource{Type: "file", FileID: m.FileID}
	default:
		return b, invalid("%s: the image or file has no data, no URL and no id", at)
	}
	return b, nil
}
