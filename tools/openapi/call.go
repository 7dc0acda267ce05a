package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"path"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
)

// maxExcerpt is what an error shows of a response, in bytes.
const maxExcerpt = 1 << 10

// Call makes a request. An answer of 400 and more is an error of kind Failed, with the beginning of its body.
func (s *source) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	op := s.doc.byName[method]
	if op == nil {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.NotFound, "the API has no operation %q", method))
	}
	key := ""
	if o != nil {
		key = o.Key
	}
	req, err := s.request(op, args, key)
	if err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err)
	}
	var left atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { left.Store(true) }})
	res, err := s.out.Do(ctx, &guard{s, req.origin}, &req.Request)
	if err != nil {
		if !left.Load() {
			err = tools.MarkUnsent(err)
		}
		return agent.ToolResult{}, err
	}
	defer res.Body.Close()
	return result(op, res)
}

// request is what an operation is asked by.
type request struct {
	egress.Request
	origin string
}

func (s *source) request(op *operation, raw json.RawMessage, key string) (*request, error) {
	args, err := object(raw)
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(raw), "secret:") && namesSecret(args) {
		return nil, agent.Errorf(agent.Invalid, "the arguments name a secret; only the record of the server can: its headers and its URL")
	}
	at := s.base
	if op.server != "" && s.record.URL == "" {
		if at, err = parseBase(op.server); err != nil {
			return nil, err
		}
	}
	url, header, err := op.place(args, s.record.Header, key)
	if err != nil {
		return nil, err
	}
	to, query, _ := strings.Cut(url, "?")
	query = strings.Trim(at.query+"&"+query, "&")
	if query != "" {
		to += "?" + query
	}
	req := &request{origin: at.origin}
	req.Request = egress.Request{
		Owner: egress.Owner{App: s.record.App, Agent: "tools:" + s.record.Name}, Method: op.method, URL: at.origin + at.path + to, Header: header,
	}
	for name, v := range s.record.Header {
		req.Header = append(req.Header, [2]string{name, placeholders(v)})
	}
	if !isSet(s.record.Header, "Accept") {
		req.Header = append(req.Header, [2]string{"Accept", "application/json, */*;q=0.5"})
	}
	return req, op.attach(req, args)
}

// attach adds the body.
func (op *operation) attach(req *request, args map[string]any) error {
	if op.body == nil || !methodHasBody(op.method) {
		return nil
	}
	v, given := args[op.body.arg]
	if !given {
		if op.body.required {
			return agent.Errorf(agent.Invalid, "%s is missing", op.body.arg)
		}
		return nil
	}
	b, media, err := op.body.encode(v)
	if err != nil {
		return err
	}
	req.Body, req.Length = bytes.NewReader(b), int64(len(b))
	req.Header = append(req.Header, [2]string{"Content-Type", media})
	return nil
}

// place puts parameters into the path, the query, headers and cookies. It returns the path and the query.
func (op *operation) place(args map[string]any, set map[string]string, key string) (string, [][2]string, error) {
	where, query, cookies := op.path, []string{}, []string{}
	header := [][2]string{}
	known := map[string]bool{}
	if op.body != nil {
		known[op.body.arg] = true
	}
	for _, p := range op.params {
		known[p.arg] = true
		v, given := args[p.arg]
		if !given && isKey(p) && key != "" {
			v, given = key, true
		}
		if !given || p.in == "header" && isSet(set, p.name) {
			if p.required && !given && (p.in != "header" || !isSet(set, p.name)) {
				return "", nil, agent.Errorf(agent.Invalid, "%s is missing", p.arg)
			}
			continue
		}
		switch p.in {
		case "path":
			s, err := p.inPath(v)
			if err != nil {
				return "", nil, err
			}
			where = strings.ReplaceAll(where, "{"+p.name+"}", s)
		case "query":
			query = append(query, p.inQuery(v)...)
		case "header":
			s, err := p.inHeader(v)
			if err != nil {
				return "", nil, err
			}
			header = append(header, [2]string{p.name, s})
		case "cookie":
			cookies = append(cookies, p.inCookie(v))
		}
	}
	for name := range args {
		if !known[name] {
			return "", nil, agent.Errorf(agent.Invalid, "%s has no argument %.80q", op.name, name)
		}
	}
	if len(cookies) > 0 && !isSet(set, "Cookie") {
		header = append(header, [2]string{"Cookie", strings.Join(cookies, "; ")})
	}
	if strings.ContainsAny(where, "{}") {
		return "", nil, agent.Errorf(agent.Invalid, "the path %s has a parameter that the document does not describe", op.path)
	}
	return where + "?" + strings.Join(query, "&"), header, nil
}

func object(raw json.RawMessage) (map[string]any, error) {
	args := map[string]any{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return args, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&args); err != nil || args == nil {
		return nil, agent.Errorf(agent.Invalid, "the arguments are no JSON object")
	}
	return args, nil
}

// namesSecret reports whether a text in v could be taken for the place of a secret.
func namesSecret(v any) bool {
	switch v := v.(type) {
	case string:
		low := strings.ToLower(v)
		return strings.Contains(low, "secret:") && strings.Contains(low, "{")
	case []any:
		for _, x := range v {
			if namesSecret(x) {
				return true
			}
		}
	case map[string]any:
		for k, x := range v {
			if namesSecret(k) || namesSecret(x) {
				return true
			}
		}
	}
	return false
}

// guard lets requests to the API's origin through, and puts the secrets of the record in.
type guard struct {
	s      *source
	origin string
}

func (g *guard) Allow(_ context.Context, r agent.Request) error {
	if want, err := agent.ParseTarget(g.origin); err != nil || !want.Has(agent.Request{Method: r.Method, Scheme: r.Scheme, Host: r.Host, Port: r.Port, Path: "/"}) {
		return &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("the API at %s leads on to %s, where it is not followed", g.origin, r.Origin()),
			Hint: "add the API under the URL that it leads to",
		}
	}
	return nil
}

func (g *guard) Sign(ctx context.Context, r *http.Request, to agent.Request) (egress.Cleaner, error) {
	if len(g.s.secrets) == 0 {
		return nil, nil
	}
	if g.s.opts.Sign == nil {
		return nil, agent.Errorf(agent.Unavailable, "this server keeps no secrets")
	}
	return g.s.opts.Sign(ctx, g.s.record, func(name string) error {
		if !g.s.secrets[name] {
			return agent.Errorf(agent.Denied, "the record of the server does not name the secret %q", name)
		}
		return nil
	}, r, to)
}

// result is what a response says: JSON as it is, text as text, anything else as bytes.
func result(op *operation, res *egress.Response) (agent.ToolResult, error) {
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return agent.ToolResult{}, err
	}
	media, params, _ := mime.ParseMediaType(res.Get("content-type"))
	if res.Status >= 400 {
		return agent.ToolResult{}, refused(op, res, b)
	}
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return agent.ToolResult{Value: json.RawMessage("null")}, nil
	case isJSON(media) && json.Valid(b):
		var out bytes.Buffer
		if err := json.Compact(&out, b); err != nil {
			return agent.ToolResult{}, err
		}
		return agent.ToolResult{Value: out.Bytes()}, nil
	case isText(media) && utf8.Valid(b) && (params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8") || strings.EqualFold(params["charset"], "us-ascii")):
		value, err := json.Marshal(string(b))
		return agent.ToolResult{Value: value, Text: true}, err
	}
	if media == "" {
		media = agent.TypeBytes
	}
	return agent.ToolResult{
		Value: json.RawMessage(`{"$blob":0}`), Blobs: []agent.ToolBlob{{Name: blobName(op, res), Type: media, Body: b}},
	}, nil
}

func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "xml") || isJSON(media) ||
		media == "application/x-ndjson" || media == "application/yaml" || media == "application/javascript"
}

// blobName is the file name that a response says, or that its path ends with.
func blobName(op *operation, res *egress.Response) string {
	if _, p, err := mime.ParseMediaType(res.Get("content-disposition")); err == nil && p["filename"] != "" {
		return path.Base(strings.ReplaceAll(p["filename"], `\`, "/"))
	}
	return op.name
}

// refused is the error of a response of 400 and more.
func refused(op *operation, res *egress.Response, b []byte) error {
	text := strings.ToValidUTF8(string(b[:min(len(b), maxExcerpt)]), "\ufffd")
	if len(b) > maxExcerpt {
		text += "..."
	}
	e := &agent.Error{Kind: agent.Failed, Msg: fmt.Sprintf("%s %s answered %d %s", op.method, op.path, res.Status, http.StatusText(res.Status))}
	if text = strings.TrimSpace(text); text != "" {
		e.Msg += ": " + text
	}
	switch res.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Hint = "the server may need a header, such as Authorization: Bearer ${secret:NAME}"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		e.Hint = "try again later"
		if after := res.Get("retry-after"); after != "" {
			e.Hint = fmt.Sprintf("try again after %.40s", after)
		}
	}
	return e
}
