package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

// catalogue lists the tools that an agent is granted.
func (d *door) catalogue(ctx context.Context, c content) error {
	all, err := d.h.o.Tools.Tools(ctx, d.key.app)
	if err != nil {
		return err
	}
	for _, t := range all {
		if !granted(c.agent, t.Name) {
			continue
		}
		name := t.Name
		shown := toolName(name)
		if _, taken := c.tools[shown]; taken {
			shown = hashedName(name)
		}
		c.tools[shown] = list[*sdk.Tool, sdk.ToolHandler](describe(t, shown), d.callTool(name))
	}
	return d.library(ctx, c, all)
}

func granted(a agent.Agent, tool string) bool {
	return slices.ContainsFunc(a.Grants.Tools, func(g agent.NamedGrant) bool { return g.Has(tool) })
}

// maxToolName is what MCP allows (SEP-986).
const maxToolName = 128

// toolName is how clients call a tool: SERVER.METHOD, where only A-Z, a-z, 0-9, _, - and . may stand. What is longer ends with a part of
// its digest, so that it is the same name each time.
func toolName(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r) {
			return r
		}
		return '_'
	}, name)
	if len(out) > maxToolName {
		return hashedName(name)
	}
	return out
}

func hashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	end := "_" + hex.EncodeToString(sum[:6])
	out := strings.Map(func(r rune) rune {
		if r < 0x80 {
			return r
		}
		return '_'
	}, name[:min(len(name), maxToolName-len(end))])
	return toolName(out + end)
}

// describe says of a tool what MCP has words for. Its effect is not what its server says of it, but what Skep judges it by.
func describe(t agent.Tool, shown string) *sdk.Tool {
	out := &sdk.Tool{
		Name: shown, Title: t.Title, Description: t.Description, InputSchema: inputSchema(t.Input), Annotations: annotations(t),
		Meta: sdk.Meta{"dev.skep/effect": t.Effect.String()},
	}
	if shown != t.Name {
		out.Meta["dev.skep/tool"] = t.Name
	}
	if s := objectSchema(t.Output); s != nil {
		out.OutputSchema = s
	}
	return out
}

func annotations(t agent.Tool) *sdk.ToolAnnotations {
	yes, no := true, false
	a := &sdk.ToolAnnotations{Title: t.Title, IdempotentHint: t.Idempotent, DestructiveHint: &no}
	switch t.Effect.Grade() {
	case agent.Read:
		a.ReadOnlyHint = true
	case agent.Modify:
	default:
		a.DestructiveHint = &yes
	}
	return a
}

var anyObject = json.RawMessage(`{"type":"object"}`)

// inputSchema returns a schema that clients take: of an object. What a server upstream wants as headers of its own is none of theirs.
func inputSchema(b json.RawMessage) json.RawMessage {
	if s := objectSchema(b); s != nil {
		return s
	}
	return anyObject
}

// objectSchema returns the schema of an object, or nil: clients of before 2026-07-28 take no other.
func objectSchema(b json.RawMessage) json.RawMessage {
	var s map[string]any
	if len(b) == 0 || json.Unmarshal(b, &s) != nil || s["type"] != "object" {
		return nil
	}
	if !strings.Contains(string(b), "x-mcp-header") {
		return b
	}
	dropKey(s, "x-mcp-header")
	return encode(s)
}

// dropKey takes a keyword out of a schema. A property of that name stays: it has a schema.
func dropKey(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		if _, property := v[key].(map[string]any); !property {
			delete(v, key)
		}
		for _, one := range v {
			dropKey(one, key)
		}
	case []any:
		for _, one := range v {
			dropKey(one, key)
		}
	}
}
