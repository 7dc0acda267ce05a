package chat

import "encoding/json"

// The protocol's forms, as far as they have a word in the canonical form. https://platform.openai.com/docs/api-reference/chat

type request struct {
	Model       string            `json:"model"`
	Messages    []turn            `json:"messages"`
	Tools       []json.RawMessage `json:"tools,omitempty"`
	Choice      json.RawMessage   `json:"tool_choice,omitempty"`
	Parallel    *bool             `json:"parallel_tool_calls,omitempty"`
	MaxTokens   *int64            `json:"max_tokens,omitempty"`
	MaxDone     *int64            `json:"max_completion_tokens,omitempty"`
	Temperature *float64          `json:"temperature,omitempty"`
	TopP        *float64          `json:"top_p,omitempty"`
	TopK        *int64            `json:"top_k,omitempty"`
	Frequency   *float64          `json:"frequency_penalty,omitempty"`
	Presence    *float64          `json:"presence_penalty,omitempty"`
	Seed        *int64            `json:"seed,omitempty"`
	Stop        json.RawMessage   `json:"stop,omitempty"`
	Effort      string            `json:"reasoning_effort,omitempty"`
	Reasoning   *struct {
		Effort  string `json:"effort,omitempty"`
		Budget  *int64 `json:"max_tokens,omitempty"`
		Exclude bool   `json:"exclude,omitempty"`
	} `json:"reasoning,omitempty"`
	Format   *format           `json:"response_format,omitempty"`
	Stream   bool              `json:"stream,omitempty"`
	Options  *options          `json:"stream_options,omitempty"`
	CacheKey string            `json:"prompt_cache_key,omitempty"`
	Tier     string            `json:"service_tier,omitempty"`
	User     string            `json:"user,omitempty"`
	Safety   string            `json:"safety_identifier,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Store    *bool             `json:"store,omitempty"`
}

type options struct {
	Usage bool `json:"include_usage"`
}

type format struct {
	Type   string  `json:"type"`
	Schema *schema `json:"json_schema,omitempty"`
}

type schema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Strict *bool           `json:"strict,omitempty"`
}

type turn struct {
	Role     string            `json:"role,omitempty"`
	Content  json.RawMessage   `json:"content,omitempty"`
	Refusal  string            `json:"refusal,omitempty"`
	Thought  string            `json:"reasoning_content,omitempty"`
	Thought2 string            `json:"reasoning,omitempty"`
	Details  []json.RawMessage `json:"reasoning_details,omitempty"`
	Calls    []call            `json:"tool_calls,omitempty"`
	CallID   string            `json:"tool_call_id,omitempty"`
	Images   []part            `json:"images,omitempty"`
	Function *function         `json:"function_call,omitempty"`
}

type call struct {
	Index    *int      `json:"index,omitempty"`
	ID       string    `json:"id,omitempty"`
	Type     string    `json:"type,omitempty"`
	Function *function `json:"function,omitempty"`
	Custom   *custom   `json:"custom,omitempty"`
}

type function struct {
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"arguments,omitempty"` // a string; an object with some hosts
}

type custom struct {
	Name  string `json:"name,omitempty"`
	Input string `json:"input"`
}

type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text,omitempty"`
	Refusal  string          `json:"refusal,omitempty"`
	Image    *imageURL       `json:"image_url,omitempty"`
	Audio    *audio          `json:"input_audio,omitempty"`
	File     *file           `json:"file,omitempty"`
	Thinking json.RawMessage `json:"thinking,omitempty"` // some hosts
}

type imageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

type audio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

type file struct {
	ID   string `json:"file_id,omitempty"`
	Name string `json:"filename,omitempty"`
	Data string `json:"file_data,omitempty"`
}

type tool struct {
	Type     string        `json:"type"`
	Function *functionSpec `json:"function,omitempty"`
	Custom   *customSpec   `json:"custom,omitempty"`
}

type functionSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

type customSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Format      json.RawMessage `json:"format,omitempty"`
}
