package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// maxName is how long a tool's name may be, in bytes (MCP 2025-11-25, tools, names: 128 should be enough).
const maxName = 128

// offer reads a tool as its server wrote it.
func (s *source) offer(raw json.RawMessage) (tools.Offer, error) {
	var said struct {
		Name         string          `json:"name"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
		Annotations  json.RawMessage `json:"annotations"`
	}
	none := tools.Offer{}
	if err := json.Unmarshal(raw, &said); err != nil {
		return none, errors.New("it is not as MCP has it")
	}
	if err := checkName(said.Name); err != nil {
		return none, err
	}
	if len(said.Description) > s.o.Bounds.Description || len(said.Title) > s.o.Bounds.Description {
		return none, fmt.Errorf("its description has %d bytes, more than %d", max(len(said.Description), len(said.Title)), s.o.Bounds.Description)
	}
	input, err := checkSchema(said.InputSchema, s.o.Bounds.Schema, true)
	if err != nil {
		return none, fmt.Errorf("its input schema %w", err)
	}
	var output json.RawMessage
	if len(said.OutputSchema) > 0 && string(said.OutputSchema) != "null" {
		if output, err = checkSchema(said.OutputSchema, s.o.Bounds.Schema, false); err != nil {
			return none, fmt.Errorf("its output schema %w", err)
		}
	}
	canonical, err := canonical(raw)
	if err != nil {
		return none, err
	}
	hints, title := annotations(said.Annotations)
	return tools.Offer{
		Tool: agent.Tool{
			Method: said.Name, Title: cmp.Or(said.Title, title), Description: said.Description, Input: input, Output: output,
			Digest: agent.DigestOf(canonical),
		},
		Hints: hints,
	}, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case len(name) > maxName:
		return fmt.Errorf("its name has %d bytes, more than %d", len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("its name has other characters than the visible ones of ASCII")
	}
	return nil
}

// annotations reads hints, each only when it is there and true or false.
func annotations(raw json.RawMessage) (h *tools.Hints, title string) {
	var said map[string]json.RawMessage
	if json.Unmarshal(raw, &said) != nil {
		return nil, ""
	}
	_ = json.Unmarshal(said["title"], &title)
	h = &tools.Hints{}
	any := false
	for name, to := range map[string]**bool{
		"readOnlyHint": &h.ReadOnly, "destructiveHint": &h.Destructive, "idempotentHint": &h.Idempotent, "openWorldHint": &h.OpenWorld,
	} {
		switch string(said[name]) {
		case "true", "false":
			yes := string(said[name]) == "true"
			*to, any = &yes, true
		}
	}
	if !any {
		h = nil
	}
	return h, title
}

// canonical writes a JSON value in one way: without space, members sorted, numbers as they were.
func canonical(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is not JSON")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
