package mcp

import (
	"context"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

// ownFiles lists what files of sessions are read by.
func (d *door) ownFiles(c content) {
	const uri = "skep://sessions/{session}/files/{+path}"
	c.templates[uri] = list[*sdk.ResourceTemplate, sdk.ResourceHandler](&sdk.ResourceTemplate{
		Name: "files", Title: "Files of sessions", URITemplate: uri,
		Description: "Files that runs have left: what was too large for a result, images and other artifacts. Results link to them.",
	}, d.readFile)
}

// maxRead is the most of a file that is sent as a resource.
const maxRead = 4 << 20

// parseFile reads the URI of a file.
func parseFile(uri string) (session agent.SessionID, file string, ok bool) {
	rest, ok := strings.CutPrefix(uri, "skep://sessions/")
	id, escaped, found := strings.Cut(rest, "/files/")
	file, err := url.PathUnescape(escaped)
	if !ok || !found || err != nil || agent.CheckPath(file) != nil || id == "" || strings.ContainsAny(id, "/%") {
		return "", "", false
	}
	return agent.SessionID(id), file, true
}

func (d *door) readFile(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	session, file, ok := parseFile(req.Params.URI)
	if !ok {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	// Those of other agents are for those to show.
	if s, err := d.h.st.Session(ctx, d.key.app, session); err != nil || s.Agent != d.key.Agent {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	f, body, err := d.h.st.ReadFile(ctx, d.key.app, session, file, 0, maxRead)
	if err == nil && f.Size > maxRead {
		err = agent.Errorf(agent.Invalid, "the file has %d bytes, more than the %d that a resource may have: get it by the API, /v1/sessions/%s/files", f.Size, maxRead, session)
	}
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		return nil, rpcError(err)
	}
	out := &sdk.ResourceContents{URI: req.Params.URI, MIMEType: f.Type}
	if p := (agent.Payload{Type: f.Type, Body: body}); (p.IsText() || p.IsJSON()) && utf8.Valid(body) {
		out.Text = string(body)
	} else {
		out.Blob = body
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{out}}, nil
}

// rpcError is an error where MCP has no other way to tell of one.
func rpcError(err error) error {
	e := agent.AsError(err)
	code := int64(jsonrpc.CodeInternalError)
	if e.Kind == agent.Invalid || e.Kind == agent.NotFound {
		code = jsonrpc.CodeInvalidParams
	}
	msg := e.Msg
	if e.Hint != "" {
		msg += ": " + e.Hint
	}
	return &jsonrpc.Error{Code: code, Message: msg}
}
