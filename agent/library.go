package agent

// Prompt is a text that a server of tools makes for a model (MCP).
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
}

// PromptArgument is a text that a prompt takes.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// Resource is something that a server of tools has to read (MCP).
type Resource struct {
	URI         string `json:"uri"` // of a template, that of RFC 6570
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Type        string `json:"type,omitempty"` // media type
	Size        int64  `json:"size,omitempty"` // as its server says; 0 where it does not
}
