package agent

import "time"

// ToolServerPatch changes the fields of a server of tools that are set. Lists and maps are replaced as a whole. Document is the text of an
// OpenAPI document, which whoever applies the patch keeps.
type ToolServerPatch struct {
	Description *string            `json:"description,omitempty"`
	Command     *[]string          `json:"command,omitempty"`
	Env         *map[string]string `json:"env,omitempty"`
	Dir         *string            `json:"dir,omitempty"`
	URL         *string            `json:"url,omitempty"`
	Header      *map[string]string `json:"header,omitempty"`
	Private     *bool              `json:"private,omitempty"`
	OAuth       *ToolOAuth         `json:"oauth,omitempty"`
	Document    *string            `json:"document,omitempty"`
	Agent       *string            `json:"agent,omitempty"`
	Trusted     *bool              `json:"trusted,omitempty"`
	Only        *[]string          `json:"only,omitempty"`
	Timeout     *time.Duration     `json:"timeout,omitempty"`
	Concurrency *int               `json:"concurrency,omitempty"`
}

// Apply makes the changes, but for Document.
func (p ToolServerPatch) Apply(s *ToolServer) {
	Set(&s.Description, p.Description)
	Set(&s.Command, p.Command)
	Set(&s.Env, p.Env)
	Set(&s.Dir, p.Dir)
	Set(&s.URL, p.URL)
	Set(&s.Header, p.Header)
	Set(&s.Private, p.Private)
	Set(&s.Agent, p.Agent)
	Set(&s.Trusted, p.Trusted)
	Set(&s.Only, p.Only)
	Set(&s.Timeout, p.Timeout)
	Set(&s.Concurrency, p.Concurrency)
	if p.OAuth != nil {
		s.OAuth = p.OAuth
	}
}

// Set changes a field when a patch has a value for it.
func Set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}
