package mcp

import (
	"cmp"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// maxFailure is how much of the text of a failure is passed on, in bytes.
const maxFailure = 16 << 10

// part is an item of a result's content (MCP 2025-11-25, tools, tool result).
type part struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     []byte `json:"data"` // base64 in JSON
	MIMEType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Title    string `json:"title"`

	Description string `json:"description"`
	Resource    *struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     []byte  `json:"blob"`
	} `json:"resource"`
}

// result makes a tool's result of the server's own JSON.
func (c *call) result(raw json.RawMessage) (agent.ToolResult, error) {
	var said struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		Asks       json.RawMessage   `json:"inputRequests"`
	}
	bad := func(err error) error {
		return agent.Wrap(agent.Failed, err, c.tool+" returned what is no result of MCP's")
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return agent.ToolResult{}, bad(err)
	}
	if len(said.Asks) > 0 {
		return agent.ToolResult{}, agent.Errorf(agent.Failed, "%s asks for something that Skep does not know", c.tool)
	}
	var blobs []agent.ToolBlob
	var values []any
	var texts []string
	for _, one := range said.Content {
		var p part
		if err := json.Unmarshal(one, &p); err != nil {
			return agent.ToolResult{}, bad(err)
		}
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
		values = append(values, p.value(one, &blobs))
	}
	text := strings.Join(texts, "\n")
	var value any = values
	isText := false
	switch {
	case said.IsError:
		if text == "" {
			text = cmp.Or(string(said.Structured), "it gave no reason")
		}
		return agent.ToolResult{}, agent.Errorf(agent.Failed, "%s", kept(text, maxFailure))
	case len(said.Structured) > 0 && string(said.Structured) != "null":
		value = said.Structured
	case len(texts) == len(values):
		if value, isText = text, true; json.Valid([]byte(text)) {
			value, isText = json.RawMessage(text), false
		}
	case len(values) == 1:
		value = values[0]
	}
	b, err := json.Marshal(value)
	if err != nil {
		return agent.ToolResult{}, bad(err)
	}
	return agent.ToolResult{Value: b, Text: isText, Blobs: blobs}, nil
}

// value is what stands for a part in a result of several; what is no JSON goes to blobs.
func (p part) value(raw json.RawMessage, blobs *[]agent.ToolBlob) any {
	blob := func(name, kind string, body []byte) any {
		*blobs = append(*blobs, agent.ToolBlob{Name: name, Type: cmp.Or(kind, "application/octet-stream"), Body: body})
		return map[string]int{"$blob": len(*blobs) - 1}
	}
	switch p.Type {
	case "text":
		return p.Text
	case "image", "audio":
		return blob("", p.MIMEType, p.Data)
	case "resource":
		r := p.Resource
		switch {
		case r == nil:
		case r.Text != nil:
			return map[string]string{"uri": r.URI, "type": cmp.Or(r.MIMEType, "text/plain"), "text": *r.Text}
		default:
			return blob(fileName(r.URI), r.MIMEType, r.Blob)
		}
	}
	return raw // a link to a resource, or of a kind that is newer than this
}

// fileName is the last part of a URI's path.
func fileName(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	name := path.Base(cmp.Or(u.Path, u.Opaque))
	if name == "." || name == "/" || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return kept(name, 200)
}
