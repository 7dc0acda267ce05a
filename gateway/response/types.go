package response

import (
	"encoding/json"
	"strconv"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
)

// The protocol's forms, as far as they have a word in the canonical form. https://platform.openai.com/docs/api-reference/responses

type rawJSON = json.RawMessage

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

type request struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Instructions string            `json:"instructions,omitempty"`
	Tools        []json.RawMessage `json:"tools,omitempty"`
	Choice       json.RawMessage   `json:"tool_choice,omitempty"`
	Parallel     *bool             `json:"parallel_tool_calls,omitempty"`
	MaxTokens    *int64            `json:"max_output_tokens,omitempty"`
	Temperature  *float64          `json:"temperature,omitempty"`
	TopP         *float64          `json:"top_p,omitempty"`
	Reasoning    *reasoning        `json:"reasoning,omitempty"`
	Text         *textOptions      `json:"text,omitempty"`
	Include      []string          `json:"include,omitempty"`
	Store        *bool             `json:"store,omitempty"`
	Stream       bool              `json:"stream,omitempty"`
	CacheKey     string            `json:"prompt_cache_key,omitempty"`
	Tier         string            `json:"service_tier,omitempty"`
	User         string            `json:"user,omitempty"`
	Safety       string            `json:"safety_identifier,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

type reasoning struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
	Old     string `json:"generate_summary,omitempty"`
}

type textOptions struct {
	Format *format `json:"format,omitempty"`
}

type format struct {
	Type   string          `json:"type"`
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict *bool           `json:"strict,omitempty"`
}

type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
	Format      json.RawMessage `json:"format,omitempty"` // of a custom tool
}

// item is a piece of input or output. The fields are those of the kinds that have a word in the canonical form.
type item struct {
	Type      string          `json:"type"`
	ID        string          `json:"id,omitempty"`
	Status    string          `json:"status,omitempty"`
	Role      string          `json:"role,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Args      *string         `json:"arguments,omitempty"`
	Input     *string         `json:"input,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Summary   json.RawMessage `json:"summary,omitempty"`
	Encrypted string          `json:"encrypted_content,omitempty"`
}

type content struct {
	Type        string           `json:"type"`
	Text        *string          `json:"text,omitempty"`
	Refusal     string           `json:"refusal,omitempty"`
	ImageURL    string           `json:"image_url,omitempty"`
	Detail      string           `json:"detail,omitempty"`
	FileID      string           `json:"file_id,omitempty"`
	FileURL     string           `json:"file_url,omitempty"`
	FileName    string           `json:"filename,omitempty"`
	FileData    string           `json:"file_data,omitempty"`
	Audio       *audio           `json:"input_audio,omitempty"`
	Annotations *json.RawMessage `json:"annotations,omitempty"`
}

type audio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

var emptyList = json.RawMessage("[]")

func outputText(s string) content {
	return content{Type: "output_text", Text: &s, Annotations: &emptyList}
}

func summary(s string) json.RawMessage {
	if s == "" {
		return emptyList
	}
	return openai.JSON([]content{{Type: "summary_text", Text: &s}})
}

// messageItem is an item of what a model said.
func messageItem(id, status string, p wire.Part) item {
	c := outputText(p.Text)
	if p.Kind == wire.RefusalPart {
		c = content{Type: "refusal", Refusal: p.Text}
	}
	return item{Type: "message", ID: id, Status: status, Role: "assistant", Content: openai.JSON([]content{c})}
}

func thoughtItem(id, status, s, encrypted string) item {
	return item{Type: "reasoning", ID: id, Status: status, Summary: summary(s), Encrypted: encrypted}
}

// callItem is a call: of a custom tool with free text.
func callItem(id, status string, c wire.ToolCall) item {
	x := item{Type: "function_call", ID: id, Status: status, CallID: c.ID, Name: c.Name}
	if c.Custom {
		x.Type, x.Input = "custom_tool_call", &c.Args
	} else {
		x.Args = &c.Args
	}
	return x
}
