package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

// Unmarshal decodes a request's JSON. Its error is of kind Invalid and names the field.
func Unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return agent.Errorf(agent.Invalid, "%s: cannot be %s", raw.Show(wrong.Field), wrong.Value)
	}
	return agent.Wrap(agent.Invalid, err, "the body is not valid JSON")
}

// Some is v, or nil when it is null.
func Some(v json.RawMessage) json.RawMessage {
	if bytes.Equal(v, []byte("null")) {
		return nil
	}
	return v
}

// Grammar is what a tool takes that takes free text: the canonical form of wire.Tool.Schema with Custom.
type Grammar struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// ChoiceWord reads a choice of tools that is one word.
func ChoiceWord(field, word string) (wire.Choice, error) {
	switch word {
	case "auto":
		return wire.Choice{Kind: wire.ChoiceAuto}, nil
	case "none":
		return wire.Choice{Kind: wire.ChoiceNone}, nil
	case "required", "any":
		return wire.Choice{Kind: wire.ChoiceAny}, nil
	}
	return wire.Choice{}, agent.Errorf(agent.Invalid, "%s: must be auto, none or required", field)
}

// Word is the word of a choice that names no tool; "" when nothing is said.
func Word(c wire.Choice) string {
	switch c.Kind {
	case wire.ChoiceAuto:
		return "auto"
	case wire.ChoiceNone:
		return "none"
	case wire.ChoiceAny:
		return "required"
	}
	return ""
}

// Schema is the schema of a tool's arguments, that of no arguments when there is none.
func Schema(s json.RawMessage) json.RawMessage {
	if len(s) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return s
}

// Marshal encodes v, and leaves <, > and & as they are.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// JSON is Marshal for what is known to be encodable.
func JSON(v any) json.RawMessage {
	b, err := Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// String is s as JSON.
func String(s string) json.RawMessage { return raw.AppendString(nil, s) }

// NewID makes an id where a host gave none.
func NewID(prefix string) string { return prefix + rand.Text() }
