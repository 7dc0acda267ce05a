package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

// failed is the result that tells a model what went wrong, and what to do about it.
func failed(err error) *sdk.CallToolResult {
	e := agent.AsError(err)
	return errorResult(e.Kind, e.Msg, e.Hint, e.Pos)
}

func errorResult(kind agent.Kind, msg, hint string, pos agent.Pos) *sdk.CallToolResult {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", kind, msg)
	if pos.Line > 0 {
		fmt.Fprintf(&b, "\nat %s", pos)
	}
	if hint != "" {
		fmt.Fprintf(&b, "\n%s", hint)
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: b.String()}}}
}

// runFailed is the result of a run that failed or was cancelled.
func runFailed(run agent.Run) *sdk.CallToolResult {
	res := errorResult(agent.Internal, fmt.Sprintf("run %s is %s", run.ID, run.Status), "", agent.Pos{})
	if e := run.Error; e != nil {
		res = errorResult(e.Kind, e.Msg, e.Hint, e.Pos)
	}
	res.Meta = sdk.Meta{"dev.skep/run": string(run.ID)}
	return res
}

// toolResult is the result of a run that called one tool, whose output is the tool's.
func (d *door) toolResult(ctx context.Context, f *follower, run agent.Run) *sdk.CallToolResult {
	tool, found := d.now().tools[f.req.Params.Name]
	res := &sdk.CallToolResult{Meta: sdk.Meta{"dev.skep/run": string(run.ID)}}
	out := agent.Payload{}
	if run.Output != nil {
		out = *run.Output
	}
	if !out.IsJSON() {
		res.Content = payloadContent(out)
		return res
	}
	value := json.RawMessage(bytes.TrimSpace(out.Body))
	structured := found && tool.entry.OutputSchema != nil
	if structured {
		if whole, err := d.whole(ctx, run.Session, value); err != nil {
			return failed(err)
		} else if whole != nil {
			value = whole
		}
	}
	if isObject(value) {
		res.StructuredContent = value
	}
	res.Content = append([]sdk.Content{&sdk.TextContent{Text: textOf(value)}}, d.artifacts(ctx, run.Session, value)...)
	return res
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// textOf is a JSON value as text: a string is its own.
func textOf(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil && len(value) > 0 && value[0] == '"' {
		return s
	}
	return string(value)
}

func payloadContent(p agent.Payload) []sdk.Content {
	switch {
	case len(p.Body) == 0:
		return []sdk.Content{}
	case p.IsText() || p.IsJSON():
		return []sdk.Content{&sdk.TextContent{Text: string(p.Body)}}
	case strings.HasPrefix(p.Type, "image/"):
		return []sdk.Content{&sdk.ImageContent{Data: p.Body, MIMEType: p.Type}}
	case strings.HasPrefix(p.Type, "audio/"):
		return []sdk.Content{&sdk.AudioContent{Data: p.Body, MIMEType: p.Type}}
	}
	return []sdk.Content{&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "skep://output", MIMEType: p.Type, Blob: p.Body}}}
}

// Bounds of what is sent of artifacts.
const (
	maxWhole  = 4 << 20 // of a result that has a schema, which a handle in its place would break
	maxImage  = 1 << 20
	maxImages = 4
	maxLinked = 32
)

// artifactOf reads a handle. It has three fields and no others.
func artifactOf(v map[string]any) (agent.Artifact, bool) {
	p, ok := v["artifact"].(string)
	t, typed := v["type"].(string)
	size, sized := v["size"].(float64)
	if !ok || !typed || !sized || len(v) != 3 || agent.CheckPath(p) != nil {
		return agent.Artifact{}, false
	}
	return agent.Artifact{Path: p, Type: t, Size: int64(size)}, true
}

// findArtifacts returns the handles in a value, in its order but for the fields of objects.
func findArtifacts(value []byte) (found []agent.Artifact) {
	if !bytes.Contains(value, []byte(`"artifact"`)) {
		return nil
	}
	var v any
	if json.Unmarshal(value, &v) != nil {
		return nil
	}
	var walk func(v any)
	walk = func(v any) {
		if len(found) == maxLinked {
			return
		}
		switch v := v.(type) {
		case map[string]any:
			if a, ok := artifactOf(v); ok {
				found = append(found, a)
				return
			}
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(v[name])
			}
		case []any:
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(v)
	return found
}

// whole returns the JSON that a result's handle stands for; nil when the result is none.
func (d *door) whole(ctx context.Context, session agent.SessionID, value []byte) (json.RawMessage, error) {
	var v map[string]any
	if !isObject(value) || json.Unmarshal(value, &v) != nil {
		return nil, nil
	}
	a, ok := artifactOf(v)
	if !ok || !strings.Contains(a.Type, "json") {
		return nil, nil
	}
	if a.Size > maxWhole {
		return nil, &agent.Error{
			Kind: agent.Exhausted, Msg: fmt.Sprintf("the result has %d bytes, too many to send; it is kept as %s", a.Size, fileURI(session, a.Path)),
			Hint: "read it as a resource, ask the tool for less, or call it in a script of execute that returns only what is needed",
		}
	}
	_, body, err := d.h.st.ReadFile(ctx, d.key.app, session, a.Path, 0, maxWhole)
	return body, err
}

// artifacts links to what a result holds handles of, and shows images.
func (d *door) artifacts(ctx context.Context, session agent.SessionID, value []byte) (out []sdk.Content) {
	images := 0
	for _, a := range findArtifacts(value) {
		if strings.HasPrefix(a.Type, "image/") && a.Size <= maxImage && images < maxImages {
			if _, body, err := d.h.st.ReadFile(ctx, d.key.app, session, a.Path, 0, maxImage); err == nil {
				images++
				out = append(out, &sdk.ImageContent{Data: body, MIMEType: a.Type})
			}
		}
		size := a.Size
		out = append(out, &sdk.ResourceLink{URI: fileURI(session, a.Path), Name: path.Base(a.Path), MIMEType: a.Type, Size: &size})
	}
	return out
}

// fileURI names a file of a session as a resource.
func fileURI(session agent.SessionID, p string) string {
	return "skep://sessions/" + url.PathEscape(string(session)) + "/files/" + (&url.URL{Path: p}).EscapedPath()
}
