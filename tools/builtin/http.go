package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

const httpOutput = `{"type":"object","properties":{"status":{"type":"integer"},"headers":{"type":"object","additionalProperties":{"type":"string"}},
	"json":{"description":"the body, when it is JSON"},"text":{"type":"string","description":"the body, when it is text"},"body":{"type":"object","description":"an artifact, when it is neither"}},
	"required":["status","headers"]}`

func httpTools() []tool {
	return []tool{
		{
			name: "get", title: "Read a URL", effect: agent.Read, again: true, output: httpOutput,
			description: "Make a GET request to a host that the agent is granted, and return the response. A value {{secret:NAME}} of a header is replaced on the way out.",
			input: `{"type":"object","properties":{"url":{"type":"string","description":"https://..."},"headers":{"type":"object","additionalProperties":{"type":"string"}}},
				"required":["url"],"additionalProperties":false}`,
			call: typed(func(ctx context.Context, o *tools.CallOptions, a httpArgs) (agent.ToolResult, error) {
				if a.Method != "" || a.JSON != nil || a.Text != nil {
					return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "http.get has no method and no body; http.request does"))
				}
				return request(ctx, o, a)
			}),
		},
		{
			name: "request", title: "Make an HTTP request", effect: agent.ModifyExecute, output: httpOutput,
			description: "Make an HTTP request to a host that the agent is granted, with any method and a body of JSON or text, and return the response.",
			input: `{"type":"object","properties":{"method":{"type":"string","description":"POST unless given"},"url":{"type":"string"},
				"headers":{"type":"object","additionalProperties":{"type":"string"}},"json":{"description":"the body, as JSON"},"text":{"type":"string","description":"the body, as text"}},
				"required":["url"],"additionalProperties":false}`,
			call: typed(func(ctx context.Context, o *tools.CallOptions, a httpArgs) (agent.ToolResult, error) {
				if a.Method = strings.ToUpper(a.Method); a.Method == "" {
					a.Method = "POST"
				}
				return request(ctx, o, a)
			}),
		},
	}
}

type httpArgs struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	JSON    json.RawMessage   `json:"json"`
	Text    *string           `json:"text"`
}

func request(ctx context.Context, o *tools.CallOptions, a httpArgs) (agent.ToolResult, error) {
	req := abi.HTTPRequest{Method: a.Method, URL: a.URL}
	if req.Method == "" {
		req.Method = "GET"
	}
	typedBody := false
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		req.Header = append(req.Header, [2]string{name, a.Headers[name]})
		typedBody = typedBody || strings.EqualFold(name, "Content-Type")
	}
	media := ""
	switch {
	case a.JSON != nil && a.Text != nil:
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "give the body as json or as text, not both"))
	case a.JSON != nil:
		req.Body, media = a.JSON, agent.TypeJSON
	case a.Text != nil:
		req.Body, media = []byte(*a.Text), agent.TypeText
	}
	if media != "" && !typedBody {
		req.Header = append(req.Header, [2]string{"Content-Type", media})
	}
	var res abi.HTTPResponse
	if err := door(ctx, o, abi.CallHTTP, req, &res); err != nil {
		return agent.ToolResult{}, err
	}
	return response(res)
}

func response(res abi.HTTPResponse) (agent.ToolResult, error) {
	headers, media := map[string]string{}, ""
	for _, h := range res.Header {
		name := strings.ToLower(h[0])
		if was, ok := headers[name]; ok {
			h[1] = was + ", " + h[1]
		}
		headers[name] = h[1]
	}
	media, _, _ = mime.ParseMediaType(headers["content-type"])
	out := map[string]any{"status": res.Status, "headers": headers}
	var blobs []agent.ToolBlob
	switch {
	case len(res.Body) == 0:
	case agent.Payload{Type: media}.IsJSON() && json.Valid(res.Body):
		out["json"] = json.RawMessage(bytes.TrimSpace(res.Body))
	case utf8.Valid(res.Body) && bytes.IndexByte(res.Body, 0) < 0:
		out["text"] = string(res.Body)
	default:
		if media == "" {
			media = agent.TypeBytes
		}
		out["body"] = json.RawMessage(`{"$blob":0}`)
		blobs = []agent.ToolBlob{{Type: media, Body: res.Body}}
	}
	v, err := value(out)
	v.Blobs = blobs
	return v, err
}
