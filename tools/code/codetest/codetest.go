// Package codetest holds the tools of thirteen real MCP servers, as they listed them in November 2026, for tests and figures.
package codetest

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

//go:embed testdata/tools-182.json.gz
var packed []byte

// Server is what one server listed.
type Server struct {
	Server  string `json:"server"`
	Package string `json:"package"` // of npm
	Version string `json:"version"`
	Tools   []struct {
		Name         string          `json:"name"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
		Annotations  json.RawMessage `json:"annotations"`
	} `json:"tools"`
}

// Servers returns them in the order in which they were asked.
func Servers() ([]Server, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("tools of real servers: %w", err)
	}
	var servers []Server
	if err := json.NewDecoder(z).Decode(&servers); err != nil {
		return nil, fmt.Errorf("tools of real servers: %w", err)
	}
	return servers, nil
}

// Tools returns the 182 tools of all servers, without effects, for nobody has classified them.
func Tools() ([]agent.Tool, error) {
	servers, err := Servers()
	if err != nil {
		return nil, err
	}
	var tools []agent.Tool
	for _, s := range servers {
		for _, t := range s.Tools {
			tools = append(tools, agent.Tool{Name: agent.ToolName(s.Server, t.Name), Server: s.Server, Method: t.Name, Title: t.Title,
				Description: t.Description, Input: t.InputSchema, Output: t.OutputSchema})
		}
	}
	return tools, nil
}

// Native returns the tools of all servers as a model is given them without code mode: name, description and input schema of each, as
// one array of JSON.
func Native() ([]byte, error) {
	servers, err := Servers()
	if err != nil {
		return nil, err
	}
	type native struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	var list []native
	for _, s := range servers {
		for _, t := range s.Tools {
			list = append(list, native{t.Name, t.Description, t.InputSchema})
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(list); err != nil {
		return nil, fmt.Errorf("tools of real servers: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
