package turn

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Form is an answer in the form that a JSON schema of an object asks for: text is such an object, or, where the schema has one field that is a text, the text.
func Form(schema json.RawMessage, text string) (any, error) {
	var s struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // a schema that cannot be read has no fields
	var object map[string]any
	if strings.HasPrefix(strings.TrimSpace(text), "{") && json.Unmarshal([]byte(text), &object) == nil {
		return object, nil
	}
	if len(s.Properties) == 1 {
		for name, p := range s.Properties {
			if p.Type == "string" || p.Type == "" {
				return map[string]any{name: text}, nil
			}
			var v any
			if json.Unmarshal([]byte(text), &v) == nil {
				return map[string]any{name: v}, nil
			}
		}
	}
	if len(s.Properties) == 0 {
		return map[string]any{}, nil
	}
	return nil, agent.Errorf(agent.Invalid, "the answer has to be a JSON object that fits %.1000s", schema)
}
