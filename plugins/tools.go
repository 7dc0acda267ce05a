package plugins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skep-dev/skep/agent"
)

// Tool is a function of the package that other agents can call as a tool, once a server of kind agent names an agent on it. What it declares is
// believed: who lets the package in has read it.
type Tool struct {
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`  // JSON Schema 2020-12 of an object, which is the function's one argument; any object unless given
	Output      json.RawMessage `json:"output,omitempty"` // of what it returns
	Effect      agent.Effect    `json:"effect,omitempty"` // unclassified, which counts as execute, unless given
	Idempotent  bool            `json:"idempotent,omitempty"`
	Undo        string          `json:"undo,omitempty"` // function among these tools that takes a call of this one back; it gets {"args", "result"}
}

// Tools are the tools of a package, by function.
type Tools map[string]Tool

// What a package may declare.
const (
	maxPackageTools = 1000
	maxToolText     = 16 << 10
	maxToolSchema   = 256 << 10
)

// Check returns an Invalid error that says what is wrong. exports are the functions that the code has.
func (t Tools) Check(exports []string) error {
	if len(t) > maxPackageTools {
		return toolError("", "there are %d, more than %d", len(t), maxPackageTools)
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		tool := t[name]
		if !slices.Contains(exports, name) {
			e := toolError(name, "the code has no such function")
			if len(exports) > 0 {
				e.Hint = "it has " + clip(fmt.Sprint(exports))
			}
			return e
		}
		if len(tool.Description) > maxToolText || len(tool.Title) > maxToolText {
			return toolError(name, "its text has more than %d bytes", maxToolText)
		}
		if err := checkSchema(tool.Input, true); err != nil {
			return toolError(name, "input: %v", err)
		}
		if err := checkSchema(tool.Output, false); err != nil {
			return toolError(name, "output: %v", err)
		}
		if _, ok := t[tool.Undo]; tool.Undo != "" && (!ok || tool.Undo == name) {
			return toolError(name, "undo names %q, which is no other of these tools", clip(tool.Undo))
		}
	}
	return nil
}

func toolError(name, format string, args ...any) *agent.Error {
	where := "tools"
	if name != "" {
		where += "." + clip(name)
	}
	return &agent.Error{Kind: agent.Invalid, Msg: ManifestFile + ": " + where + ": " + fmt.Sprintf(format, args...), Pos: agent.Pos{File: ManifestFile}}
}

// checkSchema wants a JSON Schema 2020-12 that refers to nothing outside of itself.
func checkSchema(raw json.RawMessage, object bool) error {
	if len(raw) == 0 {
		return nil
	}
	if len(raw) > maxToolSchema {
		return fmt.Errorf("the schema has more than %d bytes", maxToolSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("the schema is no JSON")
	}
	if m, ok := doc.(map[string]any); object && (!ok || m["type"] != "object") {
		return fmt.Errorf(`the schema has to be of an object: {"type": "object", "properties": {...}}`)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // none: nothing is loaded
	if err := c.AddResource("skep:schema", doc); err != nil {
		return fmt.Errorf("the schema is not valid: %s", clip(err.Error()))
	}
	if _, err := c.Compile("skep:schema"); err != nil {
		return fmt.Errorf("the schema is not valid: %.300s", err)
	}
	return nil
}
