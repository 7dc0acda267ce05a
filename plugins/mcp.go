package plugins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// MCP is what an agent on the package serves as an MCP server of its own, at /mcp/serve/AGENT. The fields of the lists are those of the lists
// of MCP (2025-11-25, schema.ts), by their names there; beside them stands the function of the code that answers.
type MCP struct {
	Title        string        `json:"title,omitempty"`
	Instructions string        `json:"instructions,omitempty"`
	Tools        []MCPTool     `json:"tools,omitempty"`
	Prompts      []MCPPrompt   `json:"prompts,omitempty"`
	Resources    []MCPResource `json:"resources,omitempty"`
	Templates    []MCPTemplate `json:"resourceTemplates,omitempty"`
	Complete     string        `json:"complete,omitempty"` // function that completes arguments of prompts and templates
}

// MCPTool is one tool. Without a function it is the one of the tool's name.
type MCPTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"inputSchema,omitempty"` // of an object; any object unless given
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	Annotations *MCPAnnotations `json:"annotations,omitempty"`
	Requires    []string        `json:"requires,omitempty"` // of the client: "elicitation", "sampling", "roots"
	Function    string          `json:"function,omitempty"`
}

// MCPAnnotations are hints of a tool's effects. A nil one is not given.
type MCPAnnotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

// MCPPrompt is one prompt. Without a function it is the one of the prompt's name.
type MCPPrompt struct {
	Name        string        `json:"name"`
	Title       string        `json:"title,omitempty"`
	Description string        `json:"description,omitempty"`
	Arguments   []MCPArgument `json:"arguments,omitempty"`
	Function    string        `json:"function,omitempty"`
}

// MCPArgument is an argument of a prompt.
type MCPArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// MCPResource is one resource.
type MCPResource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Type        string `json:"mimeType,omitempty"`
	Size        int64  `json:"size,omitempty"`
	Function    string `json:"function"`
}

// MCPTemplate is a family of resources. Its URI may hold {name}, which stands for a part without slashes, and {+name}, which may have them
// (RFC 6570, levels 1 and 2).
type MCPTemplate struct {
	URI         string `json:"uriTemplate"`
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Type        string `json:"mimeType,omitempty"`
	Function    string `json:"function"`
}

const (
	maxMCP       = 1000      // entries of one list
	maxMCPSchema = 256 << 10 // bytes
	maxMCPText   = 16 << 10  // of a description
	maxMCPName   = 128
)

var (
	mcpNameRE   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	mcpVarRE    = regexp.MustCompile(`\{(\+?)([A-Za-z0-9_]{1,64})\}`)
	mcpURIRE    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]+$`)
	mcpHeaderRE = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$")
)

// Check returns an Invalid error that says what is wrong, and fills in functions that go without saying. exports are what the code has.
func (m *MCP) Check(exports []string) error {
	if m == nil {
		return nil
	}
	c := mcpCheck{exports: exports, seen: map[string]bool{}}
	c.list("tools", len(m.Tools), func(i int) {
		t := &m.Tools[i]
		c.name(t.Name, &t.Function)
		c.text(t.Description)
		c.input(&t.Input)
		if t.Output != nil {
			c.schema("outputSchema", t.Output)
		}
		for _, r := range t.Requires {
			if !slices.Contains([]string{"elicitation", "sampling", "roots"}, r) {
				c.fail(`requires %q, where only "elicitation", "sampling" and "roots" are known`, clip(r))
			}
		}
	})
	c.list("prompts", len(m.Prompts), func(i int) {
		p := &m.Prompts[i]
		c.name(p.Name, &p.Function)
		c.text(p.Description)
		for _, a := range p.Arguments {
			if a.Name == "" || len(a.Name) > maxMCPName {
				c.fail("an argument's name has 1 to %d bytes", maxMCPName)
			}
		}
	})
	c.list("resources", len(m.Resources), func(i int) {
		r := &m.Resources[i]
		c.uri(r.URI, r.URI)
		c.label(r.Name)
		c.text(r.Description)
		c.function(r.Function)
	})
	c.list("resourceTemplates", len(m.Templates), func(i int) {
		t := &m.Templates[i]
		plain := mcpVarRE.ReplaceAllString(t.URI, "x")
		c.uri(t.URI, plain)
		if plain == t.URI {
			c.fail("uriTemplate %q has no {name}: make it a resource", clip(t.URI))
		}
		c.label(t.Name)
		c.text(t.Description)
		c.function(t.Function)
	})
	if m.Complete != "" {
		c.where = "complete"
		c.function(m.Complete)
	}
	return c.err
}

// Match returns what the names of a template stand for in a URI. ok is false where the URI is none of its.
func (t MCPTemplate) Match(uri string) (values map[string]string, ok bool) {
	var re strings.Builder
	var names []string
	last := 0
	re.WriteString("^")
	for _, at := range mcpVarRE.FindAllStringSubmatchIndex(t.URI, -1) {
		re.WriteString(regexp.QuoteMeta(t.URI[last:at[0]]))
		if at[3] > at[2] {
			re.WriteString("(.+)")
		} else {
			re.WriteString("([^/?#]+)")
		}
		names = append(names, t.URI[at[4]:at[5]])
		last = at[1]
	}
	re.WriteString(regexp.QuoteMeta(t.URI[last:]) + "$")
	found := regexp.MustCompile(re.String()).FindStringSubmatch(uri)
	if found == nil {
		return nil, false
	}
	values = make(map[string]string, len(names))
	for i, name := range names {
		v, err := url.PathUnescape(found[i+1])
		if err != nil {
			return nil, false
		}
		values[name] = v
	}
	return values, true
}

// mcpCheck keeps the first thing that is wrong.
type mcpCheck struct {
	exports []string
	seen    map[string]bool
	where   string
	err     error
}

func (c *mcpCheck) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("%s: mcp.%s: %s", ManifestFile, c.where, fmt.Sprintf(format, args...)), Pos: agent.Pos{File: ManifestFile},
		}
	}
}

func (c *mcpCheck) list(what string, n int, each func(int)) {
	clear(c.seen)
	if c.where = what; n > maxMCP {
		c.fail("there are %d, more than %d", n, maxMCP)
		return
	}
	for i := range n {
		c.where = fmt.Sprintf("%s[%d]", what, i)
		each(i)
	}
}

func (c *mcpCheck) name(name string, function *string) {
	if !mcpNameRE.MatchString(name) {
		c.fail("name %q is not valid: use 1 to 128 of A-Z, a-z, 0-9, _, - and .", clip(name))
	}
	c.once("name", name)
	if *function == "" {
		*function = name
	}
	c.function(*function)
}

func (c *mcpCheck) label(name string) {
	if name == "" || len(name) > maxMCPName {
		c.fail("a name has 1 to %d bytes", maxMCPName)
	}
}

func (c *mcpCheck) text(s string) {
	if len(s) > maxMCPText {
		c.fail("the description has %d bytes, more than %d", len(s), maxMCPText)
	}
}

func (c *mcpCheck) once(what, s string) {
	if c.seen[s] {
		c.fail("%s %q is there twice", what, clip(s))
	}
	c.seen[s] = true
}

func (c *mcpCheck) function(name string) {
	if !slices.Contains(c.exports, name) {
		c.fail("function %q is not in the code, which has: %s", clip(name), clip(strings.Join(c.exports, ", ")))
	}
}

func (c *mcpCheck) uri(written, plain string) {
	if _, err := url.Parse(plain); err != nil || len(written) > 1024 || !mcpURIRE.MatchString(plain) {
		c.fail("%q is no absolute URI", clip(written))
	}
	c.once("uri", written)
}

// schema checks that a schema is a JSON object of a fair size. What it means is for those who read it.
func (c *mcpCheck) schema(what string, b json.RawMessage) (fields map[string]json.RawMessage) {
	if len(b) > maxMCPSchema {
		c.fail("%s has %d bytes, more than %d", what, len(b), maxMCPSchema)
	} else if err := json.Unmarshal(b, &fields); err != nil || fields == nil {
		c.fail("%s is not a JSON object", what)
	}
	return fields
}

func (c *mcpCheck) input(b *json.RawMessage) {
	if len(*b) == 0 {
		*b = json.RawMessage(`{"type":"object"}`)
		return
	}
	fields := c.schema("inputSchema", *b)
	if fields != nil && !bytes.Equal(fields["type"], []byte(`"object"`)) {
		c.fail(`inputSchema must have "type": "object"`)
	}
	c.headers(*b, map[string]bool{}, 0)
}

// headers checks which arguments are sent as headers, too (MCP 2026-07-28, x-mcp-header).
func (c *mcpCheck) headers(b json.RawMessage, seen map[string]bool, depth int) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if depth > 32 || json.Unmarshal(b, &s) != nil {
		return
	}
	for name, prop := range s.Properties {
		var p struct {
			Type   json.RawMessage `json:"type"`
			Header json.RawMessage `json:"x-mcp-header"`
		}
		if json.Unmarshal(prop, &p) != nil {
			continue
		}
		if p.Header != nil {
			var header, typ string
			if json.Unmarshal(p.Header, &header) != nil || !mcpHeaderRE.MatchString(header) || seen[strings.ToLower(header)] {
				c.fail("inputSchema: x-mcp-header of %q is no name of a header, or one that is taken", clip(name))
			}
			if json.Unmarshal(p.Type, &typ) != nil || !slices.Contains([]string{"string", "integer", "boolean"}, typ) {
				c.fail("inputSchema: %q has an x-mcp-header, and so must be a string, an integer or a boolean", clip(name))
			}
			seen[strings.ToLower(header)] = true
		}
		c.headers(prop, seen, depth+1)
	}
}
